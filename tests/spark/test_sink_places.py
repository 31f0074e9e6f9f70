"""The sink with a broker as its target, Apache Kafka's and ours: the same rows, once.

Writers are pickled as Spark does; a consumer of committed records reads what they wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalog.sink import delivery
from pyspark_kafkalog.sink.rows import SinkError

import kafkalog
from kafkalog.testing.broker import TestBroker
from tests.spark.conftest import START_MS
from tests.spark.reading import reader, run
from tests.spark.writing import Job, batch, values
from tests.support.stable import stable_ends

PARTITIONS = 3


class Target:
    """A topic of a broker, and the options of a write to it."""

    def __init__(self, servers: str, topic: str, staging: Path) -> None:
        self.servers, self.topic = servers, topic
        self.options = {
            "path": "", "kafka.bootstrap.servers": servers, "topic": topic,
            "stagingDir": str(staging),
        }  # fmt: skip
        with kafkalog.Admin(servers) as admin:
            admin.create_topics([kafkalog.NewTopic(topic, PARTITIONS)]).check()

    def micro(self, micro: Any, number: int, *tasks: Any) -> Any:
        """A micro-batch of a separate query."""
        return micro(number, *tasks, query=self.topic, **self.options)

    def records(self) -> list[Any]:
        """The committed records, by partition and offset."""
        ends = stable_ends(self.servers, self.topic)
        config = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        found = []
        with kafkalog.Consumer(self.servers, config=config) as consumer:
            consumer.assign(list(ends))
            while any(consumer.position(part) < end for part, end in ends.items()):
                found += consumer.poll(1.0)
        return sorted(found, key=lambda one: (one.partition, one.offset))

    def values(self) -> list[bytes]:
        return [one.value for one in self.records()]


@pytest.fixture
def target(servers: str, unique: str, tmp_path: Path) -> Target:
    return Target(servers, unique[-60:].strip("-"), tmp_path / "staging")


def test_every_column(target: Target, job: Job) -> None:
    rows = batch(
        key=[b"k", None, b""],
        value=[b"1", None, b"3"],
        partition=[2, 0, 2],
        timestamp=[START_MS * 1000 + 1999, 0, 1000],
        headers=[[{"key": "h", "value": b"v"}, {"key": "n", "value": None}], None, []],
    )
    job([rows], schema="all", **target.options)
    found = target.records()
    assert [(one.partition, one.key, one.value) for one in found] == [
        (0, None, None), (2, b"k", b"1"), (2, b"", b"3"),
    ]  # fmt: skip
    assert [one.timestamp_ms for one in found] == [0, START_MS + 1, 1]
    assert [tuple(h) for h in found[1].headers] == [("h", b"v"), ("n", None)]
    assert not list(Path(target.options["stagingDir"]).iterdir())


def test_keys_find_their_partitions_and_keep_their_order(target: Target, job: Job) -> None:
    """As with a producer of the target's own; many batches, and compressed."""
    keys = [f"k{i % 50}" for i in range(3000)]
    texts = [str(i) for i in range(3000)]
    some = [
        batch("text", key=keys[at : at + 700], value=texts[at : at + 700])
        for at in range(0, 3000, 700)
    ]
    more = {"kafka.compression.type": "zstd", "kafka.batch.size": "4000"}
    job(some, schema="text", **more, **target.options)
    found = target.records()
    places: dict[bytes, set[int]] = {}
    of_key: dict[bytes, list[int]] = {}
    for one in found:
        places.setdefault(one.key, set()).add(one.partition)
        of_key.setdefault(one.key, []).append(int(one.value))
    assert all(len(each) == 1 for each in places.values()) and len(places) == 50
    assert of_key == {f"k{i}".encode(): list(range(i, 3000, 50)) for i in range(50)}


def test_a_micro_batch_is_there_once(target: Target, micro: Any) -> None:
    """Run again, as after a crash before Spark recorded the commit; committed twice; a next one."""
    for _ in range(2):
        writer, messages = target.micro(micro, 0, values("a"), values("b"))
        writer.commit(messages, 0)
    writer.commit(messages, 0)
    writer, messages = target.micro(micro, 1, values("c"))
    writer.commit(messages, 1)
    assert sorted(target.values()) == [b"a", b"b", b"c"]


def test_a_batch_write_that_an_older_version_made(target: Target, job: Job) -> None:
    """It remembered only the batch, in a group with the sink's own name."""
    with (
        kafkalog.Producer(target.servers, transactional_id=target.topic) as producer,
        producer.transaction(),
    ):
        at = {kafkalog.TopicPartition(target.topic, 0): (8, -1, "")}
        producer.send_offsets(at, target.topic)
    for number in ("7", "8"):
        job(values(number), sinkId=target.topic, batchId=number, **target.options)
    assert target.values() == [b"8"]


@pytest.mark.parametrize("step", ["_write", "_recall", "_send"])
def test_a_delivery_that_breaks_off(
    target: Target, micro: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Nothing of it is visible, and the next run of the batch writes it whole."""

    def breaking(real: Callable[..., Any]) -> Callable[..., Any]:
        def broken(*args: Any) -> Any:
            real(*args)
            raise SystemExit(9)

        return broken

    writer, messages = target.micro(micro, 0, values("a"))
    writer.commit(messages, 0)
    writer, messages = target.micro(micro, 1, values("b"), values("c"))
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(delivery, step, breaking(getattr(delivery, step)))
        writer.commit(messages, 1)
    committed = step == "_write"
    assert sorted(target.values()) == ([b"a", b"b", b"c"] if committed else [b"a"])
    writer, messages = target.micro(micro, 1, values("b"), values("c"))
    writer.commit(messages, 1)
    assert sorted(target.values()) == [b"a", b"b", b"c"]


def test_a_driver_that_was_thought_dead_writes_no_more(target: Target, micro: Any) -> None:
    """By then another driver uses the sink's transactional id."""
    writer, messages = target.micro(micro, 0, values("a"))
    with kafkalog.Producer(target.servers, transactional_id=target.topic) as old:
        old.begin_transaction()
        old.send(target.topic, b"old", partition=0)
        old.flush()
        writer.commit(messages, 0)
        with pytest.raises(kafkalog.errors.ProducerFenced):
            old.commit_transaction()
    assert target.values() == [b"a"]


def test_a_transaction_that_hides_a_batch_is_named(
    target: Target, job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyspark_kafkalog")
    name = f"{target.topic}-other"
    with kafkalog.Producer(target.servers, transactional_id=name) as other:
        other.begin_transaction()
        other.send(target.topic, b"old", partition=1)
        other.flush()
        job([batch(value=[b"x", b"y"], partition=[0, 1])], schema="all", **target.options)
        other.abort_transaction()
    (told,) = [one for one in caplog.messages if "hidden from readers" in one]
    assert f"the open transaction of '{name}' in {target.topic}-1, open since " in told
    assert sorted(target.values()) == [b"x", b"y"]


def test_rows_that_the_target_refuses(target: Target, job: Job) -> None:
    rows = batch(value=[b"x", b"y"], partition=[0, PARTITIONS])
    with pytest.raises(SinkError, match="partition"):
        job([rows], schema="all", **target.options)
    large = batch(value=[b"x", b"y" * (2 << 20)], partition=[0, 0])
    with pytest.raises(SinkError, match=r"max\.request\.size|MessageTooLarge|RecordTooLarge"):
        job([large], schema="all", **target.options)
    assert target.values() == []


def test_written_rows_are_read_by_the_source(target: Target, job: Job) -> None:
    job(values(*map(str, range(100))), **target.options)
    options = {"kafka.bootstrap.servers": target.servers, "subscribe": target.topic}
    stable_ends(target.servers, target.topic)
    batches = run(reader(options))[1]
    assert len(batches) == 100


def test_a_missing_topic(job: Job, tmp_path: Path) -> None:
    """With a path one partition, at a broker its `num.partitions`."""
    job(values("a"))
    with kafkalog.Store(tmp_path / "data") as store:
        assert len(store["t"]) == 1
    with TestBroker(tmp_path / "broker", config={"num.partitions": 3}) as broker:
        servers = {"path": "", "kafka.bootstrap.servers": broker.bootstrap_servers}
        job(values("a"), **servers)
        with kafkalog.Admin(broker.bootstrap_servers) as admin:
            assert len(admin.describe_topics(["t"])["t"].partitions) == 3
