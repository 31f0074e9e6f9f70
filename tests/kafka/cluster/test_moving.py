"""A live cluster moves from Apache Kafka to us and back, node by node, as docs/moving.md says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kafka.cluster.members import KAFKA, OURS
from tests.kafka.cluster.moves import all_of, by_a_new_node, on_its_directory
from tests.kafka.cluster.nodes import Nodes
from tests.kafka.cluster.tour import Tour
from tests.support import apache
from tests.support.effort import EXPLORING

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.explore]


@pytest.mark.timeout(1800)
def test_three_of_kafka_become_ours_and_go_back(tmp_path: Path, rng: random.Random) -> None:
    """On their directories, then one by a new node; when searching all of them, each way there and
    back, and under more load.  Nothing is lost, duplicated or interrupted."""
    first, second, third = (1, 2, 3), (4, 5, 6), (7, 8, 9)
    try:
        with Nodes(tmp_path / "nodes", first + second + third) as nodes:
            for number in first:
                nodes.begin(number, KAFKA)
            nodes.all_known()
            tour = Tour(nodes, first, rng, pace=1 if EXPLORING else 10)
            try:
                for number in first:
                    on_its_directory(tour, number, OURS)
                all_of(tour, first, OURS)
                by_a_new_node(tour, first[0], second[0], KAFKA)
                if EXPLORING:
                    for old, new in zip(first[1:], second[1:], strict=True):
                        by_a_new_node(tour, old, new, KAFKA)
                    all_of(tour, second, KAFKA)
                    for old, new in zip(second, third, strict=True):
                        by_a_new_node(tour, old, new, OURS)
                    all_of(tour, third, OURS)
                    for number in third:
                        on_its_directory(tour, number, KAFKA)
                    all_of(tour, third, KAFKA)
                tour.judge(by_kafka=EXPLORING)
            except BaseException:
                tour.keep(tmp_path)
                raise
            finally:
                print("\n".join(tour.log))
    except apache.Unavailable as reason:
        pytest.skip(f"Kafka cannot run here: {reason}")
