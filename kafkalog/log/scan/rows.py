"""Blocks of a scan as Python objects, in bulk.

C makes the records (made.h).  Everything else here is per block, and each step over its rows is a
loop in C (map, zip, repeat): a row costs nanoseconds, not a microsecond.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice, repeat
from struct import Struct
from typing import Any

from kafkalog._native import check, ffi, lib
from kafkalog.types import Header, Record

__all__ = [
    "RECORD_COLUMNS",
    "header_lists",
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
"""The columns that a scan must collect for `records`."""

_CLEAR_BITS = tuple(tuple(bit for bit in range(8) if not byte >> bit & 1) for byte in range(256))


if lib.kl_made_install(__name__.encode()):
    raise ImportError(f"{__name__}: found no room for the function of made.h")
_made: Callable[[int, type[Record], str, int, int, int], list[Record]] = globals()["made_records"]
CHUNK = 512
"""Records made at once: they stay in the processor's cache until they are used."""


def records(block: Any, topic: str, partition: int) -> Iterator[Record]:
    """The rows of a `kl_block` (RECORD_COLUMNS) as Records, created as they are consumed."""
    firsts = range(0, lib.kl_block_rows(block), CHUNK)
    some = map(records_at, repeat(block), repeat(topic), repeat(partition), firsts)
    return chain.from_iterable(some)


def records_at(
    block: Any, topic: str, partition: int, first: int, most: int = CHUNK
) -> list[Record]:
    """Up to `most` rows of a `kl_block` (RECORD_COLUMNS) from `first` on."""
    return _made(int(ffi.cast("uintptr_t", block)), Record, topic, partition, first, most)


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
    """The offsets of a `kl_block`'s rows: a view of its memory; the block must outlive it."""
    data = ffi.cast("char *", _column(block, lib.KL_COL_OFFSET).data)
    return memoryview(ffi.buffer(data, 8 * lib.kl_block_rows(block))).cast("q")


def string_bytes(block: Any) -> int:
    """The bytes of a block's keys and values together."""
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
    """A byte column (`kl_block_column`) as bytes, None for nulls.  At least `rows` items."""
    if column.null_count == rows:
        return repeat(None)
    data = bytes(ffi.buffer(ffi.cast("char *", column.data), column.data_bytes))
    width = column.data_bytes // rows
    if width and not column.null_count and width * rows == column.data_bytes:
        offsets = ffi.buffer(ffi.cast("char *", column.offsets), 4 * (rows + 1))
        if offsets[:] == _even_offsets(width, rows):  # all the same length: split in one call
            return _cutter(width, rows).unpack(data)
    ends = ffi.unpack(column.offsets, rows + 1)
    values = map(data.__getitem__, map(slice, ends, ends[1:]))
    if not column.null_count:
        return values
    some: list[bytes | None] = list(values)
    if some.count(b"") == column.null_count:  # every empty value is null: the usual case
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
    """The headers of each row, () if it has none.  At least `rows` items."""
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


def _null_rows(validity: Any, rows: int) -> Iterator[int]:
    bitmap = ffi.buffer(ffi.cast("char *", validity), (rows + 7) // 8)[:]
    for index, byte in enumerate(bitmap):
        for bit in _CLEAR_BITS[byte]:
            yield 8 * index + bit
