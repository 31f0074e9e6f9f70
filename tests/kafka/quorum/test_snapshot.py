"""Brokers of ours alone under a controller of Apache Kafka, which writes snapshots often."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.quorum.nodes import OURS, Quorum, until
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
OFTEN = """
metadata.log.max.record.bytes.between.snapshots=1000
"""


@pytest.fixture(scope="module")
def quorum(memory: Path) -> Iterator[Quorum]:
    try:
        with Quorum(memory / "snapshots", [2, 3, 4], OFTEN) as running:
            for number in (2, 3):
                running.nodes[number].begin(OURS)
            running.all_known()
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


def snapshots(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.checkpoint")
            if int(path.name.partition("-")[0])}  # fmt: skip


def test_two_of_ours_replicate(quorum: Quorum) -> None:
    quorum.create("pair", [2, 3], [3, 2], min_insync_replicas="1")
    for partition in (0, 1):
        quorum.in_sync("pair", 2, 3, partition=partition)
        quorum.produce("pair", range(100), partition)
        assert quorum.same("pair", 2, 3, partition=partition)
    quorum.nodes[3].kill()
    quorum.in_sync("pair", 2)
    quorum.in_sync("pair", 2, partition=1)
    quorum.produce("pair", range(100), 1)
    quorum.nodes[3].begin()
    quorum.in_sync("pair", 2, 3, partition=1)
    assert quorum.same("pair", 2, 3, partition=1)


def test_a_new_broker_loads_a_snapshot(quorum: Quorum) -> None:
    """Its log begins where the snapshot ends; both are the controller's, byte for byte."""
    until(lambda: snapshots(quorum.controller.metadata), "the controller has a snapshot")
    quorum.nodes[4].begin(OURS)
    quorum.all_known()
    quorum.create("wider", [4, 2])
    quorum.in_sync("wider", 4, 2)
    quorum.produce("wider", range(50))
    assert quorum.same("wider", 4, 2)
    mine = quorum.nodes[4].metadata
    assert not (mine / f"{0:020d}.log").exists()
    theirs = snapshots(quorum.controller.metadata)
    shared = snapshots(mine).keys() & theirs.keys()
    assert shared
    first = min(shared)
    assert snapshots(mine)[first] == theirs[first]
    assert (mine / f"{first.partition('-')[0]}.log").exists()


def test_it_starts_again_from_its_own_snapshot(quorum: Quorum) -> None:
    quorum.nodes[4].kill()
    quorum.in_sync("wider", 2)
    quorum.nodes[4].begin()
    quorum.in_sync("wider", 2, 4)
    assert quorum.same("wider", 4, 2)
