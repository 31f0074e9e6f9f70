"""The simulation finds no bug in transactions over several nodes, and finds the bugs that are
planted in them.

A run that finds something reports its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafkalog.coordinator.transactions import core
from kafkalog.coordinator.transactions.outcomes import Outcome, outcome_of
from kafkalog.server.transactions import write_guards
from kafkalog.server.transactions.permission import Permission
from kafkalog.server.transactions.write_guards import Guards
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import finds, runs
from tests.unit.coordinator.simulated_log import Partition
from tests.unit.coordinator.simulation_nodes import simulate, simulate_calm

RUNS, CALM_RUNS = 12, 2

Patch = pytest.MonkeyPatch


@pytest.mark.explore
@pytest.mark.timeout(0)
def test_transactions_over_several_nodes_keep_their_promises() -> None:
    """X1 to X5 and X7 to X9 hold under lost, slow and repeated messages, deaths of nodes and
    producers, elections, coordinators that move, and topics that are deleted and created again."""
    asked = [world.questions for world in runs(simulate, RUNS)]
    assert any(asked), "no coordinator of another node was asked"


def test_nobody_is_refused_by_another_node_while_nothing_goes_wrong() -> None:
    """X6 holds without faults."""
    for world in runs(simulate_calm, CALM_RUNS):
        assert world.questions


def begins_guards_late(patch: Patch) -> None:
    """The guard begins only when the answer arrives."""
    made = Permission.__init__

    def late(self: Permission, *args: Any, remote: bool) -> None:
        made(self, *args, remote=False)

    patch.setattr(Permission, "__init__", late)


def checks_no_guard(patch: Patch) -> None:
    """A batch is written although its guard is broken."""

    @contextmanager
    def writing(_self: Guards, _guard: Any) -> Iterator[bool]:
        yield True

    patch.setattr(Guards, "writing", writing)


def keeps_guards(patch: Patch) -> None:
    """Markers break no guard."""
    patch.setattr(write_guards, "breaks", lambda _marker, _epoch: False)


def keeps_guards_of_the_same_epoch(patch: Patch) -> None:
    """Only a marker of a later epoch breaks guards."""
    patch.setattr(write_guards, "breaks", lambda marker, epoch: marker.epoch > epoch)


def keeps_guards_of_those_who_leave(patch: Patch) -> None:
    """A change of leaders and a deletion break no guard."""
    patch.setattr(Guards, "leave", lambda *_: None)


def believes_leaders(patch: Patch) -> None:
    """A leader that does not know its partition is believed to have none."""
    patch.setattr(core, "outcome_of", lambda error, _exists: outcome_of(error, False))


def takes_refusals_for_markers(patch: Patch) -> None:
    """A marker counts as written although the leader has changed."""

    def taken(error: ErrorCode, exists: bool) -> Outcome:
        moved = error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return Outcome.DONE if moved else outcome_of(error, exists)

    patch.setattr(core, "outcome_of", taken)


def takes_markers_of_earlier_coordinators(patch: Patch) -> None:
    """A partition accepts a marker of an earlier coordinator epoch."""
    patch.setattr(Partition, "is_fenced", staticmethod(lambda _marker, _known: False))


CANARIES = {
    begins_guards_late: 27,
    checks_no_guard: 27,
    keeps_guards: 27,
    keeps_guards_of_the_same_epoch: 27,
    keeps_guards_of_those_who_leave: 107,
    believes_leaders: 0,
    takes_refusals_for_markers: 0,
    takes_markers_of_earlier_coordinators: 0,
}
"""Each with the first seed to try, so that the test is quick."""


@pytest.mark.parametrize("plant", CANARIES, ids=lambda plant: plant.__name__)
def test_the_simulation_of_nodes_finds_planted_mistakes(
    plant: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    finds(simulate, plant, monkeypatch, CANARIES[plant])


def breaks_guards_of_the_next(patch: Patch) -> None:
    """A marker of version 2 breaks the guards of the transaction after the one that it ends."""
    patch.setattr(write_guards, "breaks", lambda marker, epoch: marker.epoch >= epoch)


def test_a_batch_that_another_node_refuses_for_nothing_is_found(monkeypatch: Patch) -> None:
    finds(simulate_calm, breaks_guards_of_the_next, monkeypatch, rule="X6")
