"""A live KRaft cluster moves from Apache Kafka to us and back, node by node, as docs/moving.md
says."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.cli import main
from kafkalog.kraft.format import read_meta
from tests.kafka.cluster.members import KAFKA, OURS
from tests.kafka.cluster.moves import all_of, by_a_new_node, on_its_directory
from tests.kafka.cluster.tour import Tour
from tests.kafka.quorum.combined import CombinedNodes, checked
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(1500)]

FIRST, SECOND, THIRD = (1, 2, 3), (4, 5, 6), (7, 8, 9)
PACE = 10


@contextlib.contextmanager
def toured(home: Path, rng: random.Random, nodes: CombinedNodes) -> Iterator[Tour]:
    """Three of Kafka's nodes under load, whose deeds are kept if they fail."""
    try:
        with nodes:
            nodes.begin_all(FIRST, KAFKA)
            tour = Tour(nodes, FIRST, rng, pace=PACE)
            try:
                yield tour
            except BaseException:
                tour.keep(home)
                raise
            finally:
                print("\n".join(tour.log))
    except apache.Unavailable as reason:
        pytest.skip(f"Kafka cannot run here: {reason}")


def upgrade(nodes: CombinedNodes, feature: str) -> None:
    """As `kafkalog features upgrade` does."""
    assert main(["features", "upgrade", feature, "--bootstrap-server", nodes.bootstrap]) == 0


def test_three_of_kafka_are_replaced_and_replace_ours(tmp_path: Path, rng: random.Random) -> None:
    """On new directories: each new node becomes a voter and gets an old one's replicas.  Nothing is
    lost, duplicated or interrupted."""
    made = CombinedNodes(tmp_path / "nodes", FIRST, SECOND + THIRD)
    with toured(tmp_path, rng, made) as tour:
        for old, new in zip(FIRST, SECOND, strict=True):
            by_a_new_node(tour, old, new, OURS)
        all_of(tour, SECOND, OURS)
        for old, new in zip(SECOND, THIRD, strict=True):
            by_a_new_node(tour, old, new, KAFKA)
        all_of(tour, THIRD, KAFKA)
        tour.judge()
        checked([made.nodes[n].data for n in THIRD])


@pytest.mark.parametrize("dynamic", [True, False], ids=["in the log", "in the settings"])
def test_three_of_kafka_change_hands_and_back(
    tmp_path: Path, rng: random.Random, dynamic: bool
) -> None:
    """On their directories, which keep their ids; the voters are in the metadata log, or in the
    settings until all are ours.  Nothing is lost, duplicated or interrupted."""
    made = CombinedNodes(tmp_path / "nodes", FIRST, dynamic=dynamic)
    with toured(tmp_path, rng, made) as tour:
        before = {n: read_meta(str(node.data)) for n, node in made.nodes.items()}
        voters = {one.node: one.directory_id for one in made.quorum().voters}
        for kind in (OURS, KAFKA):
            for number in FIRST:
                on_its_directory(tour, number, kind)
            all_of(tour, FIRST, kind)
            assert {one.node: one.directory_id for one in made.quorum().voters} == voters
            if kind == OURS and not dynamic:
                upgrade(made, "kraft.version=1")
                voters = {n: meta.directory_id for n, meta in before.items() if meta is not None}
        tour.judge()
        checked([made.nodes[n].data for n in FIRST])
    assert {n: read_meta(str(node.data)) for n, node in made.nodes.items()} == before


def test_killed_nodes_change_hands(tmp_path: Path, rng: random.Random) -> None:
    """Each kind recovers what the other one's killed node left."""
    made = CombinedNodes(tmp_path / "nodes", FIRST)
    with toured(tmp_path, rng, made) as tour:
        for kind in (OURS, KAFKA):
            for number in FIRST[:2]:
                on_its_directory(tour, number, kind, killed=True)
        all_of(tour, FIRST, KAFKA)
        tour.judge()
        checked([made.nodes[n].data for n in FIRST])
