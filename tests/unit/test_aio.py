"""`kafkalog.aio`: the same clients for asyncio, and what a cancelled await leaves behind."""

from __future__ import annotations

import asyncio
import pickle
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from inspect import getmembers, iscoroutinefunction, isfunction
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import Broker, TopicPartition, aio, errors
from tests.support.waiting import LIMIT_S

COUNT = 2_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    folder = tmp_path_factory.mktemp("aio") / "data"
    with Broker(folder, listeners=(), config=config) as made:
        yield made


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    """Run it in its own loop."""

    async def whole() -> Any:
        return await asyncio.wait_for(work(), 60)

    return asyncio.run(whole())


async def filled(broker: Broker, topic: str, count: int = COUNT, partitions: int = 1) -> None:
    async with aio.Admin(broker) as admin:
        await admin.create_topic(topic, partitions)
    async with aio.Producer(broker) as producer:
        await producer.send_many(topic, [b"%d" % i for i in range(count)])


async def cancelled(task: asyncio.Task[Any]) -> bool:
    """Cancel a task; returns whether that happened before it ended."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


# ---- the clients ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Admin", "Producer", "Consumer", "ShareConsumer"])
def test_every_public_method_is_there_and_awaited(kind: str) -> None:
    below, above = getattr(kafkalog, kind), getattr(aio, kind)
    for name, _ in getmembers(below, isfunction):
        if name.startswith("_") or name in ("wakeup", "transaction"):
            continue
        assert iscoroutinefunction(getattr(above, name)), name


def test_records_go_out_and_come_in(broker: Broker, unique: str) -> None:
    async def work() -> None:
        await filled(broker, unique, 0)
        async with aio.Producer(broker) as producer:
            sent = await asyncio.gather(
                *(producer.send(unique, b"%d" % i, partition=0) for i in range(100))
            )
            assert [one.offset for one in sent] == [*range(100)]
            with pytest.raises(errors.UnknownTopicOrPartition):
                await producer.send(unique, b"x", partition=9)
        found: list[bytes] = []
        async with aio.Consumer(broker, unique, auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                found.append(record.value or b"")
                if len(found) == 100:
                    break
            assert await consumer.position((unique, 0)) == 100
        assert found == [b"%d" % i for i in range(100)]

    run(work)


def test_columns_come_in(broker: Broker, unique: str) -> None:
    async def work() -> int:
        await filled(broker, unique)
        count = 0
        async with aio.Consumer(broker, unique, auto_offset_reset="earliest") as consumer:
            while count < COUNT:
                count += sum(len(batch) for batch in await consumer.poll_arrow(timeout_ms=5_000))
        return count

    assert run(work) == COUNT


def test_an_administrator_has_results_of_its_own(broker: Broker, unique: str) -> None:
    async def work() -> None:
        async with aio.Admin(broker) as admin:
            found = await admin.create_topics([(unique, 2), "a/b"])
            assert list(found.done) == [unique]
            assert unique in await admin.list_topics()
            with pytest.raises(errors.TopicExists):
                await admin.create_topic(unique)
        with pytest.raises(errors.Closed):
            await admin.list_topics()
        await admin.close()

    run(work)


def test_a_transaction_ends_with_its_block(broker: Broker, unique: str) -> None:
    """Committed, or aborted by an exception, or aborted by cancellation."""

    async def left(producer: aio.Producer, began: asyncio.Event) -> None:
        async with producer.transaction():
            await producer.send(unique, b"cancelled", partition=0)
            began.set()
            await asyncio.Event().wait()

    async def work() -> list[bytes | None]:
        await filled(broker, unique, 0)
        async with aio.Producer(broker, transactional_id=unique) as producer:
            async with producer.transaction():
                await producer.send(unique, b"one", partition=0)
            with pytest.raises(RuntimeError, match="enough"):
                async with producer.transaction():
                    await producer.send(unique, b"failed", partition=0)
                    raise RuntimeError("enough")
            began = asyncio.Event()
            task = asyncio.create_task(left(producer, began))
            await began.wait()
            assert await cancelled(task)
            async with producer.transaction():
                await producer.send(unique, b"two", partition=0)
        found: list[bytes | None] = []
        options = {"isolation": "read_committed", "auto_offset_reset": "earliest"}
        async with aio.Consumer(broker, unique, **options) as consumer:
            while b"two" not in found:
                found += [record.value for record in await consumer.poll()]
        return found

    assert run(work) == [b"one", b"two"]


# ---- cancelling ----------------------------------------------------------------------------


def test_a_commit_goes_on_when_its_block_is_cancelled(broker: Broker, unique: str) -> None:
    """The cancelled task does not learn how it ends; the next transaction comes after it."""

    async def work() -> None:
        await filled(broker, unique, 0)
        loop = asyncio.get_running_loop()
        commits, cancels = asyncio.Event(), threading.Event()
        async with aio.Producer(broker, transactional_id=unique) as producer:
            commit = producer._below.commit_transaction

            def held() -> None:
                loop.call_soon_threadsafe(commits.set)
                assert cancels.wait(LIMIT_S)
                commit()

            async def block() -> None:
                async with producer.transaction():
                    await producer.send(unique, b"one")

            producer._below.commit_transaction = held
            task = asyncio.create_task(block())
            await commits.wait()
            task.cancel()
            await asyncio.sleep(0)
            cancels.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            producer._below.commit_transaction = commit
            async with producer.transaction():
                await producer.send(unique, b"two")
        found: list[bytes | None] = []
        options = {"isolation": "read_committed", "auto_offset_reset": "earliest"}
        async with aio.Consumer(broker, unique, **options) as consumer:
            while b"two" not in found:
                found += [record.value for record in await consumer.poll()]
        assert found == [b"one", b"two"]

    run(work)


def test_a_transaction_leaves_none_open(broker: Broker, unique: str) -> None:
    """A commit that fails; a beginning that nobody awaits any more."""

    async def work() -> None:
        await filled(broker, unique, 0)
        async with aio.Producer(broker, transactional_id=unique) as producer:
            with pytest.raises(errors.InvalidTxnState, match="as it pleases"):
                async with producer.transaction():
                    await producer.send(unique, b"x")
                    producer._below._identity.error = errors.InvalidTxnState("as it pleases")
            begins = asyncio.create_task(producer.transaction().__aenter__())
            await asyncio.sleep(0)
            begins.cancel()
            with pytest.raises(asyncio.CancelledError):
                await begins
            async with producer.transaction():
                await producer.send(unique, b"y")
        async with aio.Consumer(
            broker, unique, auto_offset_reset="earliest", isolation="read_committed"
        ) as consumer:
            assert [r.value for r in await consumer.poll(10_000)] == [b"y"]

    run(work)


def test_paused_partitions_are_not_returned(broker: Broker, unique: str) -> None:
    async def work() -> None:
        await filled(broker, unique, 20)
        tp = TopicPartition(unique, 0)
        async with aio.Consumer(broker, unique, auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                if record.offset == 3:
                    break
            await consumer.pause(tp)
            assert await consumer.poll(0) == []
            assert await consumer.position(tp) == 4
            await consumer.resume(tp)
            assert (await consumer.poll(10_000))[0].offset == 4

    run(work)


def test_a_poll_of_a_loop_that_has_ended_is_nobodys(broker: Broker, unique: str) -> None:
    async def work() -> None:
        await filled(broker, unique, 5)

    run(work)
    consumer = aio.Consumer(broker, unique, auto_offset_reset="earliest")
    held = threading.Event()

    async def leave() -> None:
        consumer._submit(held.wait)
        task = asyncio.create_task(consumer.poll(None))
        await asyncio.sleep(0)
        assert await cancelled(task)

    async def again() -> None:
        held.set()
        assert len(await consumer.poll(10_000)) == 5
        await consumer.close()

    run(leave)
    run(again)


def test_a_cancelled_poll_loses_no_record(broker: Broker, unique: str) -> None:
    """Cancelled at many different moments, all records arrive once and in order."""

    async def work() -> list[int]:
        await filled(broker, unique)
        found: list[int] = []
        async with aio.Consumer(broker, unique, auto_offset_reset="earliest") as consumer:
            turns = 0
            while len(found) < COUNT:
                task = asyncio.create_task(consumer.poll(max_records=7))
                for _ in range(turns % 6):
                    await asyncio.sleep(0)
                turns += 1
                if turns % 7 and await cancelled(task):
                    continue
                found += [int(record.value or b"") for record in await task]
        assert turns > COUNT // 7
        return found

    assert run(work) == [*range(COUNT)]


@pytest.mark.parametrize("kinds", ["records first", "columns first"])
def test_records_of_a_cancelled_poll_come_first(broker: Broker, unique: str, kinds: str) -> None:
    """Records that were read in the thread come before later columns, and the other way round."""

    async def work() -> list[int]:
        await filled(broker, unique, 20)
        async with aio.Consumer(broker, unique, auto_offset_reset="earliest") as consumer:
            until_s = time.monotonic() + 10
            if kinds == "records first":
                await consumer._run(consumer._read, False, until_s, 3)
                assert len(consumer._ahead._records) == 3
                found: list[int] = []
                while len(found) < 20:
                    for batch in await consumer.poll_arrow(10_000):
                        found += [int(value) for value in batch.numpy("offset")]
            else:
                await consumer._run(consumer._read, True, until_s, None)
                assert consumer._ahead._columns
                found = []
                while len(found) < 20:
                    found += [record.offset for record in await consumer.poll(10_000)]
            assert await consumer.position((unique, 0)) == 20
        return found

    assert run(work) == [*range(20)]


def test_both_forms_in_turn_lose_nothing_when_they_are_cancelled(
    broker: Broker, unique: str
) -> None:
    async def work() -> list[int]:
        await filled(broker, unique, 300)
        found: list[int] = []
        async with aio.Consumer(broker, unique, auto_offset_reset="earliest") as consumer:
            turns = 0
            while len(found) < 300:
                turns += 1
                columns = turns % 5 == 0
                task: asyncio.Task[Any] = asyncio.create_task(
                    consumer.poll_arrow() if columns and turns > 40 else consumer.poll(1_000, 2)
                )
                for _ in range(turns % 6):
                    await asyncio.sleep(0)
                if turns % 4 and await cancelled(task):
                    continue
                for one in await task:
                    found += (
                        [one.offset] if hasattr(one, "offset") else map(int, one.numpy("offset"))
                    )
        return found

    assert run(work) == [*range(300)]


def test_a_commit_covers_returned_records_only(broker: Broker, unique: str) -> None:
    """Records that a cancelled poll read in the thread are in no commit, not even the last one."""

    async def work() -> None:
        await filled(broker, unique, 10)
        options = {"group": unique, "auto_offset_reset": "earliest"}
        tp = TopicPartition(unique, 0)
        async with aio.Consumer(broker, unique, **options) as consumer:
            first = await consumer.poll(timeout_ms=10_000, max_records=3)
            assert [record.offset for record in first] == [0, 1, 2]
            task = asyncio.create_task(consumer.poll(timeout_ms=10_000))
            await asyncio.sleep(0)
            assert await cancelled(task)
            await consumer.commit()
            assert (await consumer.committed(tp)).offset == 3
            assert await consumer.position(tp) == 3
        async with aio.Consumer(broker, unique, **options) as consumer:
            assert [r.offset for r in await consumer.poll(timeout_ms=10_000)] == [*range(3, 10)]

    run(work)


def test_a_cancelled_send_is_whole(broker: Broker, unique: str) -> None:
    """Each record is stored once or not at all; those whose await ended are stored."""

    async def work() -> tuple[set[int], list[int]]:
        await filled(broker, unique, 0)
        done: set[int] = set()
        async with aio.Producer(broker, linger_ms=0) as producer:
            for i in range(200):
                task = asyncio.create_task(producer.send(unique, b"%d" % i, partition=0))
                for _ in range(i % 5):
                    await asyncio.sleep(0)
                if i % 3 == 0 or not await cancelled(task):
                    await task
                    done.add(i)
        found: list[int] = []
        async with aio.Consumer(broker, unique, auto_offset_reset="earliest") as consumer:
            (end,) = (await consumer.end_offsets([TopicPartition(unique, 0)])).values()
            while len(found) < end:
                found += [int(record.value or b"") for record in await consumer.poll()]
        return done, found

    done, found = run(work)
    assert found == sorted(set(found))
    assert done <= set(found)


def test_many_wait_for_their_own_records_only(broker: Broker, unique: str) -> None:
    """Neither for other records, which linger on, nor for their outcome."""

    async def work() -> None:
        async with aio.Admin(broker) as admin:
            await admin.create_topic(unique, 2, config={"max.message.bytes": "1000"})
        async with aio.Producer(broker, linger_ms=1_000_000) as producer:
            other = asyncio.create_task(producer.send(unique, b"other", partition=0))
            await asyncio.sleep(0)
            sent = await producer.send_many(unique, [b"%d" % i for i in range(10)], partition=1)
            assert [(p.first_offset, p.last_offset) for p in sent.result()] == [(0, 9)]
            assert not other.done()
            await producer.flush()
            await other
            with pytest.raises(errors.MessageTooLarge):
                await producer.send_many(unique, [b"x" * 2_000], partition=0)
            await producer.send_many(unique, [b"fine"], partition=1)
            with pytest.raises(errors.MessageTooLarge):  # a flush reports on all
                await producer.flush()

    run(work)


def test_the_loop_is_never_blocked(broker: Broker, unique: str) -> None:
    """While a poll waits in vain, the loop runs, and a cancellation ends it immediately."""

    async def work() -> None:
        await filled(broker, unique, 0)
        async with aio.Consumer(broker, unique) as consumer:
            task = asyncio.create_task(consumer.poll(timeout_ms=None))
            while not consumer.assignment:
                await asyncio.sleep(0)
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert not task.done()
            assert await cancelled(task)
            assert await consumer.position(TopicPartition(unique, 0)) == 0

    run(work)


# ---- the handle ----------------------------------------------------------------------------


def test_a_poll_is_over_in_its_time() -> None:
    """Even if the broker never answers, or another long call has the thread."""
    long_ms = 600_000
    config = {"request.timeout.ms": long_ms, "socket.connection.setup.timeout.ms": long_ms}

    async def work() -> None:
        consumer = aio.Consumer(f"127.0.0.1:{silent.getsockname()[1]}", "t", config=config)
        assert await consumer.poll(20) == await consumer.poll(0) == []
        assert await consumer.poll_arrow(20) == []
        held = threading.Event()
        blocked = asyncio.ensure_future(consumer._run(held.wait, LIMIT_S))
        assert await consumer.poll(20) == []
        assert not blocked.done()
        held.set()
        await blocked
        with pytest.raises(errors.Timeout):
            await consumer.partitions("t", timeout_ms=20)
        await consumer.close(timeout_ms=20)

    with socket.create_server(("127.0.0.1", 0), backlog=10) as silent:
        run(work)


def test_threads_end_with_their_objects(broker: Broker, unique: str) -> None:
    async def work() -> None:
        async with aio.Admin(broker) as admin, aio.Producer(broker) as producer:
            await admin.create_topic(unique)
            await producer.send(unique, b"x")

    before = set(threading.enumerate())
    run(work)
    # A broker in this process may start threads when it needs them.
    clients = (
        "kafkalog-aio",
        "kafkalog-producer",
        "kafkalog-member",
        "kafkalog-commits",
        "kafkalog-connect",
    )
    ours = [one for one in threading.enumerate() if one not in before]
    for thread in ours:
        if thread.name.startswith(clients):
            thread.join(LIMIT_S)
            assert not thread.is_alive(), thread


def test_none_is_copied(tmp_path: Path) -> None:
    for kind in (aio.Admin, aio.Producer, aio.Consumer, aio.ShareConsumer):
        one = kind("localhost:1", **({"group": "g"} if kind is aio.ShareConsumer else {}))
        with pytest.raises(errors.ArgumentError, match=f"{kind.__name__}: cannot be copied"):
            pickle.dumps(one)
        run(one.close)
