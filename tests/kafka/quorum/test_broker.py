"""A broker of ours next to one of Apache Kafka 4.4.0, under a controller of either kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.quorum.nodes import CONTROLLER, KAFKA, OURS, Quorum
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
THEIRS, MINE = 2, 3


@pytest.fixture(scope="module", params=[KAFKA, OURS])
def quorum(request: pytest.FixtureRequest, memory: Path) -> Iterator[Quorum]:
    """Under a controller of either kind."""
    home, kinds = memory / f"quorum-{request.param}", {CONTROLLER: request.param}
    try:
        with Quorum(home, [THEIRS, MINE], kinds=kinds) as running:
            running.nodes[THEIRS].begin(KAFKA)
            running.nodes[MINE].begin(OURS)
            running.all_known()
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


def test_each_kind_leads_and_follows(quorum: Quorum) -> None:
    """With records of acks=all, consumed by a group whose coordinators are on both."""
    quorum.create("each", [THEIRS, MINE], [MINE, THEIRS])
    for partition in (0, 1):
        quorum.in_sync("each", THEIRS, MINE, partition=partition)
        quorum.produce("each", range(partition * 100, partition * 100 + 100), partition)
    assert quorum.consumed("each", 200) == [b"%d" % n for n in range(200)]
    for group in ("first", "second", "third"):
        assert len(quorum.consumed("each", 200, group)) == 200
    for partition in (0, 1):
        assert quorum.same("each", THEIRS, MINE, partition=partition)


def test_a_killed_broker_leaves_the_isr_and_comes_back(quorum: Quorum) -> None:
    quorum.create("killed", [THEIRS, MINE], [MINE, THEIRS], min_insync_replicas="1")
    quorum.produce("killed", range(50))
    quorum.produce("killed", range(50), 1)
    quorum.nodes[MINE].kill()
    for partition in (0, 1):
        quorum.in_sync("killed", THEIRS, partition=partition)
        quorum.led("killed", THEIRS, partition)
        quorum.produce("killed", range(50, 100), partition)
    quorum.nodes[MINE].begin()
    for partition in (0, 1):
        quorum.in_sync("killed", THEIRS, MINE, partition=partition)
        assert quorum.same("killed", THEIRS, MINE, partition=partition)


def test_a_killed_broker_of_kafka_leaves_the_isr_of_ours(quorum: Quorum) -> None:
    quorum.create("theirs", [MINE, THEIRS], min_insync_replicas="1")
    quorum.in_sync("theirs", MINE, THEIRS)
    quorum.produce("theirs", range(50))
    quorum.nodes[THEIRS].kill()
    quorum.in_sync("theirs", MINE)
    quorum.produce("theirs", range(50, 100))
    quorum.nodes[THEIRS].begin()
    quorum.in_sync("theirs", MINE, THEIRS)
    assert quorum.same("theirs", THEIRS, MINE)


def test_a_controlled_shutdown_moves_leaderships(quorum: Quorum) -> None:
    quorum.create("orderly", [MINE, THEIRS])
    quorum.in_sync("orderly", MINE, THEIRS)
    quorum.produce("orderly", range(50))
    assert quorum.nodes[MINE].stop() == 0
    quorum.led("orderly", THEIRS)
    quorum.produce("orderly", range(50, 60))
    quorum.nodes[MINE].begin()
    quorum.in_sync("orderly", MINE, THEIRS)
    assert quorum.same("orderly", THEIRS, MINE)


def test_a_paused_broker_is_fenced_and_serves_again(quorum: Quorum) -> None:
    """Another broker leads its partitions; the records that only it has are truncated."""
    quorum.create("paused", [MINE, THEIRS], min_insync_replicas="1")
    quorum.in_sync("paused", MINE, THEIRS)
    quorum.produce("paused", range(50))
    with quorum.nodes[MINE].stands_still():
        quorum.in_sync("paused", THEIRS)
        quorum.led("paused", THEIRS)
        quorum.produce("paused", range(50, 100))
    quorum.all_known()
    quorum.in_sync("paused", MINE, THEIRS)
    assert quorum.same("paused", THEIRS, MINE)


def test_the_controller_restarts(quorum: Quorum) -> None:
    """Partitions are served while it is away; afterwards topics are created again."""
    quorum.create("served", [MINE, THEIRS])
    quorum.in_sync("served", MINE, THEIRS)
    quorum.controller.kill()
    quorum.produce("served", range(50))
    quorum.controller.begin()
    quorum.all_known()
    quorum.create("later", [MINE, THEIRS])
    quorum.produce("later", range(50))
    assert quorum.same("later", THEIRS, MINE)


def test_the_metadata_logs_are_equal(quorum: Quorum) -> None:
    """Byte for byte, as far as the brokers have them."""
    for number in (MINE, THEIRS):
        quorum.nodes[number].stop()
    quorum.controller.stop()
    assert quorum.same_metadata(MINE, THEIRS) > 10_000
