"""Controllers and brokers over a quorum, with faults from seeds: the invariants of the metadata
hold, and planted mistakes are found."""

from __future__ import annotations

import pytest

from kafkalog.simulate.quorum.governed import run
from kafkalog.simulate.quorum.metadata_mutants import MUTANTS
from kafkalog.simulate.quorum.mutants import planted
from tests.support.effort import EXPLORING, SEED, patience_s, rounds

FOUND = {"answers-at-append": 0, "knows-less": 99, "no-sessions": 2, "stays-active": 0}
"""A seed that finds each planted mistake today."""
ONCE_FAILED = {800001: 3_000, 800055: 3_000}
"""Seeds that found mistakes, with the events that they need."""


def test_a_run_is_a_function_of_its_seed() -> None:
    assert run(3, 200) == run(3, 200)


def test_topics_that_were_acknowledged_exist() -> None:
    acknowledged = 0
    for seed in range(2):
        found = run(seed, 800)
        assert found.failure == "", f"seed {seed}"
        acknowledged += found.acknowledged
    assert acknowledged


@pytest.mark.parametrize("seed", sorted(ONCE_FAILED))
def test_seeds_that_found_mistakes_find_none(seed: int) -> None:
    assert run(seed, ONCE_FAILED[seed]).failure == ""


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_planted_mistake_is_found(name: str) -> None:
    with planted(MUTANTS[name]):
        assert run(FOUND[name], 1_500).failure


@pytest.mark.explore
@pytest.mark.timeout(patience_s(300, 1))
def test_clusters_are_broken_by_drawn_seeds() -> None:
    first = SEED if EXPLORING else 1_000
    for number in rounds(1):
        found = run(first + number, 3_000 if EXPLORING else 500)
        assert found.failure == "", f"seed {found.seed}"
