"""`kafkalog.aio`: what waits when something ends - a client, a membership, an await."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from kafkalog import TopicPartition, aio, errors
from kafkalog.testing.broker import TestBroker
from tests.support.waiting import LIMIT_S

LONG_MS = 600_000
PATIENT = {"request.timeout.ms": LONG_MS, "socket.connection.setup.timeout.ms": LONG_MS}
READS: dict[str, Any] = {"auto_offset_reset": "earliest", "config": {"fetch.max.wait.ms": 10}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with TestBroker(tmp_path_factory.mktemp("aio") / "data") as made:
        yield made


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a broker that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=10) as made:
        yield f"127.0.0.1:{made.getsockname()[1]}"


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        return await asyncio.wait_for(work(), LIMIT_S)

    return asyncio.run(whole())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def outcome(work: Awaitable[Any]) -> Any:
    (found,) = await asyncio.gather(work, return_exceptions=True)
    return found


async def unasked(consumer: aio.Consumer, columns: bool = False) -> None:
    """The thread reads, and the await for it is cancelled."""
    await consumer._run(consumer._read, columns, time.monotonic() + LIMIT_S, None)


def offsets(records: list[Any]) -> list[int]:
    return [record.offset for record in records]


# ---- close ---------------------------------------------------------------------------------


def test_close_ends_polls_and_iterations(served: TestBroker, unique: str) -> None:
    async def work() -> None:
        served.create_topic(unique)
        consumer = aio.Consumer(served.bootstrap_servers, unique, group=unique)

        async def iterate() -> str:
            async for _ in consumer:
                pass
            return "ended"

        waits = [consumer.poll(None), consumer.poll_arrow(None), consumer.poll(LONG_MS)]
        tasks = [asyncio.ensure_future(one) for one in (*waits, iterate())]
        await until(lambda: consumer.assignment)
        await consumer.close()
        *polls, iteration = [await outcome(task) for task in tasks]
        assert [type(one) for one in polls] == [errors.Closed] * 3
        assert iteration == "ended"
        assert await iterate() == "ended"
        assert isinstance(await outcome(consumer.poll()), errors.Closed)

    run(work)


def test_calls_before_close_are_made(served: TestBroker, unique: str) -> None:
    async def work() -> None:
        served.create_topic(unique)
        consumer = aio.Consumer(served.bootstrap_servers, unique, group=unique, **READS)
        while not consumer.assignment:
            await consumer.poll(10)
        tp = TopicPartition(unique, 0)
        producer = aio.Producer(served.bootstrap_servers, linger_ms=LONG_MS)
        sends = [producer.send(unique, b"%d" % number) for number in range(10)]
        found = await asyncio.gather(
            consumer.commit({tp: 3}), consumer.committed(tp), consumer.close(),
            *sends, producer.close(),
        )  # fmt: skip
        assert found[1].offset == 3
        assert offsets(found[3:13]) == [*range(10)]

    run(work)


def test_close_in_time_of_a_consumer(silent: str) -> None:
    """Its calls would wait for ten minutes each."""

    async def work() -> None:
        config = {**PATIENT, "default.api.timeout.ms": LONG_MS}
        consumer = aio.Consumer(silent, "t", group="g", config=config)
        calls = [consumer.list_topics(), consumer.partitions("t"), consumer.committed(("t", 0))]
        tasks = [asyncio.ensure_future(one) for one in calls]
        await asyncio.sleep(0)
        await consumer.close(timeout_ms=20)
        for task in tasks:
            assert isinstance(await outcome(task), errors.KafkalogError)
        assert consumer._below._closed

    run(work)


def test_close_in_time_of_an_administrator(silent: str) -> None:
    async def work() -> None:
        admin = aio.Admin(silent, config={**PATIENT, "default.api.timeout.ms": 50})
        tasks = [asyncio.ensure_future(admin.list_topics(timeout_ms=LONG_MS)) for _ in range(3)]
        await asyncio.sleep(0)
        await admin.close()
        for task in tasks:
            assert isinstance(await outcome(task), errors.KafkalogError)
        assert admin.closed

    run(work)


def test_close_in_time_of_a_producer(served: TestBroker, unique: str) -> None:
    """The buffer is full, and the broker silent."""

    async def work() -> None:
        producer = aio.Producer(served.bootstrap_servers, buffer_bytes=30_000, max_block_ms=LONG_MS)
        await producer.send(unique, b"first")
        served.pause()
        sends = [asyncio.ensure_future(producer.send(unique, b"x" * 9_000)) for _ in range(20)]
        await until(lambda: producer._below._waiting.starved)
        with pytest.raises(errors.Timeout, match="earlier calls took all of its time"):
            await producer.close(timeout_ms=20)
        found = [await outcome(one) for one in sends]
        assert {type(one) for one in found} == {errors.Closed}

    served.create_topic(unique)
    try:
        run(work)
    finally:
        served.resume()


def test_close_in_time_of_a_listener(served: TestBroker, unique: str) -> None:
    """A poll awaits it, and it does not end."""

    async def work() -> None:
        entered, ended = asyncio.Event(), list[str]()

        async def assigned(_: list[TopicPartition]) -> None:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        consumer = aio.Consumer(served.bootstrap_servers, group=unique, **READS)
        await consumer.subscribe(unique, on_assigned=assigned)
        poll = asyncio.ensure_future(consumer.poll(None))
        await entered.wait()
        await outcome(consumer.close(timeout_ms=20))
        assert isinstance(await outcome(poll), errors.KafkalogError)
        assert ended == ["cancelled"]
        assert consumer._below._closed

    served.create_topic(unique)
    run(work)


def test_a_cancelled_close_closes(served: TestBroker, unique: str) -> None:
    async def work() -> None:
        served.create_topic(unique)
        consumer = aio.Consumer(served.bootstrap_servers, unique, group=unique)
        await consumer.poll(0)
        task = asyncio.ensure_future(consumer.close())
        await asyncio.sleep(0)
        task.cancel()
        await outcome(task)
        await until(lambda: consumer._ended)
        assert consumer._below._closed
        await consumer.close()

    run(work)


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
def test_a_mistake_closes_nothing(served: TestBroker, kind: str) -> None:
    async def work() -> None:
        async with getattr(aio, kind)(served.bootstrap_servers) as one:
            with pytest.raises(errors.ArgumentError):
                await one.close(timeout_ms="soon")
            assert not one._closing
            assert await one.partitions(kind.lower())

    served.create_topic(kind.lower())
    run(work)


# ---- turns ---------------------------------------------------------------------------------


def test_the_time_of_sends_begins_when_they_are_awaited(served: TestBroker, unique: str) -> None:
    """Those that wait for their turn, while others wait for room, wait with them."""
    seen: list[float] = []

    async def work() -> None:
        async with aio.Producer(served.bootstrap_servers, max_block_ms=LONG_MS) as producer:
            send, held = producer._below.send, threading.Event()

            def watched(*words: Any) -> Any:
                seen.append(producer._below._until_s())
                return send(*words)

            producer._below.send = watched
            blocked = asyncio.ensure_future(producer._run(held.wait, LIMIT_S))
            before = time.monotonic()
            sends = [asyncio.ensure_future(producer.send(unique, b"x")) for _ in range(3)]
            await asyncio.sleep(0)
            after = time.monotonic()
            held.set()
            await asyncio.gather(blocked, *sends)
            for due_s in seen:
                assert before <= due_s - LONG_MS / 1000 <= after

    served.create_topic(unique)
    run(work)
    assert len(seen) == 3


def test_an_expired_call_is_not_made(served: TestBroker, unique: str) -> None:
    async def work() -> None:
        async with aio.Admin(served.bootstrap_servers) as admin:
            held = threading.Event()
            blocked = asyncio.ensure_future(admin._run(held.wait, LIMIT_S))
            task = asyncio.ensure_future(admin.create_topic(unique, timeout_ms=1))
            await asyncio.sleep(0)  # it is awaited
            late_s = time.monotonic() + 0.002
            await until(lambda: time.monotonic() > late_s)
            held.set()
            with pytest.raises(errors.Timeout, match="create_topic: earlier calls took all of its"):
                await task
            await blocked
            assert unique not in await admin.list_topics()

    run(work)


# ---- what was read for an await that was cancelled -----------------------------------------


def test_an_iteration_goes_on_after_a_cancelled_await(served: TestBroker, unique: str) -> None:
    async def work() -> None:
        served.create_topic(unique)
        async with aio.Consumer(served.bootstrap_servers, unique, **READS) as consumer:
            records = aiter(consumer)
            task = asyncio.ensure_future(anext(records))
            await until(lambda: consumer.assignment)
            task.cancel()
            assert isinstance(await outcome(task), asyncio.CancelledError)
            served.fill(unique, ["a", "b"])
            assert [(await anext(records)).offset, (await anext(records)).offset] == [0, 1]

    run(work)


def test_a_failure_that_no_await_got_is_raised_by_the_next(served: TestBroker, unique: str) -> None:
    def refuse(_: bytes) -> Any:
        raise ValueError("not mine")

    async def work() -> None:
        served.fill(unique, ["a"])
        async with aio.Consumer(
            served.bootstrap_servers, unique, value_deserializer=refuse, **READS
        ) as consumer:
            await unasked(consumer)
            with pytest.raises(errors.Undeserializable, match="not mine"):
                await consumer.poll(0)
            assert await consumer.position((unique, 0)) == 0

    run(work)


def test_a_lost_membership(served: TestBroker, unique: str) -> None:
    """Records read before it was lost are the other member's."""

    async def work() -> None:
        served.fill(unique, [str(number) for number in range(10)])
        options = {**READS, "group": unique, "heartbeat_ms": 20}
        tp = TopicPartition(unique, 0)
        one = aio.Consumer(served.bootstrap_servers, unique, max_poll_interval_ms=200, **options)
        two = aio.Consumer(served.bootstrap_servers, unique, **options)
        found = [await anext(one), await anext(one)]
        await one.commit()
        await until(lambda: one._below._heartbeats.session.left)
        assert await one.poll(0) == []
        rest: list[Any] = []
        await one.unsubscribe()
        while len(rest) < 8:
            rest += await two.poll(100)
        await two.commit()
        assert offsets(found + rest) == [*range(10)]
        assert (await two.committed(tp)).offset == 10
        await one.close()
        await two.close()

    run(work)


CHANGES: dict[str, Callable[[aio.Consumer, str], Awaitable[Any]]] = {
    "subscribe": lambda c, other: c.subscribe(other),
    "unsubscribe": lambda c, other: c.unsubscribe(),
    "pause": lambda c, other: c.pause(*c.assignment),
    "seek": lambda c, other: c.seek(c.assignment[0], 7),
    "seek_to_end": lambda c, other: c.seek_to_end(*c.assignment),
}


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
@pytest.mark.parametrize("change", CHANGES)
def test_records_read_before_a_change(
    served: TestBroker, unique: str, change: str, columns: bool
) -> None:
    async def work() -> None:
        other = unique + "-other"
        served.fill(unique, [str(number) for number in range(10)])
        served.fill(other, ["x"])
        async with aio.Consumer(served.bootstrap_servers, unique, **READS) as consumer:
            await unasked(consumer, columns)
            first = await consumer.poll(0, max_records=1)
            assert offsets(first) == ([] if columns else [0])
            mine = TopicPartition(unique, 0)
            await CHANGES[change](consumer, other)
            if change == "subscribe":
                assert [r.topic for r in await consumer.poll(LONG_MS)] == [other]
            elif change == "unsubscribe":
                with pytest.raises(errors.ArgumentError, match="nothing to read"):
                    await consumer.poll(0)
            elif change == "pause":
                assert await consumer.poll(0) == []
                await consumer.resume(mine)
                assert (await consumer.poll(LONG_MS))[0].offset == len(first)
            elif change == "seek":
                assert offsets(await consumer.poll(LONG_MS)) == [7, 8, 9]
            else:
                assert await consumer.poll(0) == []
                assert await consumer.position(mine) == 10

    run(work)
