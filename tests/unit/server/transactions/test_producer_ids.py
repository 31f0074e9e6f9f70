"""Producer ids, with blocks that another node allocates."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkalog import errors
from kafkalog.server.transactions.producer_ids import ProducerIds
from kafkalog.wire.error_codes import ErrorCode

LIMIT_S = 60


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def test_the_first_caller_gets_an_id(pool: ThreadPoolExecutor) -> None:
    blocks = iter([range(5, 7), range(90, 95)])
    ids = ProducerIds(lambda: next(blocks), pool.submit)
    assert [ids.next() for _ in range(3)] == [5, 6, 90]


def test_a_silent_controller_blocks_nobody(pool: ThreadPoolExecutor) -> None:
    """One request asks for a block; the others get a retriable error."""
    answers, asked = threading.Event(), threading.Semaphore(0)

    def allocate() -> range:
        asked.release()
        assert answers.wait(LIMIT_S)
        return range(3, 5)

    ids = ProducerIds(allocate, pool.submit)
    for _ in range(3):
        with pytest.raises(errors.KafkalogError, match="a block of them was asked for") as caught:
            ids.next()
        assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    answers.set()
    pool.submit(lambda: None).result(LIMIT_S)
    assert [ids.next(), ids.next()] == [3, 4]
    assert asked.acquire(blocking=False)
    assert not asked.acquire(blocking=False)


def test_it_is_said_why_there_is_none(pool: ThreadPoolExecutor) -> None:
    refusals = [errors.NotController("nobody reigns")]

    def allocate() -> range:
        if refusals:
            raise refusals.pop()
        return range(1)

    ids = ProducerIds(allocate, pool.submit)
    with pytest.raises(errors.KafkalogError, match="nobody reigns"):
        ids.next()
    assert ids.next() == 0
