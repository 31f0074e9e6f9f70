"""Blocks of a scan as Python objects, in bulk.

Everything here is per block, and each step over its rows is a loop in C (map, zip, repeat):
a Record costs nanoseconds, not a microsecond.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from itertools import islice, repeat
from struct import Struct
from typing import Any

from kafkalog._native import check, ffi, lib
from kafkalog.types import Header, Record

__all__ = [
    "RECORD_COLUMNS",
    "header_lists",
    "numbers_of",
    "offsets",
    "record",
    "records",
    "records_at",
    "string_bytes",
    "strings",
]

RECORD_COLUMNS: int = (
    lib.KL_COL_KEY
    | lib.KL_COL_VALUE
    | lib.KL_COL_OFFSET
    | lib.KL_COL_TIMESTAMP_MS
    | lib.KL_COL_TIMESTAMP_TYPE
    | lib.KL_COL_HEADERS
    | lib.KL_COL_LEADER_EPOCH
)
"""What a scan must collect for `records`."""

_CLEAR_BITS = tuple(tuple(bit for bit in range(8) if not byte >> bit & 1) for byte in range(256))
_make_record = partial(tuple.__new__, Record)


def records(block: Any, topic: str, partition: int) -> Iterator[Record]:
    """The rows of a `kl_block` (RECORD_COLUMNS) as Records; needs the block no more."""
    return records_at(block, topic, partition, iter(numbers_of(block)))


def numbers_of(block: Any) -> list[int]:
    """The offsets of a `kl_block`'s rows."""
    return _numbers(block, lib.KL_COL_OFFSET, "int64_t *", lib.kl_block_rows(block))


def records_at(block: Any, topic: str, partition: int, offsets: Iterator[int]) -> Iterator[Record]:
    """As `records`; `offsets` goes over `numbers_of`, and tells how many Records were made."""
    rows: int = lib.kl_block_rows(block)
    return map(
        _make_record,
        zip(
            offsets,
            _numbers(block, lib.KL_COL_TIMESTAMP_MS, "int64_t *", rows),
            strings(_column(block, lib.KL_COL_KEY), rows),
            strings(_column(block, lib.KL_COL_VALUE), rows),
            header_lists(block, rows),
            repeat(topic),
            repeat(partition),
            _constants(block, lib.KL_COL_TIMESTAMP_TYPE, rows),
            _constants(block, lib.KL_COL_LEADER_EPOCH, rows),
        ),
    )


def record(block: Any, row: int, topic: str, partition: int) -> Record:
    """One row of a `kl_block` (RECORD_COLUMNS) as a Record."""
    return Record(
        _number(block, lib.KL_COL_OFFSET, "int64_t *", row),
        _number(block, lib.KL_COL_TIMESTAMP_MS, "int64_t *", row),
        _string(_column(block, lib.KL_COL_KEY), row),
        _string(_column(block, lib.KL_COL_VALUE), row),
        _headers(block, row),
        topic,
        partition,
        _number(block, lib.KL_COL_TIMESTAMP_TYPE, "int32_t *", row),
        _number(block, lib.KL_COL_LEADER_EPOCH, "int32_t *", row),
    )


def offsets(block: Any) -> Any:
    """The offsets of a `kl_block`'s rows: a view of its memory, which must outlive it."""
    data = ffi.cast("char *", _column(block, lib.KL_COL_OFFSET).data)
    return memoryview(ffi.buffer(data, 8 * lib.kl_block_rows(block))).cast("q")


def string_bytes(block: Any) -> int:
    """Of its keys and values together."""
    columns = (_column(block, lib.KL_COL_KEY), _column(block, lib.KL_COL_VALUE))
    return sum(int(column.data_bytes) for column in columns)


def _headers(block: Any, row: int) -> tuple[Header, ...]:
    headers = ffi.new("kl_block_headers *")
    check(lib.kl_block_get_headers(block, headers))
    if not headers.header_count:
        return ()
    return tuple(
        (str(_string(headers.name, i) or b"", "utf-8"), _string(headers.value, i))
        for i in range(headers.list_offsets[row], headers.list_offsets[row + 1])
    )


def _number(block: Any, column: int, kind: str, row: int) -> int:
    return int(ffi.cast(kind, _column(block, column).data)[row])


def _string(column: Any, row: int) -> bytes | None:
    if column.null_count and not column.validity[row >> 3] >> (row & 7) & 1:
        return None
    start, end = column.offsets[row], column.offsets[row + 1]
    return bytes(ffi.buffer(ffi.cast("char *", column.data) + start, end - start))


def strings(column: Any, rows: int) -> Iterable[bytes | None]:
    """A byte column (`kl_block_column`) as bytes, None where null.  At least `rows` items."""
    if column.null_count == rows:
        return repeat(None)
    data = bytes(ffi.buffer(ffi.cast("char *", column.data), column.data_bytes))
    width = column.data_bytes // rows
    if width and not column.null_count and width * rows == column.data_bytes:
        offsets = ffi.buffer(ffi.cast("char *", column.offsets), 4 * (rows + 1))
        if offsets[:] == _even_offsets(width, rows):  # all as long: cut in one call
            return _cutter(width, rows).unpack(data)
    ends = ffi.unpack(column.offsets, rows + 1)
    values = map(data.__getitem__, map(slice, ends, ends[1:]))
    if not column.null_count:
        return values
    some: list[bytes | None] = list(values)
    if some.count(b"") == column.null_count:  # all that is empty is null: the usual case
        return [value or None for value in some]
    for row in _null_rows(column.validity, rows):
        some[row] = None
    return some


@lru_cache(maxsize=8)
def _even_offsets(width: int, rows: int) -> bytes:
    return array("i", range(0, width * rows + 1, width)).tobytes()


@lru_cache(maxsize=8)
def _cutter(width: int, rows: int) -> Struct:
    return Struct(f"{width}s" * rows)


def header_lists(block: Any, rows: int) -> Iterable[tuple[Header, ...]]:
    """The headers of each row, () where it has none.  At least `rows` items."""
    headers = ffi.new("kl_block_headers *")
    check(lib.kl_block_get_headers(block, headers))
    count = headers.header_count
    if not count:
        return repeat(())
    # C has made the names well-formed.
    names = (str(name, "utf-8") for name in strings(headers.name, count) if name is not None)
    values = islice(strings(headers.value, count), count)
    pairs = list(zip(names, values, strict=True))
    ends = ffi.unpack(headers.list_offsets, rows + 1)
    return map(tuple, map(pairs.__getitem__, map(slice, ends, ends[1:])))


def _column(block: Any, column: int) -> Any:
    out = ffi.new("kl_block_column *")
    check(lib.kl_block_get(block, column, out))
    return out


def _numbers(block: Any, column: int, kind: str, rows: int) -> list[int]:
    numbers: list[int] = ffi.unpack(ffi.cast(kind, _column(block, column).data), rows)
    return numbers


def _constants(block: Any, column: int, rows: int) -> Iterable[int]:
    """A column of int32 that hardly ever changes.  At least `rows` items."""
    raw = ffi.buffer(ffi.cast("char *", _column(block, column).data), 4 * rows)
    if raw[4:] == raw[:-4]:  # each row equals the one before
        return repeat(int.from_bytes(raw[:4], "little", signed=True))
    return _numbers(block, column, "int32_t *", rows)


def _null_rows(validity: Any, rows: int) -> Iterator[int]:
    bitmap = ffi.buffer(ffi.cast("char *", validity), (rows + 7) // 8)[:]
    for index, byte in enumerate(bitmap):
        for bit in _CLEAR_BITS[byte]:
            yield 8 * index + bit
