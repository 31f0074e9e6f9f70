"""The writers that Spark calls: tasks stage, the driver delivers or discards.

Plain values only, since writers travel to the executors.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from ..batch import warn_ignored
from ..errors import BadOption
from ..worker import settle
from . import staging
from .delivery import deliver
from .options import WriteOptions
from .rows import SinkError, check_schema
from .staging import Staged, stage

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType


class KafkalogWriter(datasource.DataSourceArrowWriter):
    """A batch write: all of it in one transaction, or nothing."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise BadOption(
                "mode 'overwrite': a log is only appended to; use mode('append'), and delete the "
                "topic first if its records are to go"
            )
        check_schema(schema, options)
        self._options = options
        self._sink = options.sink_id or f"spark-write-{uuid.uuid4().hex}"
        self._batch = "0" if options.batch_id is None else str(options.batch_id)
        warn_ignored(options.ignored)
        staging.sweep(options, time.time())
        settle()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return stage(iterator, self._options, self._sink, self._batch, run=_run())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write what all tasks staged."""
        deliver(self._options, self._sink, self._options.batch_id, _staged(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard what was staged.  What was delivered stays."""
        staging.forget(self._options, self._sink, self._batch)


_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)
"""Spark 4.0 has none: streams are written from 4.1 on."""


class KafkalogStreamWriter(_StreamWriter or object):  # type: ignore[misc]
    """A streaming write: each micro-batch in one transaction, and once, however often it runs."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if _StreamWriter is None:
            raise BadOption("writeStream: wanted PySpark 4.1 or later")
        if overwrite:
            raise BadOption(
                "output mode 'complete': a log is only appended to; use outputMode('append')"
            )
        check_schema(schema, options)
        self._options = options
        _warn_once(options.ignored)
        settle()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        query, batch = _micro_batch()
        sink = self._options.sink_id or query
        below = _local("spark.sql.streaming.checkpointLocation") or ""
        return stage(iterator, self._options, sink, batch, query, checkpoints=below)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Write what all tasks of a micro-batch staged, unless the target has it."""
        staged = _staged(messages)
        for sink in sorted({one.sink for one in staged}):
            mine = [one for one in staged if one.sink == sink]
            deliver(self._options, sink, batchId, mine)
        staging.sweep(self._options, time.time())

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Discard what was staged.  What was delivered stays: Spark also calls this if a commit
        failed after it had been made."""
        for one in _staged(messages):
            staging.forget(self._options, one.sink, one.batch)


@lru_cache(maxsize=64)
def _warn_once(ignored: tuple[str, ...]) -> None:
    """Each micro-batch has its own two writers."""
    warn_ignored(ignored)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """In the order of the tasks."""
    return [one for one in messages if isinstance(one, Staged)]


def _micro_batch() -> tuple[str, str]:
    """The id of the query, which its checkpoint keeps, and the number of the micro-batch."""
    query, batch = _local("sql.streaming.queryId"), _local("streaming.sql.batchId")
    if query is None or batch is None:
        raise SinkError("this Spark does not say which micro-batch of which query a task is of")
    return query, batch


def _run() -> str:
    """The run of the query whose foreachBatch makes a batch write; empty outside one."""
    return _local("spark.jobGroup.id") or "" if _local("sql.streaming.queryId") else ""


def _local(name: str) -> str | None:
    """A property of the job that this task belongs to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    found: str | None = context.getLocalProperty(name) if context else None
    return found
