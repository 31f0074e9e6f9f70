"""The plans of `kafkalog cluster`: complete, even, and with few moves."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kafkalog.cli.cluster import plan
from kafkalog.types import TopicPartition

SEEDS = [range(first, first + 20) for first in range(0, 200, 20)]


def layout(*rows: tuple[int, ...], topic: str = "t") -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(topic, n): row for n, row in enumerate(rows)}


def copied(moves: dict[TopicPartition, plan.Move]) -> int:
    return sum(len(move.adding) for move in moves.values())


def loads(found: plan.Layout, nodes: list[int]) -> tuple[list[int], list[int]]:
    """Number of replicas and of preferred leaders of each node, in the order of `nodes`."""
    held, heads = (
        Counter(n for row in found.values() for n in row),
        Counter(row[0] for row in found.values() if row),
    )
    return [held[n] for n in nodes], [heads[n] for n in nodes]


def drawn(seed: int) -> tuple[dict[TopicPartition, tuple[int, ...]], list[int]]:
    chance = random.Random(seed)
    nodes = list(range(1, chance.randrange(2, 7)))
    found = {
        TopicPartition(f"t{n % 3}", n): tuple(
            chance.sample(nodes, chance.randrange(1, len(nodes) + 1))
        )
        for n in range(chance.randrange(1, 40))
    }
    return found, nodes


def test_a_balanced_layout_stays() -> None:
    now = layout((1, 2), (2, 3), (3, 1))
    assert plan.moves(now, plan.evened(now, dict.fromkeys((1, 2, 3)))) == {}


def test_a_new_node_gets_its_share_and_no_more() -> None:
    """Exactly three of twelve replicas on three nodes are copied to a fourth."""
    now = layout((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 2, 3))
    then = plan.evened(now, dict.fromkeys((1, 2, 3, 4)))
    assert copied(plan.moves(now, then)) == 3
    assert loads(then, [1, 2, 3, 4]) == ([3, 3, 3, 3], [1, 1, 1, 1])


def test_a_leader_is_handed_on_over_several_nodes() -> None:
    """1 leads three, 3 none; no partition is on both 1 and 3, but 2 can pass the lead on."""
    now = layout((1, 2), (1, 2), (1, 2), (2, 3), (2, 3))
    then = plan.evened(now, dict.fromkeys((1, 2, 3)))
    _, heads = loads(then, [1, 2, 3])
    assert max(heads) - min(heads) <= 1


def test_more_copies_and_less() -> None:
    now = layout((1,), (2,), (3,))
    then = plan.evened(now, dict.fromkeys((1, 2, 3)), 2)
    assert all(row[0] == now[tp][0] and len(row) == 2 for tp, row in then.items())
    back = plan.evened(then, dict.fromkeys((1, 2, 3)), 1)
    assert loads(back, [1, 2, 3]) == ([1, 1, 1], [1, 1, 1])
    assert all(set(back[tp]) <= set(then[tp]) for tp in then), "nothing is copied"


def test_racks_share_a_partition() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    then = plan.evened(layout((1, 3), (2, 4), (1,), (3,)), racks, 2)
    assert all({racks[n] for n in row} == {"a", "b"} for row in then.values())


def test_a_drained_node_passes_leadership_to_replicas() -> None:
    now = layout((1, 2), (1, 3), (2, 1), (3, 2))
    then = plan.unled(now, 1, dict.fromkeys(now, (2, 3)))
    assert then[TopicPartition("t", 0)] == (2, 1)
    assert then[TopicPartition("t", 1)] == (3, 1)
    assert copied(plan.moves(now, then)) == 0
    gone = plan.drained(now, 1, dict.fromkeys((1, 2, 3)))
    assert gone[TopicPartition("t", 0)] == (2, 3)
    assert copied(plan.moves(now, gone)) == 3


def test_the_only_replica_stays_without_another_node() -> None:
    now = layout((1,))
    assert plan.drained(now, 1, {1: None}) == now
    assert plan.unled(now, 1, dict.fromkeys(now, (2,))) == now
    assert plan.drained(now, 1, {1: None, 2: None})[TopicPartition("t", 0)] == (2,)


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_any_plan_is_whole_and_even(seeds: range) -> None:
    """Each partition has its replicas on different nodes; no node has two more than another;
    planning again moves nothing."""
    for seed in seeds:
        print(f"seed {seed}")
        whole_and_even(seed)


def whole_and_even(seed: int) -> None:
    now, nodes = drawn(seed)
    chance = random.Random(-seed)
    after = chance.sample(nodes, chance.randrange(1, len(nodes) + 1))
    then = plan.evened(now, dict.fromkeys(after))
    for tp, row in then.items():
        assert len(set(row)) == len(row) == min(len(now[tp]), len(after))
        assert set(row) <= set(after)
    held, heads = loads(then, after)
    assert max(held) - min(held) <= 1
    assert max(heads) - min(heads) <= 1
    assert plan.moves(then, plan.evened(then, dict.fromkeys(after))) == {}


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_a_drained_node_has_nothing_and_nothing_else_moves(seeds: range) -> None:
    for seed in seeds:
        print(f"seed {seed}")
        drained_alone(seed)


def drained_alone(seed: int) -> None:
    now, nodes = drawn(seed)
    then = plan.drained(now, 1, dict.fromkeys(nodes))
    for tp, move in plan.moves(now, then).items():
        assert any(node == 1 for node in now[tp]), "only the partitions of node 1 move"
        assert len(move.adding) <= 1
    for tp, row in then.items():
        assert len(set(row)) == len(row) == len(now[tp])
        assert set(now[tp]) >= set(nodes) or 1 not in row
