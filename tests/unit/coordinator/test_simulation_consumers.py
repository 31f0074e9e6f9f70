"""The simulation finds no bug in the coordinator of members that heartbeat, and finds the bugs
planted in it.

A run that finds something reports its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalog.coordinator.consumer_groups import heartbeat, records, service, turns
from kafkalog.coordinator.consumer_groups.changes import Changes
from kafkalog.coordinator.consumer_groups.member import Member, MemberState
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup
from kafkalog.coordinator.groups import core
from kafkalog.coordinator.step import Step, Write
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import finds, runs
from tests.unit.coordinator.simulation_consumers import simulate

PARTS, RUNS = 2, 10


@pytest.mark.explore
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_consumer_groups_keep_their_promises_whatever_happens(part: int) -> None:
    """H1 to H6 hold under lost and slow messages, deaths, restarts and a failing journal."""
    repeated = 0
    for world in runs(simulate, RUNS, part, PARTS):
        assert world.told, f"seed {world.seed}: nothing happened"
        repeated += world.network.count
    assert repeated, "no answer was repeated"


def answers_before_the_journal(patch: pytest.MonkeyPatch) -> None:
    """Epochs and assignments are told before they are written."""

    def write(
        self: Step, partition: int, records: Any, settle: Any, late: Any = None,
        producer: Any = None,
    ) -> None:  # fmt: skip
        settle(self, ErrorCode.NONE)
        self.writes.append(Write(partition, records, lambda _s, _e: None, None))

    patch.setattr(Step, "write", write)


def takes_failures_for_success(patch: pytest.MonkeyPatch) -> None:
    """A failed append counts as successful."""
    settled = core.GroupCoordinatorState.settled

    def succeeds(
        self: core.GroupCoordinatorState, number: int, _error: ErrorCode, step: Step
    ) -> None:
        settled(self, number, ErrorCode.NONE, step)

    patch.setattr(core.GroupCoordinatorState, "settled", succeeds)


def waits_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """A member gets partitions that another still has."""
    patch.setattr(ConsumerGroup, "epoch_of", lambda *_: -1)


def believes_every_heartbeat(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat without the owned partitions counts as if they were given up."""
    step_on = heartbeat.next_step

    def believed(member: Member, target: Any, _owned: Any, changed: bool) -> Member:
        return step_on(member, target, {}, changed)

    patch.setattr(heartbeat, "next_step", believed)


def keeps_the_dead(patch: pytest.MonkeyPatch) -> None:
    """Members stay after their session timed out."""
    patch.setattr(service.ConsumerGroups, "expire", lambda *_: None)


def forgets_sessions(patch: pytest.MonkeyPatch) -> None:
    """A loaded group's members have no session."""
    patch.setattr(service.ConsumerGroups, "resume", lambda *_: None)


def undoes_nothing(patch: pytest.MonkeyPatch) -> None:
    """A failed write stays in memory."""
    patch.setattr(Changes, "failed", lambda *_: None)


def writes_no_epochs(patch: pytest.MonkeyPatch) -> None:
    """The journal does not learn of a new group epoch."""
    patch.setitem(records._BUILD, records.GROUP, lambda group, _: {"epoch": 1, "metadata_hash": 0})


def loads_no_revocations(patch: pytest.MonkeyPatch) -> None:
    """Partitions that a member is to give up are forgotten by a restart."""
    load = records._with_current

    def loaded(member: Member, value: Any) -> Member:
        return load(member, value)._replace(revoking={}, state=MemberState.STABLE)

    patch.setattr(records, "_with_current", loaded)


def stops_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    """The requests that waited for a failed write are never done."""
    go_on = turns._go_on

    def went_on(shard: Any, step: Step, group: Any, after: Any) -> None:
        if group.consumer is not None and not group.consumer.unsure:
            go_on(shard, step, group, after)

    patch.setattr(turns, "_go_on", went_on)


def repeats_after_changes(patch: pytest.MonkeyPatch) -> None:
    """Answers are still repeated when the group has changed."""
    patch.setattr(ConsumerGroup, "end_repeats", lambda _: None)


CANARIES = [
    repeats_after_changes,
    pytest.param(answers_before_the_journal, marks=pytest.mark.long),
    takes_failures_for_success,
    waits_for_nobody,
    believes_every_heartbeat,
    pytest.param(keeps_the_dead, marks=pytest.mark.long),
    pytest.param(forgets_sessions, marks=pytest.mark.long),
    undoes_nothing,
    writes_no_epochs,
    loads_no_revocations,
    stops_after_a_failure,
]


@pytest.mark.parametrize("plant", CANARIES, ids=lambda plant: plant.__name__)
def test_the_simulation_finds_planted_bugs(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these bugs breaks an invariant within a few runs."""
    finds(simulate, plant, monkeypatch, rule=r"H\d")
