"""The simulation finds nothing wrong with consumers, and finds bugs that are planted in them.

Each run has a seed, which a failure reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata
from kafkalog.client.consumer.core import ConsumerState
from kafkalog.client.consumer.member import Member
from kafkalog.client.consumer.missing_topics import MissingTopics
from kafkalog.client.consumer.session import Session
from kafkalog.coordinator.groups import offsets
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import finds, runs
from tests.unit.client.consumer.simulation import Consumer, simulate

PARTS, RUNS = 2, 2


@pytest.mark.explore
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_consumers_keep_their_promises_whatever_happens(part: int) -> None:
    """C1 to C6 hold with lost, late and duplicated messages, a coordinator that moves or is silent,
    members that die and stall, slow listeners, topics that grow and go, and a clock that jumps."""
    for world in runs(simulate, RUNS, part, PARTS):
        assert world.judge.given, f"seed {world.seed}: nothing happened"


NEXT_GENERATION = 71
"""A member that read on while it joined committed under the next generation."""


@pytest.mark.parametrize("seed", [NEXT_GENERATION])
def test_seeds_that_found_something(seed: int) -> None:
    simulate(seed)


def gives_no_identity(patch: pytest.MonkeyPatch) -> None:
    """group_metadata() of a removed member says generation -1 and no member id."""

    def identity(self: ConsumerState) -> GroupMetadata:
        assert self.member is not None
        now = self.member.metadata
        return now if now.generation >= 0 else GroupMetadata(now.group)

    patch.setattr(ConsumerState, "identity", identity)


def commits_hold_up_heartbeats(patch: pytest.MonkeyPatch) -> None:
    """One thread commits and sends heartbeats; only the coordinator ends a session."""
    keep = Consumer._keep

    def waits(self: Consumer) -> None:
        if not self.commits.quiet:
            self.later(100, self._keep)
        else:
            keep(self)

    patch.setattr(Consumer, "_keep", waits)
    patch.setattr(Session, "lapsed", lambda _self, _now_s: False)


def a_listener_that_raises_ends_the_rebalance(patch: pytest.MonkeyPatch) -> None:
    """The partitions are revoked, and the new assignment is not taken."""
    revoke = ConsumerState._revoke

    def raises(self: ConsumerState, partitions: Any) -> Any:
        if (raised := (yield from revoke(self, partitions))) is not None:
            raise raised
        return None

    patch.setattr(ConsumerState, "_revoke", raises)


def a_topic_that_is_gone_stops_all(patch: pytest.MonkeyPatch) -> None:
    """A poll fails for one partition that the cluster does not have."""

    def miss(_self: MissingTopics, partitions: Any, _now_s: float, shared: bool) -> Any:
        if gone := sorted(partitions):
            raise errors.UnknownTopicOrPartition(f"the cluster has no {gone}")
        return []

    patch.setattr(MissingTopics, "miss_partitions", miss)


def commits_in_the_next_generation(patch: pytest.MonkeyPatch) -> None:
    """A member commits once it knows a generation, before it knows its assignment."""
    committer = ConsumerState.committer

    def found(self: ConsumerState) -> GroupMetadata:
        assert self.member is not None
        latest, self.member.latest = self.member.latest, self.member.metadata
        try:
            return committer(self)
        finally:
            self.member.latest = latest

    patch.setattr(ConsumerState, "committer", found)


def trusts_the_coordinator_alone(patch: pytest.MonkeyPatch) -> None:
    """A session does not end by the member's own clock."""
    patch.setattr(Session, "lapsed", lambda _self, _now_s: False)


def says_nothing_of_what_it_keeps(patch: pytest.MonkeyPatch) -> None:
    """A cooperative member does not report to the leader which partitions it keeps."""
    join = Member.join
    patch.setattr(Member, "join", lambda self, topics, _owned: join(self, topics, []))


def commits_what_was_not_read(patch: pytest.MonkeyPatch) -> None:
    """Positions are one too high."""
    positions = ConsumerState.positions

    def ahead(self: ConsumerState, reached: Any) -> Any:
        found = positions(self, reached)
        return {tp: CommittedOffset(one.offset + 1) for tp, one in found.items()}

    patch.setattr(ConsumerState, "positions", ahead)


def sees_no_growth(patch: pytest.MonkeyPatch) -> None:
    """The leader does not assign new partitions."""
    patch.setattr(ConsumerState, "saw", lambda _self, _counts: None)


def takes_any_commit(patch: pytest.MonkeyPatch) -> None:
    """The coordinator does not check the generation."""
    patch.setattr(offsets, "_check_commit", lambda *_: ErrorCode.NONE)


CANARIES = {
    gives_no_identity: 571,
    commits_hold_up_heartbeats: 3,
    a_listener_that_raises_ends_the_rebalance: 38,
    a_topic_that_is_gone_stops_all: 15,
    commits_in_the_next_generation: 71,
    trusts_the_coordinator_alone: 8,
    says_nothing_of_what_it_keeps: 35,
    commits_what_was_not_read: 0,
    sees_no_growth: 2,
    takes_any_commit: 13,
}
"""Each with the first seed to try: one that finds it, so that the test is quick."""


@pytest.mark.parametrize("plant", CANARIES, ids=lambda plant: plant.__name__)
def test_the_simulation_finds_planted_bugs(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these bugs breaks a promise within a few runs."""
    finds(simulate, plant, monkeypatch, CANARIES[plant], r"C\d")
