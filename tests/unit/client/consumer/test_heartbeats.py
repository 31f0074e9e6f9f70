"""Heartbeats wait for nothing, and a member that gets no answers to them stops reading in time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.calls.groups import remove_members
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.consumer.settings import heartbeat_options
from kafkalog.client.link.cluster import Cluster
from kafkalog.clock import SkippingClock
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import SILENCE, STALL, Peer
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

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
REBALANCE = {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}


# ---- what they do not wait for ----------------------------------------------------------------


def beats(peer: Peer) -> None:
    """Wait for three more heartbeats."""
    wanted = peer.count(apis.HEARTBEAT) + 3
    wait_for(lambda: peer.count(apis.HEARTBEAT) >= wanted, "it beats")


@pytest.mark.parametrize("wait", [True, False], ids=["waited for", "in the background"])
@pytest.mark.parametrize("how", ["loading", "slow"])
def test_they_do_not_wait_for_commits(peer: Peer, member: Consumer, how: str, wait: bool) -> None:
    """Commits may be retried for longer than a session, or wait long for their answer."""
    done = threading.Event()

    def busy(request: Any, version: int) -> Any:
        return commit_answer(request, 0 if done.is_set() else LOADING)

    def slow(request: Any, version: int) -> Any:
        beats(peer)
        return commit_answer(request, 0)

    def until() -> None:
        wait_for(lambda: peer.count(apis.OFFSET_COMMIT) > 2, "it tries again and again")
        beats(peer)
        done.set()

    peer.on(apis.OFFSET_COMMIT, slow if how == "slow" else busy)
    watch = threading.Thread(target=until)
    if how == "loading":
        watch.start()
    told: list[object] = []
    member.commit({ZERO: 3}, wait=wait, callback=lambda _, problem: told.append(problem))
    wait_for(lambda: member.poll(1) or told, "it is committed")
    assert (told, generation(member)) == ([None], 1)
    if how == "loading":
        watch.join(LIMIT_S)


def test_heartbeats_do_not_wait_for_commits_in_flight(peer: Peer, member: Consumer) -> None:
    """A commit before a rebalance, or the end of a background one, may take its time."""

    def slow(request: Any, version: int) -> Any:
        beats(peer)
        return commit_answer(request, 0)

    peer.on(apis.OFFSET_COMMIT, slow)
    member.seek(ZERO, 7)
    member.commit(wait=False)
    peer.on(apis.HEARTBEAT, REBALANCE)
    wait_for(lambda: member._heartbeats.session.problem, "it has heard")
    peer.on(apis.HEARTBEAT, {})
    again(member)
    assert generation(member) == 2


def test_heartbeats_continue_during_a_cooperative_join(
    coordinator: Coordinator, peer: Peer
) -> None:
    """Without heartbeats it would not know whether the coordinator still counts it in."""
    coordinator.protocol = "cooperative-sticky"

    def slow(request: Any, version: int) -> Any:
        peer.on(apis.HEARTBEAT, REBALANCE, REBALANCE, {"error_code": 22}, REBALANCE)
        beats(peer)
        beats(peer)
        peer.on(apis.HEARTBEAT, {})
        return coordinator.join(request, version)

    with joined(peer, assignor="cooperative-sticky") as member:
        peer.on(apis.JOIN_GROUP, slow)
        peer.on(apis.HEARTBEAT, REBALANCE)
        while generation(member) == 1:
            member.poll(5)
            assert member.assignment == [ZERO, ONE]
        assert ids(peer) == ["", "m", "m"]


def test_a_joining_member_learns_that_it_was_removed(coordinator: Coordinator, peer: Peer) -> None:
    """It does not wait for the answer to its join: others own its partitions by now."""
    coordinator.protocol = "cooperative-sticky"
    lost: list[list[TopicPartition]] = []
    let = threading.Event()

    def held(request: Any, version: int) -> Any:
        peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}, {})
        assert let.wait(LIMIT_S)
        return coordinator.join(request, version)

    with Consumer(peer.servers, assignor="cooperative-sticky", **OPTIONS) as member:
        member.subscribe("t", on_lost=lost.append)
        again(member, 1)
        peer.on(apis.JOIN_GROUP, held, coordinator.join)
        peer.on(apis.HEARTBEAT, REBALANCE)
        wait_for(lambda: member.poll(1) or lost, "the loss is reported")
        assert lost == [[ZERO, ONE]]
        again(member)
        let.set()


@pytest.mark.parametrize("silent", [SILENCE, STALL], ids=["silent", "stalled"])
def test_one_without_an_answer_is_sent_again_in_time(
    coordinator: Coordinator, peer: Peer, silent: object
) -> None:
    """On another connection, before the session ends, however long other requests may wait."""
    options = {**OPTIONS, "config": {**OPTIONS["config"], "request.timeout.ms": 600_000}}
    peer.on(apis.HEARTBEAT, silent, {})
    with Consumer(peer.servers, "t", session_timeout_ms=3_000, **options) as member:
        again(member, 1)
        wait_for(lambda: peer.count(apis.HEARTBEAT) > 1, "it beats again", 30)
    patient = heartbeat_options(ConsumerConfig({}))
    assert (patient.request_timeout_ms, patient.connect_timeout_ms) == (15_000, 10_000)


# ---- the end of a session ---------------------------------------------------------------------

READER: dict[str, Any] = {
    "group": "g",
    "auto_offset_reset": "earliest",
    "auto_commit": False,
    "heartbeat_ms": 1_000,
    "config": {"fetch.max.wait.ms": 10, "retry.backoff.ms": 1, "retry.backoff.max.ms": 10},
}
AWAY = "COORDINATOR_NOT_AVAILABLE"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "b") as made:
        made.create_topic("t", 2)
        yield made


class Reader(Consumer):
    """A consumer that keeps the records it reads and its rebalance events."""

    def begin(self) -> None:
        self.values: list[bytes] = []
        self.told: list[str] = []
        self.subscribe(
            "t",
            on_assigned=lambda _: self.told.append("assigned"),
            on_revoked=lambda _: self.told.append("revoked"),
            on_lost=lambda _: self.told.append("lost"),
        )

    def read(self, until: Callable[[], object]) -> None:
        def turn() -> bool:
            self.values += [r.value or b"" for r in self.poll(10)]
            return bool(until())

        wait_for(turn, "it has read so far")


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_member_stops_reading_after_a_session_without_answers(
    broker: TestBroker, assignor: str
) -> None:
    """Others may own its partitions; it continues from its committed offsets once it has joined
    again."""
    clock = SkippingClock()
    with Reader(broker.bootstrap_servers, clock=clock, assignor=assignor, **READER) as one:
        one.begin()
        broker.fill("t", ["a", "b"], partition=0)
        one.read(lambda: len(one.values) == 2)
        before, mine = one.group_metadata(), one.assignment
        one.commit({TopicPartition("t", 0): 1})
        broker.fail("Heartbeat", AWAY, None)
        join = broker.fail("JoinGroup", AWAY, None)
        clock.advance(30_000)
        broker.fill("t", ["c"], partition=0)
        one.read(lambda: len(one.values) == 3)
        broker.fill("t", ["d"], partition=1)
        clock.advance(15_000)
        one.read(lambda: join.hits > 5)
        assert (one.values, one.assignment) == ([b"a", b"b", b"c"], [])
        assert one.told == ["assigned", "lost"]
        broker.heal()
        one.read(lambda: len(one.values) == 6)
        assert sorted(one.values[3:]) == [b"b", b"c", b"d"]
        assert one.assignment == mine
        after = one.group_metadata()
        assert (after.member_id, after.generation) == (before.member_id, before.generation + 1)


def test_a_joining_member_stops_reading_after_a_session_without_answers(
    coordinator: Coordinator, peer: Peer
) -> None:
    """A cooperative member whose JoinGroup waits at the coordinator, or was lost."""
    coordinator.protocol = "cooperative-sticky"
    clock = SkippingClock()
    lost: list[list[TopicPartition]] = []
    options = {**OPTIONS, "assignor": "cooperative-sticky", "clock": clock}
    with Consumer(peer.servers, **options) as member:
        member.subscribe("t", on_lost=lost.append)
        again(member, 1)
        peer.on(apis.JOIN_GROUP, SILENCE, coordinator.join)
        peer.on(apis.HEARTBEAT, REBALANCE)
        wait_for(lambda: member.poll(1) or peer.count(apis.JOIN_GROUP) == 3, "it asks to join")
        clock.advance(30_000)
        beats(peer)
        clock.advance(30_000)
        member.poll(1)
        assert (member.assignment, lost) == ([ZERO, ONE], [])
        peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE})
        clock.advance(45_000)
        wait_for(lambda: member.poll(1) or lost, "the loss is reported")
        assert lost == [[ZERO, ONE]]
        peer.on(apis.HEARTBEAT, {})
        again(member)


def test_a_heartbeat_that_is_answered_again_in_time_changes_nothing(broker: TestBroker) -> None:
    clock = SkippingClock()
    with Reader(broker.bootstrap_servers, clock=clock, **READER) as one:
        one.begin()
        one.read(lambda: one.assignment)
        before = one.group_metadata()
        beat = broker.fail("Heartbeat", AWAY, None)
        clock.advance(30_000)
        one.read(lambda: beat.hits > 2)
        broker.heal()
        one.read(lambda: one._heartbeats.session_end_s > clock.monotonic_s() + 40)
        clock.advance(30_000)
        broker.fill("t", ["a"])
        one.read(lambda: one.values)
        assert (one.group_metadata(), one.told) == (before, ["assigned"])


def test_a_commit_that_outlasts_the_session_ends_in_a_loss(broker: TestBroker) -> None:
    """Before a join its partitions are then lost, not revoked: its listener may not commit."""
    clock = SkippingClock()
    options = {**READER, "auto_commit": True, "heartbeat_ms": 20}
    options["auto_commit_interval_ms"] = 3_600_000
    with Reader(broker.bootstrap_servers, clock=clock, **options) as one:
        one.begin()
        broker.fill("t", ["a"], partition=0)
        one.read(lambda: one.values)
        commit = broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", None)

        def pass_by() -> None:
            wait_for(lambda: commit.hits > 2, "it is committed again and again")
            broker.fail("Heartbeat", AWAY, None)
            clock.advance(60_000)

        broker.fail("Heartbeat", "REBALANCE_IN_PROGRESS")
        watch = threading.Thread(target=pass_by)
        watch.start()
        one.read(lambda: len(one.told) > 1)
        assert one.told[:2] == ["assigned", "lost"]
        watch.join(LIMIT_S)
        broker.heal()


def test_a_removed_member_reports_lost_partitions_at_its_close(
    broker: TestBroker,
) -> None:
    with Reader(broker.bootstrap_servers, **{**READER, "heartbeat_ms": 20}) as one:
        one.begin()
        one.read(lambda: one.assignment)
        with Cluster(broker.bootstrap_servers) as cluster:
            remove_members(cluster, "g").check()
        wait_for(lambda: one._heartbeats.session.problem, "it hears of it")
    assert one.told == ["assigned", "lost"]


def test_it_is_told_why(coordinator: Coordinator, peer: Peer) -> None:
    clock = SkippingClock()
    with joined(peer, clock=clock, heartbeat_ms=40_000) as member:
        peer.on(apis.HEARTBEAT, SILENCE)
        clock.advance(45_000)
        assert member._membership is not None
        problem = member._membership.ended()
        assert isinstance(problem, errors.Timeout)
        assert "no heartbeat was answered in session_timeout_ms (45000 ms)" in str(problem)
