"""Where the replicas of new partitions are placed: Kafka's own examples, and invariants."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kafkalog.controller.placement import Start, place


def test_round_robin_then_shifted() -> None:
    """Five brokers, ten partitions, three replicas: the example of Kafka's AdminUtils."""
    racks: dict[int, str | None] = dict.fromkeys(range(5))
    found = place(racks, 10, 3, random.Random(0), Start(0, 0))
    assert found == [
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    ]  # fmt: skip


def test_racks_alternate() -> None:
    """Six brokers in three racks: Kafka's other example."""
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    found = place({**racks}, 12, 3, random.Random(0), Start(0, 0))
    assert found == [
        (0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3),
        (0, 4, 2), (3, 2, 0), (1, 0, 3), (5, 3, 1), (4, 1, 5), (2, 5, 4),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_invariants_of_placement(seed: int) -> None:
    """No broker twice; each leads its share; as many racks as possible. Racks that only some
    brokers have are ignored."""
    chance = random.Random(seed)
    brokers = chance.randrange(1, 9)
    named = chance.random() < 0.5
    racks = {n: f"r{chance.randrange(3)}" if named or n else None for n in range(brokers)}
    factor = chance.randrange(1, brokers + 1)
    found = place(racks, 4 * brokers, factor, chance)
    assert all(len({*replicas}) == factor for replicas in found)
    assert {*Counter(replicas[0] for replicas in found).values()} == {4}
    if None not in racks.values():
        most = min(factor, len({*racks.values()}))
        assert all(len({racks[one] for one in replicas}) == most for replicas in found)
