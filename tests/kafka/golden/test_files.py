"""The files next to the log: what we rebuild or decode equals what Kafka wrote or printed."""

import json
import re
from functools import lru_cache

import pytest

import kafkalog
from kafkalog import errors
from tests.support import batches, kafka_data, trees

SEGMENTED = [p for p in kafka_data.readable() if re.fullmatch(r"seg\d+", p.topic)]
READABLE = kafka_data.readable()


@pytest.mark.parametrize("partition", SEGMENTED, ids=kafka_data.ids(SEGMENTED))
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_rebuilt_indexes_are_kafkas_byte_for_byte(partition, suffix, tmp_path):
    """There each producer's batch was one append, so the sparse rule has only one result.

    The topics are named after their index.interval.bytes.
    """
    copy = trees.copy_tree(partition.path, tmp_path / partition.folder)
    written = {path.name: path.read_bytes() for path in copy.glob(f"*{suffix}")}
    assert len(written) == len(list(copy.glob("*.log")))
    for index in copy.glob("*index"):
        index.unlink()
    interval = int(partition.topic.removeprefix("seg"))
    with kafkalog.Log(copy, config={"index.interval.bytes": interval}):
        pass
    assert {path.name: path.read_bytes() for path in copy.glob(f"*{suffix}")} == written


@pytest.mark.parametrize("partition", READABLE, ids=kafka_data.ids(READABLE))
def test_verify_finds_kafkas_files_clean(partition):
    with kafkalog.Log(partition.path, mode="r") as log:
        report = log.verify()
    assert report.clean, report


@pytest.mark.parametrize("partition", READABLE, ids=kafka_data.ids(READABLE))
def test_segments_cover_the_log(partition):
    """Bases, sizes and index entries match the folder; the ranges are adjacent."""
    with kafkalog.Log(partition.path, mode="r") as log:
        segments, end = log.segments, log.end_offset
        files = sorted(partition.path.glob("*.log"))
        assert [s.base_offset for s in segments] == [int(path.stem) for path in files]
        assert [s.size_bytes for s in segments] == [path.stat().st_size for path in files]
        assert [s.next_offset for s in segments] == [*(int(p.stem) for p in files[1:]), end]
        for segment, path in zip(segments, files, strict=True):
            index = path.with_suffix(".index").read_bytes()
            assert len(segment.offset_index) == len(index) // 8
            stored = [int.from_bytes(index[i : i + 4], "big") for i in range(0, len(index), 8)]
            offsets = segment.offset_index["relative_offset"].tolist()
            assert offsets == stored


@pytest.mark.parametrize("partition", READABLE, ids=kafka_data.ids(READABLE))
def test_leader_epochs(partition):
    """The checkpoint's entries, and the end of each epoch as in OffsetForLeaderEpoch."""
    lines = (partition.path / "leader-epoch-checkpoint").read_text().split("\n")[2:]
    stored = [tuple(map(int, line.split())) for line in lines if line]
    with kafkalog.Log(partition.path, mode="r") as log:
        assert [(e.epoch, e.start_offset) for e in log.epochs] == stored
    path = partition.expected / "epochs.json"
    if path.exists():
        expected = json.loads(path.read_text())[partition.directory.name][partition.folder]
        assert [list(entry) for entry in stored] == expected


@lru_cache(maxsize=64)
def dump_sections(path):
    """DumpLogSegments' text by dumped file: "tx-a-0/00000000000000000052.snapshot" to lines."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("Dumping "):
            name = "/".join(line.removeprefix("Dumping ").split("/")[-2:])
            lines = sections.setdefault(name, [])
        else:
            lines.append(line)
    return sections


def dumped(partition, suffix):
    """(path, lines) of each of the partition's files with this suffix that Kafka dumped."""
    for text in sorted(partition.expected.glob("dump*.txt")):
        if text.stem.count(".") and partition.directory.name not in ("log", text.suffixes[0][1:]):
            continue
        for name, lines in dump_sections(text).items():
            folder, _, file = name.partition("/")
            if folder == partition.folder and file.endswith(suffix):
                yield partition.path / file, lines


DUMPED = [p for p in READABLE if list(dumped(p, ".log"))]


@pytest.mark.parametrize("partition", DUMPED, ids=kafka_data.ids(DUMPED))
def test_aborted_transactions_are_those_of_the_dumps(partition):
    expected = []
    for _, lines in dumped(partition, ".txnindex"):
        for line in lines:
            numbers = [int(n) for n in re.findall(r": (-?\d+)", line)]
            if len(numbers) == 5:
                expected.append(tuple(numbers[1:]))
    expected.sort(key=lambda entry: entry[2])
    with kafkalog.Log(partition.path, mode="r") as log:
        found = log.aborted(log.start_offset, log.end_offset)
        start = log.start_offset
    assert [
        (a.producer_id, a.first_offset, a.last_offset, a.last_stable_offset) for a in found
    ] == [entry for entry in expected if entry[2] >= start]


BATCH_LINE = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* partitionLeaderEpoch: (-?\d+) .*"
    r" position: \d+ .* size: (\d+) magic: 2 .* crc: (\d+) isvalid: true"
)


@pytest.mark.parametrize("partition", DUMPED, ids=kafka_data.ids(DUMPED))
def test_batches_are_those_of_the_dumps(partition):
    """Offsets, positions, sizes and checksums, as the engine reads them back raw."""
    expected = []
    for path, lines in dumped(partition, ".log"):
        matches = filter(None, map(BATCH_LINE.match, lines))
        if path.exists():
            expected += [tuple(map(int, match.groups())) for match in matches]
    with kafkalog.Log(partition.path, mode="r") as log:
        raw, offset = b"", log.start_offset
        while chunk := log.read_batches(offset, isolation="log_end"):
            raw += chunk
            offset = max(h.last_offset for h in batches.headers(chunk)) + 1
        start = log.start_offset
    found = [
        (h.base_offset, h.last_offset, h.record_count, h.leader_epoch, h.batch_bytes, h.crc)
        for h in batches.headers(raw)
    ]
    assert found == sorted(batch for batch in expected if batch[1] >= start)


def test_every_status_that_the_data_needs_has_a_class():
    """oldformats and unclean differ by class, not by text."""
    assert issubclass(errors.CorruptMessage, kafkalog.KafkalogError)
    assert issubclass(errors.UnsupportedForMessageFormat, kafkalog.KafkalogError)
    assert errors.CorruptMessage.code == 2
    assert errors.UnsupportedForMessageFormat.code == 43
