"""Commits of a member in the background, and those that follow them."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.consumer import Consumer
from kafkalog.client.transport import Address, Options, Tcp
from kafkalog.wire import apis
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.members import OPTIONS, ZERO, Coordinator, again, commit_answer


def test_a_commit_does_not_overtake_one_that_is_under_way(peer: Peer, member: Consumer) -> None:
    """The older offset would land behind it, and be what the group has."""
    let = threading.Event()

    def slow(request: Any, version: int) -> Any:
        assert let.wait(LIMIT_S)
        return commit_answer(request, 0)

    peer.on(apis.OFFSET_COMMIT, slow, lambda request, version: commit_answer(request, 0))
    patient = member._cluster.options
    member._cluster.options = patient._replace(api_timeout_ms=20)
    member.commit({ZERO: 3}, wait=False)
    with pytest.raises(errors.Timeout, match="an earlier commit was not answered in 20 ms"):
        member.commit({ZERO: 7})
    let.set()
    member._cluster.options = patient
    member.commit({ZERO: 7})
    sent = [r.topics[0].partitions[0].committed_offset for r in peer.sent(apis.OFFSET_COMMIT)]
    assert sent == [3, 7]


class Odd(Tcp):
    """A transport that fails once, in a member's own thread, as none may."""

    fails = True

    def connect(self, address: Address, options: Options) -> socket.socket:
        if self.fails and threading.current_thread().name == "kafkalog-member":
            self.fails = False
            raise RuntimeError("no way")
        return super().connect(address, options)


def test_a_thread_that_fails_is_told_and_another_goes_on(
    coordinator: Coordinator, peer: Peer
) -> None:
    """Nobody waits for its commit, and it does not stop to beat unnoticed."""
    told: list[object] = []

    def heard(_: object, problem: object) -> None:
        told.append(problem)

    def failed() -> bool:
        try:
            member.poll(1)
        except errors.Closed as problem:
            return "no way" in str(problem)
        return False

    way = Odd([Address("127.0.0.1", peer.port)])
    options = {**OPTIONS, "heartbeat_ms": 10_000}
    with Consumer(way, "t", **options) as member:
        again(member, 1)
        member.commit({ZERO: 5}, wait=False, callback=heard)
        member.commit({ZERO: 6})
        (problem,) = told
        assert isinstance(problem, errors.Closed)
        wait_for(failed, "it is told")
        again(member)
        member.commit({ZERO: 7}, wait=False, callback=heard)
        wait_for(lambda: member.poll(1) or len(told) == 2, "the commit has ended")
        assert told[1] is None
