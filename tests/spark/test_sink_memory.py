"""How a target recognizes a repeated write: by query, batch and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark_kafkalog.sink import memory, upkeep
from pyspark_kafkalog.sink.rows import SinkError

import kafkalog
from kafkalog import TopicPartition
from tests.spark.writing import Job, batch, values

FOREACH = {"sinkId": "etl", "batchId": "7"}
QUERY = "5f0c8f5e-5b0e-4f6e-9d5e-6a2f7c1d9b3a"


def written(target: Path) -> dict[str, list[str]]:
    """The committed values of each topic."""
    with kafkalog.Store(target) as store:
        return {
            topic: [
                (one.value or b"").decode()
                for log in store[topic]
                for one in log.read(isolation="read_committed")
            ]
            for topic in store.topics
        }


def rows(**topics: str) -> list[Any]:
    """A task's batches: a row with this value for each topic."""
    return [batch(value=[v.encode() for v in topics.values()], topic=list(topics))]


@pytest.fixture
def run() -> Iterator[Callable[[str], None]]:
    """Make tasks belong to a run of a query that writes by foreachBatch."""

    def begin(name: str) -> None:
        context = TaskContext._getOrCreate()
        context._localProperties = {"sql.streaming.queryId": QUERY, "spark.jobGroup.id": name}

    yield begin
    TaskContext._taskContext = None


def test_foreach_batch_writes_to_two_topics(job: Job, tmp_path: Path) -> None:
    """Each is a separate write; all are recognized when the batch runs again, in any order."""
    for number in ("0", "1"):
        for order in (("good", "bad"), ("bad", "good")):
            for topic in order:
                job(values(f"{topic} {number}"), topic=topic, sinkId="etl", batchId=number)
    assert written(tmp_path / "data") == {t: [f"{t} 0", f"{t} 1"] for t in ("bad", "good")}


def test_a_batch_that_broke_off_between_two_writes(job: Job, tmp_path: Path) -> None:
    """Only the missing write is made when it runs again."""
    job(values("x"), topic="good", **FOREACH)
    for topic in ("good", "bad"):
        job(values("x"), topic=topic, **FOREACH)
    assert written(tmp_path / "data") == {"bad": ["x"], "good": ["x"]}


def test_writes_that_share_a_topic(job: Job, tmp_path: Path) -> None:
    """The topics come from the rows."""
    some = [rows(a="1", b="1"), rows(b="2", c="2"), rows(b="3"), rows(a="4", b="4", c="4")]
    for _ in range(2):
        for one in some:
            job(one, schema="all", topic="", **FOREACH)
    job(rows(b="5"), schema="all", topic="", sinkId="etl", batchId="8")
    found = written(tmp_path / "data")
    assert found == {"a": ["1", "4"], "b": ["1", "2", "3", "4", "5"], "c": ["2", "4"]}


def test_a_second_write_to_the_same_topics_is_dropped_with_a_warning(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be another write, by its number of rows, or the same one with other rows."""
    for some in (values("a"), values("a"), values("b", "c")):
        assert not caplog.records
        job(some, **FOREACH)
    (told,) = caplog.messages
    assert "sinkId etl, batch 7: not written: " in told
    assert "has this batch in t with 1 rows, and this write has 2. Two writes of a batch" in told
    assert written(tmp_path / "data") == {"t": ["a"]}


def test_a_second_write_to_the_same_topics_in_one_run_is_refused(
    job: Job, tmp_path: Path, run: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A run of a query writes a batch once, so this is another write."""
    run("run 1")
    job(values("a"), **FOREACH)
    with pytest.raises(
        SinkError, match=r"in t with 1 rows, and this write has 2.*different sinkIds"
    ):
        job(values("b", "c"), **FOREACH)
    assert not caplog.records
    job(values("b"), **FOREACH)  # it may be a retry
    assert "and this write has 1" in caplog.text
    caplog.clear()
    run("run 2")
    job(values("b"), **FOREACH)
    assert not caplog.records
    assert written(tmp_path / "data") == {"t": ["a"]}


def test_too_many_writes_of_a_batch_are_refused(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "WRITES_MAX", 2)
    for topics in ({"a": "1"}, {"a": "2", "b": "2"}):
        job(rows(**topics), schema="all", topic="", **FOREACH)
    with pytest.raises(SinkError, match="found 3 writes to topic a, wanted at most 2"):
        job(rows(a="3", c="3"), schema="all", topic="", **FOREACH)
    assert written(tmp_path / "data") == {"a": ["1", "2"], "b": ["2"], "c": []}


def test_the_state_of_the_most_writes_fits() -> None:
    """Into 4096 bytes, Kafka's default limit."""
    known = {f"{n:016x}": 10**12 for n in range(memory.WRITES_MAX - 1)}
    write = memory.Write("s", 10**17, QUERY, QUERY, ("t",), 10**12)
    last = memory.Remembered(10**17, QUERY, QUERY, known)
    ((_, _, text),) = memory.offsets(write, {"t": last}).values()
    assert len(text) <= 4096


# ---- journals ------------------------------------------------------------------------------


def journal_bytes(directory: Path) -> int:
    """The bytes of the logs of __consumer_offsets, without those that compaction has replaced."""
    return sum(one.stat().st_size for one in directory.glob("__consumer_offsets-*/*.log"))


def test_a_directory_that_is_only_open_for_deliveries_has_its_journals_compacted(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each delivery reads them, and no broker runs for long enough to compact them."""
    monkeypatch.setitem(upkeep.SEGMENTS, "offsets.topic.segment.bytes", 1 << 20)
    job(values("a"), **FOREACH)
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("wide", 4)
        for number in range(250):
            at = {TopicPartition("wide", p): (number, -1, "m" * 4_000) for p in range(4)}
            store.admin.alter_group_offsets("g", at).check()
    before = journal_bytes(tmp_path / "data")
    assert before > 4_000_000
    job(values("b"), sinkId="etl", batchId="8")
    assert journal_bytes(tmp_path / "data") < before / 2
    for number in ("7", "8"):
        job(values("c"), sinkId="etl", batchId=number)
    assert written(tmp_path / "data")["t"] == ["a", "b"]
    with kafkalog.Store(tmp_path / "data") as store:
        found = store.admin.list_group_offsets("g")
    assert [one.offset for one in found.values()] == [249] * 4


# ---- commits of others --------------------------------------------------------------------


def consume(target: Path, group: str, topic: str = "t") -> list[bytes | None]:
    """The records that a consumer of a group gets; it then commits."""
    config = {"auto.offset.reset": "earliest"}
    at = TopicPartition(topic, 0)
    found: list[bytes | None] = []
    with (
        kafkalog.Store(target) as store,
        store.consumer(topic, group=group, config=config) as consumer,
    ):
        end = consumer.end_offsets([at])[at]
        while at not in consumer.assignment or consumer.position(at) < end:
            found += [one.value for one in consumer.poll(1_000)]
        consumer.commit()
    return found


def test_a_sink_and_a_consumer_group_of_the_same_name(job: Job, micro: Any, tmp_path: Path) -> None:
    """Neither takes the other's offsets for its own."""
    for number in range(3):
        job(values(f"old {number}"))
    assert len(consume(tmp_path / "data", "late")) == 3
    for number in range(3):
        writer, messages = micro(number, values("new"), query=QUERY, sinkId="late")
        writer.commit(messages, number)
        job(values("routed"), topic="u", sinkId="late", batchId=str(number))
    assert consume(tmp_path / "data", "late") == [b"new"] * 3
    assert consume(tmp_path / "data", "late", "u") == [b"routed"] * 3


def test_a_batch_write_and_a_consumer_group_of_the_same_name(job: Job, tmp_path: Path) -> None:
    """The group's offsets have no metadata, as those of older batch writes."""
    for number in range(3):
        job(values(f"old {number}"))
    consume(tmp_path / "data", "late")
    job(values("new"), sinkId="late", batchId="0")
    assert written(tmp_path / "data")["t"][-1] == "new"


def test_a_group_of_another_application_is_refused(job: Job, tmp_path: Path) -> None:
    job(values("a"))
    consume(tmp_path / "data", "spark-sink-etl")
    with pytest.raises(SinkError, match=r"group spark-sink-etl: found offset 2 of t-0 with the"):
        job(values("b"), **FOREACH)
    assert written(tmp_path / "data") == {"t": ["a"]}


# ---- offsets of older versions ------------------------------------------------------------


def remember(target: Path, offset: int, query: str, *topics: str) -> None:
    """As an older version did, which knew only the batch, under the sink's own name."""
    with kafkalog.Store(target) as store:
        for topic in topics:
            if topic not in store:
                store.create_topic(topic)
        with store.producer(transactional_id="etl") as producer, producer.transaction():
            at = {TopicPartition(topic, 0): (offset, -1, query) for topic in topics}
            producer.send_offsets(at, "etl")


def test_a_stream_goes_on_where_an_older_version_stopped(micro: Any, tmp_path: Path) -> None:
    remember(tmp_path / "data", 3, QUERY, "t", "u")
    for number in (1, 2, 3):
        writer, messages = micro(number, values(str(number)), query=QUERY, sinkId="etl")
        writer.commit(messages, number)
    assert written(tmp_path / "data") == {"t": ["3"], "u": []}


def test_foreach_batch_goes_on_where_an_older_version_stopped(job: Job, tmp_path: Path) -> None:
    """A batch is dropped for the topics that it wrote, and written to others."""
    remember(tmp_path / "data", 8, "", "t")
    for number in ("6", "7", "8"):
        for topic in ("t", "u"):
            job(values(number), topic=topic, sinkId="etl", batchId=number)
    assert written(tmp_path / "data") == {"t": ["8"], "u": ["6", "7", "8"]}
