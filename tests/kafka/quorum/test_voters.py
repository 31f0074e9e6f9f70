"""Brokers of ours under three controllers of Apache Kafka, whose leader dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from tests.kafka.quorum.nodes import CONTROLLER, OURS, Quorum
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def quorum(memory: Path) -> Iterator[Quorum]:
    try:
        with Quorum(memory / "voters", [2, 3], controllers=(CONTROLLER, 8, 9)) as running:
            for node in running.nodes.values():
                node.begin(OURS)
            running.all_known()
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_the_leader_of_the_quorum_ends(quorum: Quorum, ends: str) -> None:
    """Partitions are served all the time; the next leader creates topics and changes ISRs."""
    topic = f"{ends}s"
    quorum.create(topic, [2, 3], min_insync_replicas="1")
    quorum.in_sync(topic, 2, 3)
    with kafkalog.Admin(quorum.bootstrap) as admin:
        leader = admin.describe_quorum().leader
    gone = quorum.controllers[leader]
    getattr(gone, ends)()
    quorum.produce(topic, range(50))
    quorum.create(f"{topic}-later", [3, 2])
    quorum.nodes[2].kill()
    quorum.in_sync(topic, 3)
    quorum.produce(topic, range(50, 100))
    quorum.nodes[2].begin()
    quorum.in_sync(topic, 2, 3)
    assert quorum.same(topic, 2, 3)
    gone.begin()


def test_all_metadata_logs_are_equal(quorum: Quorum) -> None:
    for node in (*quorum.nodes.values(), *quorum.controllers.values()):
        node.stop()
    assert quorum.same_metadata(2, 3) > 5_000
