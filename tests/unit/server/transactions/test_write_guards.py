"""Guards of writes, and what breaks them."""

from __future__ import annotations

import threading

import pytest

from kafkalog.coordinator.step import Producer
from kafkalog.coordinator.transactions.transaction import EPOCH_MAX
from kafkalog.server.transactions.write_guards import Guards, breaks
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.waiting import LIMIT_S, wait_for

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


@pytest.mark.parametrize(
    ("marker", "version", "write", "broken"),
    [
        (4, 0, 5, False),
        (4, 2, 5, False),
        (5, 0, 5, True),
        (5, 1, 5, True),
        (5, 2, 5, False),
        (6, 0, 5, True),
        (6, 2, 5, True),
        (EPOCH_MAX, 2, EPOCH_MAX, True),
        (EPOCH_MAX, 2, EPOCH_MAX - 1, True),
    ],
)
def test_a_marker_breaks_the_guards_of_its_transaction(
    marker: int, version: int, write: int, broken: bool
) -> None:
    """By their epochs: in version 2 the marker's is above that of its transaction."""
    assert breaks(Producer(7, marker, True, 0, version), write) is broken


def test_only_the_same_producer_and_partition() -> None:
    guards = Guards()
    ended, other_producer, other_partition = (
        guards.begin(A, 7, 0), guards.begin(A, 8, 0), guards.begin(B, 7, 0),
    )  # fmt: skip
    with guards.ending(A, Producer(7, 0, False)) as free:
        assert free
    assert ended.error is ErrorCode.INVALID_TXN_STATE
    assert other_producer.holds and other_partition.holds
    guards.leave([A])
    assert other_producer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert other_partition.holds and guards.any()
    guards.end(other_partition)
    assert not guards.any()


class Watched:
    """A lock that tells of an attempt to take it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.tried = threading.Event()

    def __enter__(self) -> None:
        self.tried.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_partition_is_left_after_the_write_in_progress() -> None:
    """Only then may it be deleted: the next one of that name is not written by mistake."""
    guards, lock, left = Guards(), Watched(), threading.Event()
    guards._locks = [lock] * len(guards._locks)  # type: ignore[list-item]
    guard = guards.begin(A, 7, 0)

    def leave() -> None:
        guards.leave([A])
        left.set()

    thread = threading.Thread(target=leave)
    with guards.writing(guard) as holds:
        assert holds
        lock.tried.clear()
        thread.start()
        wait_for(lambda: lock.tried.is_set() or left.is_set(), "it leaves, or waits")
        assert guard.holds and not left.is_set()
    thread.join(LIMIT_S)
    assert left.is_set() and not guard.holds
