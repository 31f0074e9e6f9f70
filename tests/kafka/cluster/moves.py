"""Moves of nodes from one kind to the other, with the commands of docs/moving.md."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog.cli import main
from kafkalog.disk.checkpoint import CLEAN_MARKER
from tests.faults.workloads import queue
from tests.kafka.cluster.clients import TOPICS
from tests.kafka.cluster.members import OURS, PATIENCE_S, until
from tests.kafka.cluster.tour import Tour
from tests.support.waiting import wait_for


def command(tour: Tour, *words: str) -> None:
    """Run `kafkalog cluster WORDS`, and repeat it while leaders change."""
    servers = ("--bootstrap-server", tour.nodes.bootstrap)
    wait_for(lambda: main(["cluster", *words, *servers]) == 0, f"{words}", PATIENCE_S, 0.5)


def on_its_directory(tour: Tour, number: int, kind: str, killed: bool = False) -> None:
    """It ends in order, or is killed, and starts as the other kind: it needs no recovery unless it
    was killed, continues with the same files, and leads again."""
    nodes, node = tour.nodes, tour.nodes.nodes[number]
    how = "killed" if killed else ""
    with tour.deed(f"{number} becomes {kind} on its directory", how=how):
        if kind == OURS:
            nodes.fits(number)
        segment = node.data / f"{queue.TOPIC}-0" / f"{0:020}.log"
        before = segment.stat()
        node.kill() if killed else node.stop()
        assert (node.data / CLEAN_MARKER).exists() == (not killed)
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
        nodes.joined(new)
        rest = [number for number in tour.numbers() if number != old]
        command(tour, "reassign", "--to", ",".join(map(str, rest)), "--execute")
        folders = [
            nodes.nodes[old].data / f"{topic}-{n}"
            for topic, count in TOPICS.items() for n in range(count)
        ]  # fmt: skip
        until(lambda: not any(one.exists() for one in folders), f"{old} keeps nothing")
        nodes.leaves(old)
        command(tour, "status")


def all_of(tour: Tour, numbers: Sequence[int], kind: str) -> None:
    """Check that exactly these nodes live, all of this kind, and one is the controller."""
    tour.nodes.all_known()
    assert tour.numbers() == [*numbers]
    assert {tour.nodes.nodes[n].kind for n in numbers} == {kind}
