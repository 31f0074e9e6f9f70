"""Clusters of Apache Kafka 3.9 and our nodes, in which each kind plays every role for the other.

Each kind is the controller, leads what the other follows, and coordinates groups and transactions
that continue throughout.  Afterwards every acknowledged record is there, once and in order, and
all replicas are equal, according to us and to Kafka's own tools.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kafka.cluster.members import KAFKA, OURS
from tests.kafka.cluster.nodes import Nodes
from tests.kafka.cluster.tour import Done, Tour
from tests.support import apache
from tests.support.effort import EXPLORING, SECONDS, rounds

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.long]

FIRST, SECOND, THIRD = 1, 2, 3
KINDS = (KAFKA, OURS)
DRAWN = 6
TO_NODES = ("end in order", "kill -9")
TO_TOPICS = ("make, enlarge, set, move and delete a topic", "move the queue and back")


def in_turn(tour: Tour) -> None:
    """Kafka's controller comes first, as it started first; when the other two are gone, ours."""
    assert tour.nodes.controller() == FIRST
    one_reign(tour)
    tour.unclean(SECOND, FIRST, "kill")
    assert tour.nodes.controller() == THIRD
    one_reign(tour)
    tour.unclean(FIRST, SECOND, "stop")
    tour.dies(tour.nodes.controller())


def one_reign(tour: Tour) -> None:
    """Change topics, and do each deed to a node of each kind other than the controller."""
    nodes, reigns = tour.nodes.nodes, tour.nodes.controller()
    others = {nodes[number].kind: number for number in tour.numbers() if number != reigns}
    tour.topic_lives()
    tour.moves()
    for number in others.values():
        tour.ends(number)
        tour.dies(number)
        tour.stands_still(number)


def toured(home: Path, rng: random.Random, kinds: dict[int, str]) -> set[Done]:
    """Run and judge all of it; when exploring, the deeds and their nodes are drawn.

    Returns the deeds that were done.  Raises: AssertionError.
    """
    try:
        with Nodes(home / "nodes", kinds) as nodes:
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
                tour.keep(home)
                raise
            finally:
                print("\n".join(tour.log))
            return tour.done
    except apache.Unavailable as reason:
        pytest.skip(f"Kafka cannot run here: {reason}")


@pytest.mark.explore
@pytest.mark.timeout(2400 + 6 * SECONDS)
def test_both_kinds_do_everything_for_each_other(tmp_path: Path, rng: random.Random) -> None:
    """One node of Kafka, two of ours; when searching, the kinds are drawn, too."""
    kinds = {FIRST: KAFKA, SECOND: OURS, THIRD: OURS}
    if EXPLORING:
        kinds = {n: rng.choice(KINDS) for n in kinds}
    done = toured(tmp_path, rng, kinds)
    if not EXPLORING:
        covered(done, {KAFKA: [OURS], OURS: [KAFKA, OURS]})


@pytest.mark.timeout(2400)
@pytest.mark.skipif(EXPLORING, reason="the kinds are drawn in the other one")
def test_two_of_kafka_and_one_of_ours(tmp_path: Path, rng: random.Random) -> None:
    done = toured(tmp_path, rng, {FIRST: KAFKA, SECOND: KAFKA, THIRD: OURS})
    covered(done, {KAFKA: [KAFKA, OURS], OURS: [KAFKA]})


def covered(done: set[Done], others: dict[str, list[str]]) -> None:
    """Under each kind of controller, every deed was done to topics and to each kind of node."""
    wanted = {Done(deed, "", reigns) for deed in TO_TOPICS for reigns in KINDS}
    for reigns, kinds in others.items():
        wanted |= {Done(deed, kind, reigns) for deed in TO_NODES for kind in kinds}
    assert wanted <= done, wanted - done
