"""A sink that dies at a chosen step, once for each order that it finds.

Option `orders`: a folder.  Each file in it is an order, `<step>:<when>:<whom>[:<batch>]`.  Orders
are obeyed in the order of their names, and removed when they happen.

step   a function of `delivery`, or `write` for the whole work of a task
when   before, after; within: a task has taken some of its rows; a number: ms after its begin
whom   worker: the Python process of the step; driver: the JVM, too
batch  the earliest micro-batch for it
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql.types import StructType
from pyspark_kafkalog.sink import delivery
from pyspark_kafkalog.sink import options as write_options
from pyspark_kafkalog.sink.options import WriteOptions
from pyspark_kafkalog.sink.writers import KafkalogStreamWriter, _micro_batch
from pyspark_kafkalog.source import KafkalogSource


class CuttingSource(KafkalogSource):
    """`format("kafkalog_cutting")`."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog_cutting"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkalogStreamWriter:
        given = dict(self.options)
        orders = Path(given.pop("orders"))
        return CuttingWriter(write_options.parse(given, True), schema, overwrite, orders)


class Order(NamedTuple):
    path: Path
    step: str
    when: str
    whom: str
    batch: int


def next_order(orders: Path) -> Order | None:
    """The first remaining order."""
    for path in sorted(orders.iterdir()):
        try:
            step, when, whom, *batch = path.read_text().split(":")
        except FileNotFoundError:
            continue  # another task obeys it
        return Order(path, step, when, whom, int(batch[0]) if batch else 0)
    return None


class CuttingWriter(KafkalogStreamWriter):
    def __init__(
        self, options: WriteOptions, schema: StructType, overwrite: bool, orders: Path
    ) -> None:
        super().__init__(options, schema, overwrite)
        self._orders = orders

    def write(self, iterator: Iterator[Any]) -> Any:
        order = self._order(int(_micro_batch()[1]))
        if order is None or order.step != "write":
            return super().write(iterator)
        if order.when == "within":
            return super().write(_some(iterator, order))
        return _cut(super().write, order)(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        order = self._order(batchId)
        real = getattr(delivery, order.step, None) if order else None
        if order is None or real is None:
            super().commit(messages, batchId)
            return
        setattr(delivery, order.step, _cut(real, order))
        try:
            super().commit(messages, batchId)
        finally:
            setattr(delivery, order.step, real)

    def _order(self, batch: int) -> Order | None:
        order = next_order(self._orders)
        return order if order is not None and order.batch <= batch else None


def _cut(real: Callable[..., Any], order: Order) -> Callable[..., Any]:
    """The step, which kills its process."""

    def cut(*args: Any) -> Any:
        if order.when == "before":
            _die(order)
        elif order.when.isdecimal():
            threading.Timer(int(order.when) / 1000, _die, (order,)).start()
        found = real(*args)
        if order.when == "after":
            if order.step == "_target":
                found.__enter__()
            _die(order)
        return found

    return cut


def _some(rows: Iterator[Any], order: Order) -> Iterator[Any]:
    yield next(rows)
    _die(order)
    yield from rows


def _die(order: Order) -> None:
    """Die, unless another process already obeyed this order."""
    try:
        order.path.unlink()
    except FileNotFoundError:
        return
    if order.whom == "driver":
        os.kill(_java(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _java() -> int:
    """The driver's process, an ancestor of this one."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid
