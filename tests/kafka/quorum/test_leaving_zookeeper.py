"""A cluster of ours on ZooKeeper becomes one under controllers, with Apache Kafka 3.9 as a bridge,
as docs/moving.md says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kafkalog.cli import main
from tests.faults.workloads import queue
from tests.kafka.cluster.members import KAFKA, OURS, until
from tests.kafka.cluster.moves import on_its_directory
from tests.kafka.cluster.tour import Tour
from tests.kafka.quorum.bridge import BRIDGE, ENDED, KRAFT, MIGRATED, Bridged
from tests.kafka.quorum.combined import checked
from tests.support import apache

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(1500)]

NUMBERS = (1, 2, 3)


def test_ours_leave_zookeeper(
    tmp_path: Path, rng: random.Random, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under load, on their directories: each node is Kafka's for a while, and the controller is
    ours in the end.  Nothing is lost, duplicated or interrupted."""
    try:
        with Bridged(tmp_path / "nodes", NUMBERS) as nodes:
            for number in NUMBERS:
                nodes.begin(number, OURS)
            nodes.all_known()
            tour = Tour(nodes, NUMBERS, rng, pace=10)
            try:
                given(nodes, tmp_path / "secret")
                # The node that answers may learn of a change a little later.
                before = until(lambda: complete(shown(nodes, capsys)), "all is there")
                migrate(tour, nodes, capsys)
                assert shown(nodes, capsys) == before
                tour.judge(by_kafka=False)
                nodes.controller_node.stop()
                every = (*nodes.nodes.values(), nodes.controller_node)
                checked([one.data for one in every])
            except BaseException:
                tour.keep(tmp_path)
                raise
            finally:
                print("\n".join(tour.log))
    except apache.Unavailable as reason:
        pytest.skip(f"Kafka cannot run here: {reason}")


SHOWN = {
    "quotas": ["quotas"],
    "users": ["users", "list"],
    "a topic's settings": ["configs", "describe", "--topic", queue.TOPIC],
    "settings of all nodes": ["configs", "describe", "--broker-defaults"],
}
"""Commands that show what the cluster was given."""


def given(nodes: Bridged, secret: Path) -> None:
    """Give the cluster what else is in its metadata."""
    secret.write_text("alice's secret\n")
    for words in (
        ["quotas", "alter", "--entity-type", "users", "--entity-name", "alice", "--add",
         "producer_byte_rate=1048576"],
        ["users", "add", "alice", "--password-file", str(secret)],
        ["configs", "alter", "--topic", queue.TOPIC, "--add-config", "max.message.bytes=900000"],
        ["configs", "alter", "--broker-defaults", "--add-config", "log.retention.ms=86400000"],
    ):  # fmt: skip
        assert main([*words, "--bootstrap-server", nodes.bootstrap]) == 0


def shown(nodes: Bridged, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The output of these commands."""
    found = {}
    for name, words in SHOWN.items():
        capsys.readouterr()
        assert main([*words, "--bootstrap-server", nodes.bootstrap]) == 0
        found[name] = capsys.readouterr().out
    return found


def complete(found: dict[str, str]) -> dict[str, str] | None:
    """None if something is missing."""
    wanted = ("1048576", "alice", "900000", "86400000")
    fits = zip(wanted, found.values(), strict=True)
    return found if all(text in one for text, one in fits) else None


def migrate(tour: Tour, nodes: Bridged, capsys: pytest.CaptureFixture[str]) -> None:
    """The steps of docs/moving.md."""
    servers, controller = ("--bootstrap-server", nodes.bootstrap), nodes.controller_node
    capsys.readouterr()
    assert main(["cluster", "id", *servers]) == 0
    controller.format(capsys.readouterr().out.split()[-1])
    controller.begin(KAFKA, migrates=True)
    nodes.stage = BRIDGE
    for number in NUMBERS:
        on_its_directory(tour, number, KAFKA)
    until(lambda: controller.reached() == MIGRATED, "the metadata are in the log")
    tour.whole()
    first, *_ = NUMBERS
    for stage, kind in ((KRAFT, OURS), (BRIDGE, KAFKA)):  # a step can be undone
        nodes.stage = stage
        on_its_directory(tour, first, kind)
    nodes.stage = KRAFT
    for number in NUMBERS:
        on_its_directory(tour, number, OURS)
    with tour.deed("the migration ends"):
        controller.stop()
        controller.begin(KAFKA)
        until(lambda: controller.reached() == ENDED, "the migration has ended")
    with tour.deed("the controller becomes ours"):
        controller.stop()
        nodes.zookeeper.kill()
        controller.begin(OURS)
    with tour.deed("the metadata get the latest version"):
        assert main(["features", "upgrade", "metadata.version=33", *servers]) == 0
