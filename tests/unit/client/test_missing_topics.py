"""What the cluster does not have, or has no longer, holds up nothing else that is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.consumer import Consumer
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from tests.support.waiting import wait_for

A, B = TopicPartition("ta", 0), TopicPartition("tb", 0)
OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest", "config": {"fetch.max.wait.ms": 10}}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "b") as made:
        for topic in "ta", "tb":
            made.create_topic(topic)
            made.fill(topic, [topic])
        yield made


class Reader:
    """Polls, and keeps what it gets and what is raised."""

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
    """It was all that was read until the next look at the metadata, in five minutes."""
    reader = Reader(broker, group=group, auto_commit_interval_ms=20 if group else None)
    with reader.consumer as consumer:
        if how == "assign":
            consumer.assign([A, B])
        else:
            consumer.subscribe(*([["ta", "tb"]] if how == "names" else []),
                               pattern="t." if how == "pattern" else None)  # fmt: skip
        reader.until(lambda: len(reader.values) == 2)
        broker.delete_topics("ta")
        aside = consumer._sharing._missing
        reader.until(lambda: aside or consumer.assignment == [B])
        broker.fill("tb", ["1", "2"])
        reader.until(lambda: len(reader.values) == 4)
        if how != "assign":
            reader.until(lambda: consumer.assignment == [B])
        if group:  # what is left is committed without it
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
    """The others are read from the first poll on, those once they are made."""
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


def test_a_topic_by_name_that_is_not_there_yet(broker: TestBroker) -> None:
    """Without a group: told once, looked for again, and the other one is read meanwhile."""
    reader = Reader(broker)
    with reader.consumer as consumer:
        consumer.subscribe(["late", "tb"])
        reader.until(lambda: reader.values)
        broker.fill("late", ["late"])
        reader.until(lambda: len(reader.values) == 2)
        assert reader.values == [b"tb", b"late"]
        assert reader.raised == ["the cluster has no topic 'late'"]
