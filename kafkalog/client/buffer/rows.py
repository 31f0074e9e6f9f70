"""Many records at once, as they are put into the open batches of a topic: by C, some a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from kafkalog import errors
from kafkalog._native import direct, ffi, lib
from kafkalog.batch.columns import Columns
from kafkalog.batch.decode import body_of, decoded_records
from kafkalog.batch.walk import whole_batches
from kafkalog.types import Record

__all__ = ["BatchRows", "ColumnRows", "Put", "RowSource"]

_columns, _records = direct("intake_many"), direct("intake_batch")


class Put(NamedTuple):
    """What became of the next rows."""

    status: int
    """KL_OK: some went in, go on; else `partition` needs a batch, or a look at what it took."""
    partition: int
    size: int
    """Bytes of the row that did not go in: its key, value and headers."""


class RowSource(Protocol):
    """Rows in their order."""

    def more(self) -> bool:
        """Whether there is another."""

    def put(self, intake: Any, partition: int) -> Put:
        """Put rows into the open batches; `partition` -1: by their keys."""

    def next_row(self) -> str:
        """The name of the row that is next, for a message."""


class ColumnRows:
    """Columns of values, keys and times."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        pointers = (columns.native, columns.cursor)
        self._native = [int(ffi.cast("uintptr_t", one)) for one in pointers]

    def more(self) -> bool:
        return self._columns.row < self._columns.count

    def put(self, intake: Any, partition: int) -> Put:
        return Put(*_columns(intake, *self._native, partition))

    def next_row(self) -> str:
        return f"row {self._columns.row}"


class BatchRows:
    """The records of whole batches, with the times, keys and headers that they have."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._bytes = len(data)
        self._batches = whole_batches(data)
        self._taken = self._position = 0
        self._offset = self._base_ms = self._fixed_ms = -1
        self._records = b""
        self._batch: Any = None

    def more(self) -> bool:
        """Raises: ArgumentError for a control batch or half a batch; CorruptMessage,
        UnsupportedForMessageFormat, UnsupportedCompressionType."""
        while self._position == len(self._records):
            found = next(self._batches, None)
            if found is None:
                if self._taken < self._bytes:
                    raise errors.ArgumentError(
                        f"batches: found {self._bytes - self._taken} bytes behind the last whole "
                        "batch, wanted whole batches"
                    )
                return False
            self._begin(*found)
        return True

    def _begin(self, batch: Any, raw: memoryview) -> None:
        if batch.attributes & lib.KL_ATTR_CONTROL:
            raise errors.ArgumentError(
                f"batches: found a control batch at offset {batch.base_offset}; a producer "
                "writes its own"
            )
        self._batch = batch
        self._taken += len(raw)
        self._records, self._position = body_of(batch, raw), 0
        self._offset, self._base_ms = int(batch.base_offset), int(batch.base_timestamp)
        by_log = batch.attributes & lib.KL_ATTR_LOG_APPEND_TIME
        self._fixed_ms = int(batch.max_timestamp) if by_log else -1

    def records(self) -> Iterator[Record]:
        """The records one by one, in place of `put`.  Raises: as `more`."""
        while self.more():
            self._position = len(self._records)
            yield from decoded_records(self._batch, self._records)

    def put(self, intake: Any, partition: int) -> Put:
        *put, self._position = _records(
            intake, self._records, self._position, self._base_ms, self._fixed_ms, partition
        )
        return Put(*put)

    def next_row(self) -> str:
        return f"a record of the batch at offset {self._offset}"
