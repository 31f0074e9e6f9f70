"""Listeners of `kafkalog.aio` are awaited in the loop, and may call the consumer; listeners of the
blocking consumer may commit, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Consumer, TopicPartition, aio, errors
from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.testing.broker import TestBroker
from tests.support.waiting import LIMIT_S, wait_for

TP = TopicPartition("t", 0)
OPTIONS: dict[str, Any] = {
    "group": "g",
    "auto_offset_reset": "earliest",
    "auto_commit": False,
    "config": {"fetch.max.wait.ms": 10},
}
Heard = list[tuple[str, list[TopicPartition]]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "b") as made:
        made.create_topic("t")
        made.fill("t", [str(i) for i in range(10)])
        yield made


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        return await asyncio.wait_for(work(), LIMIT_S)

    return asyncio.run(whole())


async def read(consumer: aio.Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [r.offset for r in await consumer.poll(1_000, max_records=count - len(found))]
    return found


def test_they_are_awaited_and_may_ask_the_consumer(broker: TestBroker) -> None:
    """Commits, positions and seeks, also from the listener's own tasks; the loop keeps running."""
    heard: Heard = []

    async def work() -> None:
        consumer = aio.Consumer(broker.bootstrap_servers, **OPTIONS)
        loop = asyncio.get_running_loop()

        async def assigned(partitions: list[TopicPartition]) -> None:
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0)
            heard.append(("assigned", partitions))
            found = await asyncio.gather(*(consumer.committed(tp) for tp in partitions))
            assert found == [None]
            await consumer.seek(TP, 2)
            with pytest.raises(errors.ArgumentError, match="a listener cannot poll"):
                await consumer.poll()

        async def revoked(partitions: list[TopicPartition]) -> None:
            heard.append(("revoked", partitions))
            await consumer.commit()
            await consumer.commit({TP: (await consumer.position(TP), -1, "mine")})

        await consumer.subscribe("t", on_assigned=assigned, on_revoked=revoked)
        assert await read(consumer, 3) == [2, 3, 4]
        assert await asyncio.gather(consumer.position(TP), consumer.close()) == [5, None]

    run(work)
    assert heard == [("assigned", [TP]), ("revoked", [TP])]
    with Consumer(broker.bootstrap_servers, **OPTIONS) as consumer:
        assert consumer.committed(TP) == CommittedOffset(5, -1, "mine")


def test_plain_ones_and_those_that_return_something_to_await(broker: TestBroker) -> None:
    heard: Heard = []

    async def work() -> None:
        consumer = aio.Consumer(broker.bootstrap_servers, **OPTIONS)
        await consumer.subscribe(
            "t",
            on_assigned=lambda tps: heard.append(("assigned", tps)),
            on_revoked=lambda tps: consumer.commit(),
        )
        await read(consumer, 4)
        await consumer.close()

    run(work)
    assert heard == [("assigned", [TP])]
    assert broker.committed("g") == {TP: 4}


def test_exceptions_of_listeners_are_raised_by_poll(broker: TestBroker) -> None:
    async def assigned(partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("the database is away")

    async def work() -> None:
        async with aio.Consumer(broker.bootstrap_servers, **OPTIONS) as consumer:
            await consumer.subscribe("t", on_assigned=assigned)
            with pytest.raises(RuntimeError, match="the database is away"):
                await read(consumer, 1)
            assert await read(consumer, 2) == [0, 1]

    run(work)


def test_one_that_does_not_end_is_cancelled(broker: TestBroker) -> None:
    """After max.poll.interval.ms others own its partitions, whatever it does."""
    ended: list[str] = []

    async def assigned(partitions: list[TopicPartition]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def work() -> None:
        options = {**OPTIONS, "max_poll_interval_ms": 300}
        consumer = aio.Consumer(broker.bootstrap_servers, **options)
        await consumer.subscribe("t", on_assigned=assigned)
        with pytest.raises(errors.Timeout, match=r"not ended in max_poll_interval_ms \(300 ms\)"):
            await read(consumer, 1)
        await consumer.close()

    run(work)
    assert ended == ["cancelled"]


def test_a_task_that_outlives_its_listener_asks_as_others_do(broker: TestBroker) -> None:
    tasks: list[asyncio.Task[int]] = []

    async def work() -> None:
        consumer = aio.Consumer(broker.bootstrap_servers, **OPTIONS)
        let = asyncio.Event()

        async def later() -> int:
            await let.wait()
            return await consumer.position(TP)

        async def assigned(partitions: list[TopicPartition]) -> None:
            tasks.append(asyncio.create_task(later()))

        await consumer.subscribe("t", on_assigned=assigned)
        await read(consumer, 3)
        let.set()
        assert await tasks[0] == 3
        await consumer.close()

    run(work)


def test_a_callback_of_a_commit_is_awaited(broker: TestBroker) -> None:
    told: list[Any] = []

    async def work() -> None:
        consumer = aio.Consumer(broker.bootstrap_servers, "t", **OPTIONS)

        async def committed(offsets: Any, problem: Any) -> None:
            await asyncio.sleep(0)
            told.append((offsets, problem))

        await read(consumer, 3)
        await consumer.commit({TP: 2}, wait=False, callback=committed)
        while not told:
            await consumer.poll(1)
        await consumer.close()

    run(work)
    assert told == [({TP: CommittedOffset(2)}, None)]


# ---- blocking ------------------------------------------------------------------------------


def test_a_blocking_listener_commits(broker: TestBroker) -> None:
    heard: Heard = []
    with Consumer(broker.bootstrap_servers, **OPTIONS) as consumer:

        def revoked(partitions: list[TopicPartition]) -> None:
            consumer.commit()
            consumer.commit({TP: 3}, wait=False)
            heard.append(("revoked", partitions))

        consumer.subscribe("t", on_revoked=revoked)
        wait_for(lambda: consumer.poll(100, max_records=3), "records")
        consumer.unsubscribe()
    assert heard == [("revoked", [TP])]
    assert broker.committed("g") == {TP: 3}


def test_a_blocking_consumer_takes_none_that_it_cannot_await(broker: TestBroker) -> None:
    async def listener(*words: Any) -> None:
        """Nobody awaits it."""

    with Consumer(broker.bootstrap_servers, **OPTIONS) as consumer:
        for word in ("on_assigned", "on_revoked", "on_lost"):
            with pytest.raises(errors.ArgumentError, match=f"{word}: found an async function"):
                consumer.subscribe("t", **{word: listener})
        with pytest.raises(errors.ArgumentError, match="callback: found an async function"):
            consumer.commit({TP: 1}, callback=listener)
