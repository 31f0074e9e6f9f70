"""The simulation finds nothing wrong with positions, and finds bugs that are planted in them.

A failure names its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.fetch import epochs, sessions
from kafkalog.client.fetch.core import FetchState, Lost, PendingFetch
from kafkalog.client.fetch.epochs import Epochs, FetchPosition
from kafkalog.client.link.metadata import Known
from kafkalog.types import TopicPartition
from tests.support.simulated import finds, runs
from tests.unit.client.fetch.simulation import simulate

PARTS, RUNS = 2, 2


@pytest.mark.explore
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_positions_keep_their_promises_whatever_happens(part: int) -> None:
    """P1 to P6 hold with lost and late messages, nodes that stop and stall, leaders that move and
    lack records, old metadata, retention, topics that are recreated and grow, sessions that are
    evicted, replicas that lag, seeks, pauses, and a clock that jumps."""
    for world in runs(simulate, RUNS, part, PARTS):
        assert world.judge.handed_out, f"seed {world.seed}: nothing happened"


RETAINED, RECREATED = 102, 30074
"""The judge was wrong: retention deleted a position before its log was truncated; a former leader
refused a position of the old topic."""


@pytest.mark.parametrize("seed", [RETAINED, RECREATED])
def test_seeds_that_found_something(seed: int) -> None:
    simulate(seed)


# ---- planted bugs ----------------------------------------------------------------------------


def takes_what_was_asked_before_a_seek(patch: pytest.MonkeyPatch) -> None:
    """An answer is applied at whatever the position is by now."""
    look = FetchState._look

    def takes(
        self: FetchState, tp: TopicPartition, row: Any, asked: PendingFetch, now_s: float
    ) -> int:
        at = self.positions.get(tp)
        offsets = asked.offsets if at is None else {**asked.offsets, tp: at}
        return look(self, tp, row, asked._replace(offsets=offsets), now_s)

    patch.setattr(FetchState, "_look", takes)


def forgets_no_question_at_a_seek(patch: pytest.MonkeyPatch) -> None:
    """An answer counts if the offset is the same."""
    patch.setattr(FetchState, "_withdraw", lambda _self, _tp: None)


def names_no_epoch(patch: pytest.MonkeyPatch) -> None:
    """Fetch sends epoch -1: any leader answers."""
    patch.setattr(Epochs, "current", lambda _self, _tp: -1)


def checks_no_position(patch: pytest.MonkeyPatch) -> None:
    """A new leader is read from without validation."""

    def look(self: Epochs, known: Known, positions: Mapping[TopicPartition, int]) -> None:
        for tp in positions:
            if (now := epochs.leader_of(known, tp)) is not None:
                self.good({tp: now})

    patch.setattr(Epochs, "look", look)


def forgets_to_forget(patch: pytest.MonkeyPatch) -> None:
    """A session does not drop partitions that are no longer wanted."""
    ask = sessions.ask
    patch.setattr(sessions, "ask", lambda *args: ask(*args)._replace(forgotten=[]))


def keeps_a_session_whose_epoch_is_wrong(patch: pytest.MonkeyPatch) -> None:
    """The session continues after an error."""
    patch.setattr(sessions, "lost", lambda session, _code=0: session)


def resets_what_was_sought_since(patch: pytest.MonkeyPatch) -> None:
    """A leader's answer moves a partition that has been sought since."""

    def reset(self: FetchState, tp: TopicPartition, lost: Lost, to: FetchPosition) -> None:
        self.lost.pop(tp, None)
        if tp in self.positions:
            self._move(tp, lost.why, to, "by auto.offset.reset")

    patch.setattr(FetchState, "reset", reset)


def takes_retention_for_a_cut(patch: pytest.MonkeyPatch) -> None:
    """A position below the log's start is reported as truncation."""
    lose = FetchState._lose_position

    def loses(self: FetchState, tp: TopicPartition, _why: str) -> None:
        lose(self, tp, f"the log was truncated below offset {self.positions[tp]} of leader epoch 0")

    patch.setattr(FetchState, "_lose_position", loses)


def believes_a_replica_about_the_range(patch: pytest.MonkeyPatch) -> None:
    """A nearer replica that lags is believed when it says that an offset is out of range."""
    ask = FetchState.ask

    def asks(self: FetchState, *args: Any) -> PendingFetch | None:
        asked = ask(self, *args)
        return None if asked is None else asked._replace(nearer=frozenset())

    patch.setattr(FetchState, "ask", asks)


def skips_a_batch(patch: pytest.MonkeyPatch) -> None:
    """The next fetch begins one offset too high."""
    take = FetchState._take

    def takes(self: FetchState, tp: TopicPartition, row: Any, start: int) -> Any:
        found = take(self, tp, row, start)
        self.positions[tp] += 1
        return found

    patch.setattr(FetchState, "_take", takes)


def never_asks_again(patch: pytest.MonkeyPatch) -> None:
    """A partition whose node failed pauses for an hour."""
    failed = FetchState.failed

    def rests(self: FetchState, problem: errors.KafkalogError, some: Any, now_s: float) -> None:
        failed(self, problem, some, now_s + 3_600)

    patch.setattr(FetchState, "failed", rests)


CANARIES: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    takes_what_was_asked_before_a_seek: 0,
    forgets_no_question_at_a_seek: 0,
    names_no_epoch: 150,
    checks_no_position: 2,
    forgets_to_forget: 2,
    keeps_a_session_whose_epoch_is_wrong: 2,
    resets_what_was_sought_since: 1,
    takes_retention_for_a_cut: 2,
    believes_a_replica_about_the_range: 3,
    skips_a_batch: 0,
    never_asks_again: 0,
}
"""Each with the first seed to try: one that finds it, so that the test is quick."""


@pytest.mark.parametrize("plant", CANARIES, ids=lambda plant: plant.__name__)
def test_the_simulation_finds_planted_bugs(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these bugs breaks a promise within a few runs."""
    finds(simulate, plant, monkeypatch, CANARIES[plant], r"P\d")
