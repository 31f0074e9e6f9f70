"""Every `.log` that Apache Kafka wrote: walked, compared with its own dump, written again."""

import re
from functools import lru_cache
from pathlib import Path

import pytest

from kafkalog import errors
from kafkalog._native import check, failure, ffi, lib
from tests.support import cases, golden

ROOT = cases.folder()
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
KNOWN = re.compile(r"oldformats|unclean")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


LOGS = sorted(ROOT.rglob("*.log"))
GOOD = [path for path in LOGS if not KNOWN.search(name(path))]
OLD = [path for path in LOGS if "oldformats" in name(path) and path.stat().st_size]
UNCLEAN = [path for path in LOGS if "unclean" in name(path)]


def by_case(paths):
    """Parameters: the paths of each case, by its folder."""
    cases_of = {}
    for path in paths:
        cases_of.setdefault(path.relative_to(ROOT).parts[0], []).append(path)
    return {"argvalues": list(cases_of.values()), "ids": list(cases_of)}


def each(paths):
    """The paths; a failure shows the one that it belongs to, the last printed."""
    for path in paths:
        print(name(path))
        yield path


def walk(path, check_crc=True, start=0, at_once=16):
    """(headers, position where the walk ended, failure or None)."""
    handle = ffi.new("kl_walk **")
    check(lib.kl_walk_open(str(path).encode(), start, handle))
    walker = ffi.gc(handle[0], lib.kl_walk_free)
    out, count = ffi.new("kl_batch[]", at_once), ffi.new("int32_t *")
    found = []
    while True:
        status = lib.kl_walk_next(walker, out, at_once, count, check_crc)
        found += [ffi.new("kl_batch *", out[i]) for i in range(count[0])]
        if status:
            return found, lib.kl_walk_pos(walker), failure(status)
        if not count[0]:
            return found, lib.kl_walk_pos(walker), None


@lru_cache(maxsize=1)
def dumped() -> dict[str, list[dict[str, str]]]:
    """File (relative to the folder of cases) to its batches, as DumpLogSegments prints them."""
    files: dict[str, list[dict[str, str]]] = {}
    for dump in ROOT.rglob("dump*.txt"):
        batches: list[dict[str, str]] = []
        for line in dump.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Dumping "):
                file = dump.parent.parent / line.removeprefix("Dumping ")
                batches = files.setdefault(name(file), [])
            elif line.startswith("baseOffset: "):
                batches.append(dict(re.findall(r"(\w+): (\S+)", line)))
    return files


def as_dumped(batch, data):
    """A header in the form of DumpLogSegments."""
    horizon = batch.attributes & lib.KL_ATTR_DELETE_HORIZON
    append_time = batch.attributes & lib.KL_ATTR_LOG_APPEND_TIME
    truth = {True: "true", False: "false"}
    return {
        "baseOffset": str(batch.base_offset),
        "lastOffset": str(batch.last_offset),
        "count": str(batch.record_count),
        "baseSequence": str(batch.base_sequence),
        "lastSequence": str(batch.last_sequence),
        "producerId": str(batch.producer_id),
        "producerEpoch": str(batch.producer_epoch),
        "partitionLeaderEpoch": str(batch.leader_epoch),
        "isTransactional": truth[bool(batch.attributes & lib.KL_ATTR_TRANSACTIONAL)],
        "isControl": truth[bool(batch.attributes & lib.KL_ATTR_CONTROL)],
        "deleteHorizonMs": f"OptionalLong[{batch.base_timestamp}]"
        if horizon
        else "OptionalLong.empty",
        "position": str(batch.pos),
        "LogAppendTime" if append_time else "CreateTime": str(batch.max_timestamp),
        "size": str(batch.batch_bytes),
        "magic": str(batch.magic),
        "compresscodec": CODECS[batch.attributes & lib.KL_CODEC_MASK],
        "crc": str(batch.crc),
        "isvalid": "true",
    }


@pytest.mark.parametrize("paths", **by_case(GOOD))
def test_headers_equal_kafkas_dump(paths):
    for path in each(paths):
        equals_dump(path)


def equals_dump(path):
    headers, end, stopped = walk(path)
    assert (end, stopped) == (path.stat().st_size, None)
    printed = dumped().get(name(path))
    if printed is not None:
        data = path.read_bytes()
        assert [as_dumped(batch, data) for batch in headers] == printed


def test_most_files_have_a_dump():
    """So that the comparison above is not empty."""
    assert sum(name(path) in dumped() for path in GOOD) > len(GOOD) // 2


@pytest.mark.parametrize("path", OLD, ids=name)
def test_old_formats_are_refused_by_name(path):
    headers, end, stopped = walk(path)
    assert isinstance(stopped, errors.UnsupportedForMessageFormat)
    magic = path.read_bytes()[end + 16]
    assert magic in (0, 1) and f"magic {magic}" in str(stopped)
    assert all(batch.magic == 2 for batch in headers)


@pytest.mark.parametrize("path", UNCLEAN, ids=name)
def test_walk_stops_at_damage(path):
    """At the first torn or invalid batch, according to the tests' own parser."""
    from tests.support import batches

    data, good = path.read_bytes(), 0
    for header in batches.headers(data):
        if header.magic != 2 or not batches.crc_is_right(data, header):
            break
        good = header.pos + header.batch_bytes
    _, end, stopped = walk(path)
    assert end == good
    assert (stopped is None) == (good == len(data))
    if stopped is not None:
        assert isinstance(stopped, errors.CorruptMessage | errors.BufferTooSmall)
        assert f"position {good}" in str(stopped)


@pytest.mark.parametrize("path", GOOD[:40], ids=name)
def test_walk_without_crc_and_from_the_middle(path):
    headers, _, _ = walk(path)
    plain, _, _ = walk(path, check_crc=False, at_once=1)
    positions = [batch.pos for batch in headers]
    assert [batch.pos for batch in plain] == positions
    for start in positions[1:4]:
        rest, _, stopped = walk(path, start=start)
        assert stopped is None
        assert [batch.pos for batch in rest] == [pos for pos in positions if pos >= start]


def uncompressed(path):
    """(header, whole batch) of each batch without a codec."""
    data = path.read_bytes()
    for batch in walk(path)[0]:
        if batch.attributes & lib.KL_CODEC_MASK == 0:
            yield batch, data[batch.pos : batch.pos + batch.batch_bytes]


@pytest.mark.parametrize("paths", **by_case(GOOD))
def test_uncompressed_records_check(paths):
    for path in each(paths):
        records_check(path)


def records_check(path):
    """Structure and counts; strictly consecutive where compaction did not run."""
    compacted = "compaction" in name(path)
    largest = ffi.new("int64_t *")
    for batch, data in uncompressed(path):
        records = data[golden.HEADER_BYTES :]
        strict = batch.record_count == batch.last_offset_delta + 1
        assert strict or compacted or "__" in name(path)
        check(lib.kl_records_check(batch, records, len(records), strict, ffi.NULL, largest))
        decoded = golden.decode(batch, records)
        assert len(decoded) == batch.record_count
        if not batch.attributes & lib.KL_ATTR_LOG_APPEND_TIME and decoded:
            assert largest[0] == batch.max_timestamp == max(r.timestamp_ms for r in decoded)


def lengths_column(pieces):
    """A column of nullable bytes, and the objects that must stay alive with it."""
    data = b"".join(piece or b"" for piece in pieces)
    index = ffi.new("int32_t[]", [-1 if p is None else len(p) for p in pieces])
    held = ffi.from_buffer(data)
    column = {
        "kind": lib.KL_BYTES_LENGTHS32,
        "data": held,
        "data_bytes": len(data),
        "index": index,
        "index_count": len(pieces),
    }
    return column, (data, index, held)


def encode_again(batch, decoded):
    """Encode a batch's records with kl_encode_records and kl_batch_seal."""
    headers = [header for record in decoded for header in record.headers]
    parts = [
        lengths_column([record.key for record in decoded]),
        lengths_column([record.value for record in decoded]),
        lengths_column([field for field, _ in headers]),
        lengths_column([value for _, value in headers]),
    ]
    times = ffi.new("int64_t[]", [record.timestamp_ms for record in decoded])
    counts = ffi.new("int32_t[]", [len(record.headers) for record in decoded])
    columns = ffi.new("kl_columns *", {"count": len(decoded), "header_total": len(headers)})
    columns.key, columns.value, columns.header_name, columns.header_value = (p[0] for p in parts)
    columns.timestamp_ms, columns.header_count = times, counts
    size = batch.batch_bytes
    out, cursor, encoded = (
        ffi.new("uint8_t[]", size),
        ffi.new("kl_cursor *"),
        ffi.new("kl_encoded *"),
    )
    room = size - golden.HEADER_BYTES
    records = out + golden.HEADER_BYTES
    check(lib.kl_encode_records(columns, cursor, records, room, len(decoded), encoded))
    stamp = ffi.new("kl_stamp *")
    stamp.producer_id, stamp.producer_epoch = batch.producer_id, batch.producer_epoch
    stamp.base_sequence, stamp.attributes = batch.base_sequence, batch.attributes
    check(lib.kl_batch_seal(out, size, encoded, stamp))
    assert encoded.records_bytes == room
    return bytes(ffi.buffer(out, size))


@pytest.mark.parametrize("paths", **by_case([p for p in GOOD if "compaction" not in name(p)]))
def test_encoded_again_byte_for_byte(paths):
    for path in each(paths):
        encodes_again(path)


def encodes_again(path):
    """We encode as the Java client and librdkafka do, except for the leader's fields."""
    for batch, data in uncompressed(path):
        append_time = batch.attributes & lib.KL_ATTR_LOG_APPEND_TIME
        if append_time or batch.attributes & lib.KL_ATTR_CONTROL:
            continue
        if batch.record_count != batch.last_offset_delta + 1:
            continue
        decoded = golden.decode(batch, data[golden.HEADER_BYTES :])
        again = encode_again(batch, decoded)
        # the offset and the epoch are the leader's, not the producer's
        assert again[8:12] == data[8:12]
        assert again[21:53] == data[21:53] and again[57:] == data[57:]
        if batch.producer_id >= 0 or batch.base_sequence == -1:
            assert again[16:] == data[16:]
        else:  # Kafka's own coordinator writes sequence 0 without a producer; we write -1
            assert (again[53:57], data[53:57]) == (b"\xff" * 4, bytes(4))


def test_snapshots_decode(kafka_cases):
    """All of Kafka's producer snapshots; a changed bit in any byte of one is noticed."""
    snapshots = sorted(ROOT.rglob("*.snapshot"))
    out, count = ffi.new("kl_producer[64]"), ffi.new("size_t *")
    for path in snapshots:
        data = path.read_bytes()
        check(lib.kl_snapshot_decode(data, len(data), out, 64, count))
        assert len(data) == 10 + 46 * count[0], name(path)
        for i in range(count[0] - 1):
            assert out[i].producer_id < out[i + 1].producer_id
    longest = max((path.read_bytes() for path in snapshots), key=len)
    for pos in range(len(longest)):
        broken = bytearray(longest)
        broken[pos] ^= 4
        status = lib.kl_snapshot_decode(bytes(broken), len(broken), out, 64, count)
        assert status == lib.KL_E_CORRUPT
        assert lib.kl_snapshot_decode(longest, pos, out, 64, count) == lib.KL_E_CORRUPT
