"""KRaft quorums with faults from seeds: the invariants hold, and planted mistakes are found."""

from __future__ import annotations

import pytest

from kafkalog.simulate.quorum.mutants import MUTANTS, planted
from kafkalog.simulate.quorum.run import run
from tests.support.effort import EXPLORING, SEED, patience_s, rounds

FOUND = {
    "cuts-committed": 6,
    "follower-unflushed": 0,
    "follows-the-dead": 0,
    "found-unflushed": 12,
    "half-commits": 0,
    "half-elects": 0,
    "leader-unflushed": 6,
    "obeys-earlier": 3,
    "observers-count": 0,
    "removed-leader-counts": 0,
    "shows-all": 0,
    "stale-responses": 0,
    "vote-not-written": 11,
    "vote-written-late": 11,
    "votes-twice": 2,
    "votes-while-following": 2,
    "watermark-first": 6,
}
"""The first seed that finds each planted mistake today, of those searched below."""


def test_a_run_is_a_function_of_its_seed() -> None:
    assert run(3, 1_000) == run(3, 1_000)


REPAIRED = [1016]
"""Seeds that found a mistake: the followers of a dead leader, which all still named it, elected no
other."""


@pytest.mark.parametrize("seed", REPAIRED)
def test_mistakes_that_seeds_found_are_mended(seed: int) -> None:
    assert run(seed).failure == ""


def test_committed_records_survive() -> None:
    acknowledged = 0
    for seed in range(4):
        found = run(seed)
        assert found.failure == "", f"kafkalog simulate --quorum --seed {seed} --seeds 1"
        acknowledged += found.acknowledged
    assert acknowledged > 40


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_planted_mistake_is_found(name: str) -> None:
    with planted(MUTANTS[name]):
        assert run(FOUND[name], given=MUTANTS[name].given).failure


@pytest.mark.explore
@pytest.mark.timeout(patience_s(300, 1))
def test_quorums_are_broken_by_drawn_seeds() -> None:
    first = SEED if EXPLORING else 1_000
    for number in rounds(4):
        found = run(first + number)
        assert found.failure == "", f"kafkalog simulate --quorum --seed {found.seed} --seeds 1"
