"""The simulation finds no bug in the coordinator, and finds the bugs that are planted in it.

A run that finds something reports its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalog.coordinator.groups import core, groups, loader, offsets, rebalance
from kafkalog.coordinator.groups.group import Group, State
from kafkalog.coordinator.step import Step, Write
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import finds, runs
from tests.unit.coordinator.simulation import simulate

PARTS, RUNS = 2, 20


@pytest.mark.explore
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_groups_keep_their_promises_whatever_happens(part: int) -> None:
    """S1 to S6 hold under lost and slow messages, deaths, restarts and a failing journal."""
    for world in runs(simulate, RUNS, part, PARTS):
        assert world.told, f"seed {world.seed}: nothing happened"


LATE_ID = 4119604851
"""A static member came back, and its new id was written late: the group knew the old one."""
FENCED_BY_ITSELF = 1872507992
"""A slow request of an earlier process fences the only member after the faults have ended: it is
started again, and the group settles."""
STILL_BUSY = 4006781
"""A static member that only sends heartbeats; as in Kafka, it is kept until they stop."""


@pytest.mark.parametrize("seed", [LATE_ID, FENCED_BY_ITSELF, STILL_BUSY])
def test_seeds_that_found_something(seed: int) -> None:
    simulate(seed)


def answers_before_the_journal(patch: pytest.MonkeyPatch) -> None:
    """Assignments and commits are answered before they are written."""

    def write(
        self: Step,
        partition: int,
        records: Any,
        settle: Any,
        late: Any = None,
        producer: Any = None,
    ) -> None:
        settle(self, ErrorCode.NONE)
        self.writes.append(Write(partition, records, lambda _s, _e: None, None))

    patch.setattr(Step, "write", write)


def keeps_the_dead(patch: pytest.MonkeyPatch) -> None:
    """Members stay after their session timed out."""
    patch.setattr(rebalance, "expire_session", lambda *_: None)


def forgets_the_generation(patch: pytest.MonkeyPatch) -> None:
    """A loaded group starts again with generation 0."""
    load = loader.records.loaded_group

    def loaded(group: Group, value: Any) -> None:
        load(group, value)
        group.generation = 0

    patch.setattr(loader.records, "loaded_group", loaded)


def lets_old_generations_sync(patch: pytest.MonkeyPatch) -> None:
    """SyncGroup ignores the generation."""
    check = groups._check_sync

    def checked(group: Any, request: Any) -> ErrorCode:
        error = check(group, request)
        return ErrorCode.NONE if error is ErrorCode.ILLEGAL_GENERATION else error

    patch.setattr(groups, "_check_sync", checked)


def forgets_who_waits(patch: pytest.MonkeyPatch) -> None:
    """If the leader's assignment cannot be written, no waiting member gets an answer."""
    patch.setattr(rebalance, "reset", lambda *_: None)


def takes_failures_for_success(patch: pytest.MonkeyPatch) -> None:
    """A failed append counts as successful."""
    settled = core.GroupCoordinatorState.settled

    def succeeds(
        self: core.GroupCoordinatorState, number: int, _error: ErrorCode, step: Step
    ) -> None:
        settled(self, number, ErrorCode.NONE, step)

    patch.setattr(core.GroupCoordinatorState, "settled", succeeds)


def waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A rebalance waits forever for members that do not join."""

    def expire(shard: Any, step: Step, group: Group) -> None:
        if group.initial is not None or group.state is not State.PREPARING:
            rebalance_expire(shard, step, group)

    rebalance_expire = rebalance.expire_join
    patch.setattr(rebalance, "expire_join", expire)


def loses_commits_on_deletion(patch: pytest.MonkeyPatch) -> None:
    """The check for expired offsets removes all offsets of an empty group."""
    patch.setattr(offsets, "expired", lambda group, *_: list(group.known_offsets()))

    def look(self: core.GroupCoordinatorState, partition: int, step: Step) -> None:
        self.timers.set(("retention", partition, "", ""), step.now_ms + 5_000)

    patch.setattr(core.GroupCoordinatorState, "_look_for_expired", look)


CANARIES = [
    answers_before_the_journal,
    keeps_the_dead,
    forgets_the_generation,
    lets_old_generations_sync,
    forgets_who_waits,
    takes_failures_for_success,
    waits_for_ever,
    loses_commits_on_deletion,
]


@pytest.mark.parametrize("plant", CANARIES, ids=lambda plant: plant.__name__)
def test_the_simulation_finds_planted_bugs(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these bugs breaks an invariant within a few runs."""
    finds(simulate, plant, monkeypatch, rule=r"S\d")
