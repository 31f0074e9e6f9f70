"""When a partition of the journal is read, and when it is read again."""

from __future__ import annotations

import pytest

from kafkalog.coordinator.core import LOAD_AGAIN_MS
from kafkalog.coordinator.groups.core import GroupCoordinatorState
from kafkalog.coordinator.step import Step
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.group_calls import config

LOADING, GONE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR


@pytest.fixture
def core() -> GroupCoordinatorState:
    """A core that reads partition 0, the only one, in epoch 5."""
    made = GroupCoordinatorState(config(), lambda: "id")
    made.begin_load(0, 1, 5)
    return made


@pytest.fixture
def step() -> Step:
    return Step(0, 0)


def answer(core: GroupCoordinatorState) -> ErrorCode:
    return core.where("g")[1]


def test_a_look_before_the_lead_is_made_again_once_it_leads(
    core: GroupCoordinatorState, step: Step
) -> None:
    """And it is not read by the timer again; leading in another epoch has no effect."""
    core.not_loaded(0, 5, step)
    for epoch in (4, 6):
        core.leads(0, epoch, step)
    assert (step.loads, answer(core)) == ([], GONE)
    core.leads(0, 5, step)
    assert (step.loads, answer(core)) == ([(0, 5)], LOADING)
    core.leads(0, 5, step)
    core.tick(Step(LOAD_AGAIN_MS, 0))
    assert (step.loads, len(core.timers)) == ([(0, 5)], 0), "once"


def test_a_lead_that_begins_before_the_refusal_is_heard(
    core: GroupCoordinatorState, step: Step
) -> None:
    """The read may have begun before: it is repeated once, and again only after a wait."""
    core.leads(0, 5, step)
    assert step.loads == []
    core.not_loaded(0, 5, step)
    assert (step.loads, answer(core)) == ([(0, 5)], LOADING)
    core.begin_load(0, 1, 5)
    later = Step(0, 0)
    core.not_loaded(0, 5, later)
    assert (later.loads, answer(core)) == ([], GONE)
    assert core.timers.next_ms() == LOAD_AGAIN_MS


def test_a_loaded_partition_is_not_loaded_again(core: GroupCoordinatorState, step: Step) -> None:
    core.leads(0, 5, step)
    core.end_load(core.new_shard(0, 5), step)
    core.leads(0, 5, step)
    core.not_loaded(0, 5, step)
    assert (step.loads, answer(core)) == ([], ErrorCode.NONE)


def test_a_lead_on_when_it_is_time_to_read_again(core: GroupCoordinatorState, step: Step) -> None:
    """Both in one step: it is read once, in the later epoch."""
    core.not_loaded(0, 5, step)
    step.now_ms = LOAD_AGAIN_MS
    core.lead_on(0, 6, step)
    core.tick(step)
    assert (step.loads, core.loading) == ([(0, 6)], {0: 6})


@pytest.mark.parametrize("again", ["leads", "lead_on"])
def test_a_partition_lost_in_the_step_of_its_load(
    core: GroupCoordinatorState, step: Step, again: str
) -> None:
    """It is not read, and later steps treat it as not here."""
    core.not_loaded(0, 5, step)
    getattr(core, again)(0, 5, step)
    assert step.loads == [(0, 5)]
    core.resign(0, step)
    assert (step.loads, answer(core)) == ([], GONE)
