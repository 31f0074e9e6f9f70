"""Calls that could be misread: no partitions named, other topics wanted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import aio, errors
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from tests.support.waiting import wait_for

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest", "config": {"fetch.max.wait.ms": 10}}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "b") as made:
        made.create_topic("t", 2)
        for tp in ZERO, ONE:
            made.fill("t", [str(i) for i in range(3)], partition=tp.partition)
        yield made


def test_no_partitions_are_none_of_them(broker: TestBroker) -> None:
    """An accidentally empty list must not pause, or skip, everything."""
    none: list[TopicPartition] = []
    with Consumer(broker.bootstrap_servers, **OPTIONS) as consumer:
        consumer.assign([ZERO, ONE])
        consumer.pause(*none)
        assert consumer.paused == []
        consumer.pause(ZERO)
        consumer.resume(*none)
        assert consumer.paused == [ZERO]
        consumer.resume(*consumer.paused)
        for name in ("seek_to_end", "seek_to_beginning"):
            with pytest.raises(errors.ArgumentError, match=rf"{name}\(\*consumer\.assignment\)"):
                getattr(consumer, name)(*none)
        assert [consumer.position(tp) for tp in (ZERO, ONE)] == [0, 0]
        consumer.seek_to_end(*consumer.assignment)
        assert [consumer.position(tp) for tp in (ZERO, ONE)] == [3, 3]


def test_nor_for_asyncio(broker: TestBroker) -> None:
    async def work() -> None:
        async with aio.Consumer(broker.bootstrap_servers, **OPTIONS) as consumer:
            await consumer.assign([ZERO, ONE])
            with pytest.raises(errors.ArgumentError):
                await consumer.seek_to_end()
            await consumer.pause()
            found: list[Any] = []
            while len(found) < 6:
                found += await consumer.poll()

    asyncio.run(work())


@pytest.mark.parametrize(("reset", "at"), [("latest", 3), ("earliest", 0)])
def test_an_offset_that_is_not_there_is_told(
    broker: TestBroker, caplog: pytest.LogCaptureFixture, reset: str, at: int
) -> None:
    """Otherwise records could be skipped or repeated without a trace."""
    options = {**OPTIONS, "auto_offset_reset": reset}
    with Consumer(broker.bootstrap_servers, **options) as consumer:
        consumer.assign([ZERO])
        consumer.seek(ZERO, 500)
        with caplog.at_level(logging.WARNING, "kafkalog.client.fetch.fetcher"):
            wait_for(lambda: consumer.poll(10) or consumer.position(ZERO) < 500, "it is there")
    (line,) = [record.getMessage() for record in caplog.records]
    assert (
        line == f"t-0: offset 500 is out of range: continuing at {at}, by auto.offset.reset {reset}"
    )


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_topics_that_are_not_wanted_any_more_are_not_read(
    broker: TestBroker, assignor: str
) -> None:
    """From the call on, even while it has to join first, which may take long."""
    broker.create_topic("z")
    broker.fill("z", ["z"])
    told: list[tuple[str, list[TopicPartition]]] = []
    with Consumer(broker.bootstrap_servers, group="g", assignor=assignor, **OPTIONS) as consumer:
        consumer.subscribe("t")
        wait_for(lambda: consumer.poll(10, max_records=1), "it reads")
        join = broker.delay("JoinGroup", 3_600_000)
        consumer.subscribe(
            "z",
            on_revoked=lambda tps: told.append(("revoked", tps)),
            on_assigned=lambda tps: told.append(("assigned", tps)),
        )
        wait_for(lambda: consumer.poll(10) == [] and join.hits, "it asks to join")
        assert (told, consumer.assignment) == ([("revoked", [ZERO, ONE])], [])
        broker.heal()
        values: list[Any] = []
        wait_for(lambda: values.extend(consumer.poll(10)) or values, "it reads the other one")
        assert [record.topic for record in values] == ["z"]
        assert told[1:] == [("assigned", [TopicPartition("z", 0)])]


def test_topics_that_are_not_wanted_any_more_without_a_group(broker: TestBroker) -> None:
    """From the call on, even while the new topic is not known; those that stay continue."""
    broker.create_topic("z")
    with Consumer(broker.bootstrap_servers, "t", **OPTIONS) as consumer:
        wait_for(lambda: consumer.poll(10, max_records=1), "it reads")
        (tp, at), *_ = [(tp, at) for tp in (ZERO, ONE) if (at := consumer.position(tp))]
        silent = broker.delay("Metadata", 3_600_000, None)
        consumer.subscribe(pattern="t|z")
        assert (consumer.assignment, consumer.position(tp)) == ([ZERO, ONE], at)
        consumer.subscribe("z")
        assert (consumer.assignment, consumer.poll(0)) == ([], [])
        wait_for(lambda: silent.hits, "it asks")
        assert (consumer.assignment, consumer.poll(0)) == ([], [])


def test_partitions_still_wanted_are_kept(broker: TestBroker) -> None:
    """A cooperative member gives back only the others, and keeps reading."""
    broker.create_topic("z")
    told: list[list[TopicPartition]] = []
    options = {**OPTIONS, "assignor": "cooperative-sticky", "group": "g"}
    with Consumer(broker.bootstrap_servers, "t", "z", **options) as consumer:
        wait_for(lambda: consumer.poll(10) or len(consumer.assignment) == 3, "it has all")
        join = broker.delay("JoinGroup", 3_600_000)
        consumer.subscribe("t", on_revoked=told.append)
        wait_for(lambda: consumer.poll(10) or join.hits, "it asks to join")
        assert (told, consumer.assignment) == ([[TopicPartition("z", 0)]], [ZERO, ONE])
        broker.fill("t", ["more"])
        wait_for(lambda: any(r.value == b"more" for r in consumer.poll(10)), "it reads on")
        broker.heal()
