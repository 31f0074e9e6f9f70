"""The simulation finds no bug in the coordinator of streams groups, and finds the bugs planted in
it.

A run that finds something reports its seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop
from typing import Any

import pytest

from kafkalog.coordinator.groups import core
from kafkalog.coordinator.step import Step
from kafkalog.coordinator.streams_groups import assignor, heartbeat, reconcile, records, service
from kafkalog.coordinator.streams_groups.changes import StreamsChanges
from kafkalog.coordinator.streams_groups.member import StreamsState
from kafkalog.coordinator.streams_groups.state import StreamsGroup
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import finds, runs
from tests.unit.coordinator.simulation_streams import simulate

PARTS, RUNS = 2, 10


@pytest.mark.explore
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_streams_groups_keep_their_promises_whatever_happens(part: int) -> None:
    """X1 to X7 hold under lost and slow messages, deaths, restarts and a failing journal."""
    for world in runs(simulate, RUNS, part, PARTS):
        assert world.told, f"seed {world.seed}: nothing happened"


def takes_failures_for_success(patch: pytest.MonkeyPatch) -> None:
    """A failed append counts as successful."""
    settled = core.GroupCoordinatorState.settled

    def succeeds(
        self: core.GroupCoordinatorState, number: int, _error: ErrorCode, step: Step
    ) -> None:
        settled(self, number, ErrorCode.NONE, step)

    patch.setattr(core.GroupCoordinatorState, "settled", succeeds)


def gives_tasks_that_others_have(patch: pytest.MonkeyPatch) -> None:
    """A task is given to a member before the other one gave it up."""
    patch.setattr(StreamsGroup, "processes", lambda *_: Counter())


def believes_that_tasks_are_given_up(patch: pytest.MonkeyPatch) -> None:
    """A member that still has its tasks counts as without them."""
    patch.setattr(reconcile, "_holds", lambda _owned, _given: False)


def copies_next_to_the_task(patch: pytest.MonkeyPatch) -> None:
    """A process may have a task and a copy of its state."""
    patch.setattr(assignor, "_least_without", lambda queue, _task: heappop(queue)[2])


def never_stabilizes(patch: pytest.MonkeyPatch) -> None:
    """A member that waits for others stays where it is."""
    step = reconcile.next_step

    def stuck(member: Any, goal: Any, owned: Any) -> Any:
        return member if member.state is StreamsState.UNRELEASED else step(member, goal, owned)

    patch.setattr(heartbeat, "next_step", stuck)


def ignores_settings(patch: pytest.MonkeyPatch) -> None:
    """Another number of standbys changes nothing."""
    patch.setattr(heartbeat.TaskSettings, "configs", property(lambda _self: ()))


def asks_only_once(patch: pytest.MonkeyPatch) -> None:
    """A topic that could not be created is never tried again."""
    ask = heartbeat._to_create

    def once(group: Any, missing: Any, now_ms: int) -> Any:
        found = ask(group, missing, now_ms)
        return {} if group.failures else found

    patch.setattr(heartbeat, "_to_create", once)


def keeps_the_dead(patch: pytest.MonkeyPatch) -> None:
    """Members stay after their session timed out."""
    patch.setattr(service.StreamsGroups, "expire", lambda *_: None)


def forgets_sessions(patch: pytest.MonkeyPatch) -> None:
    """A loaded group's members have no session."""
    patch.setattr(service.StreamsGroups, "resume", lambda *_: None)


def undoes_nothing(patch: pytest.MonkeyPatch) -> None:
    """A failed write stays in memory."""
    patch.setattr(StreamsChanges, "failed", lambda *_: None)


def writes_no_settings(patch: pytest.MonkeyPatch) -> None:
    """The journal does not learn the settings of an assignment."""
    build = records._group

    def poorer(group: Any, name: str) -> Any:
        return {**build(group, name), "last_assignment_configs": []}

    patch.setitem(records._BUILD, records.GROUP, poorer)


def forgets_revocations(patch: pytest.MonkeyPatch) -> None:
    """A restart forgets which tasks members still have to give up."""
    load = records._loaded_given
    patch.setattr(records, "_loaded_given", lambda v, suffix: {} if suffix else load(v, suffix))


CANARIES = [
    pytest.param(takes_failures_for_success, marks=pytest.mark.long),
    gives_tasks_that_others_have,
    pytest.param(believes_that_tasks_are_given_up, marks=pytest.mark.long),
    pytest.param(copies_next_to_the_task, marks=pytest.mark.long),
    never_stabilizes,
    ignores_settings,
    pytest.param(asks_only_once, marks=pytest.mark.long),
    pytest.param(keeps_the_dead, marks=pytest.mark.long),
    pytest.param(forgets_sessions, marks=pytest.mark.long),
    pytest.param(undoes_nothing, marks=pytest.mark.long),
    writes_no_settings,
    pytest.param(forgets_revocations, marks=pytest.mark.long),
]


@pytest.mark.parametrize("plant", CANARIES, ids=lambda plant: plant.__name__)
def test_the_simulation_finds_planted_bugs(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these bugs breaks an invariant within a few runs."""
    finds(simulate, plant, monkeypatch, rule=r"X\d")
