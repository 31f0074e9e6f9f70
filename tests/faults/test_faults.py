"""Our nodes die, pause and lose each other while clients of three libraries use them.

Nothing acknowledged is lost, duplicated or reordered; transactions are whole or absent;
no group's position goes back; and at the end all replicas are equal, byte for byte.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.damage.powercut import disks
from tests.faults import clocks, nemeses, network
from tests.faults.cluster import Cluster
from tests.faults.nemeses import Nemesis
from tests.faults.running import Run, told
from tests.support import apache
from tests.support.effort import EXPLORING, LONG, SECONDS, rounds

pytest.importorskip("kazoo")

FIXED = [
    Nemesis(nemeses.kill, 1), Nemesis(nemeses.isolate, 6), Nemesis(nemeses.cut_from_plane, 6),
]  # fmt: skip
"""The nemeses of an ordinary run; a search draws from all."""
FIXED_OF_QUORUMS = [
    Nemesis(nemeses.kill_controller, 1), Nemesis(nemeses.isolate_controller, 6),
    Nemesis(nemeses.cut_from_plane, 6), Nemesis(nemeses.kill_all, 1),
]  # fmt: skip
RUNS = 30 if LONG else 3 if EXPLORING else 1
RUN_S = 180 if LONG else 90


def drawn(rng: random.Random, every: Sequence[Nemesis]) -> Iterator[Nemesis]:
    """Endless; none repeats before all others had their turn."""
    while True:
        yield from rng.sample(every, len(every))


def chosen(deck: Iterator[Nemesis], fixed: Sequence[Nemesis]) -> Iterator[Nemesis]:
    if EXPLORING:
        end = time.monotonic() + RUN_S
        yield from itertools.takewhile(lambda _: time.monotonic() < end, deck)
    else:
        yield from fixed


@pytest.mark.java
@pytest.mark.long
@pytest.mark.explore
@pytest.mark.timeout(1800 * RUNS + 3 * SECONDS)
def test_faults(tmp_path: Path, memory: Path, rng: random.Random) -> None:
    if reason := network.why_not():
        pytest.skip(reason)
    try:
        apache.jars_with_zookeeper()
    except apache.Unavailable as missing:
        pytest.skip(f"there is no ZooKeeper: {missing}")
    deck = drawn(rng, nemeses.ALL)
    for number in rounds(RUNS):
        asked = {"zookeepers": 3, "with_kafka": number % 3 == 1, "kafka_keeps": LONG}
        home = memory / f"faults{number}"
        one_run(home, tmp_path / f"run{number}", rng, chosen(deck, FIXED),
                asked if EXPLORING else {})  # fmt: skip


@pytest.mark.long
@pytest.mark.explore
@pytest.mark.timeout(1800 * RUNS + 3 * SECONDS)
@pytest.mark.parametrize("controllers", [0, 3], ids=["own", "apart"])
def test_faults_of_a_quorum(
    tmp_path: Path, memory: Path, rng: random.Random, controllers: int
) -> None:
    """The nodes are their own controllers, or three more hosts are."""
    if reason := network.why_not():
        pytest.skip(reason)
    deck = drawn(rng, nemeses.OF_QUORUMS)
    for number in rounds(RUNS):
        home = memory / f"quorum{controllers}-{number}"
        one_run(home, tmp_path / f"run{number}", rng, chosen(deck, FIXED_OF_QUORUMS),
                {"controllers": controllers})  # fmt: skip


@pytest.mark.java
@pytest.mark.long
@pytest.mark.explore
@pytest.mark.timeout(1800 * RUNS + 3 * SECONDS)
@pytest.mark.parametrize("theirs", [1, 2])
def test_faults_of_a_mixed_quorum(
    tmp_path: Path, memory: Path, rng: random.Random, theirs: int
) -> None:
    """One or two of three controllers are Apache Kafka's, and so is a fourth broker, which leads
    and follows, too."""
    if reason := network.why_not():
        pytest.skip(reason)
    try:
        apache.jars()
    except apache.Unavailable as missing:
        pytest.skip(f"there is no Apache Kafka: {missing}")
    deck = drawn(rng, nemeses.OF_QUORUMS)
    asked = {"controllers": 3, "theirs": theirs, "with_kafka": True, "kafka_keeps": True}
    for number in rounds(RUNS):
        home = memory / f"mixed{theirs}-{number}"
        one_run(home, tmp_path / f"run{number}", rng, chosen(deck, FIXED_OF_QUORUMS), dict(asked))


def one_run(
    home: Path, kept: Path, rng: random.Random, deck: Iterator[Nemesis], asked: dict[str, Any]
) -> None:
    """An ordinary run has our nodes, and one ZooKeeper or a quorum.  A search has three ZooKeepers
    or a quorum, a separate disk and clock for each node, and in one of three runs on ZooKeeper a
    fourth node, of Apache Kafka: it may be the controller, and in the long form lead and follow,
    too."""
    home.mkdir()
    if EXPLORING:
        asked |= {"disks": disks.why_not("ext4") is None, "clocks": clocks.why_not() is None}
    with network.Network() as hosts, Cluster(home, hosts, **asked) as cluster:
        run = Run(cluster, rng, pace=0.15 if EXPLORING else 2)
        try:
            run.go(deck)
            found = run.judge()
            assert not found, told(found)
        except BaseException:
            run.keep(kept)
            cluster.keep(kept)
            raise
        print(asked, *run.log, run.figures(), sep="\n")
