"""Three nodes, each a process, on a real ZooKeeper: the coordinators of groups and transactions die
with them and move, and every order is booked exactly once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kafka.cluster.clients import TOPICS
from tests.kafka.cluster.members import INTERNAL, OURS
from tests.kafka.cluster.nodes import Nodes
from tests.kafka.cluster.tour import Tour
from tests.support import apache

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.long]

NUMBERS = (1, 2, 3)
TWICE = 2


@pytest.mark.timeout(1500)
def test_coordinators_are_killed_twice(memory: Path, tmp_path: Path, rng: random.Random) -> None:
    """Each node twice.  Orders are booked in transactions with their group's offsets, and another
    group reads a queue: both go on while a node is dead, and after it leads again."""
    try:
        with Nodes(memory / "coordinators", NUMBERS) as nodes:
            for number in NUMBERS:
                nodes.begin(number, OURS)
            nodes.all_known()
            tour = Tour(nodes, NUMBERS, rng, pace=6)
            try:
                before = epochs(nodes)
                for number in NUMBERS * TWICE:
                    tour.dies(number)
                moved = {where: epoch - before[where] for where, epoch in epochs(nodes).items()}
                # Its leader died twice: each time another node led, and then the first one again.
                assert all(count >= 2 * TWICE for count in moved.values()), moved
                tour.judge(by_kafka=False)
            except BaseException:
                tour.keep(tmp_path)
                raise
            finally:
                print("\n".join(tour.log))
    except apache.Unavailable as reason:
        pytest.skip(f"ZooKeeper cannot run here: {reason}")


def epochs(nodes: Nodes) -> dict[tuple[str, int], int]:
    """The leader epoch of each partition of the internal topics."""
    return {
        (topic, n): nodes.state(topic, n).leader_epoch
        for topic in INTERNAL for n in range(TOPICS[topic])
    }  # fmt: skip
