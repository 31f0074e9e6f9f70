"""When the coordinators' topics are created, and with how many replicas (KIP-115)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kafkalog.metadata.image import TOPIC
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.journal import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for

SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "controlled.shutdown.enable": False,
}
TOPICS = {OFFSETS_TOPIC: 0, TRANSACTIONS_TOPIC: 1}
"""By topic, the kind of key that FindCoordinator has."""
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Starting:
    """A cluster whose nodes start one by one."""

    def __init__(self, home: Path, on: ExitStack, config: dict[str, Any]) -> None:
        inside = on.enter_context(StandIn())
        self._home, self._on = home, on
        self._config = {"zookeeper.connect": inside.hosts, **SETTINGS, **config}
        self.nodes: list[Broker] = []

    def begin(self) -> None:
        """One more node, which all others know on return."""
        number = len(self.nodes) + 1
        config = {**self._config, "node.id": number}
        self.nodes.append(self._on.enter_context(Broker(self._home / str(number), config=config)))
        wait_for(
            lambda: (
                all(len(node_of(one).image.brokers) == number for one in self.nodes)
                and node_of(self.nodes[0]).metadata.controller > 0
            ),
            "they know each other, and the controller",
        )

    def asked(self, topic: str) -> ErrorCode:
        """The first node's answer to a client that looks for a coordinator."""
        with Raw(self.nodes[0].bootstrap_servers) as raw:
            found = raw.call(apis.FIND_COORDINATOR, 2, key="x", key_type=TOPICS[topic])
        return ErrorCode(found.error_code)

    def copies(self, topic: str) -> int:
        """The replicas of its partition; 0: it does not exist."""
        state = node_of(self.nodes[0]).image.partition(topic, 0)
        return 0 if state is None else len(state.replicas)

    def setting(self, topic: str) -> str | None:
        return node_of(self.nodes[0]).image.config(TOPIC, topic).get("min.insync.replicas")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[tuple[Path, ExitStack]]:
    with ExitStack() as on:
        yield tmp_path, on


def test_a_coordinator_waits_for_its_replicas(
    home: tuple[Path, ExitStack], caplog: pytest.LogCaptureFixture
) -> None:
    """A client that is early gets a retriable error, and the log one line per topic."""
    cluster = Starting(*home, {})
    for _ in range(2):
        cluster.begin()
        for topic in (*TOPICS, *TOPICS):
            assert cluster.asked(topic) == NOT_AVAILABLE
            assert cluster.copies(topic) == 0
    cluster.begin()
    for topic in TOPICS:  # nobody has to ask again for that
        wait_for(lambda topic=topic: cluster.copies(topic) == 3, "it is created")
        wait_for(lambda topic=topic: not cluster.asked(topic), "a coordinator leads")
    assert (cluster.setting(OFFSETS_TOPIC), cluster.setting(TRANSACTIONS_TOPIC)) == (None, "2")
    said = [one.getMessage() for one in caplog.records if "is not created yet" in one.getMessage()]
    assert said == [
        f"node 1: {topic} is not created yet: found 1 nodes alive, wanted 3, its {setting}; its "
        "clients get COORDINATOR_NOT_AVAILABLE until then"
        for topic, setting in (
            (OFFSETS_TOPIC, "offsets.topic.replication.factor"),
            (TRANSACTIONS_TOPIC, "transaction.state.log.replication.factor"),
        )
    ]


def test_a_cluster_obeys_its_settings(home: tuple[Path, ExitStack]) -> None:
    cluster = Starting(*home, {
        "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1})  # fmt: skip
    cluster.begin()
    for topic in TOPICS:
        wait_for(lambda topic=topic: not cluster.asked(topic), "a coordinator leads")
        assert cluster.copies(topic) == 1
    assert cluster.setting(TRANSACTIONS_TOPIC) == "1"


def test_a_single_node_needs_no_settings(tmp_path: Path) -> None:
    """With the same defaults Kafka would create neither."""
    with Broker(tmp_path / "d", config={"transaction.state.log.min.isr": 2}) as broker:
        image = node_of(broker).image
        with Raw(broker.bootstrap_servers) as raw:
            for kind in TOPICS.values():
                assert not raw.call(apis.FIND_COORDINATOR, 2, key="x", key_type=kind).error_code
        image = node_of(broker).image
        for topic in TOPICS:
            assert {one.replicas for one in image.topics[topic].partitions.values()} == {(1,)}
        assert image.config(TOPIC, TRANSACTIONS_TOPIC)["min.insync.replicas"] == "1"


def test_a_created_topic_is_in_the_answer_with_its_leaders(home: tuple[Path, ExitStack]) -> None:
    """Without it, each client pauses before it asks again."""
    cluster = Starting(*home, {})
    for _ in range(2):
        cluster.begin()
    for number, node in enumerate(cluster.nodes):
        with Raw(node.bootstrap_servers) as raw:
            asked = [{"name": f"used-{number}"}]
            (topic,) = raw.call(apis.METADATA, topics=asked, allow_auto_topic_creation=True).topics
        assert topic.error_code == ErrorCode.NONE
        assert [row.leader_id for row in topic.partitions] in ([1], [2])


@pytest.mark.parametrize("alone", [True, False])
def test_a_group_waits_for_members_in_a_cluster(home: tuple[Path, ExitStack], alone: bool) -> None:
    """A program with its own broker knows when all members are there; a cluster's node does not."""
    if alone:
        with Broker(home[0], ()) as broker:
            assert broker.config.group_initial_rebalance_delay_ms == 0
        return
    cluster = Starting(*home, {})
    cluster.begin()
    assert cluster.nodes[0].config.group_initial_rebalance_delay_ms == 3000
