"""DeleteRecords waits for the replicas, up to its timeout."""

from __future__ import annotations

import queue
from collections.abc import Mapping

import pytest

from kafkalog.clock import SystemClock
from kafkalog.errors import NotLeaderOrFollower
from kafkalog.server.threads.deletions import Deleted, Deletions
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.waiting import LIMIT_S

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
HOUR_MS = 3_600_000
Answers = queue.SimpleQueue[Mapping[TopicPartition, Deleted]]


class Low(dict[TopicPartition, int]):
    """Low watermarks of the partitions that this node leads."""

    def of(self, tp: TopicPartition) -> int:
        if tp not in self:
            raise NotLeaderOrFollower(str(tp))
        return self[tp]


def test_reached_offsets_are_answered_at_once() -> None:
    low, answers = Low({A: 5, B: 7}), Answers()
    waits = Deletions(low.of, SystemClock(), "test")
    for wanted in ({}, {A: 5, B: 3}):
        waits.wait(wanted, HOUR_MS, answers.put)
        assert answers.get_nowait() == {tp: Deleted(low[tp], ErrorCode.NONE) for tp in wanted}
    waits.stop()


def test_each_is_waited_for() -> None:
    low, answers = Low({A: 5, B: -1}), Answers()
    waits = Deletions(low.of, SystemClock(), "test")
    waits.wait({A: 6, B: 3}, HOUR_MS, answers.put)
    low[A] = 6
    low[B] = 4
    assert answers.get(timeout=LIMIT_S) == {
        A: Deleted(6, ErrorCode.NONE), B: Deleted(4, ErrorCode.NONE),
    }  # fmt: skip
    waits.stop()


@pytest.mark.parametrize("timeout_ms", [-5, 0, 30])
def test_time_is_over(timeout_ms: int) -> None:
    low, answers = Low({A: 5}), Answers()
    waits = Deletions(low.of, SystemClock(), "test")
    waits.wait({A: 6}, timeout_ms, answers.put)
    assert answers.get(timeout=LIMIT_S) == {A: Deleted(5, ErrorCode.REQUEST_TIMED_OUT)}
    waits.stop()


def test_another_leads_by_now() -> None:
    low, answers = Low({A: 5}), Answers()
    waits = Deletions(low.of, SystemClock(), "test")
    waits.wait({A: 6}, HOUR_MS, answers.put)
    del low[A]
    assert answers.get(timeout=LIMIT_S) == {A: Deleted(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    waits.stop()


def test_a_stop_answers_waiting_requests() -> None:
    answers = Answers()
    waits = Deletions(Low({A: 5}).of, SystemClock(), "test")
    waits.wait({A: 6}, HOUR_MS, answers.put)
    waits.stop()
    assert answers.get_nowait() == {A: Deleted(5, ErrorCode.REQUEST_TIMED_OUT)}
    waits.wait({A: 6}, HOUR_MS, answers.put)
    assert answers.get_nowait() == {A: Deleted(5, ErrorCode.REQUEST_TIMED_OUT)}
    waits.stop()
