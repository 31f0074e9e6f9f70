"""A scan: a range of a log as columns, as Arrow, NumPy, polars, pandas, or Records.

Columns and types are those of Spark's Kafka source.  Only what is asked for is decoded: a scan
skips other columns, offsets, batches of other times and aborted transactions.
"""

from __future__ import annotations

import operator
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalog import errors
from kafkalog._native import check, ffi, lib
from kafkalog.log.isolation import COMMITTED, bound_of
from kafkalog.log.scan import rows
from kafkalog.log.scan.steps import Steps
from kafkalog.types import Record

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import polars
    import pyarrow

__all__ = [
    "COLUMNS",
    "EXTRA_COLUMNS",
    "Columnar",
    "Scan",
    "ScanBatch",
    "Scanned",
    "StringColumn",
    "ViewBatch",
    "column_bits",
    "first_block",
    "new_pool",
]

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
"""The default columns of a scan, in this order."""
EXTRA_COLUMNS: Final = ("leaderEpoch",)
"""Columns that a scan gives only when asked by name, after the others."""

_BITS: dict[str, int] = dict(
    zip(
        COLUMNS + EXTRA_COLUMNS,
        (
            lib.KL_COL_KEY,
            lib.KL_COL_VALUE,
            lib.KL_COL_TOPIC,
            lib.KL_COL_PARTITION,
            lib.KL_COL_OFFSET,
            lib.KL_COL_TIMESTAMP,
            lib.KL_COL_TIMESTAMP_TYPE,
            lib.KL_COL_HEADERS,
            lib.KL_COL_LEADER_EPOCH,
        ),
        strict=True,
    )
)
_FIXED_TYPES = {
    "partition": "<i4",
    "offset": "<i8",
    "timestamp": "<M8[us]",
    "timestampType": "<i4",
    "leaderEpoch": "<i4",
}
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_BATCH_ROWS_MAX, _BATCH_BYTES_MAX = 1 << 24, 2**31 - 1
# Blocks for Records stay in the processor's cache; the first one comes soon.
_RECORD_ROWS, _RECORD_BYTES = 4096, 1 << 20


class Scanned(Protocol):
    """The source of a scan: a Log."""

    topic: str
    partition: int
    _c: Any

    @property
    def _max_decompressed(self) -> int: ...


class Columnar:
    """Rows as columns, read again by each method and iteration: the base of all scans."""

    _columns: tuple[str, ...]

    def _pass(self, columns: int) -> Any:
        """An iterator of `kl_block`s with the KL_COL_ bits `columns`; it has `close`."""
        raise AssertionError("each kind of scan has its own")

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self._columns

    def __iter__(self) -> Iterator[ScanBatch]:
        """The rows as batches of about `batch_rows` rows or `batch_bytes` bytes of keys,
        values and headers.  A record batch of the log is never split between two of them.

        Raises: OffsetOutOfRange, CorruptMessage, MessageTooLarge (a compressed batch that
        exceeds the limit), StaleLog (the log was truncated during the pass), Closed.  The rows
        before the damage are yielded first.
        """
        with closing(self._pass(sum(_BITS[name] for name in self._columns))) as blocks:
            for block in blocks:
                yield ScanBatch(block, self._columns)

    def view_batches(self) -> Generator[ViewBatch, None, None]:
        """The rows as batches whose keys and values are Arrow's binary views: they are not copied
        from where they were read, unless most of that memory is not wanted.

        For packages that use views internally, such as polars.
        """
        bits = sum(_BITS[name] for name in self._columns) | lib.KL_COL_VIEWS
        with closing(self._pass(bits)) as blocks:
            for block in blocks:
                yield ViewBatch(block, bits)

    def to_arrow(self) -> pyarrow.Table:
        """The range as a pyarrow.Table; the memory is shared with the scan, not copied."""
        pa = _package("pyarrow")
        batches = [pa.record_batch(batch) for batch in self]
        table: pyarrow.Table = pa.Table.from_batches(batches, schema=pa.schema(self))
        return table

    def to_numpy(self) -> dict[str, np.ndarray[Any, Any]]:
        """The range as one array per column, without pyarrow: see `ScanBatch.numpy`."""
        numpy = _package("numpy")
        batches = list(self)
        return {
            name: numpy.concatenate([batch.numpy(name) for batch in batches])
            if batches
            else numpy.empty(0, _FIXED_TYPES.get(name, object))
            for name in self._columns
        }

    def to_polars(self) -> polars.DataFrame:
        """The range as a polars.DataFrame, without pyarrow."""
        pl = _package("polars")
        if not (batches := list(self.view_batches())):
            empty: polars.DataFrame = pl.DataFrame(self)
            return empty
        frame: polars.DataFrame = pl.concat(map(pl.DataFrame, batches), rechunk=False)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """The range as a pandas.DataFrame, without pyarrow; timestamps are in UTC."""
        pd = _package("pandas")
        frame: pandas.DataFrame = pd.DataFrame(self.to_numpy(), columns=list(self._columns))
        if "timestamp" in self._columns:
            frame["timestamp"] = frame["timestamp"].dt.tz_localize("UTC")
        return frame

    def __arrow_c_schema__(self) -> Any:
        """A PyCapsule with the columns' ArrowSchema."""
        from kafkalog.log.scan import arrow

        return arrow.schema_capsule(sum(_BITS[name] for name in self._columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """A PyCapsule with an ArrowArrayStream of the range, read as it is consumed.

        `requested_schema` is ignored, as the protocol allows: the consumer casts.
        """
        from kafkalog.log.scan import arrow

        columns = sum(_BITS[name] for name in self._columns)
        return arrow.stream_capsule(columns, self._pass(columns))


class Scan(Columnar):
    """A range of a log, read again by each method and each iteration.

    The end of a pass is fixed when it begins: records appended later are not seen.  Several
    threads may use a scan; each pass belongs to one.
    """

    def __init__(
        self,
        log: Scanned,
        start: int | None = None,
        stop: int | None = None,
        *,
        start_time_ms: int | None = None,
        stop_time_ms: int | None = None,
        columns: Sequence[str] | None = None,
        key: bytes | None = None,
        key_prefix: bytes | None = None,
        isolation: str = COMMITTED,
        batch_rows: int = 32_768,
        batch_bytes: int = 8 << 20,
        check_crcs: bool = True,
    ) -> None:
        """See `Log.scan`, which makes it.

        `key`, `key_prefix`: only records with this key, or with a key that begins so; C skips the
        others.  A null key never matches.
        """
        self._log = log
        self._columns = _selection(columns)
        self._start = _offset("start", start)
        self._stop = _offset("stop", stop)
        self._start_time_ms = _time("start_time_ms", start_time_ms, _INT64_MIN)
        self._stop_time_ms = _time("stop_time_ms", stop_time_ms, _INT64_MAX)
        self._key_match, self._key = _key_wanted(key, key_prefix)
        self._bound = bound_of(isolation)
        self._batch_rows = _between("batch_rows", batch_rows, 1, _BATCH_ROWS_MAX)
        self._batch_bytes = _between("batch_bytes", batch_bytes, 1, _BATCH_BYTES_MAX)
        self._check_crcs = bool(check_crcs)
        self._end_offset = -1

    @property
    def end_offset(self) -> int:
        """The offset up to which the latest pass reads: `stop`, or the end that its isolation
        level shows.  -1 before the first pass.
        """
        return self._end_offset

    def __repr__(self) -> str:
        return f"Scan({self._log.topic}-{self._log.partition}: {', '.join(self._columns)})"

    def records(self) -> Iterator[Record]:
        """The range as Records, with all their fields, whatever columns the scan has.

        A generator: closing it releases the log.  Raises: as iteration does.
        """
        for some, _ in self.record_blocks():
            yield from some

    def record_blocks(self) -> Iterator[tuple[Iterator[Record], int]]:
        """The range as Records in blocks, each with the offset after its last record."""
        topic, partition = self._log.topic, self._log.partition
        with _Pass(self, rows.RECORD_COLUMNS, _RECORD_ROWS, _RECORD_BYTES) as blocks:
            for block in blocks:
                some = rows.records(block, topic, partition)
                after = rows.offsets(block)[-1] + 1
                del block  # once its records are made, its memory serves the next one
                yield some, after

    def count(self) -> int:
        """The number of data records in the range, from the headers of batches that are wholly in
        it; only other batches are read and decompressed.

        The CRCs of the former are not checked: damage to their records is not noticed.
        """
        with _Pass(self, 0, self._batch_rows, self._batch_bytes) as blocks:
            for _ in blocks:
                raise AssertionError("a count has no rows")
            return blocks.count()

    def _pass(self, columns: int, pool: Any = None) -> _Pass:
        """`pool`: a kl_block_pool from `new_pool` that several passes share."""
        return _Pass(self, columns, self._batch_rows, self._batch_bytes, pool)


class StringColumn:
    """A column of byte strings in place: read-only views, without copies."""

    __slots__ = ("data", "offsets", "validity")

    def __init__(self, offsets: Any, data: Any, validity: Any) -> None:
        self.offsets: np.ndarray[Any, Any] = offsets
        """int32, one more than rows: row i is data[offsets[i]:offsets[i + 1]]."""
        self.data: np.ndarray[Any, Any] = data
        """uint8, the bytes of all rows, concatenated."""
        self.validity: np.ndarray[Any, Any] | None = validity
        """uint8, one bit per row, lowest first, 0 for null; None if no row is null."""


class ScanBatch:
    """Some rows of a scan, as columns.  Its memory lives as long as any view of it."""

    __slots__ = ("_block", "_columns", "_rows")

    def __init__(self, block: Any, columns: tuple[str, ...]) -> None:
        self._block = block
        self._columns = columns
        self._rows: int = lib.kl_block_rows(block)

    def __len__(self) -> int:
        return self._rows

    @property
    def last_offset(self) -> int:
        """The last row's offset, which must be one of the columns."""
        self._get("offset")
        return int(rows.offsets(self._block)[-1])

    def __repr__(self) -> str:
        return f"ScanBatch({self._rows} rows: {', '.join(self._columns)})"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in the order of the table."""
        return self._columns

    def numpy(self, name: str) -> np.ndarray[Any, Any]:
        """A column as an array of `len(self)` items.

        partition, timestampType, leaderEpoch: int32; offset: int64; timestamp:
        datetime64[us], in UTC.  These are read-only views of the batch's memory.
        key, value (bytes or None), topic (str), headers (a tuple of (str, bytes or None),
        empty where a record has none): arrays of objects; `strings` views keys and values
        without creating objects.

        Raises: ArgumentError for a column that is not one of the scan's.
        """
        numpy = _package("numpy")
        column = self._get(name)
        if name in _FIXED_TYPES:
            return self._view(column.data, _FIXED_TYPES[name], self._rows)
        items: Iterable[object]
        if name == "topic":
            items = repeat(str(ffi.buffer(column.data, column.offsets[1])[:], "utf-8"))
        elif name == "headers":
            items = rows.header_lists(self._block, self._rows)
        else:
            items = rows.strings(column, self._rows)
        array: np.ndarray[Any, Any] = numpy.fromiter(items, object, self._rows)
        return array

    def strings(self, name: str) -> StringColumn:
        """`key`, `value` or `topic` as views: see StringColumn.

        Raises: ArgumentError for another column.
        """
        column = self._get(name)
        if name in _FIXED_TYPES or name == "headers":
            raise errors.ArgumentError(f"column {name!r}: wanted key, value or topic")
        nullable = column.validity != ffi.NULL
        return StringColumn(
            self._view(column.offsets, "<i4", self._rows + 1),
            self._view(column.data, "|u1", column.data_bytes),
            self._view(column.validity, "|u1", (self._rows + 7) // 8) if nullable else None,
        )

    def __arrow_c_schema__(self) -> Any:
        """A PyCapsule with the columns' ArrowSchema."""
        from kafkalog.log.scan import arrow

        return arrow.schema_capsule(sum(_BITS[name] for name in self._columns))

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        """PyCapsules with the ArrowSchema and an ArrowArray that shares the memory.

        `requested_schema` is ignored, as the protocol allows: the consumer casts.
        """
        from kafkalog.log.scan import arrow

        return self.__arrow_c_schema__(), arrow.array_capsule(self._block)

    def _get(self, name: str) -> Any:
        if name not in self._columns:
            raise errors.ArgumentError(
                f"column {name!r}: wanted one of the scan's ({', '.join(self._columns)})"
            )
        column = ffi.new("kl_block_column *")
        if name != "headers":
            check(lib.kl_block_get(self._block, _BITS[name], column))
        return column

    def _view(self, pointer: Any, kind: str, items: int) -> np.ndarray[Any, Any]:
        array: np.ndarray[Any, Any] = _package("numpy").asarray(
            _Memory(self._block, pointer, kind, items)
        )
        return array


class ViewBatch:
    """Some rows of a scan for packages that accept Arrow: see `Columnar.view_batches`."""

    __slots__ = ("_bits", "_block")

    def __init__(self, block: Any, bits: int) -> None:
        self._block = block
        self._bits = bits

    def __arrow_c_schema__(self) -> Any:
        """As ScanBatch's."""
        from kafkalog.log.scan import arrow

        return arrow.schema_capsule(self._bits)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        """As ScanBatch's."""
        from kafkalog.log.scan import arrow

        return self.__arrow_c_schema__(), arrow.array_capsule(self._block)


class _Memory:
    """Some of a block's memory, in NumPy's array interface; keeps the block alive."""

    def __init__(self, block: Any, pointer: Any, kind: str, items: int) -> None:
        self._block = block
        address = int(ffi.cast("uintptr_t", pointer))
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),  # read-only
            "shape": (items,),
            "typestr": kind,
        }


def new_pool(columns: int, idle_max: int) -> Any:
    """A `kl_block_pool` that keeps the memory of at most `idle_max` blocks with the KL_COL_ bits
    `columns` for the next ones.
    """
    out = ffi.new("kl_block_pool **")
    check(lib.kl_block_pool_new(columns, idle_max, out))
    return ffi.gc(out[0], lib.kl_block_pool_free)


def first_block(scan: Scan, columns: int) -> Any:
    """The first `kl_block` of a pass over the range, with the KL_COL_ bits `columns`; None if the
    range is empty.

    Raises: as iterating the scan.
    """
    with _Pass(scan, columns, scan._batch_rows, scan._batch_bytes) as blocks:
        return next(blocks, None)


class _Pass:
    """One pass over a scan's range: an iterator over `kl_block` handles.  One thread."""

    def __init__(
        self, scan: Scan, columns: int, batch_rows: int, batch_bytes: int, pool: Any = None
    ) -> None:
        log = scan._log
        topic = ffi.new("char[]", log.topic.encode())
        key = ffi.from_buffer("uint8_t[]", scan._key)
        options = ffi.new(
            "kl_scan_options *",
            {
                "start_offset": scan._start,
                "stop_offset": scan._stop,
                "start_time_ms": scan._start_time_ms,
                "stop_time_ms": scan._stop_time_ms,
                "max_bytes": batch_bytes,
                "max_rows": batch_rows,
                "columns": columns,
                "bound": scan._bound,
                "check_crc": scan._check_crcs,
                "partition": log.partition,
                "topic": topic,
                "key_match": scan._key_match,
                "key_bytes": len(scan._key),
                "key": key,
                "pool": ffi.NULL if pool is None else pool,
            },
        )
        out = ffi.new("kl_scan **")
        check(lib.kl_scan_open(log._c, options, out))
        self._c = ffi.gc(out[0], lib.kl_scan_free)
        scan._end_offset = lib.kl_scan_end_offset(self._c)
        self._log: Scanned | None = log  # the scan uses its handle
        name = f"{log.topic}-{log.partition}"
        # A pool is shared by passes that decode in parallel.
        self._blocks = Steps(self._c, log._max_decompressed, pool is not None).blocks(name)

    def __enter__(self) -> _Pass:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return self._blocks

    def __next__(self) -> Any:
        return next(self._blocks)

    def count(self) -> int:
        """Rows counted by a pass without columns."""
        return int(lib.kl_scan_count(self._c))

    def close(self) -> None:
        """Release the log and the memory; blocks already taken stay valid."""
        self._blocks.close()
        if self._c is not None:
            ffi.release(self._c)
            self._c = self._log = None


def _selection(columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns asked for, in the order of the table."""
    if columns is None:
        return COLUMNS
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise errors.ArgumentError(f"columns: found {columns!r}, wanted a list of names")
    for name in columns:
        if name not in _BITS:
            import difflib

            near = difflib.get_close_matches(str(name), _BITS, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise errors.ArgumentError(f"columns: {name!r} is not one of {', '.join(_BITS)}{hint}")
    if not columns:
        raise errors.ArgumentError("columns: none given, wanted at least one (or use count())")
    return tuple(name for name in _BITS if name in columns)


def column_bits(columns: Sequence[str] | None) -> tuple[tuple[str, ...], int]:
    """Columns in the order of the table, and their KL_COL_ bits.  Raises: ArgumentError."""
    chosen = _selection(columns)
    return chosen, sum(_BITS[name] for name in chosen)


def _key_wanted(key: bytes | None, prefix: bytes | None) -> tuple[int, bytes]:
    """A KL_KEY_ number and its bytes."""
    for name, value in (("key", key), ("key_prefix", prefix)):
        if value is not None and not isinstance(value, bytes):
            raise errors.ArgumentError(f"{name}: found {type(value).__name__}, wanted bytes")
    if key is not None and prefix is not None:
        raise errors.ArgumentError("key and key_prefix: give only one of them")
    if key is not None:
        return lib.KL_KEY_EQUAL, key
    return (lib.KL_KEY_ANY, b"") if prefix is None else (lib.KL_KEY_PREFIX, prefix)


def _offset(name: str, value: int | None) -> int:
    return -1 if value is None else _between(name, value, 0, _INT64_MAX)


def _time(name: str, value: int | None, default: int) -> int:
    return default if value is None else _between(name, value, _INT64_MIN, _INT64_MAX)


def _between(name: str, value: int, low: int, high: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise errors.ArgumentError(
            f"{name}: found {value!r} of type {type(value).__name__}, wanted an int"
        ) from None
    if not low <= number <= high:
        raise errors.ArgumentError(f"{name}: found {number}, wanted {low} to {high}")
    return number


def _package(name: str) -> Any:
    """Import numpy, pyarrow, polars or pandas at first use."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise errors.MissingPackage(
            f"the package {name} is not installed: pip install {name}"
        ) from problem
