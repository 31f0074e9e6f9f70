"""A store that only reads: next to whatever process has the directory, without its lock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.log.scan.topic import TopicScan
from tests.conftest import ROOT
from tests.support.stable import stable_ends

CONFIG = {"kafkalog.durability": "os"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kafkalog.Store]:
    """It has the directory, a topic t of two partitions, and what Kafka keeps for itself."""
    with kafkalog.Store(tmp_path / "data", config=CONFIG) as made:
        made.create_topic("t", partitions=2)
        made.create_topic("empty")
        with made.producer(transactional_id="x") as producer, producer.transaction():
            producer.send("t", b"a", partition=0)
            producer.send("t", b"b", partition=1)
        stable_ends(made, "t")
        yield made


@pytest.fixture
def reader(store: kafkalog.Store) -> Iterator[kafkalog.Store]:
    with kafkalog.Store(store.path, mode="r") as made:
        yield made


def values(scan: TopicScan) -> list[bytes]:
    found: list[bytes] = scan.to_arrow()["value"].to_pylist()
    return found


def files(folder: str) -> dict[str, tuple[int, int]]:
    found = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def test_a_reader_sees_the_stores_records(store: kafkalog.Store, reader: kafkalog.Store) -> None:
    assert reader.topics == store.topics == ("empty", "t")
    assert (len(reader), "t" in reader, [*reader], len(reader["t"])) == (2, True, ["empty", "t"], 2)
    assert [[r.value for r in log.read(isolation="read_committed")] for log in reader["t"]] == [
        [b"a"], [b"b"],
    ]  # fmt: skip
    assert "__transaction_state" not in reader.topics and len(reader["__transaction_state"]) > 0


def test_a_reader_sees_later_commits(store: kafkalog.Store, reader: kafkalog.Store) -> None:
    log = reader["t"][0]
    with store.producer(transactional_id="x") as producer:
        with producer.transaction():
            producer.send("t", b"c", partition=0)
            producer.flush()
            assert values(reader.scan("t")) == [b"a", b"b"]
            everything = reader.scan("t", isolation="read_uncommitted")
            assert values(everything) == [b"a", b"c", b"b"]
        stable_ends(store, "t")
    assert values(reader.scan("t")) == [b"a", b"c", b"b"]
    assert values(reader.scan("t", partitions=[1])) == [b"b"]
    assert values(reader.scan("empty")) == []
    assert [r.value for r in log.read(isolation="read_committed")] == [b"a", b"c"]


def test_it_changes_nothing(store: kafkalog.Store) -> None:
    store.close()
    before = files(store.path)
    with kafkalog.Store(store.path, mode="r") as reader:
        assert values(reader.scan("t")) == [b"a", b"b"]
        with pytest.raises(errors.ReadOnly):
            reader["t"][0].append(b"x")
        for use in (reader.producer, reader.consumer, lambda: reader.admin,
                    lambda: kafkalog.Consumer(reader), lambda: reader.create_topic("u"),
                    lambda: reader.delete_topic("t")):  # fmt: skip
            with pytest.raises(errors.ReadOnly, match=r"mode 'r', .* wants mode 'w'"):
                use()
    assert files(store.path) == before


def test_a_topic_that_was_made_again_is_read_as_it_is_now(
    store: kafkalog.Store, reader: kafkalog.Store
) -> None:
    assert values(reader.scan("t")) == [b"a", b"b"]
    store.delete_topic("t")
    with pytest.raises(errors.UnknownTopicOrPartition, match="no topic 't'"):
        reader.scan("t")
    store.create_topic("t")
    store["t"][0].append(b"new")
    assert values(reader.scan("t")) == [b"new"]
    with pytest.raises(errors.UnknownTopicOrPartition, match="no partition 1: it has 1"):
        reader["t"][1]


def test_partitions_that_lie_elsewhere(store: kafkalog.Store, reader: kafkalog.Store) -> None:
    """On a node of a cluster, or where a folder was moved away: the others are read."""
    store.close()
    (Path(store.path) / "t-0").rename(Path(store.path).parent / "away")
    assert values(reader.scan("t")) == [b"b"]
    assert [log.partition for log in reader["t"]] == [1]
    with pytest.raises(errors.UnknownTopicOrPartition, match="no partition 0"):
        reader["t"][0]


def test_refused_calls(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound, match="no such directory"):
        kafkalog.Store(tmp_path / "none", mode="r")
    assert not (tmp_path / "none").exists()
    with pytest.raises(errors.ArgumentError, match="mode: found 'a', wanted 'r' or 'w'"):
        kafkalog.Store(tmp_path, mode="a")
    with pytest.raises(errors.ArgumentError, match="mode 'r'"):
        kafkalog.Store(tmp_path, config=CONFIG, mode="r")


def test_its_end_closes_its_logs(reader: kafkalog.Store) -> None:
    log = reader["t"][0]
    assert "mode='r'" in repr(reader) and reader["t"][0] is not log
    reader.close()
    reader.close()
    for use in (lambda: reader.topics, lambda: reader["t"], lambda: reader.scan("t"),
                reader.producer, lambda: log[0]):  # fmt: skip
        with pytest.raises(errors.Closed):
            use()


def test_another_process_reads(store: kafkalog.Store) -> None:
    code = (
        "import sys, kafkalog\n"
        "with kafkalog.Store(sys.argv[1], mode='r') as store:\n"
        "    print(store.topics, store.scan('t').count())"
    )
    words = [sys.executable, "-c", code, store.path]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, text=True)
    assert ran.stdout == "('empty', 't') 2\n"
