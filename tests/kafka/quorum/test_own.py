"""Apache Kafka's brokers and ours under a controller of ours, which Kafka's tools reach, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.wire import apis
from tests.kafka.quorum.nodes import CONTROLLER, KAFKA, OURS, Node, Quorum, until
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
THEIRS, OTHER, MINE = 2, 3, 4
TOOLS = "org.apache.kafka.tools."


@pytest.fixture(scope="module")
def quorum(memory: Path) -> Iterator[Quorum]:
    try:
        with Quorum(
            memory / "own", [THEIRS, OTHER, MINE], dynamic=True, kinds={CONTROLLER: OURS}
        ) as running:
            for number, kind in ((THEIRS, KAFKA), (OTHER, KAFKA), (MINE, OURS)):
                running.nodes[number].begin(kind)
            running.all_known()
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


def versions(node: Node) -> dict[int, tuple[int, int]]:
    with node.connection() as made:
        body = {"client_software_name": "t", "client_software_version": "1"}
        found = made.call(apis.API_VERSIONS, body, 4).api_keys
    return {one.api_key: (one.min_version, one.max_version) for one in found}


def test_it_announces_the_same_as_a_controller_of_kafkas(quorum: Quorum, memory: Path) -> None:
    with Quorum(memory / "theirs", []) as other:
        assert versions(quorum.controller) == versions(other.controller)


def test_both_kinds_of_brokers_replicate(quorum: Quorum) -> None:
    for number, replicas in enumerate(([THEIRS, OTHER, MINE], [MINE, THEIRS, OTHER])):
        topic = f"replicated{number}"
        quorum.create(topic, replicas)
        quorum.in_sync(topic, *replicas)
        quorum.produce(topic, range(100))
        assert quorum.consumed(topic, 100, topic) == [b"%d" % n for n in range(100)]
        assert quorum.same(topic, *replicas)


@pytest.mark.parametrize("dead", [THEIRS, MINE], ids=["theirs", "ours"])
def test_a_dead_broker_is_fenced(quorum: Quorum, dead: int) -> None:
    """Others lead until it is back."""
    topic = f"dead{dead}"
    quorum.create(topic, [dead, OTHER], min_insync_replicas="1")
    quorum.in_sync(topic, dead, OTHER)
    quorum.nodes[dead].kill()
    quorum.led(topic, OTHER)
    quorum.in_sync(topic, OTHER)
    quorum.produce(topic, range(50))
    quorum.nodes[dead].begin()
    quorum.in_sync(topic, OTHER, dead)
    assert quorum.same(topic, OTHER, dead)


@pytest.mark.parametrize("leaves", [THEIRS, MINE], ids=["theirs", "ours"])
def test_a_broker_stops_in_order(quorum: Quorum, leaves: int) -> None:
    topic = f"left{leaves}"
    quorum.create(topic, [leaves, OTHER])
    quorum.in_sync(topic, leaves, OTHER)
    quorum.nodes[leaves].stop()
    quorum.led(topic, OTHER)
    quorum.nodes[leaves].begin()
    quorum.in_sync(topic, OTHER, leaves)


def test_kafkas_tools_reach_the_controller(quorum: Quorum) -> None:
    there = ["--bootstrap-controller", quorum.controller.address]
    status = apache.ask(f"{TOOLS}MetadataQuorumCommand", *there, "describe", "--status")
    assert ["LeaderId:", str(CONTROLLER)] in [line.split() for line in status.splitlines()]
    replicas = apache.ask(f"{TOOLS}MetadataQuorumCommand", *there, "describe", "--replication")
    assert replicas.count("Observer") == 3 and replicas.count("Leader") >= 1
    features = apache.ask(f"{TOOLS}FeatureCommand", *there, "describe")
    assert "Feature: metadata.version" in features and "FinalizedVersionLevel: 4.4-IV2" in features
    entity = ["--entity-type", "brokers", "--entity-name", str(CONTROLLER)]
    described = apache.ask(f"{TOOLS}ConfigCommand", *there, "--describe", "--all", *entity)
    assert "process.roles=controller" in described


def test_kafkas_tools_change_settings_and_features_at_the_controller(quorum: Quorum) -> None:
    there = ["--bootstrap-controller", quorum.controller.address]
    quorum.create("tuned", [THEIRS])
    change = ["--alter", "--entity-type", "topics", "--entity-name", "tuned", "--add-config"]
    apache.ask(f"{TOOLS}ConfigCommand", *there, *change, "retention.ms=12345")
    with kafkalog.Admin(quorum.nodes[MINE].address) as admin:
        until(
            lambda: admin.describe_configs([("topic", "tuned")]).check()[("topic", "tuned")][
                "retention.ms"
            ].value == "12345",
            "the setting is known",
        )  # fmt: skip
    lower = ["downgrade", "--feature", "transaction.version=1"]
    apache.ask(f"{TOOLS}FeatureCommand", *there, *lower)
    shown = apache.ask(f"{TOOLS}FeatureCommand", *there, "describe").splitlines()
    (row,) = [line for line in shown if "Feature: transaction.version" in line]
    assert "FinalizedVersionLevel: 1" in row


def test_the_controller_restarts(quorum: Quorum) -> None:
    """Brokers serve without it, and find it again; the metadata logs are equal."""
    quorum.create("while-away", [THEIRS, MINE])
    quorum.in_sync("while-away", THEIRS, MINE)
    with kafkalog.Producer(quorum.bootstrap) as producer:
        producer.send("while-away", b"0").result()  # it has a producer id
        quorum.controller.kill()
        for number in range(1, 20):
            producer.send("while-away", b"%d" % number).result()
    quorum.controller.begin()
    until(quorum.controller.answers, "the controller is back")
    quorum.create("after", [MINE, OTHER])
    quorum.in_sync("after", MINE, OTHER)
    for node in quorum.nodes.values():
        node.stop()
    assert quorum.controller.stop() == 0
    assert quorum.same_metadata(THEIRS, OTHER, MINE) > 5_000
