"""Clusters with faults from seeds: the invariants hold, and planted mistakes are found."""

from __future__ import annotations

import random

import pytest

from kafkalog.simulate.faults import Step
from kafkalog.simulate.mutants import MUTANTS
from kafkalog.simulate.run import Result, drawn_setup, minimised, run
from tests.support.effort import EXPLORING, SEED, patience_s, rounds
from tests.unit.simulate.test_mistakes import SCRIPTED

FOUND = {
    "ack-at-append": range(3), "no-divergence": range(7, 37), "cut-to-watermark": range(3, 43),
    "shrunk-at-once": range(3, 33), "grown-too-late": range(6, 46), "takes-records": range(3, 23),
    "refused-holds": range(12, 72), "joins-at-once": range(62, 142),
}  # fmt: skip
"""Mistakes that are found soon, and the seeds to search: from the first that finds it today, and as
many as it may take once other numbers are drawn."""

FINDS = [
    (100296, None), (500512, False), (600805, False), (500453, False), (10, None), (43, False),
    (4006982, None),
]  # fmt: skip
"""Seeds that found something, as docs/simulation.md lists them: (seed, durable)."""


def searched(name: str, seeds: range) -> Result | None:
    """The result of the first seed that finds a mistake; None if no seed does."""
    mutant = MUTANTS[name]
    for seed in seeds:
        setup = drawn_setup(random.Random(f"{seed}-setup"), durable=mutant.durable)
        found = run(seed, rules=mutant.rules, setup=setup)
        if found.failure:
            return found
    return None


def test_a_run_is_a_function_of_its_seed() -> None:
    for seed in range(3):
        assert run(seed) == run(seed)


@pytest.mark.parametrize("nodes", [3, 5])
def test_acknowledged_records_survive(nodes: int) -> None:
    """In order, once, and on every replica."""
    acknowledged = 0
    for seed in range(15):
        found = run(seed, nodes=nodes)
        assert found.failure == "", f"kafkalog simulate --seed {seed} --seeds 1 --nodes {nodes}"
        acknowledged += found.acknowledged
    assert acknowledged > 300


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_planted_mistake_is_found(name: str) -> None:
    assert searched(name, FOUND[name]) is not None


def test_every_mistake_is_found() -> None:
    """Either by seeds here, or step by step."""
    assert {*FOUND} | {*SCRIPTED} == {*MUTANTS}


def test_a_failure_is_made_small() -> None:
    """The minimized steps fail in the same way."""
    found = searched("no-divergence", FOUND["no-divergence"])
    assert found is not None
    mutant = MUTANTS["no-divergence"]
    setup = drawn_setup(random.Random(f"{found.seed}-setup"), durable=mutant.durable)

    def again(steps: list[Step]) -> Result:
        return run(found.seed, rules=mutant.rules, setup=setup, steps=steps)

    least = minimised(found, again)  # type: ignore[arg-type]
    assert least.failure.split(":")[0] == found.failure.split(":")[0]
    assert len(least.steps) <= len(found.steps)
    assert again([*least.steps]).failure == least.failure


@pytest.mark.parametrize(("seed", "durable"), FINDS)
def test_faults_that_seeds_found_are_mended(seed: int, durable: bool | None) -> None:
    setup = drawn_setup(random.Random(f"{seed}-setup"), durable=durable)
    assert run(seed, setup=setup, more=False).failure == ""


SEARCHES = 6
"""The most important search, with random seeds; CI runs three, a minute each."""


@pytest.mark.explore
@pytest.mark.timeout(patience_s(300, SEARCHES))
@pytest.mark.parametrize(("nodes", "durable"), [(3, None), (3, False), (5, None)])
def test_clusters_are_broken_by_drawn_seeds(nodes: int, durable: bool | None) -> None:
    first = SEED if EXPLORING else 0
    for number in rounds(10, SEARCHES):
        seed = first + number
        setup = drawn_setup(random.Random(f"{seed}-setup"), nodes, durable)
        found = run(seed, nodes=nodes, setup=setup)
        assert found.failure == "", f"seed {seed}, {nodes} nodes, durable={durable}"
