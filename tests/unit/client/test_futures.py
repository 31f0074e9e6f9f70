"""Python's own functions wait for a producer's futures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from concurrent.futures import Future as TheirFuture
from concurrent.futures import TimeoutError as TheirTimeout
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.producer.producer import Producer
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer, produced
from tests.support.waiting import LIMIT_S
from tests.unit.client.producer.producing import single, wide

Let = Callable[[int], None]


@pytest.fixture
def held(broker: Peer) -> Iterator[Let]:
    """Lets the broker answer that many more requests; it refuses records of partition 1."""
    turns = threading.Semaphore(0)

    def slow(request: Any, version: int) -> Any:
        turns.acquire(timeout=LIMIT_S)
        rows = [row for topic in request.topic_data for row in topic.partition_data]
        codes = [ErrorCode.INVALID_RECORD if row.index else ErrorCode.NONE for row in rows]
        return produced(codes)(request, version)

    broker.on(apis.PRODUCE, slow)
    yield turns.release
    turns.release(1_000)


@pytest.fixture
def producer(broker: Peer, held: Let) -> Iterator[Producer]:
    """One record per batch and request, one request at a time."""
    with single(broker, in_flight=1, config={"retries": 0}) as made:
        yield made
        made._waiting.take_failure()


def sent(producer: Producer, count: int, partition: int = 0) -> list[Any]:
    return [producer.send("t", wide(i), partition=partition) for i in range(count)]


def test_wait_for_all_and_for_the_first(producer: Producer, held: Let) -> None:
    records = sent(producer, 3)
    assert wait(records, timeout=0) == (set(), set(records))
    held(1)
    done, left = wait(records, LIMIT_S, return_when=FIRST_COMPLETED)
    assert records[0] in done and len(left) <= 2
    held(2)
    done, left = wait(records, LIMIT_S)
    assert (done, left) == (set(records), set())
    assert wait(records, 0, FIRST_COMPLETED) == (set(records), set())


def test_wait_for_the_first_that_fails(producer: Producer, held: Let) -> None:
    bad = producer.send("t", wide(0), partition=1)
    good = producer.send("t", wide(1), partition=0)
    held(2)
    done, _ = wait([good, bad], LIMIT_S, return_when=FIRST_EXCEPTION)
    assert bad in done
    assert isinstance(bad.exception(), errors.InvalidRecord)


def test_as_completed(producer: Producer, held: Let) -> None:
    records = sent(producer, 3)
    with pytest.raises(TheirTimeout):
        next(as_completed(records, timeout=0))
    held(1)
    coming = as_completed(records, LIMIT_S)
    assert next(coming) is records[0]
    held(2)
    assert list(coming) == records[1:]


def test_with_futures_of_an_executor(producer: Producer, held: Let) -> None:
    with ThreadPoolExecutor(1) as pool:
        mixed = [*sent(producer, 2), pool.submit(held, 2)]
        assert wait(mixed, LIMIT_S).not_done == set()
        assert set(as_completed(mixed)) == set(mixed)


def test_expired_waits_are_forgotten(producer: Producer, held: Let) -> None:
    (record,) = sent(producer, 1)
    many = producer.send_many("t", [wide(1)], partition=0)
    for _ in range(10):
        assert wait([record, many], timeout=0).done == set()
    assert record._batch._waiters == {} and many._listeners == {}
    held(2)
    assert wait([record, many], LIMIT_S).done == {record, many}


def test_asyncio_wraps_them(producer: Producer, held: Let) -> None:
    bad = producer.send("t", wide(0), partition=1)
    good, other = sent(producer, 2)

    async def work() -> None:
        given_up = asyncio.wrap_future(other)
        given_up.cancel()
        held(3)
        assert await asyncio.wait_for(asyncio.wrap_future(good), LIMIT_S) == good.result()
        with pytest.raises(errors.InvalidRecord):
            await asyncio.wait_for(asyncio.wrap_future(bad), LIMIT_S)

    asyncio.run(work())
    assert other.result(LIMIT_S).topic == "t"  # a record cannot be cancelled


def test_many_are_waited_for_as_one(producer: Producer, held: Let) -> None:
    first = producer.send_many("t", [wide(0), wide(1)], partition=0)
    second = producer.send_many("t", [wide(2)], partition=1)
    empty = producer.send_many("t", [], partition=0)
    assert wait([first, second, empty], 0) == ({empty}, {first, second})
    held(3)
    assert set(as_completed([first, second, empty], LIMIT_S)) == {first, second, empty}
    assert first.exception() is None and len(first.result()) == 2
    assert isinstance(second.exception(), errors.InvalidRecord)

    async def work() -> Any:
        return await asyncio.wrap_future(first)

    assert asyncio.run(work()) == first.result()


def test_they_are_futures_that_cannot_be_cancelled(producer: Producer, held: Let) -> None:
    (record,) = sent(producer, 1)
    many = producer.send_many("t", [wide(1)], partition=0)
    for one in (record, many):
        assert isinstance(one, TheirFuture)
        assert one.running() and not one.done() and not one.cancel() and not one.cancelled()
    held(2)
    assert wait([record, many], LIMIT_S).not_done == set()
    assert not record.running() and not many.running()


def test_threads_that_look_at_futures_hold_up_one_another_never(
    producer: Producer, held: Let
) -> None:
    """concurrent.futures acquires the conditions of all futures it waits for, in its own order: a
    thread that holds an executor's condition could wait for a thread that waits for it."""
    one, other = sent(producer, 2)
    with one._condition:
        looks = threading.Thread(target=lambda: wait([other], timeout=0))
        looks.start()
        looks.join(LIMIT_S)
        assert not looks.is_alive()
        held(2)
        assert not one.done()  # nothing completes while a thread holds the condition
    assert one.result(LIMIT_S).offset >= 0 and other.result(LIMIT_S).offset >= 0


def test_asyncio_gets_known_results(producer: Producer, held: Let) -> None:
    """The interface that CPython 3.15 uses."""
    (one,) = sent(producer, 1)
    assert one._get_snapshot() == (False, False, None, None)
    held(1)
    assert one.result(LIMIT_S).offset >= 0
    assert one._get_snapshot() == (True, False, one.result(), None)
