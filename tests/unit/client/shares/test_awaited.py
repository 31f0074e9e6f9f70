"""`kafkalog.aio.ShareConsumer`: what a cancelled await leaves, several loops, the end."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kafkalog
from kafkalog import SharedRecord, TopicPartition, aio, errors
from kafkalog.client.shares import awaited
from kafkalog.testing.broker import TestBroker as Broker
from tests.support.waiting import LIMIT_S

LONG_MS = 600_000
EXPLICIT = {"share.acknowledgement.mode": "explicit", "fetch.max.wait.ms": 20}
IMPLICIT = {"fetch.max.wait.ms": 20}
TP = TopicPartition("t", 0)


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        return await asyncio.wait_for(work(), LIMIT_S)

    return asyncio.run(whole())


def fill(broker: Broker, count: int, first: int = 0) -> None:
    with kafkalog.Producer(broker.bootstrap_servers) as producer:
        values = [b"%d" % number for number in range(first, first + count)]
        producer.send_many("t", values).result(LIMIT_S)


def worker(broker: Broker, config: Any = EXPLICIT, **more: Any) -> aio.ShareConsumer:
    return aio.ShareConsumer(broker.bootstrap_servers, "t", group="g", config=config, **more)


async def some(one: aio.ShareConsumer, **more: Any) -> list[SharedRecord]:
    while not (found := await one.poll(100, **more)):
        pass
    return found


async def outcome(work: Awaitable[Any]) -> Any:
    (found,) = await asyncio.gather(work, return_exceptions=True)
    return found


def values(records: list[SharedRecord]) -> list[int]:
    return [int(record.value or b"") for record in records]


def test_records_are_acknowledged_and_come_again(broker: Broker) -> None:
    fill(broker, 3)

    async def work() -> None:
        async with worker(broker) as one:
            await one.subscribe("t")
            first, second, third = await some(one)
            assert one.subscription == ["t"] and one.assignment == [TP]
            await one.acknowledge(first)
            await one.acknowledge(second, "release")
            await one.acknowledge(third, "reject")
            with pytest.raises(errors.ArgumentError):
                await one.acknowledge(third, "lose")
            assert (await one.commit()).check() == {TP: [0, 1, 2]}
            (again,) = await some(one)
            assert (again.offset, again.delivery_count) == (1, 2)

    run(work)


def test_a_cancelled_poll_loses_no_record(broker: Broker) -> None:
    """Cancelled at many different moments, each record arrives once, and is accepted then only."""
    count = 300
    fill(broker, count)

    async def work() -> list[int]:
        found: list[int] = []
        turns = 0
        async with worker(broker, IMPLICIT) as one:
            while len(found) < count:
                task = asyncio.create_task(one.poll(max_records=7))
                for _ in range(turns % 6):
                    await asyncio.sleep(0)
                turns += 1
                if turns % 7:
                    task.cancel()
                records = await outcome(task)
                if not isinstance(records, asyncio.CancelledError):
                    found += values(records)
            await one.commit()
        assert turns > count // 7
        return found

    assert run(work) == [*range(count)]


@pytest.mark.parametrize("config", [IMPLICIT, EXPLICIT], ids=["implicit", "explicit"])
def test_records_of_a_cancelled_poll_are_not_accepted(
    broker: Broker, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by a commit that comes next, nor by `close`: another worker gets it."""
    fill(broker, 2)
    monkeypatch.setattr(awaited, "SLICE_MS", LONG_MS)

    async def work() -> None:
        async with worker(broker, config) as one:
            await unheard(one)
            assert (await one.commit()).check() == {}
            await unheard(one)
        async with worker(broker, config) as other:
            found = await some(other)
            assert [(one.offset, one.delivery_count) for one in found] == [(0, 2), (1, 2)]
            if config is EXPLICIT:
                for record in found:
                    await other.acknowledge(record)
            assert (await other.commit()).check() == {TP: [0, 1]}

    run(work)


async def unheard(one: aio.ShareConsumer) -> None:
    """The thread polls until it has records; the await for them is cancelled after that."""
    task = asyncio.create_task(one.poll(None))
    await asyncio.sleep(0)
    ended = threading.Event()
    one._submit(ended.set)
    assert ended.wait(LIMIT_S)  # in which this loop cannot learn of it
    assert one._below._holding._out
    task.cancel()
    assert isinstance(await outcome(task), asyncio.CancelledError)


def test_iterations(broker: Broker) -> None:
    """A record is accepted when the next one is asked for; a cancelled await ends nothing."""
    fill(broker, 2)

    async def work() -> None:
        told: list[Any] = []
        one = worker(broker, IMPLICIT, on_acknowledged=lambda found, _: told.append(found))
        async with one:
            async for record in one:
                assert record.offset == len(told)
                if record.offset == 1:
                    break
                assert (await one.commit()).check() == {TP: [0]}
            task = asyncio.ensure_future(anext(one))
            await asyncio.sleep(0.01)
            task.cancel()
            assert isinstance(await outcome(task), asyncio.CancelledError)
            fill(broker, 1, first=2)
            assert (await anext(one)).offset == 2
        with pytest.raises(StopAsyncIteration):
            await anext(one)
        assert told[:2] == [{TP: [0]}, {TP: [1]}]

    run(work)


def test_one_loop_after_another(broker: Broker) -> None:
    """A poll of a loop that has ended holds up nothing; its records come to the next loop."""
    fill(broker, 4)
    one = worker(broker)
    held = threading.Event()
    polls: list[asyncio.Task[Any]] = []

    async def leave() -> None:
        one._submit(held.wait)
        polls.append(asyncio.create_task(one.poll(None)))
        await asyncio.sleep(0)

    async def again() -> None:
        held.set()
        found = await some(one)
        assert values(found) == [0, 1, 2, 3]
        for record in found:
            await one.acknowledge(record)
        await one.close()

    run(leave)
    run(again)
    assert polls[0].cancelled() and one._below._closed


def test_close_ends_polls_and_iterations(broker: Broker) -> None:
    async def work() -> None:
        one = worker(broker)

        async def iterate() -> str:
            async for _ in one:
                pass
            return "ended"

        tasks = [asyncio.ensure_future(each) for each in (one.poll(None), one.poll(LONG_MS))]
        tasks.append(asyncio.ensure_future(iterate()))
        while not one.assignment:
            await asyncio.sleep(0.001)
        committed = asyncio.ensure_future(one.commit())
        await asyncio.sleep(0)
        await one.close()
        first, second, third = [await outcome(task) for task in tasks]
        assert isinstance(first, errors.Closed) and isinstance(second, errors.Closed)
        assert third == "ended"
        assert (await committed).check() == {}
        assert isinstance(await outcome(one.poll()), errors.Closed)
        await one.close()

    run(work)


def test_a_cancelled_close_closes(broker: Broker) -> None:
    async def work() -> None:
        one = worker(broker)
        await one.poll(0)
        task = asyncio.ensure_future(one.close())
        await asyncio.sleep(0)
        task.cancel()
        await outcome(task)
        while not one._ended:
            await asyncio.sleep(0.001)
        assert one._below._closed

    run(work)


def test_calls_of_a_silent_broker_are_over_in_their_time() -> None:
    config = {"request.timeout.ms": LONG_MS, "socket.connection.setup.timeout.ms": LONG_MS,
              "default.api.timeout.ms": LONG_MS}  # fmt: skip

    async def work() -> None:
        one = aio.ShareConsumer(address, "t", group="g", config=config)
        assert await one.poll(20) == await one.poll(0) == []
        held = threading.Event()
        blocked = asyncio.ensure_future(one._run(held.wait, LIMIT_S))
        assert await one.poll(20) == []
        assert not blocked.done()
        held.set()
        await blocked
        with pytest.raises(errors.ArgumentError):
            await one.close(timeout_ms="soon")  # type: ignore[arg-type]
        assert not one._closing
        await one.close(timeout_ms=20)
        assert one._below._closed

    with socket.create_server(("127.0.0.1", 0), backlog=10) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        run(work)


def test_a_failure_that_no_await_got_is_raised_by_the_next(broker: Broker) -> None:
    async def work() -> None:
        async with worker(broker) as one:
            await one.poll(0)
            problem = errors.TopicAuthorizationFailed("t: not allowed")
            one._below._state.problem = problem
            task = asyncio.create_task(one.poll(None))
            await asyncio.sleep(0)
            ended = threading.Event()
            one._submit(ended.set)
            assert ended.wait(LIMIT_S)
            assert one._below._state.problem is None
            task.cancel()
            assert isinstance(await outcome(task), asyncio.CancelledError)
            assert await outcome(one.poll(0)) is problem

    run(work)
