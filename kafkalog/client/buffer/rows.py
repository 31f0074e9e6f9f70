"""Many records at once: C puts them into the open batches of a topic, many per call."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from kafkalog import errors
from kafkalog._native import check, direct, ffi, lib
from kafkalog.batch.columns import Columns, Rows
from kafkalog.batch.decode import body_of, decoded_records
from kafkalog.batch.walk import whole_batches
from kafkalog.types import Record

__all__ = ["BatchRows", "ColumnRows", "ListRows", "Put", "RowSource", "rows_of"]

_columns, _records = direct("intake_many"), direct("intake_batch")
_ahead = direct("intake_ahead")
_plain_bytes = direct("plain_bytes_direct")
PART_ROWS, PART_BYTES = 4_096, 1 << 20
"""About how much of a list is joined at a time."""
Part = tuple[list[Any], list[Any] | None]
"""Values, and keys if there are any."""


class Put(NamedTuple):
    """The outcome of putting the next rows."""

    status: int
    """KL_OK: some went in, go on; KL_E_BUFFER_TOO_SMALL: `partition` needs a batch; KL_E_STALE: it
    has another one, so first collect what the last one took."""
    partition: int
    size: int
    """Bytes of the row that did not go in: its key, value and headers."""


class RowSource(Protocol):
    """Rows in their order."""

    def more(self) -> bool:
        """True if there is another."""

    def put(self, intake: Any, partition: int) -> Put:
        """Put rows into the open batches; `partition` -1: by their keys."""

    def fill(self, intake: Any, memory: Any, partition: int, wanted: int) -> bool:
        """Put rows, without the GIL, into the memory of a batch of `partition` that no other thread
        has yet; `wanted`: as `partition` of `put`.  Returns whether it is full."""

    def next_row(self) -> str:
        """The name of the next row, for a message."""


class ColumnRows:
    """Columns of values, keys and times."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.count = columns.count
        pointers = (columns.native, columns.cursor)
        self._native = [int(ffi.cast("uintptr_t", one)) for one in pointers]

    def more(self) -> bool:
        return self._columns.row < self._columns.count

    def put(self, intake: Any, partition: int) -> Put:
        return Put(*_columns(intake, *self._native, partition))

    def fill(self, intake: Any, memory: Any, partition: int, wanted: int) -> bool:
        status, full = _ahead(intake, memory, *self._native, partition, wanted)
        check(status)
        return bool(full)

    def next_row(self, before: int = 0) -> str:
        """`before`: the number of rows before these."""
        return f"row {before + self._columns.row}"


class ListRows:
    """Lists of values and keys, bytes and None: joined to columns one part at a time."""

    def __init__(self, parts: deque[Part], timestamp_ms: int) -> None:
        """`parts`: at least one; `timestamp_ms`: of all rows."""
        self._parts = parts
        self._timestamp_ms = timestamp_ms
        self._before = 0
        self._part = self._next()

    def _next(self) -> ColumnRows:
        values, keys = self._parts.popleft()
        return ColumnRows(Columns(values, keys, default_timestamp_ms=self._timestamp_ms))

    def more(self) -> bool:
        if not self._part.more() and self._parts:
            self._before += self._part.count
            self._part = self._next()
        return self._part.more()

    def put(self, intake: Any, partition: int) -> Put:
        return self._part.put(intake, partition)

    def fill(self, intake: Any, memory: Any, partition: int, wanted: int) -> bool:
        return self._part.fill(intake, memory, partition, wanted)

    def next_row(self) -> str:
        return self._part.next_row(self._before)


def _parts(values: Sequence[Any], keys: Sequence[Any] | None) -> deque[Part] | None:
    """Lists of the same length in parts; None: they hold something else."""
    found: deque[Part] = deque()
    given = [values] if keys is None else [values, keys]
    for begin in range(0, len(values), PART_ROWS):
        part = [list(one[begin : begin + PART_ROWS]) for one in given]
        sizes, count = [_plain_bytes(one) for one in part], len(part[0])
        if min(sizes) < 0 or len(part[-1]) != count:
            return None
        each = max(1, count * PART_BYTES // max(sum(sizes), PART_BYTES))
        for i in range(0, count, each):
            some = part if each >= count else [one[i : i + each] for one in part]
            found.append((some[0], None if keys is None else some[1]))
    return found


def rows_of(values: Rows, keys: Rows, timestamps_ms: Any, now_ms: int) -> RowSource:
    """Columns as rows.  Raises: ArgumentError: one of them is invalid."""
    given = [values] if keys is None else [values, keys]
    plain = timestamps_ms is None and all(isinstance(one, (list, tuple)) for one in given)
    if plain and len(given[0]) == len(given[-1]) and (parts := _parts(values, keys)):
        return ListRows(parts, now_ms)
    return ColumnRows(Columns(values, keys, timestamps_ms, default_timestamp_ms=now_ms))


class BatchRows:
    """The records of whole batches, with their times, keys and headers."""

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
        """The records one by one, instead of `put`.  Raises: as `more`."""
        while self.more():
            self._position = len(self._records)
            yield from decoded_records(self._batch, self._records)

    def put(self, intake: Any, partition: int) -> Put:
        *put, self._position = _records(
            intake, self._records, self._position, self._base_ms, self._fixed_ms, partition
        )
        return Put(*put)

    def fill(self, intake: Any, memory: Any, partition: int, wanted: int) -> bool:
        return False  # Python looks at each record, with the GIL

    def next_row(self) -> str:
        return f"a record of the batch at offset {self._offset}"
