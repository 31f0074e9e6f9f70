"""Background commits of a member, and the commits that follow them."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.link.failures import failure_class
from kafkalog.client.link.transport import Address, Options, Tcp
from kafkalog.clock import SkippingClock
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import SILENCE, Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.consumer.members import (
    OPTIONS,
    ZERO,
    Coordinator,
    again,
    commit_answer,
    joined,
)


def test_a_commit_does_not_overtake_one_that_is_under_way(peer: Peer, member: Consumer) -> None:
    """Otherwise the older offset would arrive last, and be the group's."""
    let = threading.Event()

    def slow(request: Any, version: int) -> Any:
        assert let.wait(LIMIT_S)
        return commit_answer(request, 0)

    peer.on(apis.OFFSET_COMMIT, slow, lambda request, version: commit_answer(request, 0))
    member.commit({ZERO: 3}, wait=False)
    patient = member._cluster.options
    member._cluster.options = patient._replace(api_timeout_ms=20)
    with pytest.raises(errors.Timeout, match="an earlier commit was not answered in 20 ms"):
        member.commit({ZERO: 7})
    let.set()
    member._cluster.options = patient
    member.commit({ZERO: 7})
    sent = [r.topics[0].partitions[0].committed_offset for r in peer.sent(apis.OFFSET_COMMIT)]
    assert sent == [3, 7]


class Odd(Tcp):
    """A transport that fails once, in one of a member's own threads, which must not happen."""

    def __init__(self, port: int, thread: str) -> None:
        super().__init__([Address("127.0.0.1", port)])
        self.thread: str | None = thread

    def connect(self, address: Address, options: Options) -> socket.socket:
        if self.thread == threading.current_thread().name:
            self.thread = None
            raise RuntimeError("no way")
        return super().connect(address, options)


def test_a_thread_that_commits_and_fails_is_told_of_and_another_goes_on(
    coordinator: Coordinator, peer: Peer
) -> None:
    """Even though nobody waits for its commit."""
    told: list[object] = []
    way = Odd(peer.port, "kafkalog-commits")
    with Consumer(way, "t", **OPTIONS) as member:
        again(member, 1)
        for offset in (5, 6, 7):
            member.commit({ZERO: offset}, wait=False, callback=lambda _, how: told.append(how))
            wait_for(lambda: way.thread is None, "it has failed")
            member.commit({ZERO: offset})
        assert isinstance(told[0], errors.Closed)
        assert "no way" in str(told[0])
        assert told[1:] == [None, None]


def test_a_thread_that_beats_and_fails_is_told_of_and_another_goes_on(
    coordinator: Coordinator, peer: Peer
) -> None:
    """It must not stop sending heartbeats unnoticed."""

    def failed() -> bool:
        try:
            member.poll(1)
        except errors.Closed as problem:
            return "no way" in str(problem)
        return False

    clock, way = SkippingClock(), Odd(peer.port, "kafkalog-member")
    with Consumer(way, "t", clock=clock, **{**OPTIONS, "heartbeat_ms": 40_000}) as member:
        again(member, 1)
        clock.advance(40_000)
        wait_for(failed, "it is reported")
        again(member)
        clock.advance(40_000)
        wait_for(lambda: peer.count(apis.HEARTBEAT), "it beats")


# ---- order and timeouts --------------------------------------------------------------------


def test_callbacks_are_called_in_order_whatever_they_do(peer: Peer, member: Consumer) -> None:
    """All are called before one's exception is raised; a commit of a callback does not overtake."""
    told: list[int] = []

    def first(given: Any, _: object) -> None:
        told.append(given[ZERO].offset)
        raise ZeroDivisionError

    def second(given: Any, _: object) -> None:
        member.commit({ZERO: 9})
        told.append(given[ZERO].offset)

    def plain(given: Any, _: object) -> None:
        told.append(given[ZERO].offset)

    for offset, callback in ((1, first), (2, plain), (3, second), (4, plain)):
        member.commit({ZERO: offset}, wait=False, callback=callback)
    wait_for(lambda: peer.count(apis.OFFSET_COMMIT) == 4, "all are sent")
    with pytest.raises(ZeroDivisionError):
        wait_for(lambda: member.poll(0) and False, "the first is reported")
    wait_for(lambda: member.poll(0) or len(told) == 4, "all are reported")
    assert told == [1, 2, 4, 3]


def test_a_commit_takes_its_time_and_no_longer_however_many_wait(
    coordinator: Coordinator, peer: Peer
) -> None:
    """It does not also wait default.api.timeout.ms for each commit before it."""
    clock = SkippingClock()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    peer.on(apis.OFFSET_COMMIT, lambda request, version: commit_answer(request, loading))
    told: list[object] = []
    with joined(peer, clock=clock, heartbeat_ms=40_000, auto_commit=False) as member:
        for offset in (1, 2, 3):
            member.commit({ZERO: offset}, wait=False, callback=lambda _, how: told.append(how))
        wait_for(lambda: peer.count(apis.OFFSET_COMMIT) > 2, "it tries again and again")
        clock.advance(20_000)
        wait_for(lambda: member.poll(1) or len(told) == 3, "all have ended")
    assert isinstance(told[0], failure_class(loading))
    for problem in told[1:]:
        assert isinstance(problem, errors.Timeout)
        assert "earlier commits took 20000 ms" in str(problem)
    sent = {r.topics[0].partitions[0].committed_offset for r in peer.sent(apis.OFFSET_COMMIT)}
    assert sent == {1}


@pytest.mark.parametrize("ending", ["close", "unsubscribe", "rebalance"])
def test_a_commit_under_way_is_waited_for_before_its_generation_ends(
    coordinator: Coordinator, peer: Peer, ending: str
) -> None:
    """After LeaveGroup it would be refused, and records already processed would be read again."""
    over = threading.Event()

    def held(request: Any, version: int) -> Any:
        over.wait(0.1)  # long enough to be overtaken
        gone = over.is_set()
        return commit_answer(request, ErrorCode.UNKNOWN_MEMBER_ID if gone else 0)

    def left(request: Any, version: int) -> Any:
        over.set()
        return {"members": []}

    def joins(request: Any, version: int) -> Any:
        if request.member_id and coordinator.generation:
            over.set()
        return coordinator.join(request, version)

    peer.on(apis.LEAVE_GROUP, left)
    peer.on(apis.JOIN_GROUP, joins)
    peer.on(apis.OFFSET_COMMIT, held)
    told: list[object] = []
    with joined(peer, auto_commit=False) as member:
        member.commit({ZERO: 5}, wait=False, callback=lambda _, how: told.append(how))
        if ending == "close":
            member.close()
        elif ending == "unsubscribe":
            member.unsubscribe()
        else:
            peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}, {})
            again(member)
        assert told == [None]


def test_a_commit_without_an_answer_is_told_of_at_the_end(peer: Peer, member: Consumer) -> None:
    told: list[object] = []
    peer.on(apis.OFFSET_COMMIT, SILENCE)
    member._cluster.options = member._cluster.options._replace(api_timeout_ms=20)
    member.commit({ZERO: 5}, wait=False, callback=lambda _, how: told.append(how))
    member.close(timeout_ms=100)
    (problem,) = told
    assert isinstance(problem, errors.Timeout)


def test_no_commit_uses_a_generation_without_an_assignment(
    coordinator: Coordinator, peer: Peer
) -> None:
    """A member that reads on while others join would commit, under the next generation, offsets of
    partitions that this generation assigns to another member, and set that member back."""
    coordinator.protocol = "cooperative-sticky"
    let = threading.Event()

    def slow(request: Any, version: int) -> Any:
        assert let.wait(LIMIT_S)
        return coordinator.sync(request, version)

    with joined(peer, assignor="cooperative-sticky", auto_commit=False) as member:
        peer.on(apis.SYNC_GROUP, slow)
        peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}, {})
        wait_for(
            lambda: member.poll(1) or peer.count(apis.SYNC_GROUP) == 2, "it asks for its share"
        )
        for wait in (True, False):
            with pytest.raises(failure_class(ErrorCode.REBALANCE_IN_PROGRESS), match="is joining"):
                member.commit({ZERO: 5}, wait=wait)
        let.set()
        again(member)
        member.commit({ZERO: 5})
    (sent,) = peer.sent(apis.OFFSET_COMMIT)
    assert sent.generation_id_or_member_epoch == 2
