"""A caller's rows as columns for the data plane to encode.

Lists, NumPy arrays and Arrow arrays all become a kl_columns over the caller's own memory or
one joined copy of it; nothing is done per record in Python.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog._native import check, direct, ffi, lib
from kafkalog.errors import ArgumentError, MissingPackage
from kafkalog.types import Header
from kafkalog.wire.runtime import uvarint_bytes

__all__ = ["Columns", "Rows", "encoded_headers"]

BATCH_BYTES, ROW_BYTES, HEADER_BYTES = 64, 48, 12
"""Upper bounds of the bytes that a batch, a record and a header need in addition to their keys,
names and values.  Of a record's seven numbers only two can take all of ten bytes."""

_join = direct("join_direct")
NULL = b"\x01"
"""The zig-zag varint of -1, the length of a null."""

Rows = Any
"""A list or tuple of bytes and None, a NumPy array, an Arrow array (any library's)."""


class _Bytes(NamedTuple):
    """A kl_bytes_column's fields, and what must stay alive while it is used."""

    fields: dict[str, Any]
    alive: tuple[Any, ...]
    rows: int


class Columns:
    """The rows of one append_many call as a kl_columns; keeps their memory alive."""

    def __init__(
        self,
        values: Rows,
        keys: Rows = None,
        timestamps_ms: Any = None,
        headers: Any = None,
        default_timestamp_ms: int = -1,
    ) -> None:
        """Every column given must have as many rows as `values`.

        Raises: ArgumentError, which names the argument, what was found and what was wanted.
        """
        value = _column("values", values)
        key = _column("keys", keys) if keys is not None else None
        self.count = value.rows
        self._alive: list[Any] = [value.alive, key and key.alive]
        self.native = ffi.new("kl_columns *")
        self.native.count = value.rows
        self.native.value = value.fields
        if key is not None:
            self._same_length("keys", key.rows)
            self.native.key = key.fields
        self.native.default_timestamp_ms = default_timestamp_ms
        if timestamps_ms is not None:
            self._take_timestamps(timestamps_ms)
        if headers is not None:
            self._take_headers(headers)
        self.cursor = ffi.new("kl_cursor *")

    def _same_length(self, name: str, found: int) -> None:
        if found != self.count:
            raise ArgumentError(f"{name}: found {found} rows, wanted {self.count} as in values")

    def _take_timestamps(self, timestamps_ms: Any) -> None:
        numbers = _numbers(timestamps_ms)
        buffer = ffi.from_buffer("int64_t[]", numbers)
        self._same_length("timestamps_ms", len(buffer))
        self.native.timestamp_ms = buffer
        self._alive.append((numbers, buffer))

    def _take_headers(self, headers: Any) -> None:
        if hasattr(headers, "__arrow_c_array__") or hasattr(headers, "__arrow_c_stream__"):
            numbers, *fields = _arrow_headers(headers)
            self._same_length("headers", len(numbers))
            self._set_headers(ffi.from_buffer("int32_t[]", numbers), *fields)
            return
        if isinstance(headers, (str, bytes, Mapping)) or not isinstance(headers, Sequence):
            raise ArgumentError(f"headers: found {_shown(headers)}, wanted a list, one item a row")
        self._same_length("headers", len(headers))
        counts = array("i", bytes(4 * self.count))
        names: list[bytes] = []
        values: list[bytes | None] = []
        for row, of_record in enumerate(headers):
            if of_record is None:
                continue
            for name, value in _pairs(row, of_record):
                names.append(name)
                values.append(value)
                counts[row] += 1
        self._set_headers(ffi.from_buffer("int32_t[]", counts), names, values)

    def _set_headers(self, counts: Any, names: Rows, values: Rows) -> None:
        name, value = _column("header names", names), _column("header values", values)
        self.native.header_count = counts
        self.native.header_total = name.rows
        self.native.header_name = name.fields
        self.native.header_value = value.fields
        self._alive.append((counts, name.alive, value.alive))

    @property
    def bytes_max(self) -> int:
        """An upper bound of the bytes of one batch with all rows."""
        native = self.native
        columns = (native.value, native.key, native.header_name, native.header_value)
        fixed = BATCH_BYTES + ROW_BYTES * self.count + HEADER_BYTES * native.header_total
        return int(fixed + sum(column.data_bytes for column in columns))

    @property
    def row(self) -> int:
        """Rows encoded so far."""
        return int(self.cursor.row)

    def encode(self, out: bytearray, room: int) -> Any:
        """Encode the next rows as records into `out`, after the space for a batch header.

        Returns the kl_encoded; at least one row, at most `room` bytes with the header.
        Raises: MessageTooLarge, ArgumentError.
        """
        encoded = ffi.new("kl_encoded *")
        buffer = ffi.from_buffer("uint8_t[]", out)
        header = lib.KL_BATCH_HEADER_BYTES
        check(
            lib.kl_encode_records(
                self.native, self.cursor, buffer + header, room - header, 2**31 - 1, encoded
            )
        )
        return encoded


def _pairs(row: int, of_record: Any) -> Iterator[tuple[bytes, bytes | None]]:
    """The headers of one record, names encoded.  Raises: ArgumentError."""
    wanted = "wanted pairs of a str and bytes or None, as [('name', b'value')]"
    if isinstance(of_record, (str, bytes, Mapping)) or not isinstance(of_record, Iterable):
        hint = "; give its items()" if isinstance(of_record, Mapping) else ""
        raise ArgumentError(f"headers[{row}]: found {_shown(of_record)}, {wanted}{hint}")
    for pair in of_record:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ArgumentError(f"headers[{row}]: found {_shown(pair)}, {wanted}")
        name, value = pair
        if not isinstance(name, str):
            raise ArgumentError(f"headers[{row}]: found name {name!r}, wanted a str")
        try:
            yield name.encode(), value
        except UnicodeEncodeError:
            raise ArgumentError(
                f"headers[{row}]: found name {name!r}, which is not Unicode text"
            ) from None


def encoded_headers(headers: Iterable[Header]) -> bytes:
    """The headers of one record, encoded, preceded by their count.

    Raises: ArgumentError.
    """
    pairs = list(_pairs(0, headers))
    out = bytearray(uvarint_bytes(2 * len(pairs)))
    for name, value in pairs:
        out += uvarint_bytes(2 * len(name)) + name
        if value is None:
            out += NULL
            continue
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise ArgumentError(f"headers: found {_shown(value)}, wanted bytes or None")
        data = bytes(value)
        out += uvarint_bytes(2 * len(data)) + data
    return bytes(out)


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) < 60 else text[:60] + '…'}"


def _column(name: str, rows: Rows) -> _Bytes:
    if isinstance(rows, (list, tuple)):
        return _from_list(name, rows)
    if type(rows).__module__.partition(".")[0] == "numpy":
        return _from_numpy(name, rows)
    if hasattr(rows, "__arrow_c_array__") or hasattr(rows, "__arrow_c_stream__"):
        return _from_arrow(name, rows)
    if isinstance(rows, (bytes, bytearray, memoryview, str)) or not isinstance(rows, Iterable):
        raise ArgumentError(
            f"{name}: found {type(rows).__name__}, wanted a list of bytes, a NumPy array or an "
            "Arrow array"
        )
    return _from_list(name, list(rows))


def _from_list(name: str, rows: Sequence[Any]) -> _Bytes:
    plain = _join(rows)
    if plain is not None:
        lengths = array("i")
        lengths.frombytes(plain[0])
        return _lengths_column(lengths, plain[1])
    try:
        lengths = array("i", map(len, rows))
        data = b"".join(rows)
    except (TypeError, OverflowError):
        lengths, data = _from_mixed(name, rows)
    if len(data) != sum(lengths) + lengths.count(-1):
        # len() of an exotic buffer counts its items, not its bytes.
        rows = [None if row is None else bytes(row) for row in rows]
        lengths, data = _from_mixed(name, rows)
    return _lengths_column(lengths, data)


def _from_mixed(name: str, rows: Sequence[Any]) -> tuple["array[int]", bytes]:
    """The lengths and bytes of rows that may be null.  Raises: ArgumentError with the row."""
    for row, value in enumerate(rows):
        if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
            raise ArgumentError(
                f"{name}[{row}]: found {type(value).__name__}, wanted bytes or None"
                + ("; encode it first" if isinstance(value, str) else "")
            )
    present = [value for value in rows if value is not None]
    lengths = array("i", [-1 if value is None else memoryview(value).nbytes for value in rows])
    return lengths, b"".join(present)


def _lengths_column(lengths: "array[int]", data: bytes) -> _Bytes:
    index = ffi.from_buffer(lengths)
    pointer = ffi.from_buffer(data)
    fields = {
        "kind": lib.KL_BYTES_LENGTHS32,
        "data": ffi.cast("uint8_t *", pointer),
        "data_bytes": len(data),
        "index": ffi.cast("void *", index),
        "index_count": len(lengths),
    }
    return _Bytes(fields, (lengths, data, index, pointer), len(lengths))


def _from_numpy(name: str, rows: Any) -> _Bytes:
    import numpy as np

    kind = rows.dtype.kind
    if kind == "O" and rows.ndim == 1:
        return _from_list(name, rows.tolist())
    if kind == "u" and rows.dtype.itemsize == 1 and rows.ndim == 2:
        flat = np.ascontiguousarray(rows)
        return _fixed_column(flat, flat.shape[0], flat.shape[1])
    if kind == "V" and rows.ndim == 1:
        flat = np.ascontiguousarray(rows)
        return _fixed_column(flat.view(np.uint8), len(flat), flat.dtype.itemsize)
    if kind == "S" and rows.ndim == 1:
        width = rows.dtype.itemsize
        flat = np.ascontiguousarray(rows)
        table = flat.view(np.uint8).reshape(len(flat), width) if width else None
        # NumPy pads values with zero bytes and strips them again; full rows have no padding.
        if table is not None and bool(table[:, -1].all()):
            return _fixed_column(table, len(flat), width)
        return _from_list(name, flat.tolist())
    raise ArgumentError(
        f"{name}: found a NumPy array of {rows.dtype} with {rows.ndim} dimensions, wanted "
        "one of bytes (S, V, object) or rows of uint8"
    )


def _fixed_column(flat: Any, count: int, width: int) -> _Bytes:
    pointer = ffi.from_buffer(flat) if flat.nbytes else ffi.NULL
    fields = {
        "kind": lib.KL_BYTES_FIXED,
        "data": ffi.cast("uint8_t *", pointer),
        "data_bytes": flat.nbytes,
        "fixed_bytes": width,
    }
    return _Bytes(fields, (flat, pointer), count)


def _pyarrow(name: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingPackage(
            f"{name}: an Arrow array needs pyarrow here: pip install pyarrow"
        ) from error
    return pyarrow


def _arrow_array(rows: Any) -> Any:
    """One pyarrow array; a chunked one if the rows are too large for one."""
    import pyarrow as pa

    if not isinstance(rows, (pa.Array, pa.ChunkedArray)):
        rows = pa.chunked_array(rows) if hasattr(rows, "__arrow_c_stream__") else pa.array(rows)
    if isinstance(rows, pa.ChunkedArray):
        rows = rows.combine_chunks() if rows.num_chunks != 1 else rows.chunk(0)
    return rows


def _from_arrow(name: str, rows: Any) -> _Bytes:
    pa = _pyarrow(name)
    rows = _arrow_array(rows)
    if isinstance(rows, pa.ChunkedArray):  # too large for 32-bit offsets in one array
        rows = pa.concat_arrays(chunk.cast(pa.large_binary()) for chunk in rows.chunks)
    kinds = {
        pa.binary(): lib.KL_BYTES_OFFSETS32,
        pa.string(): lib.KL_BYTES_OFFSETS32,
        pa.large_binary(): lib.KL_BYTES_OFFSETS64,
        pa.large_string(): lib.KL_BYTES_OFFSETS64,
    }
    if rows.type not in kinds:
        try:
            rows = rows.cast(pa.large_binary())
        except pa.ArrowException:
            raise ArgumentError(
                f"{name}: found an Arrow array of {rows.type}, wanted binary or string"
            ) from None
    validity, offsets, data = rows.buffers()
    size = 4 if kinds[rows.type] == lib.KL_BYTES_OFFSETS32 else 8
    if offsets is None or len(rows) == 0:
        return _lengths_column(array("i"), b"")
    held = [ffi.from_buffer(buffer) if buffer else ffi.NULL for buffer in (validity, offsets, data)]
    fields = {
        "kind": kinds[rows.type],
        "data": ffi.cast("uint8_t *", held[2]),
        "data_bytes": data.size if data else 0,
        "index": ffi.cast("char *", held[1]) + rows.offset * size,
        "index_count": len(rows) + 1,
        "validity": ffi.cast("uint8_t *", held[0]),
        "validity_shift": rows.offset,
    }
    return _Bytes(fields, (rows, held), len(rows))


def _arrow_headers(rows: Any) -> tuple[Any, Any, Any]:
    """Header counts per row (a NumPy array of i4), names and values of an Arrow array of lists of
    (name, value) structs.  A null list has no headers.

    Raises: ArgumentError.
    """
    pa = _pyarrow("headers")
    rows = _arrow_array(rows)
    kind = rows.type
    wanted = "wanted a list of structs of two fields, a name and a value"
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise ArgumentError(f"headers: found an Arrow array of {kind}, {wanted}")
    if not pa.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        raise ArgumentError(f"headers: found an Arrow array of {kind}, {wanted}")
    import pyarrow.compute as pc

    counts = pc.list_value_length(rows).fill_null(0).cast(pa.int32())
    pairs = rows.flatten()  # without the items of null lists
    names, values = pairs.flatten()
    for found, missing in ((pairs, "null"), (names, "a header without a name")):
        if found.null_count:
            row = pc.list_parent_indices(rows).filter(found.is_null())[0]
            raise ArgumentError(f"headers[{row}]: found {missing}, {wanted}")
    return counts.to_numpy(), names, values


def _no_number(timestamps_ms: Sequence[Any]) -> str:
    """An error message that names the first that is not a 64-bit integer."""
    for row, found in enumerate(timestamps_ms):
        try:
            array("q", [found])
        except (TypeError, OverflowError):
            return f"timestamps_ms[{row}]: found {_shown(found)}, wanted whole milliseconds"
    return "timestamps_ms: they changed while they were read"


def _numbers(timestamps_ms: Any) -> Any:
    """An object whose buffer holds int64 milliseconds."""
    if isinstance(timestamps_ms, (list, tuple)):
        try:
            return array("q", timestamps_ms)
        except (TypeError, OverflowError):
            raise ArgumentError(_no_number(timestamps_ms)) from None
    if hasattr(timestamps_ms, "__arrow_c_array__") or hasattr(timestamps_ms, "__arrow_c_stream__"):
        pa = _pyarrow("timestamps_ms")
        column = pa.chunked_array([timestamps_ms]) if isinstance(timestamps_ms, pa.Array) else (
            pa.chunked_array(timestamps_ms))  # fmt: skip
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
        timestamps_ms = column.cast(pa.int64()).to_numpy()
    import numpy as np

    numbers = np.asarray(timestamps_ms)
    if numbers.dtype.kind == "M":
        numbers = numbers.astype("datetime64[ms]").view(np.int64)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise ArgumentError(
            f"timestamps_ms: found {numbers.dtype} with {numbers.ndim} dimensions, wanted whole "
            "milliseconds or datetime64 in one"
        )
    return np.ascontiguousarray(numbers, dtype=np.int64)
