"""A member between the steps of a join, against a scripted coordinator."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafkalog.client.consumer.assignors import Assignor, range_assignment
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.clock import ManualClock
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.consumer.members import (
    ONE,
    OPTIONS,
    ZERO,
    Coordinator,
    again,
    generation,
    ids,
    in_time,
    joined,
)


@pytest.mark.parametrize("code", [0, ErrorCode.REBALANCE_IN_PROGRESS], ids=["yes", "no"])
def test_it_beats_while_others_are_waited_for(
    coordinator: Coordinator, peer: Peer, code: int
) -> None:
    """The session runs from JoinGroup's answer on; SyncGroup's answer reports any problem."""
    peer.on(apis.HEARTBEAT, {"error_code": code}, {"error_code": code}, {})

    def slow(request: Any, version: int) -> Any:
        wait_for(lambda: peer.count(apis.HEARTBEAT) >= 3, "it beats")
        return coordinator.sync(request, version)

    peer.on(apis.SYNC_GROUP, slow)
    with Consumer(peer.servers, "t", **OPTIONS) as consumer:
        in_time(consumer)
        assert (ids(peer), generation(consumer)) == (["", "m"], 1)
    assert {(h.member_id, h.generation_id) for h in peer.sent(apis.HEARTBEAT)} == {("m", 1)}


def test_a_leader_beats_while_it_shares_out(coordinator: Coordinator, peer: Peer) -> None:
    def slow(members: Any, partitions: Any) -> Any:
        wait_for(lambda: peer.count(apis.HEARTBEAT) >= 2, "it beats")
        return range_assignment(members, partitions)

    with Consumer(peer.servers, "t", assignor=Assignor("range", slow), **OPTIONS) as consumer:
        in_time(consumer)
        assert consumer.assignment == [ZERO, ONE]


def test_it_beats_while_its_users_listener_and_callback_take_long(
    coordinator: Coordinator, peer: Peer
) -> None:
    """They run in the thread that polls; heartbeats have their own thread."""
    told: list[str] = []

    def beats() -> None:
        wanted = peer.count(apis.HEARTBEAT) + 2
        wait_for(lambda: peer.count(apis.HEARTBEAT) >= wanted, "it beats")

    def listened(_: Any) -> None:
        beats()
        told.append("assigned")

    def committed(*_: Any) -> None:
        beats()
        told.append("committed")

    with Consumer(peer.servers, **OPTIONS) as consumer:
        consumer.subscribe("t", on_assigned=listened)
        in_time(consumer)
        consumer.commit({ZERO: 1}, wait=False, callback=committed)
        wait_for(lambda: consumer.poll(10) or len(told) == 2, "both were called")
        assert generation(consumer) == 1
    assert told == ["assigned", "committed"]


def test_it_does_not_beat_while_the_coordinator_gathers_members(
    coordinator: Coordinator, peer: Peer
) -> None:
    """A member whose JoinGroup waits counts as alive, and its generation is not known yet."""
    asked, let = threading.Event(), threading.Event()

    def held(request: Any, version: int) -> Any:
        asked.set()
        assert let.wait(LIMIT_S)
        return coordinator.join(request, version)

    with joined(peer) as member:
        peer.on(apis.JOIN_GROUP, held)
        peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}, {})
        wait_for(lambda: member.poll(1) or asked.is_set(), "it asks to join")
        assert member._heartbeats.session.member is None
        let.set()
        again(member)


def test_a_join_that_takes_all_of_the_poll_interval_is_no_pause(
    coordinator: Coordinator, peer: Peer
) -> None:
    """The poll ran all the time."""
    clock = ManualClock()

    def late(request: Any, version: int) -> Any:
        clock.advance(10_000)
        return coordinator.join(request, version)

    def assigned(_: object) -> None:
        clock.advance(3_000)
        wait_for(lambda: peer.count(apis.HEARTBEAT) or peer.count(apis.LEAVE_GROUP), "it beats")

    peer.on(apis.JOIN_GROUP, late)
    options = {**OPTIONS, "heartbeat_ms": 3_000, "max_poll_interval_ms": 10_000}
    with Consumer(peer.servers, clock=clock, **options) as member:
        member.subscribe("t", on_assigned=assigned)
        in_time(member)
        assert (peer.count(apis.LEAVE_GROUP), ids(peer)) == (0, ["", "m"])


def test_a_member_that_does_not_poll_during_a_join_leaves(
    coordinator: Coordinator, peer: Peer
) -> None:
    clock = ManualClock()
    let = threading.Event()

    def slow(request: Any, version: int) -> Any:
        assert let.wait(LIMIT_S)
        return coordinator.sync(request, version)

    peer.on(apis.SYNC_GROUP, slow)
    options = {**OPTIONS, "heartbeat_ms": 3_000, "max_poll_interval_ms": 10_000}
    with Consumer(peer.servers, "t", clock=clock, **options) as member:
        wait_for(lambda: member.poll(5) or peer.count(apis.SYNC_GROUP), "it waits for its share")
        clock.advance(10_000)
        wait_for(lambda: peer.count(apis.LEAVE_GROUP), "it leaves")
        let.set()
        again(member, 2)
        assert ids(peer) == ["", "m", "", "m"]


def test_a_share_that_comes_just_when_it_leaves_is_not_taken(
    coordinator: Coordinator, peer: Peer
) -> None:
    """Taking it, the member would read other members' partitions until its next heartbeat."""
    clock = ManualClock()
    options = {**OPTIONS, "heartbeat_ms": 3_000, "max_poll_interval_ms": 10_000}
    with Consumer(peer.servers, "t", clock=clock, **options) as member:
        in_time(member)
        session = member._heartbeats.session
        clock.advance(10_000)
        wait_for(lambda: session.left, "it leaves")
        member._heartbeats.beat_as(member.group_metadata())
        assert session.left
        again(member, 2)


def test_partitions_lost_during_a_join_are_reported_before_the_next(
    coordinator: Coordinator, peer: Peer
) -> None:
    """A cooperative member reads on while it joins, but not once its partitions are lost."""
    coordinator.protocol = "cooperative-sticky"
    heard: list[tuple[str, list[TopicPartition]]] = []
    with Consumer(peer.servers, assignor="cooperative-sticky", **OPTIONS) as member:
        member.subscribe(
            "t",
            on_assigned=lambda tps: heard.append(("assigned", tps)),
            on_lost=lambda tps: heard.append(("lost", tps)),
        )
        again(member, 1)
        unknown = {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
        peer.on(apis.JOIN_GROUP, unknown, coordinator.join)
        peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}, {})
        again(member)
        both = [ZERO, ONE]
        assert heard == [("assigned", both), ("lost", both), ("assigned", both)]
        for request in peer.sent(apis.JOIN_GROUP)[-2:]:
            _, told = CONSUMER_PROTOCOL.decode_subscription(request.protocols[0].metadata)
            assert list(told.owned_partitions) == []
