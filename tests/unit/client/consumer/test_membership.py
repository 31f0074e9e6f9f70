"""A group member against a scripted coordinator: joining, heartbeats, errors."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.consumer.assignors import sticky_user_data
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.link.failures import failure_class
from kafkalog.clock import ManualClock
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL
from tests.support.scripted import CLOSE, Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.consumer.members import (
    ONE,
    OPTIONS,
    ZERO,
    Coordinator,
    again,
    commit_answer,
    generation,
    ids,
    joined,
)


def test_it_asks_again_with_the_id_that_it_was_given(
    coordinator: Coordinator, peer: Peer, member: Consumer
) -> None:
    assert ids(peer) == ["", "m"]
    assert member.assignment == [ZERO, ONE]
    assert [member.position(tp) for tp in member.assignment] == [0, 0]
    _, subscription = CONSUMER_PROTOCOL.decode_subscription(
        peer.sent(apis.JOIN_GROUP)[0].protocols[0].metadata
    )
    assert list(subscription.topics) == ["t"]


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, ["m"]),
        (ErrorCode.ILLEGAL_GENERATION, ["m"]),
        (ErrorCode.UNKNOWN_MEMBER_ID, ["", "m"]),
    ],
)
def test_a_heartbeat_may_send_it_back(
    peer: Peer, member: Consumer, code: int, asked: list[str]
) -> None:
    """It joins again, with its member id unless the coordinator no longer knows it."""
    peer.on(apis.HEARTBEAT, {"error_code": code}, {})
    again(member)
    assert ids(peer)[2:] == asked


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, "revoked"),
        (ErrorCode.ILLEGAL_GENERATION, "lost"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "lost"),
    ],
)
def test_listeners_hear_of_revoked_and_lost_partitions(
    coordinator: Coordinator, peer: Peer, assignor: str, code: int, told: str
) -> None:
    """Eager: revoked before the join.  Cooperative: kept, unless they are lost anyway."""
    heard: list[tuple[str, list[TopicPartition]]] = []
    coordinator.protocol = assignor
    with Consumer(peer.servers, assignor=assignor, **OPTIONS) as member:
        member.subscribe(
            "t",
            on_assigned=lambda tps: heard.append(("assigned", tps)),
            on_revoked=lambda tps: heard.append(("revoked", tps)),
            on_lost=lambda tps: heard.append(("lost", tps)),
        )
        again(member, 1)
        peer.on(apis.HEARTBEAT, {"error_code": code}, {})
        again(member)
        keeps = assignor != "range" and told == "revoked"
        both = [ZERO, ONE]
        assert heard == [
            ("assigned", both),
            *([] if keeps else [(told, both)]),
            ("assigned", [] if keeps else both),
        ]
        owned = CONSUMER_PROTOCOL.decode_subscription(
            peer.sent(apis.JOIN_GROUP)[-1].protocols[0].metadata
        )[1].owned_partitions
        assert [list(row.partitions) for row in owned] == ([[0, 1]] if keeps else [])
        heard.clear()
    assert heard == [("revoked", both)]


def test_partitions_of_others_are_given_back_and_it_joins_again(
    coordinator: Coordinator, peer: Peer
) -> None:
    """KIP-429: the leader assigns less than it owns; it revokes the rest, rejoins, and reads on."""
    coordinator.protocol = "cooperative-sticky"
    heard: list[list[TopicPartition]] = []
    with Consumer(peer.servers, assignor="cooperative-sticky", **OPTIONS) as member:
        member.subscribe("t", on_revoked=heard.append)
        again(member, 1)
        peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}, {})
        half = CONSUMER_PROTOCOL.encode_assignment(
            0, {"assigned_partitions": [{"topic": "t", "partitions": [1]}]}
        )
        peer.on(apis.SYNC_GROUP, {"assignment": half})
        again(member, 3)
        assert (member.assignment, heard) == ([ONE], [[ZERO]])
        _, last = CONSUMER_PROTOCOL.decode_subscription(
            peer.sent(apis.JOIN_GROUP)[-1].protocols[0].metadata
        )
        assert [list(row.partitions) for row in last.owned_partitions] == [[1]]
        assert last.generation_id == 2


def test_a_sticky_member_sends_its_previous_partitions(
    coordinator: Coordinator, peer: Peer
) -> None:
    coordinator.protocol = "sticky"
    with joined(peer, assignor="sticky") as member:
        peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}, {})
        again(member)
    told = [
        CONSUMER_PROTOCOL.decode_subscription(request.protocols[0].metadata)[1].user_data
        for request in peer.sent(apis.JOIN_GROUP)
    ]
    assert told == [None, None, sticky_user_data([ZERO, ONE], 1)]


def test_a_new_coordinator_keeps_the_generation(peer: Peer, member: Consumer) -> None:
    peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.NOT_COORDINATOR}, CLOSE, {})
    before, beats = peer.count(apis.FIND_COORDINATOR), peer.count(apis.HEARTBEAT)
    wait_for(lambda: peer.count(apis.HEARTBEAT) >= beats + 3, "it beats again")
    member.poll(0)
    assert peer.count(apis.FIND_COORDINATOR) >= before + 2
    assert (generation(member), len(ids(peer))) == (1, 2)


def test_a_fenced_member_is_told(peer: Peer, member: Consumer) -> None:
    peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.FENCED_INSTANCE_ID})
    with pytest.raises(failure_class(ErrorCode.FENCED_INSTANCE_ID)):
        while True:
            member.poll(10)


def test_a_refused_join_is_raised(coordinator: Coordinator, peer: Peer) -> None:
    peer.on(apis.JOIN_GROUP, {"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL})
    with (
        Consumer(peer.servers, "t", **OPTIONS) as consumer,
        pytest.raises(failure_class(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), match="group 'g'"),
    ):
        consumer.poll(1_000)
    assert peer.count(apis.LEAVE_GROUP) == 0


def test_positions_are_committed_before_partitions_are_given_back(
    peer: Peer, member: Consumer
) -> None:
    member.seek(ZERO, 7)
    peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}, {})
    again(member)
    request = peer.sent(apis.OFFSET_COMMIT)[0]
    assert request.member_id == "m"
    rows = {p.partition_index: p.committed_offset for p in request.topics[0].partitions}
    assert rows == {0: 7, 1: 0}


def test_a_commit_of_a_generation_that_has_ended_is_told(peer: Peer, member: Consumer) -> None:
    """Another member reads these records: it joins again, and begins at the group's offsets."""
    peer.on(
        apis.OFFSET_COMMIT,
        lambda request, version: commit_answer(request, ErrorCode.ILLEGAL_GENERATION),
        lambda request, version: commit_answer(request, 0),
    )
    peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.ILLEGAL_GENERATION}, {})
    member.seek(ZERO, 7)
    with pytest.raises(failure_class(ErrorCode.ILLEGAL_GENERATION), match="t-0"):
        member.commit()
    again(member)
    assert member.position(ZERO) == 0


def test_commits_in_the_background_are_told_in_order(peer: Peer, member: Consumer) -> None:
    done: list[tuple[int, object]] = []
    peer.on(
        apis.OFFSET_COMMIT,
        lambda request, version: commit_answer(request, 0),
        lambda request, version: commit_answer(request, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        lambda request, version: commit_answer(request, 0),
    )
    for offset in (1, 2):
        member.commit(
            {ZERO: offset}, wait=False,
            callback=lambda given, problem: done.append((given[ZERO].offset, problem)),
        )  # fmt: skip
    assert done == []  # callbacks only run inside a call of this thread
    while len(done) < 2:
        member.poll(10)
    assert done[0] == (1, None)
    assert isinstance(done[1][1], failure_class(ErrorCode.OFFSET_METADATA_TOO_LARGE))


def test_it_says_goodbye_unless_it_is_expected_back(coordinator: Coordinator, peer: Peer) -> None:
    for instance_id, count in (("i", 0), (None, 1)):
        joined(peer, group_instance_id=instance_id).close()
        assert peer.count(apis.LEAVE_GROUP) == count
    assert [m.member_id for m in peer.sent(apis.LEAVE_GROUP)[0].members] == ["m"]


def test_a_coordinator_that_is_gone_does_not_stop_the_goodbye(peer: Peer, member: Consumer) -> None:
    peer.on(apis.LEAVE_GROUP, CLOSE)
    member.close()
    with pytest.raises(errors.Closed):
        member.poll(0)


def test_nothing_to_read_is_no_busy_loop(coordinator: Coordinator, peer: Peer) -> None:
    """More members than partitions: one of them waits, and sends heartbeats."""
    peer.on(apis.SYNC_GROUP, {"assignment": b""})
    with Consumer(peer.servers, "t", **OPTIONS) as consumer:
        consumer.poll(1_000)
        assert generation(consumer) == 1
        beats = peer.count(apis.HEARTBEAT)
        wait_for(lambda: peer.count(apis.HEARTBEAT) >= beats + 2, "it beats")
        assert (consumer.assignment, consumer.poll(20)) == ([], [])
        assert peer.count(apis.FETCH) == 0


def test_a_join_that_others_delay_goes_on_with_the_next_poll(
    coordinator: Coordinator, peer: Peer
) -> None:
    """A poll waits no longer than its timeout; the request stays in flight."""
    let = threading.Event()

    def slow(request: Any, version: int) -> Any:
        if request.member_id:
            assert let.wait(LIMIT_S)
        return coordinator.join(request, version)

    peer.on(apis.JOIN_GROUP, slow)
    with Consumer(peer.servers, "t", **OPTIONS) as consumer:
        for _ in range(3):
            assert consumer.poll(20) == []
        let.set()
        again(consumer, 1)
        assert ids(peer) == ["", "m"]


def test_a_member_that_does_not_poll_gives_up_its_partitions(
    coordinator: Coordinator, peer: Peer
) -> None:
    """By the clock, not by waiting.  The next poll joins as a new member."""
    clock = ManualClock()
    lost: list[list[TopicPartition]] = []
    options = {**OPTIONS, "heartbeat_ms": 3_000}
    with Consumer(peer.servers, clock=clock, max_poll_interval_ms=10_000, **options) as member:
        member.subscribe("t", on_lost=lost.append)
        again(member, 1)
        clock.advance(9_000)
        wait_for(lambda: peer.count(apis.HEARTBEAT) == 1, "it sends heartbeats")
        clock.advance(1_000)
        wait_for(lambda: peer.count(apis.LEAVE_GROUP) == 1, "it leaves")
        reason = peer.sent(apis.LEAVE_GROUP)[0].members[0].reason
        assert "max.poll.interval.ms" in reason
        again(member)
        assert lost == [[ZERO, ONE]]
        assert ids(peer) == ["", "m", "", "m"]


def test_given_up_partitions_are_not_read_before_the_leave_is_answered(
    coordinator: Coordinator, peer: Peer
) -> None:
    """The coordinator may have assigned its partitions to others by then."""
    clock = ManualClock()
    let = threading.Event()
    lost: list[list[TopicPartition]] = []

    def slow(request: Any, version: int) -> Any:
        assert let.wait(LIMIT_S)
        return {"members": []}

    peer.on(apis.LEAVE_GROUP, slow, {"members": []})
    options = {**OPTIONS, "heartbeat_ms": 3_000}
    with Consumer(peer.servers, clock=clock, max_poll_interval_ms=10_000, **options) as member:
        member.subscribe("t", on_lost=lost.append)
        again(member, 1)
        clock.advance(10_000)
        wait_for(lambda: peer.count(apis.LEAVE_GROUP) == 1, "it says goodbye")
        member.poll(0)
        assert lost == [[ZERO, ONE]]
        again(member)
        let.set()
        clock.advance(3_000)
        wait_for(lambda: peer.count(apis.HEARTBEAT), "it beats as the new one")
        assert member.assignment == [ZERO, ONE]


class Heard:
    """An interceptor that notes commits."""

    def __init__(self, heard: list[object]) -> None:
        self.on_commit = heard.append


def test_positions_are_committed_by_the_clock(coordinator: Coordinator, peer: Peer) -> None:
    clock = ManualClock()
    heard: list[object] = []
    options = {**OPTIONS, "heartbeat_ms": 3_000, "interceptors": [Heard(heard)]}
    with Consumer(peer.servers, "t", clock=clock, **options) as member:
        again(member, 1)
        member.seek(ZERO, 5)
        member.poll(0)
        assert peer.count(apis.OFFSET_COMMIT) == 0
        clock.advance(5_000)
        member.poll(0)
        while not heard:
            member.poll(10)
        clock.advance(5_000)
        member.poll(0)
    assert peer.count(apis.OFFSET_COMMIT) == 1  # nothing new


def test_a_second_thread_is_refused_and_may_wake_the_first(
    coordinator: Coordinator, peer: Peer
) -> None:
    peer.on(apis.SYNC_GROUP, {"assignment": b""})
    with Consumer(peer.servers, "t", **OPTIONS) as consumer:
        consumer.poll(1_000)
        ended: list[type[BaseException]] = []

        def run() -> None:
            try:
                consumer.poll(None)
            except errors.KafkalogError as problem:
                ended.append(type(problem))

        thread = threading.Thread(target=run)
        thread.start()

        def refused() -> bool:
            try:
                consumer.assign([])
            except errors.WrongThread:
                return True
            except errors.ArgumentError:
                return False
            raise AssertionError

        wait_for(refused, "the other thread is in poll")
        consumer.wakeup()
        thread.join(LIMIT_S)
        assert ended == [errors.WakeUp]


def test_a_child_of_a_fork_is_refused(coordinator: Coordinator, peer: Peer) -> None:
    with joined(peer) as consumer:
        consumer._pid += 1  # as in a child process
        with pytest.raises(errors.ForkedHandle):
            consumer.poll(0)
        consumer._pid -= 1


def test_it_offers_range_and_cooperative_sticky(peer: Peer, member: Consumer) -> None:
    """As Java's; it gives everything back before a rebalance while range may be chosen."""
    asked = peer.sent(apis.JOIN_GROUP)[-1]
    assert [one.name for one in asked.protocols] == ["range", "cooperative-sticky"]
    assert member._membership is not None and not member._membership.member.cooperative
