"""Every clean partition that Kafka wrote gives exactly Kafka's answers.

Once on the read-only folder, once through a writable copy, which opening, reading and
closing must leave unchanged, byte for byte.
"""

import pytest

import kafkalog
from tests.support import kafka_data, trees
from tests.support.answers import find_largest_time, find_time, read_all

READABLE = kafka_data.readable()
ANSWERED = [p for p in READABLE if kafka_data.has_expected_records(p)]


def where(values):
    return {"argvalues": values, "ids": kafka_data.ids(values)}


@pytest.fixture(params=["r", "w"], scope="class")
def log(request, partition, writable):
    """The partition, opened for reading in place and for writing in a copy; shared by all its
    tests."""
    if request.param == "r":
        path = partition.path
    else:
        path = writable(partition.directory) / partition.folder
    with kafkalog.Log(path, mode=request.param) as opened:
        yield opened


@pytest.mark.parametrize("partition", **where(ANSWERED), scope="class")
class TestAnswers:
    def test_records(self, log, partition):
        assert read_all(log) == kafka_data.expected_records(partition)

    def test_committed_records(self, log, partition):
        expected = kafka_data.expected_records(partition, committed=True)
        assert read_all(log, isolation="read_committed") == expected

    def test_ends(self, log, partition):
        for row in kafka_data.expected_rows(partition, "ends.jsonl"):
            assert log.start_offset == row["log_start_offset"]
            assert log.high_watermark == row["high_watermark"] == log.end_offset
            assert log.last_stable_offset == row["last_stable_offset"]

    def test_lookups(self, log, partition):
        wrong = []
        for row in kafka_data.expected_rows(partition, "lookups.jsonl"):
            query, expected = row["query"], (row["offset"], row["timestamp"])
            if query == "earliest":
                found = (log.start_offset, None)
            elif query == "latest":
                found = (log.high_watermark, None)
            elif query == "max_timestamp":
                found, epoch = find_largest_time(log)
                expected, found = (*expected, row["leader_epoch"]), (*found, epoch)
            else:
                found, epoch = find_time(log, query)
                expected, found = (*expected, row["leader_epoch"]), (*found, epoch)
            if found != expected:
                wrong.append((query, found, expected))
        assert wrong == []

    def test_producers(self, log, partition):
        rows = kafka_data.expected_rows(partition, "producers.jsonl")
        if (partition.expected / "producers.jsonl").exists():
            found = [
                {
                    "topic": partition.topic,
                    "partition": partition.number,
                    "producer_id": p.producer_id,
                    "producer_epoch": p.producer_epoch,
                    "last_sequence": p.last_sequence,
                    "last_timestamp": p.last_timestamp_ms,
                    "coordinator_epoch": p.coordinator_epoch,
                    "txn_start_offset": None if p.txn_start_offset < 0 else p.txn_start_offset,
                }
                for p in log.producers
            ]
            assert found == sorted(rows, key=lambda row: row["producer_id"])

    def test_scan_and_read_count_alike(self, log, partition):
        for isolation, committed in (("read_uncommitted", False), ("read_committed", True)):
            expected = kafka_data.expected_records(partition, committed=committed)
            assert log.scan(isolation=isolation).count() == len(expected)


def removed_at_a_start(path):
    """Names of .deleted files, and of snapshots at no segment's base except the newest."""
    bases = {file.stem for file in path.glob("*.log")}
    old_snapshots = sorted(path.glob("*.snapshot"))[:-1]
    return {file.name for file in path.glob("*.deleted")} | {
        file.name for file in old_snapshots if file.stem not in bases
    }


@pytest.mark.parametrize("partition", **where(READABLE))
def test_opening_reading_and_closing_changes_no_data(partition, tmp_path):
    """Kafka's own files stay as Kafka wrote them, except those that Kafka would remove, too."""
    directory = tmp_path / partition.directory.name
    directory.mkdir()
    for entry in partition.directory.iterdir():
        if entry.is_file():
            (directory / entry.name).write_bytes(entry.read_bytes())
    copy = trees.copy_tree(partition.path, directory / partition.folder)

    going = removed_at_a_start(copy)
    before = {name: f for name, f in trees.fingerprint(copy).items() if name not in going}
    with kafkalog.Log(copy) as log:
        opened = (log.start_offset, log.end_offset, log.last_stable_offset)
        first = read_all(log)
    after = trees.fingerprint(copy)
    assert {name: after.get(name) for name in before} == before

    with kafkalog.Log(copy, mode="r") as log:
        assert (log.start_offset, log.end_offset, log.last_stable_offset) == opened
        assert read_all(log) == first


@pytest.mark.parametrize("partition", **where(READABLE))
def test_reading_writes_nothing(partition, tmp_path):
    copy = trees.copy_tree(partition.path, tmp_path / partition.folder)
    before = trees.fingerprint(tmp_path)
    with kafkalog.Log(copy, mode="r") as log:
        read_all(log)
        log.find_time(0)
        assert log.verify().clean
    assert trees.fingerprint(tmp_path) == before


@pytest.mark.parametrize("partition", **where(kafka_data.old_formats()))
@pytest.mark.parametrize("mode", ["r", "w"])
def test_old_formats_are_refused_by_name(partition, mode, tmp_path):
    """Formats 0 and 1 are named, and such a partition is not touched."""
    directory = tmp_path / partition.directory.name
    directory.mkdir()
    for entry in partition.directory.iterdir():
        if entry.is_file():
            (directory / entry.name).write_bytes(entry.read_bytes())
    copy = trees.copy_tree(partition.path, directory / partition.folder)
    before = trees.fingerprint(copy)
    refused = pytest.raises(kafkalog.errors.UnsupportedForMessageFormat, match=r"magic [01]")
    with refused, kafkalog.Log(copy, mode=mode) as log:
        read_all(log)
    assert trees.fingerprint(copy) == before
