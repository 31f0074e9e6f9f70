"""Topics and partitions that the cluster lacks, or lost, do not hold up the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.records import CONSUMER_PROTOCOL
from tests.support.scripted import Peer
from tests.support.waiting import wait_for
from tests.unit.client.consumer.members import OPTIONS as MEMBER
from tests.unit.client.consumer.members import Coordinator, joined

A, B = TopicPartition("ta", 0), TopicPartition("tb", 0)
OPTIONS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "heartbeat_ms": 20,
    "config": {
        "fetch.max.wait.ms": 10,
        "retry.backoff.ms": 5,
        "retry.backoff.max.ms": 50,
        "allow.auto.create.topics": False,
    },
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "b") as made:
        for topic in "ta", "tb":
            made.create_topic(topic)
            made.fill(topic, [topic])
        yield made


class Reader:
    """Polls, and keeps the records and errors."""

    def __init__(self, broker: TestBroker, **options: Any) -> None:
        self.consumer = Consumer(broker.bootstrap_servers, **{**OPTIONS, **options})
        self.values: list[bytes | None] = []
        self.raised: list[str] = []

    def until(self, done: Callable[[], object]) -> None:
        def turn() -> bool:
            try:
                self.values += [record.value for record in self.consumer.poll(20)]
            except errors.UnknownTopicOrPartition as problem:
                self.raised.append(str(problem))
            return bool(done())

        wait_for(turn, "it has read so far")


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
@pytest.mark.parametrize("how", ["names", "pattern", "assign"])
def test_a_topic_that_is_deleted(broker: TestBroker, how: str, group: str | None) -> None:
    """The other topic is read without a pause, not only after the next metadata refresh."""
    reader = Reader(broker, group=group, auto_commit_interval_ms=20 if group else None)
    with reader.consumer as consumer:
        if how == "assign":
            consumer.assign([A, B])
        else:
            consumer.subscribe(*([["ta", "tb"]] if how == "names" else []),
                               pattern="t." if how == "pattern" else None)  # fmt: skip
        reader.until(lambda: len(reader.values) == 2)
        broker.delete_topics("ta")
        aside = consumer._state.missing.partitions
        reader.until(lambda: aside or consumer.assignment == [B])
        broker.fill("tb", ["1", "2"])
        reader.until(lambda: len(reader.values) == 4)
        if how != "assign":
            reader.until(lambda: consumer.assignment == [B])
        if group:  # the remaining topic is committed without it
            reader.until(lambda: broker.committed("g").get(B) == 3)
            consumer.commit()
        broker.fill("tb", ["3"])
        reader.until(lambda: len(reader.values) == 5)
        told = how == "assign" or (how == "names" and not group)
        assert len(reader.raised) == int(told)
        assert all("ta" in one for one in reader.raised)
        if how != "pattern" and not group:
            broker.fill("ta", ["new", "newer"])
            reader.until(lambda: reader.values[-1] == b"newer")
            assert len(reader.raised) == int(told)


def test_partitions_that_are_not_there_yet(broker: TestBroker) -> None:
    """The others are read from the first poll on, and these once they are created."""
    late, more = TopicPartition("late", 1), TopicPartition("tb", 7)
    reader = Reader(broker, group="g", auto_commit=False)
    with reader.consumer as consumer:
        consumer.assign([late, B, more])
        reader.until(lambda: reader.values and reader.raised)
        assert (reader.values, reader.raised) == ([b"tb"], ["the cluster has no late-1, tb-7"])
        with pytest.raises(errors.UnknownTopicOrPartition, match="tb-7"):
            consumer.position(more)
        consumer.commit()
        assert broker.committed("g") == {B: 1}
        broker.create_topic("late", 2)
        broker.fill("late", ["late"], partition=1)
        reader.until(lambda: len(reader.values) == 2)
        assert reader.values == [b"tb", b"late"]
        assert consumer.position(late) == 1
        assert len(reader.raised) == 1


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_a_topic_by_name_that_is_not_there_yet(broker: TestBroker, group: str | None) -> None:
    """It is looked up again while the other topic is read; without a group, reported once."""
    reader = Reader(broker, group=group)
    with reader.consumer as consumer:
        consumer.subscribe(["late", "tb"])
        reader.until(lambda: reader.values)
        broker.fill("late", ["late"])
        reader.until(lambda: len(reader.values) == 2)
        assert reader.values == [b"tb", b"late"]
        assert reader.raised == ([] if group else ["the cluster has no topic 'late'"])


def test_a_topic_of_another_member_that_is_not_there_yet(broker: TestBroker) -> None:
    """The leader looks up the topics that any member subscribes to."""
    first, second = Reader(broker, group="g"), Reader(broker, group="g")
    with first.consumer, second.consumer:
        first.consumer.subscribe(["ta"])
        first.until(lambda: first.values)
        second.consumer.subscribe(["late"])

        def joined() -> bool:
            second.until(lambda: True)
            return second.consumer.group_metadata().generation > 1

        first.until(joined)
        broker.fill("late", ["late"])

        def read() -> bool:
            second.until(lambda: True)
            return second.values == [b"late"]

        first.until(read)


# ---- allow.auto.create.topics ----------------------------------------------------------------


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_a_subscribed_topic_is_made_where_that_is_allowed(
    broker: TestBroker, group: str | None
) -> None:
    reader = Reader(broker, group=group, config={"fetch.max.wait.ms": 10})  # the default
    with reader.consumer as consumer:
        consumer.subscribe(["made", "tb"])
        reader.until(lambda: TopicPartition("made", 0) in consumer.assignment)
        assert reader.raised == []


def test_a_broker_that_makes_none_is_told_of_once(tmp_path: Path) -> None:
    config = {"auto.create.topics.enable": False}
    with TestBroker(tmp_path / "b", config=config) as broker:
        broker.create_topic("tb")
        broker.fill("tb", ["tb"])
        reader = Reader(broker, config={"fetch.max.wait.ms": 10})
        with reader.consumer as consumer:
            consumer.subscribe(["never", "tb"])
            reader.until(lambda: reader.values and reader.raised)
            reader.until(lambda: True)
            assert reader.raised == ["the cluster has no topic 'never'"]
            assert consumer.assignment == [B]


@pytest.mark.parametrize("allowed", [False, True])
def test_only_its_own_subscribed_topics_are_created(peer: Peer, allowed: bool) -> None:
    """Not topics that only other members subscribe to, and none unless that is allowed."""

    class Two(Coordinator):
        def join(self, request: Any, version: int) -> Any:
            answer = super().join(request, version)
            wants = {"topics": ["other"], "user_data": None, "owned_partitions": [],
                     "generation_id": -1, "rack_id": None}  # fmt: skip
            wanted = CONSUMER_PROTOCOL.encode_subscription(3, wants)
            for members in filter(None, [answer.get("members")]):
                members.append({"member_id": "n", "metadata": wanted})
            return answer

    Two(peer)
    config = {**MEMBER["config"], "allow.auto.create.topics": allowed}
    with joined(peer, config=config):
        asked = peer.sent(apis.METADATA)
    made = {t.name for r in asked if r.allow_auto_topic_creation for t in r.topics or ()}
    assert made == ({"t"} if allowed else set())
    assert any(t.name == "other" for r in asked for t in r.topics or ())
