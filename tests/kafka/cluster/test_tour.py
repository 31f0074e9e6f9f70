"""One cluster of Apache Kafka 3.9 and nodes of ours, in which each does everything for the other.

Each kind is the controller, leads what the other follows, and coordinates groups and transactions
that go on through all of it.  Afterwards every acknowledged record is there, once and in order,
and all copies are equal, as we and as Kafka's own tools find.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kafka.cluster.nodes import KAFKA, OURS, Nodes
from tests.kafka.cluster.tour import Tour
from tests.support import apache
from tests.support.effort import EXPLORING, SECONDS, rounds

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.explore]

FIRST, SECOND, THIRD = 1, 2, 3
DRAWN = 6


def in_turn(tour: Tour) -> None:
    """Kafka's reigns first, as it was there first; when it dies, ours do."""
    nodes = tour.nodes
    assert nodes.controller() == FIRST
    tour.topic_lives()
    tour.moves()
    tour.ends(SECOND)
    tour.stands_still(THIRD)
    tour.unclean(SECOND, FIRST, "kill")
    assert nodes.nodes[nodes.controller()].kind == OURS
    tour.topic_lives()
    tour.moves()
    tour.unclean(FIRST, SECOND, "stop")
    tour.stands_still(FIRST)
    tour.dies(nodes.controller())


@pytest.mark.timeout(1500 + 6 * SECONDS)
def test_both_kinds_do_everything_for_each_other(tmp_path: Path, rng: random.Random) -> None:
    """When searching: what is done, to whom, and of which kind they are, is drawn."""
    kinds = {FIRST: KAFKA, SECOND: OURS, THIRD: OURS}
    if EXPLORING:
        kinds = {n: rng.choice((KAFKA, OURS)) for n in kinds}
    try:
        with Nodes(tmp_path / "nodes", kinds) as nodes:
            for number, kind in kinds.items():
                nodes.begin(number, kind)
            nodes.all_known()
            tour = Tour(nodes, [*kinds], rng, pace=1 if EXPLORING else 6)
            try:
                if EXPLORING:
                    for _ in rounds(DRAWN):
                        tour.drawn()
                else:
                    in_turn(tour)
                tour.judge()
            except BaseException:
                tour.keep(tmp_path)
                raise
            finally:
                print("\n".join(tour.log))
    except apache.Unavailable as reason:
        pytest.skip(f"Kafka cannot run here: {reason}")
