"""Columns of any shape become batches that decode to the same rows."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog import errors
from kafkalog._native import check, ffi, lib
from tests.support import batches, golden

KINDS = ["lengths32", "offsets32", "offsets64", "fixed"]
TIMES = st.integers(-1, 2**63 - 1)
NULLABLE = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=150)
HEADERS = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=9)), max_size=4)


class Column:
    """A kl_bytes_column over some nullable values, and the memory under it."""

    def __init__(self, pieces, kind, shift=0):
        self.pieces = pieces
        self.data = b"".join(piece or b"" for piece in pieces)
        self._held = ffi.from_buffer(self.data)
        self.fields = {"data": self._held, "data_bytes": len(self.data)}
        getattr(self, kind)(shift)

    def lengths32(self, _shift):
        self._index("KL_BYTES_LENGTHS32", "int32_t[]", [_length(p, -1) for p in self.pieces])

    def offsets32(self, shift):
        self._index("KL_BYTES_OFFSETS32", "int32_t[]", self._offsets())
        self._validity(shift)

    def offsets64(self, shift):
        self._index("KL_BYTES_OFFSETS64", "int64_t[]", self._offsets())
        self._validity(shift)

    def fixed(self, shift):
        """Nulls take up bytes too; every piece has the length of the longest."""
        width = max((_length(p, 0) for p in self.pieces), default=0)
        self.pieces = [None if p is None else p.ljust(width, b".") for p in self.pieces]
        self.data = b"".join(piece or bytes(width) for piece in self.pieces)
        self._held = ffi.from_buffer(self.data)
        self.fields = {"data": self._held, "data_bytes": len(self.data)}
        self.fields |= {"kind": lib.KL_BYTES_FIXED, "fixed_bytes": width}
        self._validity(shift)

    def _offsets(self):
        return np.cumsum([0] + [_length(p, 0) for p in self.pieces]).tolist()

    def _index(self, kind, ctype, values):
        self._entries = ffi.new(ctype, values)
        self.fields |= {"kind": getattr(lib, kind), "index": self._entries}
        self.fields["index_count"] = len(values)

    def _validity(self, shift):
        if any(piece is None for piece in self.pieces):
            bits = [0] * shift + [piece is not None for piece in self.pieces]
            packed = np.packbits(np.array(bits, bool), bitorder="little").tobytes()
            self._bits = ffi.from_buffer(packed)
            self.fields |= {"validity": self._bits, "validity_shift": shift}


def _length(piece, null):
    return null if piece is None else len(piece)


class Columns:
    """A kl_columns over rows, and the rows it must decode to."""

    def __init__(self, rows, kinds, shift=0):
        key, value, name, header_value = kinds
        headers = [header for row in rows for header in row.headers]
        self.parts = {
            "key": Column([row.key for row in rows], key, shift),
            "value": Column([row.value for row in rows], value, shift),
            "header_name": Column([field.encode() for field, _ in headers], name, shift),
            "header_value": Column([value for _, value in headers], header_value, shift),
        }
        self.times = ffi.new("int64_t[]", [row.timestamp_ms for row in rows])
        self.counts = ffi.new("int32_t[]", [len(row.headers) for row in rows])
        self.c = ffi.new("kl_columns *", {"count": len(rows), "header_total": len(headers)})
        self.c.timestamp_ms, self.c.header_count = self.times, self.counts
        for part, column in self.parts.items():
            setattr(self.c, part, column.fields)
        self.rows = [
            (time, key, value, len(row.headers))
            for time, key, value, row in zip(
                self.times, self.parts["key"].pieces, self.parts["value"].pieces, rows, strict=True
            )
        ]
        self.headers = list(
            zip(self.parts["header_name"].pieces, self.parts["header_value"].pieces, strict=True)
        )


def encode(columns, out_bytes=1 << 16, max_records=2**31 - 1):
    """Batch after batch until the columns end: [(header, records, whole batch)]."""
    cursor, encoded, stamp = ffi.new("kl_cursor *"), ffi.new("kl_encoded *"), ffi.new("kl_stamp *")
    stamp.producer_id = -1
    found = []
    while cursor.row < columns.c.count:
        out = ffi.new("uint8_t[]", 61 + out_bytes)
        check(lib.kl_encode_records(columns.c, cursor, out + 61, out_bytes, max_records, encoded))
        check(lib.kl_batch_seal(out, 61 + out_bytes, encoded, stamp))
        whole = bytes(ffi.buffer(out, 61 + encoded.records_bytes))
        found.append((golden.parse(whole), whole[61:], whole))
    return found


ROWS = st.lists(st.builds(batches.Row, NULLABLE, NULLABLE, TIMES, HEADERS), max_size=40)


@given(ROWS, st.tuples(*[st.sampled_from(KINDS)] * 4), st.integers(0, 9), st.integers(700, 2000))
def test_round_trip(rows, kinds, shift, out_bytes):
    columns = Columns(rows, kinds, shift)
    decoded, headers = [], []
    for header, records, _ in encode(columns, out_bytes):
        assert len(records) <= out_bytes
        largest = ffi.new("int64_t *")
        check(lib.kl_records_check(header, records, len(records), 1, ffi.NULL, largest))
        here = golden.decode(header, records)
        assert header.record_count == len(here)
        assert header.max_timestamp == max(r.timestamp_ms for r in here)
        assert header.base_timestamp == here[0].timestamp_ms
        decoded += [(r.timestamp_ms, r.key, r.value, len(r.headers)) for r in here]
        headers += [header for r in here for header in r.headers]
    assert decoded == columns.rows
    assert headers == columns.headers


@given(ROWS.filter(bool))
def test_same_bytes_as_the_second_opinion(rows):
    """One batch of all rows has the same bytes as one encoded in plain Python."""
    rows = [row._replace(timestamp_ms=row.timestamp_ms >> 2) for row in rows]
    ((_, _, whole),) = encode(Columns(rows, ["lengths32"] * 4))
    assert whole == batches.batch(rows)


@given(ROWS, st.integers(1, 5))
def test_max_records(rows, most):
    found = [header.record_count for header, _, _ in encode(Columns(rows, KINDS), 1 << 16, most)]
    assert found == [most] * (len(rows) // most) + [len(rows) % most] * bool(len(rows) % most)


def test_more_rows_than_a_block():
    """Thousands of rows with nulls between them, cut into batches of every size."""
    rows = [
        batches.Row(
            None if i % 7 == 0 else b"v" * (i % 300), b"k%d" % i, i, [("h", b"x")] * (i % 3)
        )
        for i in range(3000)
    ]
    for kind in KINDS:
        columns = Columns(rows, [kind] * 4, 3)
        decoded = [
            r
            for header, records, _ in encode(columns, 4096)
            for r in golden.decode(header, records)
        ]
        assert [(r.timestamp_ms, r.key, r.value, len(r.headers)) for r in decoded] == columns.rows


def test_many_headers_on_one_record():
    headers = [(f"name {i}", None if i % 2 else b"x" * i) for i in range(1000)]
    columns = Columns([batches.Row(b"v", headers=headers), batches.Row(None)], ["lengths32"] * 4)
    ((header, records, _),) = encode(columns, 1 << 20)
    first, second = golden.decode(header, records)
    assert list(first.headers) == columns.headers and second.headers == ()


def one_column(**fields):
    columns = ffi.new("kl_columns *", {"count": 2})
    columns.value = fields
    return columns


def encode_status(columns, out_bytes=1000):
    out, cursor, encoded = (
        ffi.new("uint8_t[]", 1000),
        ffi.new("kl_cursor *"),
        ffi.new("kl_encoded *"),
    )
    status = lib.kl_encode_records(columns, cursor, out, out_bytes, 100, encoded)
    return status, cursor.row, encoded.record_count


DATA = ffi.from_buffer(b"0123456789")


def index(ctype, *values):
    return ffi.new(ctype, list(values))


@pytest.mark.parametrize(
    ("good_rows", "kind", "entries"),
    [
        (0, "KL_BYTES_LENGTHS32", index("int32_t[]", 11, 1)),
        (0, "KL_BYTES_LENGTHS32", index("int32_t[]", -2, 1)),
        (1, "KL_BYTES_LENGTHS32", index("int32_t[]", 6, 5)),
        (1, "KL_BYTES_LENGTHS32", index("int32_t[]", 6)),
        (0, "KL_BYTES_LENGTHS32", index("int32_t[]")),
        (0, "KL_BYTES_OFFSETS32", index("int32_t[]", -1, 5, 6)),
        (0, "KL_BYTES_OFFSETS32", index("int32_t[]", 5, 4, 6)),
        (1, "KL_BYTES_OFFSETS32", index("int32_t[]", 0, 4, 11)),
        (1, "KL_BYTES_OFFSETS32", index("int32_t[]", 0, 4)),
        (0, "KL_BYTES_OFFSETS32", index("int32_t[]", 2**31 - 1, -(2**31), 4)),
        (0, "KL_BYTES_OFFSETS64", index("int64_t[]", 2**63 - 1, -(2**63), 4)),
        (0, "KL_BYTES_OFFSETS64", index("int64_t[]", 0, 2**63 - 1, 4)),
        (0, "KL_BYTES_OFFSETS64", index("int64_t[]")),
    ],
)
def test_lengths_and_offsets_are_not_believed(good_rows, kind, entries):
    """The rows before a bad one are encoded; this call or the next one names the bad row."""
    columns = one_column(
        kind=getattr(lib, kind), data=DATA, data_bytes=10, index=entries, index_count=len(entries)
    )
    status, row, count = encode_status(columns)
    assert (row, count) == (good_rows, good_rows)
    if good_rows:
        assert status == lib.KL_OK
        cursor = ffi.new("kl_cursor *", {"row": 1, "value_pos": 6 if "LENGTHS" in kind else 0})
        out, encoded = ffi.new("uint8_t[100]"), ffi.new("kl_encoded *")
        status = lib.kl_encode_records(columns, cursor, out, 100, 9, encoded)
    assert status == lib.KL_E_ARGUMENT
    message = ffi.string(lib.kl_error_message()).decode()
    assert "column value" in message and f"row {good_rows}" in message


def test_fixed_width_needs_its_bytes():
    columns = one_column(kind=lib.KL_BYTES_FIXED, data=DATA, data_bytes=10, fixed_bytes=7)
    assert encode_status(columns) == (lib.KL_OK, 1, 1)
    columns.value.fixed_bytes = -1
    assert encode_status(columns)[0] == lib.KL_E_ARGUMENT
    columns.value.fixed_bytes = 2**62
    assert encode_status(columns)[0] == lib.KL_E_ARGUMENT


@pytest.mark.parametrize("counts", [(-1, 0), (2, 0), (2**31 - 1, 0)])
def test_header_counts_are_not_believed(counts):
    name = Column([b"h"], "lengths32")
    held = ffi.new("int32_t[]", counts)
    columns = ffi.new("kl_columns *", {"count": 2, "header_count": held, "header_total": 1})
    columns.header_name = name.fields
    assert encode_status(columns)[0] == lib.KL_E_ARGUMENT
    assert b"header_count, row 0" in ffi.string(lib.kl_error_message())


def test_a_header_needs_a_name():
    held = ffi.new("int32_t[]", [1, 0])
    columns = ffi.new("kl_columns *", {"count": 2, "header_count": held, "header_total": 1})
    assert encode_status(columns)[0] == lib.KL_E_ARGUMENT
    assert b"header_name, row 0: null" in ffi.string(lib.kl_error_message())


def test_a_record_that_does_not_fit():
    """Refused if it is the first record of the batch, otherwise left for the next batch."""
    rows = [batches.Row(b"short"), batches.Row(b"x" * 500), batches.Row(b"short")]
    columns = Columns(rows, ["lengths32"] * 4)
    assert encode_status(columns.c, 100) == (lib.KL_OK, 1, 1)
    cursor, encoded = ffi.new("kl_cursor *", {"row": 1, "value_pos": 5}), ffi.new("kl_encoded *")
    out = ffi.new("uint8_t[]", 600)
    status = lib.kl_encode_records(columns.c, cursor, out, 507, 9, encoded)
    assert (status, cursor.row) == (lib.KL_E_MESSAGE_TOO_LARGE, 1)
    with pytest.raises(errors.MessageTooLarge, match="row 1 does not fit into 507 bytes"):
        check(lib.kl_encode_records(columns.c, cursor, out, 507, 9, encoded))
    exact = len(batches.record(rows[1], 0, 0))
    assert lib.kl_encode_records(columns.c, cursor, out, exact, 9, encoded) == lib.KL_OK
    assert (encoded.records_bytes, cursor.row) == (exact, 2)
    assert (
        lib.kl_encode_records(columns.c, cursor, out, 0, 9, encoded) == lib.KL_E_MESSAGE_TOO_LARGE
    )


def test_seal_checks_its_room():
    out, encoded, stamp = ffi.new("uint8_t[100]"), ffi.new("kl_encoded *"), ffi.new("kl_stamp *")
    assert lib.kl_batch_seal(out, 100, encoded, stamp) == lib.KL_E_ARGUMENT
    encoded.record_count, encoded.records_bytes = 1, 40
    assert lib.kl_batch_seal(out, 100, encoded, stamp) == lib.KL_E_BUFFER_TOO_SMALL
    assert lib.kl_batch_seal(out, 60, encoded, stamp) == lib.KL_E_BUFFER_TOO_SMALL
    encoded.records_bytes = 2**63
    assert lib.kl_batch_seal(out, 100, encoded, stamp) == lib.KL_E_BUFFER_TOO_SMALL
    encoded.records_bytes = 39
    stamp.producer_id, stamp.producer_epoch, stamp.base_sequence = 7, 3, 2**31 - 1
    stamp.attributes = lib.KL_ATTR_TRANSACTIONAL
    encoded.record_count = 2
    check(lib.kl_batch_seal(out, 100, encoded, stamp))
    header = golden.parse(bytes(ffi.buffer(out)))
    assert (header.producer_id, header.producer_epoch, header.attributes) == (7, 3, 16)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 1, 0)  # the sequence wraps
    (length,) = struct.unpack_from(">i", bytes(ffi.buffer(out)), 8)
    assert length == 88


def test_headers_that_change_during_the_call_do_not_run_over_the_end():
    """Another thread may write to the caller's arrays; here the encoder itself overwrites the
    lengths."""
    room, behind = 60, 200
    out = ffi.new("uint8_t[]", room + behind)
    lengths = ffi.cast("int32_t *", out + 8)  # the key is written over it, after 5 other bytes
    lengths[0] = 1
    key = ffi.from_buffer(b"kkk" + struct.pack("<i", 150) + b"k" * 33)
    data, names = ffi.from_buffer(b"v" * 150), ffi.new("int32_t[]", [1])
    counts, key_lengths = ffi.new("int32_t[]", [1]), ffi.new("int32_t[]", [len(key)])
    kind = lib.KL_BYTES_LENGTHS32
    columns = ffi.new("kl_columns *", {
        "count": 1, "header_total": 1, "header_count": counts, "default_timestamp_ms": 5,
        "key": {"kind": kind, "data": key, "data_bytes": len(key), "index": key_lengths,
                "index_count": 1},
        "header_name": {"kind": kind, "data": data, "data_bytes": 1, "index": names,
                        "index_count": 1},
        "header_value": {"kind": kind, "data": data, "data_bytes": 150, "index": lengths,
                         "index_count": 1},
    })  # fmt: skip
    cursor, encoded = ffi.new("kl_cursor *"), ffi.new("kl_encoded *")
    status = lib.kl_encode_records(columns, cursor, out, room, 100, encoded)
    assert lengths[0] == 150
    assert (status, cursor.row, encoded.record_count) == (lib.KL_E_ARGUMENT, 0, 0)
    assert b"changed during the call" in ffi.string(lib.kl_error_message())
    assert bytes(ffi.buffer(out + room, behind)) == bytes(behind)
