"""The simulation finds no bug in the coordinator of share groups, and finds the bugs planted in it.

A run that finds something reports its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalog.coordinator.groups import core
from kafkalog.coordinator.share_groups import heartbeat, records, service, states
from kafkalog.coordinator.share_groups.changes import ShareChanges
from kafkalog.coordinator.step import Step
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import finds, runs
from tests.unit.coordinator.simulation_shares import simulate

PARTS, RUNS = 2, 10


@pytest.mark.explore
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_share_groups_keep_their_promises_whatever_happens(part: int) -> None:
    """W1 to W7 hold under lost and slow messages, deaths, restarts and a failing journal."""
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


def assigns_at_once(patch: pytest.MonkeyPatch) -> None:
    """A partition is assigned before its state is kept."""
    patch.setattr(
        heartbeat, "assignable",
        lambda kept: {} if kept is None else {
            topic: one.partitions
            for topic, one in states.together(kept.initialized, kept.initializing).items()
        },
    )  # fmt: skip


def believes_the_share_coordinator(patch: pytest.MonkeyPatch) -> None:
    """A refusal to keep a state counts as done."""
    patch.setattr(service, "first_error", lambda _results: ErrorCode.NONE)


def asks_only_once(patch: pytest.MonkeyPatch) -> None:
    """A state that was asked for is never asked for again."""
    ask = states.to_initialize

    def once(group: Any, topics: Any, wall_ms: int, _retry_ms: int) -> Any:
        return ask(group, topics, wall_ms, 1 << 50)

    patch.setattr(heartbeat, "to_initialize", once)


def keeps_the_assignment(patch: pytest.MonkeyPatch) -> None:
    """Partitions whose state is now kept are not assigned."""
    patch.setattr(heartbeat, "to_assign", lambda _group: False)


def keeps_the_dead(patch: pytest.MonkeyPatch) -> None:
    """Members stay after their session timed out."""
    patch.setattr(service.ShareGroups, "expire", lambda *_: None)


def forgets_sessions(patch: pytest.MonkeyPatch) -> None:
    """A loaded group's members have no session."""
    patch.setattr(service.ShareGroups, "resume", lambda *_: None)


def undoes_nothing(patch: pytest.MonkeyPatch) -> None:
    """A failed write stays in memory."""
    patch.setattr(ShareChanges, "failed", lambda *_: None)


def writes_no_epochs(patch: pytest.MonkeyPatch) -> None:
    """The journal does not learn of a new group epoch."""
    patch.setitem(records._BUILD, records.GROUP, lambda group, _: {"epoch": 1, "metadata_hash": 0})


def loads_no_states(patch: pytest.MonkeyPatch) -> None:
    """The states that are kept are forgotten by a restart."""
    patch.setattr(records, "_loaded_kept", lambda _topics: {})


def deletes_no_states(patch: pytest.MonkeyPatch) -> None:
    """A group is deleted, and the states of its partitions stay."""
    patch.setattr(
        service.ShareGroups, "forget_all",
        lambda _self, _shard, step, _group, told: told(step, ErrorCode.NONE),
    )  # fmt: skip


CANARIES = [
    pytest.param(takes_failures_for_success, marks=pytest.mark.long),
    assigns_at_once,
    believes_the_share_coordinator,
    pytest.param(asks_only_once, marks=pytest.mark.long),
    pytest.param(keeps_the_assignment, marks=pytest.mark.long),
    pytest.param(keeps_the_dead, marks=pytest.mark.long),
    pytest.param(forgets_sessions, marks=pytest.mark.long),
    undoes_nothing,
    writes_no_epochs,
    loads_no_states,
    deletes_no_states,
]


@pytest.mark.parametrize("plant", CANARIES, ids=lambda plant: plant.__name__)
def test_the_simulation_finds_planted_bugs(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these bugs breaks an invariant within a few runs."""
    finds(simulate, plant, monkeypatch, rule=r"W\d")
