"""A live cluster moves from Apache Kafka to us and back, node by node, as docs/moving.md says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkalog.cli import main
from kafkalog.disk.checkpoint import CLEAN_MARKER
from tests.faults.workloads import queue
from tests.kafka.cluster.clients import TOPICS
from tests.kafka.cluster.nodes import KAFKA, OURS, PATIENCE_S, Nodes, until
from tests.kafka.cluster.tour import Tour
from tests.support import apache
from tests.support.effort import EXPLORING
from tests.support.waiting import wait_for

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.explore]


def command(tour: Tour, *words: str) -> None:
    """Run `kafkalog cluster WORDS`, and repeat it while leaders change."""
    servers = ("--bootstrap-server", tour.nodes.bootstrap)
    wait_for(lambda: main(["cluster", *words, *servers]) == 0, f"{words}", PATIENCE_S, 0.5)


def on_its_directory(tour: Tour, number: int, kind: str) -> None:
    """It ends in order and starts as the other kind: it needs no recovery, continues with the same
    files, and leads again."""
    nodes, node = tour.nodes, tour.nodes.nodes[number]
    with tour.deed(f"{number} becomes {kind} on its directory"):
        if kind == OURS and node.properties is not None:
            assert main(["cluster", "precheck", "--config", str(node.properties)]) == 0
        segment = node.data / f"{queue.TOPIC}-0" / f"{0:020}.log"
        before = segment.stat()
        node.stop()
        assert (node.data / CLEAN_MARKER).exists()
        tour.led_by_others(number)
        nodes.begin(number, kind)
        command(tour, "status")
        command(tour, "elect")
        after = segment.stat()
        assert after.st_ino == before.st_ino and after.st_size > before.st_size


def by_a_new_node(tour: Tour, old: int, new: int, kind: str) -> None:
    """Another node gets the old one's replicas; the old one has none left and ends."""
    nodes = tour.nodes
    with tour.deed(f"{new}, {kind}, takes the place of {old}"):
        nodes.begin(new, kind)
        nodes.all_known()
        rest = [number for number in tour.numbers() if number != old]
        command(tour, "reassign", "--to", ",".join(map(str, rest)), "--execute")
        folders = [
            nodes.nodes[old].data / f"{topic}-{n}"
            for topic, count in TOPICS.items() for n in range(count)
        ]  # fmt: skip
        until(lambda: not any(one.exists() for one in folders), f"{old} keeps nothing")
        nodes.nodes[old].stop()
        command(tour, "status")


def all_of(tour: Tour, numbers: Sequence[int], kind: str) -> None:
    """Check that exactly these nodes live, all of this kind, and one is the controller."""
    tour.nodes.all_known()
    assert tour.numbers() == [*numbers]
    assert {tour.nodes.nodes[n].kind for n in numbers} == {kind}


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
