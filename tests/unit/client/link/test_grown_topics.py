"""Partitions that were added after a client had learned a topic: the client requests metadata once
more before it refuses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kafkalog
from kafkalog import TopicPartition, errors
from kafkalog.testing.broker import TestBroker
from tests.support.waiting import LIMIT_S

NONE = 9


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with TestBroker(tmp_path_factory.mktemp("grown") / "data") as made:
        yield made


@pytest.fixture
def topic(served: TestBroker, unique: str) -> str:
    served.create_topic(unique, 1)
    served.fill(unique, ["a"])
    return unique


def grow(served: TestBroker, topic: str) -> TopicPartition:
    """A new partition with one record."""
    with kafkalog.Admin(served.bootstrap_servers) as admin:
        admin.create_partitions({topic: 3}).check()
    served.fill(topic, ["new"], partition=2)
    return TopicPartition(topic, 2)


def test_an_administrator(served: TestBroker, topic: str) -> None:
    with kafkalog.Admin(served.bootstrap_servers) as admin:
        admin.list_offsets({(topic, 0): "latest"}).check()
        new = grow(served, topic)
        assert admin.list_offsets({new: "latest"})[new].offset == 1
        with kafkalog.Admin(served.bootstrap_servers) as another:
            another.create_partitions({topic: 4}).check()
        assert admin.describe_producers([(topic, 3)]).check()
        with kafkalog.Admin(served.bootstrap_servers) as another:
            another.create_partitions({topic: 5}).check()
        assert admin.delete_records({(topic, 4): 0}).check()
        with pytest.raises(errors.UnknownTopicOrPartition, match=f"no partition {NONE}"):
            admin.list_offsets({(topic, NONE): "latest"}).check()


@pytest.mark.parametrize("kind", ["send", "send_many", "batches"])
def test_a_producer(served: TestBroker, topic: str, kind: str) -> None:
    def sent(partition: int) -> Any:
        if kind == "send":
            return producer.send(topic, b"x", partition=partition)
        if kind == "send_many":
            return producer.send_many(topic, [b"x"], partition=partition)
        return producer.send_batches(topic, batch, partition=partition)

    with kafkalog.Log(f"{served.broker.path}/{topic}-0", mode="r") as log:
        batch = log.read_batches(0, 1 << 20)
    with kafkalog.Producer(served.bootstrap_servers) as producer:
        producer.send(topic, b"x", partition=0).result(LIMIT_S)
        new = grow(served, topic)
        sent(new.partition).result(LIMIT_S)
        with pytest.raises(errors.UnknownTopicOrPartition, match=f"no partition {NONE}: it has 3"):
            sent(NONE)
    assert len([r for r in served.records(topic) if r.partition == new.partition]) == 2


def test_a_consumer(served: TestBroker, topic: str) -> None:
    with kafkalog.Consumer(served.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert next(iter(consumer)).value == b"a"
        new = grow(served, topic)
        assert consumer.end_offsets([new]) == {new: 1}
        with kafkalog.Admin(served.bootstrap_servers) as admin:
            admin.create_partitions({topic: 4}).check()
        newer = TopicPartition(topic, 3)
        assert consumer.offsets_for_times({newer: 0}) == {newer: None}
        with kafkalog.Admin(served.bootstrap_servers) as admin:
            admin.create_partitions({topic: 5}).check()
        served.fill(topic, ["newest"], partition=4)
        consumer.assign([TopicPartition(topic, 4)])
        assert next(iter(consumer)).value == b"newest"
