"""KRaft quorums with faults from seeds: the invariants hold, and planted mistakes are found."""

from __future__ import annotations

import pytest

from kafkalog.simulate.quorum.mutants import MUTANTS, planted
from kafkalog.simulate.quorum.run import run
from tests.support.effort import EXPLORING, SEED, patience_s, rounds
from tests.unit.simulate.test_quorum_steps import SCENARIOS

FOUND = {
    "compares-offsets": 8,
    "counts-earlier-epochs": 6,
    "cuts-committed": 2,
    "cuts-to-watermark": 0,
    "flush-counts-all": 6,
    "follower-unflushed": 0,
    "follows-the-dead": 11,
    "found-unflushed": 21,
    "half-commits": 0,
    "half-elects": 0,
    "keeps-voters": 2,
    "leader-unflushed": 5,
    "leads-unfollowed": 1,
    "no-divergence": 0,
    "obeys-earlier": 0,
    "observers-count": 4,
    "old-identity": 15,
    "removed-leader-counts": 2,
    "shows-all": 0,
    "snapshot-without-voters": 15,
    "stale-responses": 0,
    "their-end": 0,
    "two-changes": 9,
    "vote-not-written": 59,
    "vote-written-late": 3,
    "votes-for-short-logs": 0,
    "votes-twice": 1,
    "votes-while-following": 6,
    "watermark-first": 5,
}
"""A seed that finds each planted mistake today; tests of the steps find the others."""
ONCE_FAILED = {300190: 600, 402636: 1_000}
"""Seeds that found mistakes, with the events that they need."""


def test_a_run_is_a_function_of_its_seed() -> None:
    assert run(3, 300) == run(3, 300)


def test_every_mistake_is_found_by_a_seed_or_step_by_step() -> None:
    assert {*FOUND} | {*SCENARIOS} == {*MUTANTS} and not {*FOUND} & {*SCENARIOS}


def test_committed_records_survive() -> None:
    acknowledged = 0
    for seed in range(3):
        found = run(seed, 1_000)
        assert found.failure == "", f"kafkalog simulate --quorum --seed {seed} --seeds 1"
        acknowledged += found.acknowledged
    assert acknowledged > 20


@pytest.mark.parametrize("seed", sorted(ONCE_FAILED))
def test_seeds_that_found_mistakes_find_none(seed: int) -> None:
    assert run(seed, ONCE_FAILED[seed]).failure == ""


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_planted_mistake_is_found(name: str) -> None:
    with planted(MUTANTS[name]):
        assert run(FOUND[name], 1_500, given=MUTANTS[name].given).failure


@pytest.mark.explore
@pytest.mark.timeout(patience_s(300, 1))
def test_quorums_are_broken_by_drawn_seeds() -> None:
    first = SEED if EXPLORING else 1_000
    for number in rounds(2):
        found = run(first + number, 3_000 if EXPLORING else 800)
        assert found.failure == "", f"kafkalog simulate --quorum --seed {found.seed} --seeds 1"
