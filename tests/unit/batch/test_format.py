"""docs/format.md and the C core agree, byte by byte."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog._native import check, ffi, lib
from kafkalog.disk import checkpoint, layout
from kafkalog.inspect import sidecar
from kafkalog.inspect.rawfiles import list_segments
from kafkalog.types import TopicPartition
from tests.support import batches, golden

BATCHES = ["record-batch", "transactional-batch", "control-batch"]
GROUPS = [
    "group-metadata-key",
    "group-metadata-value",
    "offset-commit-key",
    "offset-commit-value",
]
BASE = f"{100:020}"


def test_every_vector_is_tested():
    tested = set(BATCHES) | {
        "varints",
        "offset-index",
        "time-index",
        "aborted-transaction",
        "producer-snapshot",
        "side-car",
        "leader-epoch-checkpoint",
        "checkpoint",
        "partition.metadata",
        "meta.properties",
        "clean-shutdown",
        *GROUPS,
    }
    assert set(golden.names()) == tested


@pytest.mark.parametrize("name", BATCHES)
def test_batch_headers(name):
    data = golden.data(name)
    header = golden.parse(data)
    lines = golden.fields(name)[:13]
    assert len(b"".join(line.data for line in lines)) == golden.HEADER_BYTES
    for line in lines:
        if line.name == "batchLength":
            assert header.batch_bytes == int(line.value) + 12 == len(data)
        else:
            found = getattr(header, golden.HEADER_FIELDS[line.name])
            assert found == int(line.value), line.name
    assert header.last_offset == header.base_offset + header.last_offset_delta


@pytest.mark.parametrize("name", BATCHES)
def test_records(name):
    """The decoder finds the document's lines, grouped by record."""
    data = golden.data(name)
    header = golden.parse(data)
    decoded = golden.decode(header, data[golden.HEADER_BYTES :])
    lines = golden.fields(name)[13:]
    starts = [i for i, line in enumerate(lines) if line.name == "length"]
    assert len(decoded) == len(starts) == header.record_count
    for record, start, stop in zip(decoded, starts, [*starts[1:], len(lines)], strict=True):
        group = lines[start:stop]
        assert record.whole == b"".join(line.data for line in group)
        told = {line.name: line.value for line in group}
        assert len(record.whole) == 1 + int(told["length"])
        assert record.timestamp_ms == header.base_timestamp + int(told["timestampDelta"])
        assert record.offset == header.base_offset + int(told["offsetDelta"])
        for field, found in (("key", record.key), ("value", record.value)):
            stored = [line.data for line in group if line.name == field]
            assert (None if found is None else [found]) == (stored or None)
            assert int(told[f"{field}Length"]) == (-1 if found is None else len(found))
        assert len(record.headers) == int(told["headersCount"])
        if record.headers:
            header_value = told["headerValue"].encode()
            assert record.headers == ((told["headerKey"].encode(), header_value),)


def test_varints():
    """Checked with the encoder and the decoder, as a record's timestamp delta."""
    for line in golden.text("varints").splitlines():
        written, value = line.split()
        data, number = bytes.fromhex(written), int(value)
        assert batches.varint(number) == data
        first = 0 if number >= 0 else -1 - number  # no timestamp is below -1
        times = ffi.new("int64_t[]", [first, first + number])
        columns = ffi.new("kl_columns *", {"count": 2, "timestamp_ms": times})
        cursor, encoded = ffi.new("kl_cursor *"), ffi.new("kl_encoded *")
        out = ffi.new("uint8_t[]", 100)
        check(lib.kl_encode_records(columns, cursor, out, 100, 2, encoded))
        records = bytes(ffi.buffer(out, encoded.records_bytes))
        # length, attributes, delta, offset delta 1, null key, null value, no headers
        assert records[7:] == bytes([2 * (5 + len(data)), 0]) + data + b"\x02\x01\x01\x00"
        header = ffi.new("kl_batch *", {"last_offset_delta": 1, "record_count": 2})
        assert [r.timestamp_ms for r in golden.decode(header, records)] == [0, number]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A folder with the `.log` of the document and nothing else."""
    folder = tmp_path / "golden-0"
    folder.mkdir()
    (folder / f"{BASE}.log").write_bytes(b"".join(golden.data(name) for name in BATCHES))
    return folder


def test_other_files_are_rebuilt_from_the_log(partition):
    """Recovery makes the other files from the `.log` alone, with the documented bytes."""
    config = {"index.interval.bytes": 100}
    with kafkalog.Log(partition, config=config) as log:
        assert log.end_offset == 105
        check_state(log)
    for name, suffix in (
        ("offset-index", ".index"),
        ("time-index", ".timeindex"),
        ("aborted-transaction", ".txnindex"),
    ):
        assert (partition / f"{BASE}{suffix}").read_bytes() == golden.data(name), name
    snapshot = (partition / f"{105:020}.snapshot").read_bytes()
    assert snapshot == golden.data("producer-snapshot")
    epochs = (partition / "leader-epoch-checkpoint").read_text()
    assert epochs == golden.text("leader-epoch-checkpoint")


def test_side_car(partition):
    """Sealing the documented partition writes the documented bytes, with the documented fields."""
    (partition / "partition.metadata").write_text(golden.text("partition.metadata"))
    with kafkalog.Log(partition, config={"index.interval.bytes": 100}) as log:
        log.roll()
    stored = golden.data("side-car")
    assert (partition / f"{BASE}.chk").read_bytes() == stored
    read = sidecar.read_sidecar(stored)
    assert sidecar.render_sidecar(read) == stored
    [files, _] = list_segments(partition)
    assert sidecar.remake(files, None, read.topic_id, read.folder) == read
    told = {line.name: line.value for line in golden.fields("side-car")}
    found = [
        len(stored), read.base_offset, read.log_bytes, *read.indexes[0], *read.indexes[1],
        *read.indexes[2], read.region_bytes, len(read.regions), read.topic_id, read.folder,
        *read.regions[0],
    ]  # fmt: skip
    names = [
        "fileBytes", "baseOffset", "logBytes", "indexBytes", "indexCrc", "timeindexBytes",
        "timeindexCrc", "txnindexBytes", "txnindexCrc", "regionBytes", "regionCount", "topicId",
        "folder", "position", "regionCrc",
    ]  # fmt: skip
    assert [told[name] for name in names] == [str(value) for value in found]


def test_files_are_read_as_documented(partition):
    """A reader reads the documented values from the documented bytes."""
    for name, file in (
        ("offset-index", f"{BASE}.index"),
        ("time-index", f"{BASE}.timeindex"),
        ("aborted-transaction", f"{BASE}.txnindex"),
        ("producer-snapshot", f"{105:020}.snapshot"),
    ):
        (partition / file).write_bytes(golden.data(name))
    epochs = golden.text("leader-epoch-checkpoint")
    (partition / "leader-epoch-checkpoint").write_text(epochs)
    # Without a marker and a recovery point, the tail's index would be rebuilt, not read.
    flushed = checkpoint.render_offsets({TopicPartition("golden", 0): 105})
    (partition / checkpoint.RECOVERY_POINT).write_bytes(flushed)
    last = [f"{BASE}.log", (partition / f"{BASE}.log").stat().st_size]
    marker = checkpoint.render_marker(-1, checkpoint.Vouched(last, {}, {}))
    (partition / checkpoint.CLEAN_MARKER).write_bytes(marker)
    with kafkalog.Log(partition, mode="r") as log:
        check_state(log)


def check_state(log):
    (segment,) = log.segments
    (entry,) = segment.offset_index
    told = golden.values("offset-index")
    assert (entry["relative_offset"], entry["position"]) == tuple(told.values())
    (entry,) = segment.time_index
    told = golden.values("time-index")
    assert (entry["timestamp"], entry["relative_offset"]) == tuple(told.values())
    told = golden.values("aborted-transaction")
    (aborted,) = log.aborted(100, 105)
    assert (aborted.producer_id, aborted.first_offset) == (told["producerId"], told["firstOffset"])
    (producer,) = log.producers
    told = golden.values("producer-snapshot")
    assert producer.producer_id == told["producerId"]
    assert producer.producer_epoch == told["producerEpoch"]
    assert producer.last_sequence == told["lastSequence"]
    assert producer.last_offset == told["lastOffset"]
    lines = golden.text("leader-epoch-checkpoint").splitlines()[2:]
    assert [f"{e.epoch} {e.start_offset}" for e in log.epochs] == lines


def test_producer_snapshot():
    data = golden.data("producer-snapshot")
    out, count = ffi.new("kl_producer[1]"), ffi.new("size_t *")
    check(lib.kl_snapshot_decode(data, len(data), out, 1, count))
    told = golden.values("producer-snapshot")
    found = {
        "version": 1,
        "crc": lib.kl_crc32c(data[6:], len(data) - 6),
        "count": count[0],
        "producerId": out[0].producer_id,
        "producerEpoch": out[0].producer_epoch,
        "lastSequence": out[0].last_sequence,
        "lastOffset": out[0].last_offset,
        "offsetDelta": out[0].offset_delta,
        "timestamp": out[0].last_timestamp_ms,
        "coordinatorEpoch": out[0].coordinator_epoch,
        "currentTxnFirstOffset": out[0].txn_start_offset,
    }
    assert found == told


def test_text_files():
    stored = golden.text("checkpoint").encode()
    offsets = checkpoint.parse_offsets(stored)
    assert [tuple(tp) for tp in offsets] == [("orders", 0), ("orders", 1)]
    assert checkpoint.render_offsets(offsets) == stored
    stored = golden.text("partition.metadata").encode()
    topic_id = layout.parse_partition_metadata(stored)
    assert layout.render_partition_metadata(topic_id).rstrip() == stored.rstrip()
    properties = layout.parse_meta_properties(golden.text("meta.properties").encode())
    rendered = layout.render_meta_properties(properties).decode()
    assert set(golden.text("meta.properties").split()) <= set(rendered.split())


def test_clean_shutdown_marker(tmp_path):
    state = checkpoint.DirectoryState(tmp_path, create=True)
    try:
        state.save(log_starts={TopicPartition("orders", 0): 105})
        state.note_derived(TopicPartition("orders", 0), 3405691582)
        state.mark_clean()
    finally:
        state.close()
    stored = (tmp_path / checkpoint.CLEAN_MARKER).read_text()
    assert stored == golden.text("clean-shutdown").rstrip("\n")
