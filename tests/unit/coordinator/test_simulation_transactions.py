"""The simulation finds no bug in transactions, and finds the bugs that are planted in them.

A run that finds something reports its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalog.coordinator.transactions import loader, requests
from kafkalog.coordinator.transactions.core import TransactionCoordinatorState
from kafkalog.coordinator.transactions.transaction import Status
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import finds, runs
from tests.unit.coordinator.simulation_transactions import simulate, simulate_calm

PARTS, RUNS = 2, 20


@pytest.mark.explore
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_transactions_keep_their_promises_whatever_happens(part: int) -> None:
    """X1 to X5 hold under lost, slow and repeated messages, deaths, restarts, a failing journal
    and failing markers."""
    for world in runs(simulate, RUNS, part, PARTS):
        assert world.written, f"seed {world.seed}: nothing happened"


def test_nobody_is_refused_while_nothing_goes_wrong() -> None:
    """X6 holds without faults."""
    for world in runs(simulate_calm, RUNS):
        assert world.written


def is_hasty(patch: pytest.MonkeyPatch) -> None:
    """A request that arrives before the end is complete is refused."""
    add = requests.add_partitions

    def hasty(shard: Any, step: Any, asked: Any, partitions: Any, version: int, then: Any) -> None:
        one = shard.ids.get(asked.transactional_id)
        if one is not None and one.status.prepared:
            then(step, ErrorCode.INVALID_TXN_STATE)
        else:
            add(shard, step, asked, partitions, version, then)

    patch.setattr(requests, "add_partitions", hasty)


def knows_no_next_one(patch: pytest.MonkeyPatch) -> None:
    """The same for a producer that already has its next producer id."""
    patch.setattr(requests, "_is_next", lambda *_: False)


@pytest.mark.parametrize("plant", [is_hasty, knows_no_next_one], ids=lambda plant: plant.__name__)
def test_needless_refusals_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(simulate_calm, plant, monkeypatch, rule="X6")


def takes_failures_for_success(patch: pytest.MonkeyPatch) -> None:
    """A failed append counts as successful."""
    settled = TransactionCoordinatorState.settled

    def succeeds(
        self: TransactionCoordinatorState, number: int, _error: ErrorCode, step: Any
    ) -> None:
        settled(self, number, ErrorCode.NONE, step)

    patch.setattr(TransactionCoordinatorState, "settled", succeeds)


def never_looks_for_late_ones(patch: pytest.MonkeyPatch) -> None:
    """Transactions have no timeout."""
    patch.setattr(TransactionCoordinatorState, "_abort_late", staticmethod(lambda *_: None))


def forgets_what_was_decided(patch: pytest.MonkeyPatch) -> None:
    """A restart does not continue prepared ends."""
    patch.setattr(loader, "resume", lambda *_: None)


def sends_markers_once(patch: pytest.MonkeyPatch) -> None:
    """A failed marker counts as written."""
    marked = TransactionCoordinatorState.marked

    def succeeds(
        self: TransactionCoordinatorState, marker: Any, _error: ErrorCode, step: Any
    ) -> None:
        marked(self, marker, ErrorCode.NONE, step)

    patch.setattr(TransactionCoordinatorState, "marked", succeeds)


def fences_nobody(patch: pytest.MonkeyPatch) -> None:
    """A new producer gets the epoch of the old one."""
    given = requests.initialized

    def same(status: Status, *args: Any) -> Status | None:
        after = given(status, *args)
        return after and after._replace(epoch=max(status.epoch, 0))

    patch.setattr(requests, "initialized", same)


def lets_anybody_write(patch: pytest.MonkeyPatch) -> None:
    """Batches are not verified: any producer begins a transaction."""
    none = ErrorCode.NONE
    patch.setattr(requests, "verify", lambda _s, _a, those: dict.fromkeys(those, none))


def keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """Version 2 does not raise the epoch with each end."""
    end = requests.ended

    def kept(status: Status, *args: Any, **more: Any) -> Status:
        after = end(status, *args, **more)
        return after if more.get("fence") else after._replace(epoch=status.epoch)

    patch.setattr(requests, "ended", kept)


CANARIES = {
    takes_failures_for_success: 0,
    never_looks_for_late_ones: 0,
    forgets_what_was_decided: 0,
    sends_markers_once: 0,
    fences_nobody: 0,
    lets_anybody_write: 18,
    keeps_the_epoch: 90,
}
"""Each with the first seed to try, so that the test is quick."""


@pytest.mark.parametrize("plant", CANARIES, ids=lambda plant: plant.__name__)
def test_the_simulation_finds_planted_bugs(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(simulate, plant, monkeypatch, CANARIES[plant])
