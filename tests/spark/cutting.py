"""A sink that dies at a chosen step: once, as its file of orders says.

Options `cut`: `<step>:<before|after>:<worker|driver>`, and `cutonce`: a file that is removed when
it happens.  Steps are functions of `delivery`, or `write` for the whole work of a task.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType
from pyspark_kafkalog.sink import delivery
from pyspark_kafkalog.sink import options as write_options
from pyspark_kafkalog.sink.options import WriteOptions
from pyspark_kafkalog.sink.writers import KafkalogStreamWriter
from pyspark_kafkalog.source import KafkalogSource


class CuttingSource(KafkalogSource):
    """`format("kafkalog_cutting")`."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog_cutting"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkalogStreamWriter:
        given = dict(self.options)
        cut, once = given.pop("cut"), given.pop("cutonce")
        options = write_options.parse(given, True)
        return CuttingWriter(options, schema, overwrite, cut, once)


class CuttingWriter(KafkalogStreamWriter):
    def __init__(
        self, options: WriteOptions, schema: StructType, overwrite: bool, cut: str, once: str
    ) -> None:
        super().__init__(options, schema, overwrite)
        self._step, self._when, self._whom = cut.split(":")
        self._once = once

    def write(self, iterator: Iterator[Any]) -> Any:
        return self._cut("write", super().write)(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        real = getattr(delivery, self._step, None)
        if real is None:
            super().commit(messages, batchId)
            return
        setattr(delivery, self._step, self._cut(self._step, real))
        try:
            super().commit(messages, batchId)
        finally:
            setattr(delivery, self._step, real)

    def _cut(self, step: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def cut(*args: Any) -> Any:
            if step != self._step or not Path(self._once).exists():
                return real(*args)
            if self._when == "after":
                found = real(*args)
                if step == "_target":
                    found.__enter__()
            Path(self._once).unlink()
            if self._whom == "driver":
                os.kill(_java(), signal.SIGKILL)
            os._exit(9)

        return cut


def _java() -> int:
    """The driver's process, of which this one comes."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid
