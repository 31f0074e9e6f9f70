"""KRaft quorums with faults from seeds: the invariants hold, and planted mistakes are found."""

from __future__ import annotations

import pytest

from kafkalog.simulate.quorum.mutants import MUTANTS, planted
from kafkalog.simulate.quorum.run import run
from tests.support.effort import EXPLORING, SEED, patience_s, rounds

FOUND = {
    "cuts-committed": 5,
    "follower-unflushed": 0,
    "half-commits": 0,
    "half-elects": 0,
    "leader-unflushed": 6,
    "no-divergence": 0,
    "obeys-earlier": 0,
    "observers-count": 0,
    "shows-all": 0,
    "stale-responses": 0,
    "votes-for-short-logs": 5,
    "votes-twice": 2,
    "votes-while-following": 2,
    "watermark-first": 6,
}
"""The first seed that finds each planted mistake today, of those searched below."""


def test_a_run_is_a_function_of_its_seed() -> None:
    assert run(3, 1_000) == run(3, 1_000)


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
