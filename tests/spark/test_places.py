"""Places: queries that planning repeats often, and what it keeps open for them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog.columns import NAMES
from pyspark_kafkalog.errors import ReadError
from pyspark_kafkalog.options import parse_batch
from pyspark_kafkalog.places import open_place
from pyspark_kafkalog.places.brokers import Brokers, even_marks
from pyspark_kafkalog.places.opened import Opened
from pyspark_kafkalog.plan import Ends, Range

import kafkalog
from kafkalog.client.fetch import ranges
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.link.cluster import Cluster
from kafkalog.disk import checkpoint
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.port import Port
from tests.spark.conftest import write_topic
from tests.spark.reading import reader

A0, A1 = ("a", 0), ("a", 1)
IMPATIENT = {"kafka.default.api.timeout.ms": "1", "fetchoffset.numretries": "1"}


@pytest.fixture
def opens(monkeypatch) -> list[str]:
    """The names of all logs that are opened."""
    seen: list[str] = []

    class Counted(kafkalog.Log):
        def __init__(self, path, *args, **named):
            seen.append(Path(path).name)
            super().__init__(path, *args, **named)

    monkeypatch.setattr(kafkalog, "Log", Counted)
    return seen


def test_the_ends_are_asked_of_logs_that_stay_open(tmp_path, opens):
    """A stream asks for them a hundred times a second."""
    write_topic(tmp_path, "a", 2, 10)
    place = open_place(parse_batch({"path": str(tmp_path), "subscribe": "a"}, NAMES))
    keys = place.present()
    opens.clear()
    for _ in range(50):
        assert place.ends(keys) == {A0: Ends(0, 10), A1: Ends(0, 10)}
    assert sorted(opens) == ["a-0", "a-1"]
    with kafkalog.Log(tmp_path / "a-1") as log:
        log.append(b"x")
        assert place.ends(keys)[A1] == Ends(0, 11)
        log.delete_before(7)
        assert place.ends(keys)[A1] == Ends(7, 11)
    assert sorted(opens) == ["a-0", "a-1", "a-1"]
    place.close()


def test_a_plan_parses_directory_files_once(tmp_path, monkeypatch):
    """Once, not for each partition, whose lines are all in the same files."""
    partitions = 20
    with kafkalog.Store(tmp_path) as store:
        store.create_topic("a", partitions)
        for log in store["a"]:
            log.append_many([b"x"] * (log.partition + 1))
    parsed = []
    for name in ("parse_offsets", "parse_marker"):
        real = getattr(checkpoint, name)
        counted = lambda data, name=name, real=real: parsed.append(name) or real(data)  # noqa: E731
        monkeypatch.setattr(checkpoint, name, counted)
    tasks = reader({"path": str(tmp_path), "subscribe": "a"}).partitions()
    ranges = [one.range for task in tasks for one in task.pieces]
    assert [(one.start, one.stop) for one in ranges] == [(0, n + 1) for n in range(partitions)]
    files = 4
    assert parsed.count("parse_offsets") <= files and parsed.count("parse_marker") <= 1


def test_a_deleted_or_recreated_partition_is_noticed(tmp_path, opens):
    write_topic(tmp_path, "a", 2, 10)
    place = open_place(parse_batch({"path": str(tmp_path), "subscribe": "a"}, NAMES))
    keys = place.present()
    before = place.identities(keys)
    assert set(place.ends(keys)) == {A0, A1}
    (tmp_path / "a-0").rename(tmp_path / "old")
    assert set(place.ends(keys)) == {A1} == set(place.identities(keys))
    assert "a-0" in place.told_gone(A0)
    write_topic(tmp_path, "a", 1, 3)
    assert place.ends(keys)[A0] == Ends(0, 3)
    assert place.identities(keys)[A0] != before[A0]
    place.close()


def test_a_partition_without_segments_is_empty_and_then_not(tmp_path):
    with kafkalog.Store(tmp_path) as store:
        store.create_topic("a", 1)
        place = open_place(parse_batch({"path": str(tmp_path), "subscribe": "a"}, NAMES))
        keys = [A0]
        assert A0 in place.present()
        assert place.ends(keys) == {A0: Ends(0, 0)}
        assert place.at_times({A0: 5}) == {A0: None}
        store["a"][0].append(b"x")
        assert place.ends(keys) == {A0: Ends(0, 1)}
        place.close()


def test_few_descriptors_are_kept(tmp_path):
    for number in range(6):
        write_topic(tmp_path, f"t{number}", 1, 100)
    folders = [str(tmp_path / f"t{number}-0") for number in range(6)]
    opened = Opened(files_max=3)
    logs = [opened.get(folder, ("t", 0)) for folder in folders]
    assert len(opened) < 3 and logs[0].closed and not logs[-1].closed
    with opened.lent(folders[0], ("t", 0)) as lent:
        for folder in folders[1:]:
            opened.get(folder, ("t", 0))
        opened.forget(folders[0])
        assert not lent.closed and len(list(lent.read())) == 100
    assert lent.closed
    opened.close()
    assert len(opened) == 0


# ---- brokers


def test_a_broker_that_is_not_there_is_named():
    with closing(Port()) as port:
        at = f"127.0.0.1:{port.number}"
        with pytest.raises(ReadError, match=f"the brokers at {at}, asked from .*PeerGone"):
            DefaultSource({"kafka.bootstrap.servers": at, "subscribe": "a", **IMPATIENT}).schema()


def test_damage_at_a_broker_is_named_with_a_remedy(tmp_path):
    with TestBroker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        with kafkalog.Admin(servers) as admin:
            admin.create_topics([("a", 1)]).check()
        with kafkalog.Producer(servers) as producer:
            for i in range(3):
                producer.send("a", b"%d" % i * 100, partition=0).result()
        made = reader({"kafka.bootstrap.servers": servers, "subscribe": "a"})
        (task,) = made.partitions()
        file = tmp_path / "a-0" / f"{0:020}.log"
        data = bytearray(file.read_bytes())
        data[-10] ^= 1
        file.write_bytes(data)
        batches = made.read(task)
        assert next(batches).num_rows == 2
        with pytest.raises(ReadError, match="a-0, offsets 0 to 3, of the brokers at") as told:
            list(batches)
    for words in ("CorruptMessage", "offset 2", "kafkalog verify", "startingOffsets"):
        assert words in str(told.value)


def test_marks_are_even_and_bounded():
    marks = even_marks(Range(A0, 10, 110), 50.0, 1_000)
    assert (marks.offsets, marks.bytes_before) == (
        [10, 30, 50, 70, 90, 110],
        [0, 1000, 2000, 3000, 4000, 5000],
    )
    assert even_marks(Range(A0, 5, 6), 1e9, 1).offsets == [5, 6]
    assert len(even_marks(Range(A0, 0, 1 << 40), 1e3, 1).offsets) == (1 << 16) + 1


def test_sizes_are_believed_for_a_while(tmp_path, monkeypatch):
    """A stream asks for them with each batch."""
    with kafkalog.Store(tmp_path) as store:
        store.create_topic("a")[0].append_many([b"x" * 1000] * 1000, batch_bytes=10_000)
        place = Brokers("unused:1", "read_committed")
        place._made = Cluster(store), FetchOptions()
        rounds = []
        real = ranges.sample_bytes
        monkeypatch.setattr(
            ranges, "sample_bytes", lambda *args: rounds.append(args) or real(*args)
        )
        options = parse_batch({"path": "x", "subscribe": "a"}, NAMES)
        for _ in range(3):
            marks = place.marks([Range(A0, 0, 1000)], options)[A0]
        assert len(rounds) == 2  # at the start, and in the middle
        assert 1_000_000 < marks.bytes_before[-1] < 1_100_000
        place.close()
