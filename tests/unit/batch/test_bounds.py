"""Bytes from outside: truncated, changed or made up, they give a status and never a crash."""

import itertools
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog import errors
from kafkalog._native import check, failure, ffi, lib
from tests.support import batches, golden

BATCHES = ["record-batch", "transactional-batch", "control-batch"]
BIG = batches.batch(
    [
        batches.Row(
            b"v" * (i * 37 % 300), None if i % 3 else b"k" * i, i * i, [("h", None)] * (i % 4)
        )
        for i in range(14)
    ]
)
VECTORS = {**{name: golden.data(name) for name in BATCHES}, "big": BIG}


def parse(data, function=lib.kl_batch_parse):
    out = ffi.new("kl_batch *")
    return function(data, len(data), out), out


@pytest.mark.parametrize("data", VECTORS.values(), ids=VECTORS)
def test_cut_at_every_byte(data):
    """Too short; the batch's size is reported as soon as its header is complete."""
    for size in range(len(data)):
        status, out = parse(data[:size])
        assert status == lib.KL_E_BUFFER_TOO_SMALL
        assert out.batch_bytes == (len(data) if size >= golden.HEADER_BYTES else 0)
        assert parse(data[:size], lib.kl_batch_check)[0] == lib.KL_E_BUFFER_TOO_SMALL
    status, out = parse(data + b"next", lib.kl_batch_check)
    assert (status, out.batch_bytes) == (lib.KL_OK, len(data))


@pytest.mark.parametrize("data", VECTORS.values(), ids=VECTORS)
def test_every_bit_changed(data):
    """Detected from the crc on; before the crc are the leader's fields and the length."""
    for pos in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[pos] ^= 1 << bit
            status, _ = parse(bytes(broken), lib.kl_batch_check)
            if pos >= 17:
                assert status == lib.KL_E_CORRUPT_MESSAGE, (pos, bit)
            elif pos < 8:
                assert status == (lib.KL_E_CORRUPT_MESSAGE if pos == bit - 7 else lib.KL_OK)
            elif 12 <= pos < 16:
                assert status == lib.KL_OK
            else:
                assert status != lib.KL_OK


@pytest.mark.parametrize("data", VECTORS.values(), ids=VECTORS)
def test_records_cut_or_changed(data):
    """Without the crc to detect it: decoded within bounds, or refused."""
    header, records = golden.parse(data), data[golden.HEADER_BYTES :]
    for size in range(len(records)):
        assert not records_pass(header, records[:size])
    seed = random.Random(7)
    for pos in range(len(records)):
        for byte in {0, 1, 0x7F, 0x80, 0xFF, seed.randrange(256)}:
            broken = records[:pos] + bytes([byte]) + records[pos + 1 :]
            if records_pass(header, broken):
                assert len(golden.decode(header, broken)) == header.record_count
    assert not records_pass(header, records + b"\0")
    assert not records_pass(header, records + records)


def records_pass(header, records):
    status = lib.kl_records_check(header, records, len(records), 1, ffi.NULL, ffi.NULL)
    assert status in (lib.KL_OK, lib.KL_E_INVALID_RECORD)
    found = ffi.new("kl_record *")
    for time in (-(2**63), 2**63 - 1):
        status_of_find = lib.kl_records_find(header, records, len(records), time, 0, found)
        assert status_of_find in (lib.KL_OK, lib.KL_E_CORRUPT_MESSAGE)
    return status == lib.KL_OK


def judged(header, records, rules, strict):
    """A check: its status, the largest timestamp it found, and its message if it failed."""
    largest = ffi.new("int64_t *")
    status = lib.kl_records_check(header, records, len(records), strict, rules, largest)
    return status, largest[0] if status == lib.KL_OK else None, status and str(failure(status))


ROWS = {
    "small": [batches.Row(b"v" * (i % 7), b"k" if i % 2 else None, 1000 + i) for i in range(300)],
    "long numbers": [
        batches.Row(b"v" * size, b"k" * (size // 2), 1000 + size * 1000)
        for size in (0, 62, 63, 64, 65, 8190, 8191, 8192, 9000, 4)
    ],
    "times": [batches.Row(b"v" * 30, None, 5000 + t) for t in (0, -5000, 9000, -1, 64, -64, -65)],
    "many": [batches.Row(None, b"", 0) for _ in range(8200)],
    "a header": [
        batches.Row(b"v" * 30, None, 7, [("h", b"x")] if i == 5 else []) for i in range(9)
    ],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_the_quick_walk_and_the_long_one_agree(rows):
    """With bytes changed at the ends of records, where the numbers are; also with rules."""
    data = batches.batch(rows)
    header, records = golden.parse(data), bytes(data[golden.HEADER_BYTES :])
    assert judged(header, records, ffi.NULL, 1) == judged(header, records, ffi.NULL, 0)
    assert judged(header, records, ffi.NULL, 1)[0] == lib.KL_OK
    no_limit = 2**63 - 1
    rules = [
        ffi.new("kl_record_rules *", {"now_ms": 5000, "before_max_ms": b, "after_max_ms": a,
                                      "need_keys": keys})
        for b in (100, no_limit) for a in (100, no_limit) for keys in (0, 1)
    ]  # fmt: skip
    for rule in rules:
        assert judged(header, records, rule, 1) == judged(header, records, rule, 0)
    sizes = [len(batches.record(row, i, header.base_timestamp)) for i, row in enumerate(rows)]
    seed, starts = random.Random(3), list(itertools.accumulate(sizes))
    assert starts[-1] == len(records)
    for _ in range(800 if len(rows) < 1000 else 40):
        pos = (seed.choice(starts) + seed.randrange(-3, 12)) % len(records)
        byte = seed.choice([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF, seed.randrange(256)])
        broken = records[:pos] + bytes([byte]) + records[pos + 1 :]
        quick, loose = judged(header, broken, ffi.NULL, 1), judged(header, broken, ffi.NULL, 0)
        deltas = [r.offset for r in golden.decode(header, broken)] if not loose[0] else []
        if deltas == list(range(len(rows))):
            assert quick == loose
        else:
            assert quick[0] == lib.KL_E_INVALID_RECORD
            assert loose[0] == lib.KL_OK or quick[2] == loose[2] or "offsetDelta" in quick[2]


@given(st.binary(max_size=200), st.integers(0, 2**31 - 1))
def test_made_up_records(records, last_offset_delta):
    header = ffi.new("kl_batch *", {"record_count": 5, "last_offset_delta": last_offset_delta})
    records_pass(header, records)
    pos, count, out = ffi.new("int64_t *"), ffi.new("int32_t *"), ffi.new("kl_record[10]")
    status = lib.kl_records_decode(header, records, len(records), pos, out, 10, count)
    assert 0 <= pos[0] <= len(records)
    for record in out[0 : count[0]]:
        for start, size in (
            (record.key_pos, record.key_bytes),
            (record.value_pos, record.value_bytes),
            (record.record_pos, record.record_bytes),
        ):
            assert -1 <= size <= len(records) and 0 <= start <= len(records) - max(size, 0)
        assert 0 <= record.offset <= last_offset_delta
    assert status == lib.KL_OK or count[0] < 10


@given(st.binary(max_size=120))
def test_made_up_headers(data):
    status, out = parse(data)
    if status == lib.KL_OK:
        assert golden.HEADER_BYTES <= out.batch_bytes <= len(data)
        assert 0 <= out.record_count <= out.last_offset_delta + 1


def header_with(**changes):
    """The golden batch with some header fields replaced."""
    places = {
        "base_offset": (0, ">q"),
        "batch_length": (8, ">i"),
        "magic": (16, ">b"),
        "attributes": (21, ">h"),
        "last_offset_delta": (23, ">i"),
        "record_count": (57, ">i"),
    }
    data = bytearray(golden.data("record-batch"))
    for name, value in changes.items():
        pos, kind = places[name]
        struct.pack_into(kind, data, pos, value)
    return bytes(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_length": 0},
        {"batch_length": 48},
        {"batch_length": -1},
        {"batch_length": -(2**31)},
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
        {"base_offset": 2**63 - 3},
        {"last_offset_delta": -1},
        {"last_offset_delta": -(2**31)},
        {"last_offset_delta": 1},
        {"record_count": -1},
        {"record_count": -(2**31)},
        {"record_count": 4},
        {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 1},
        {"magic": 3},
        {"magic": -1},
    ],
    ids=str,
)
def test_lengths_that_cannot_be(changes):
    """Refused from the header alone, and the field is named."""
    data = header_with(**changes)
    status, out = parse(data)
    assert status == lib.KL_E_CORRUPT_MESSAGE
    assert out.batch_bytes == 0
    names = {"magic": "magic", "batch_length": "batchLength", "record_count": "recordsCount"}
    names |= {"base_offset": "Offset", "last_offset_delta": "Offset"}
    message = str(failure(status))
    assert any(names[name] in message for name in changes) or "recordsCount" in message


def test_largest_lengths_ask_for_more_bytes():
    """A length of 2 GiB is not a fault of the header: there are not enough bytes."""
    status, out = parse(header_with(batch_length=2**31 - 1))
    assert (status, out.batch_bytes) == (lib.KL_E_BUFFER_TOO_SMALL, 2**31 + 11)


def test_zeros_are_corrupt():
    """A preallocated tail of any size."""
    for size in (17, 60, 61, 100):
        assert parse(bytes(size))[0] == lib.KL_E_CORRUPT_MESSAGE
    assert parse(bytes(16))[0] == lib.KL_E_BUFFER_TOO_SMALL


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_by_17_bytes(magic):
    data = struct.pack(">qiIb", 7, 26, 0xA5DA6A62, magic)
    status, _ = parse(data)
    assert status == lib.KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT
    with pytest.raises(errors.UnsupportedForMessageFormat, match=f"magic {magic}"):
        check(status)


def test_gaps_and_empty_batches():
    """Batches after compaction: fewer records than offsets, down to none."""
    header = ffi.new("kl_batch *", {"record_count": 2, "last_offset_delta": 9})
    rows = [batches.record(batches.Row(b"a"), 3, 0), batches.record(batches.Row(b"b"), 9, 5)]
    records = b"".join(rows)
    assert lib.kl_records_check(header, records, len(records), 0, ffi.NULL, ffi.NULL) == lib.KL_OK
    refused = lib.kl_records_check(header, records, len(records), 1, ffi.NULL, ffi.NULL)
    assert refused == lib.KL_E_INVALID_RECORD
    assert [r.offset for r in golden.decode(header, records)] == [3, 9]
    backwards = b"".join(reversed(rows))
    refused = lib.kl_records_check(header, backwards, len(backwards), 0, ffi.NULL, ffi.NULL)
    assert refused == lib.KL_E_INVALID_RECORD

    after_crc = struct.pack(">hiqqqhii", 0, 9, -1, 5, 4000, 2, 7, 0)
    empty = batches.seal(after_crc, base_offset=50)
    header = golden.parse(empty)
    assert (len(empty), header.record_count, header.last_offset) == (61, 0, 59)
    assert header.last_sequence == 16
    assert golden.decode(header, b"") == []
    largest = ffi.new("int64_t *")
    check(lib.kl_records_check(header, b"", 0, 0, ffi.NULL, largest))
    assert largest[0] == -1


def test_delete_horizon_deltas():
    """Deltas back from a base timestamp years in the future."""
    horizon = 1_900_000_000_000
    row = batches.Row(b"", timestamp_ms=1_700_000_000_000)
    header = ffi.new("kl_batch *", {"base_timestamp": horizon, "record_count": 1})
    (decoded,) = golden.decode(header, batches.record(row, 0, horizon))
    assert decoded.timestamp_ms == row.timestamp_ms


def test_log_append_time_overrides_the_deltas():
    header = ffi.new("kl_batch *", {"attributes": lib.KL_ATTR_LOG_APPEND_TIME, "record_count": 1})
    header.base_timestamp, header.max_timestamp = 5, 77
    (decoded,) = golden.decode(header, batches.record(batches.Row(b"", timestamp_ms=9), 0, 5))
    assert decoded.timestamp_ms == 77


def test_find():
    """The first record at or after the time and at or after the offset."""
    data = batches.batch([batches.Row(b"", timestamp_ms=t) for t in (5, 9, 2, 9)], base_offset=10)
    header, records, found = golden.parse(data), data[61:], ffi.new("kl_record *")
    answers = {(0, 0): 10, (6, 0): 11, (6, 12): 13, (9, 13): 13, (10, 0): -1, (0, 14): -1}
    for (time, offset), wanted in answers.items():
        check(lib.kl_records_find(header, records, len(records), time, offset, found))
        assert found.offset == wanted


def test_need_keys():
    data = batches.batch([batches.Row(b"v", b""), batches.Row(b"v", None)])
    header, records = golden.parse(data), data[61:]
    check(lib.kl_records_check(header, records, len(records), 1, ffi.NULL, ffi.NULL))
    rules = ffi.new("kl_record_rules *", (0, 2**63 - 1, 2**63 - 1, 1))
    with pytest.raises(errors.InvalidRecord, match=r"record 1: .* without a key"):
        check(lib.kl_records_check(header, records, len(records), 1, rules, ffi.NULL))


def walk(path, start=0):
    handle = ffi.new("kl_walk **")
    check(lib.kl_walk_open(str(path).encode(), start, handle))
    return ffi.gc(handle[0], lib.kl_walk_free)


def step(walker):
    out, count = ffi.new("kl_batch[8]"), ffi.new("int32_t *")
    return lib.kl_walk_next(walker, out, 8, count, 1), count[0]


def test_walk_of_a_file_cut_anywhere(tmp_path):
    """The whole batches, then the error at the position of the torn one."""
    data = b"".join(VECTORS[name] for name in BATCHES)
    ends = [0, 94, 164, 242]
    for size in range(len(data) + 1):
        path = tmp_path / "cut.log"
        path.write_bytes(data[:size])
        walker = walk(path)
        status, count = step(walker)
        assert count == sum(end <= size for end in ends) - 1
        assert lib.kl_walk_pos(walker) == ends[count]
        assert status == (lib.KL_OK if size in ends else lib.KL_E_BUFFER_TOO_SMALL)
        assert lib.kl_walk_file_bytes(walker) == size


def test_walk_allocates_for_no_length_that_the_file_has_not(tmp_path):
    """The header claims two gigabytes; about a hundred bytes are in the file."""
    path = tmp_path / "short.log"
    path.write_bytes(BIG + header_with(batch_length=2**31 - 1))
    walker = walk(path)
    assert step(walker) == (lib.KL_E_BUFFER_TOO_SMALL, 1)
    assert b"has 2147483659 bytes, 94 are left" in ffi.string(lib.kl_error_message())
    assert step(walker) == (lib.KL_E_BUFFER_TOO_SMALL, 0)


def test_walk_over_batches_larger_than_its_chunk(tmp_path):
    """Large and small batches in turn, with and without their bodies."""
    parts = [batches.batch([batches.Row(bytes(n))]) for n in (10, 700_000, 20, 900_000, 5, 300_000)]
    path = tmp_path / "large.log"
    path.write_bytes(b"".join(parts))
    out, count = ffi.new("kl_batch[8]"), ffi.new("int32_t *")
    for check_crc in (0, 1):
        check(lib.kl_walk_next(walk(path), out, 8, count, check_crc))
        assert [out[i].batch_bytes for i in range(count[0])] == [len(part) for part in parts]


def test_walk_reads_a_whole_batch(tmp_path):
    path = tmp_path / "some.log"
    path.write_bytes(BIG + VECTORS["record-batch"])
    walker, size = walk(path), ffi.new("size_t *")
    buffer = ffi.new("uint8_t[]", len(BIG))
    assert lib.kl_walk_read(walker, 0, buffer, 10, size) == lib.KL_E_BUFFER_TOO_SMALL
    assert size[0] == len(BIG)
    check(lib.kl_walk_read(walker, 0, buffer, len(BIG), size))
    assert bytes(ffi.buffer(buffer)) == BIG
    check(lib.kl_walk_read(walker, len(BIG), buffer, len(BIG), size))
    assert bytes(ffi.buffer(buffer, size[0])) == VECTORS["record-batch"]
    for pos in (-1, len(BIG) + 94, len(BIG) + 60, 2**62):
        assert lib.kl_walk_read(walker, pos, buffer, 10, size) == lib.KL_E_ARGUMENT


def test_a_walk_of_missing_and_empty_files(tmp_path):
    handle = ffi.new("kl_walk **")
    with pytest.raises(errors.NotFound, match=r"missing\.log"):
        check(lib.kl_walk_open(str(tmp_path / "missing.log").encode(), 0, handle))
    (tmp_path / "empty.log").touch()
    assert step(walk(tmp_path / "empty.log")) == (lib.KL_OK, 0)
    with pytest.raises(errors.ArgumentError, match="start_pos is 1"):
        walk(tmp_path / "empty.log", 1)


def test_snapshot_with_a_count_that_cannot_be():
    """A wrong count is refused even with a correct checksum."""
    for count, entries in ((1, 0), (-1, 0), (2**31 - 1, 1), (0, 1)):
        body = struct.pack(">i", count) + bytes(46 * entries)
        data = struct.pack(">hI", 1, lib.kl_crc32c(body, len(body))) + body
        out, found = ffi.new("kl_producer[1]"), ffi.new("size_t *")
        assert lib.kl_snapshot_decode(data, len(data), out, 1, found) == lib.KL_E_CORRUPT
