"""A broker of Kafka 3.9 under a controller of ours, on a real ZooKeeper: it does as it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar
from uuid import NAMESPACE_DNS, UUID, uuid5

import pytest

from kafkalog.cluster.controller import brokers, deletion, topics
from kafkalog.cluster.controller.context import Context, Reign
from kafkalog.cluster.controller.partitions import Deciding
from kafkalog.cluster.controller.requests import Gathered
from kafkalog.metadata.image import NO_LEADER
from kafkalog.metadata.zookeeper import tree
from kafkalog.metadata.zookeeper.loading import load
from kafkalog.metadata.zookeeper.session import Create, Delete, Session, Set
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import apache
from tests.support.raw import Raw
from tests.support.zookeeper import Broker, ZooKeeper

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.slow]
T = TypeVar("T")
OURS, KAFKAS, OTHER = 9, 1, 2
BLANK = tree.BrokerNode((tree.Endpoint("PLAINTEXT", "nowhere", 1, "PLAINTEXT"),), None, 0, {})


class Controller:
    """Carries decisions out: into the tree, then to Kafka's broker, which must take each."""

    def __init__(self, session: Session, raw: Raw) -> None:
        self.session, self.raw = session, raw
        loaded = load(session.tree("/"), OURS)
        assert not loaded.problems and loaded.controller_epoch == 1
        self.context = Context(Reign(OURS, 1, 0), loaded)
        self.told = Gathered(self.context, "PLAINTEXT")

    def decide(self, deciding: Deciding[T]) -> T:
        try:
            asked = next(deciding)
            while True:
                asked = deciding.send([self.session.commit(one.operations) for one in asked])
        except StopIteration as end:
            for send in self.told.sends():
                if send.broker == KAFKAS:
                    said = self.raw.call(send.api, None, **send.body)
                    assert said.error_code == 0, (send, said)
                    errors = getattr(said, "partition_errors", [])
                    for topic in getattr(said, "topics", []):
                        errors = [*errors, *topic.partition_errors]
                    assert not any(row.error_code for row in errors), (send, said)
            assert self.context.stale == set()
            found = load(self.session.tree(tree.TOPICS), OURS).image
            assert {(t.name, p.partition): p for t, p in found.partitions()} == (
                self.context.partitions
            )
            return end.value  # type: ignore[no-any-return]

    def brokers(self) -> Deciding[None]:
        now = dict(load(self.session.tree(tree.BROKERS), OURS).image.brokers)
        return brokers.brokers_are(self.context, self.told, now)

    def topic(self, replicas: dict[int, tuple[int, ...]], name: str = "t") -> Deciding[None]:
        topic_id = uuid5(NAMESPACE_DNS, name)
        node, path = tree.TopicNode(topic_id, replicas, {}, {}), tree.topic_path(name)
        data, there = tree.write_topic(node), self.session.read(path)
        assert self.session.commit([Set(path, data) if there else Create(path, data)]).done
        return topics.topic_is(self.context, self.told, name, node)

    def known(self) -> dict[int, tuple[int, int, list[int], list[int]]]:
        """What Kafka's broker tells its clients of the topic's partitions."""
        said = self.raw.call(apis.METADATA, 12, topics=[{"topic_id": UUID(int=0), "name": "t"}],
                             allow_auto_topic_creation=False)  # fmt: skip
        return {
            row.partition_index: (
                row.leader_id, row.leader_epoch, row.isr_nodes, row.offline_replicas,
            )
            for row in said.topics[0].partitions
        }  # fmt: skip


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    def nothing(_: Any) -> None:
        pass

    try:
        with ZooKeeper(tmp_path / "zk") as zookeeper, Session(zookeeper.hosts, nothing) as session:
            session.ensure(tree.PERSISTENT)
            # There is a controller, before Kafka's broker could become one.
            reign = [
                Create(tree.CONTROLLER_EPOCH, tree.write_epoch(1)),
                Create(tree.CONTROLLER, tree.write_controller(tree.ControllerNode(OURS, 0)),
                       ephemeral=True),
            ]  # fmt: skip
            assert session.commit(reign).done
            kafka = Broker(tmp_path / "kafka", zookeeper.hosts, KAFKAS, known=0)
            with kafka, Raw(kafka.bootstrap_servers) as raw:
                yield Controller(session, raw)
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


def produced(raw: Raw, value: bytes) -> tuple[int, int]:
    """The error and the offset of a record in partition 0."""
    said = raw.produce("t", value)
    return said.error_code, said.base_offset


def test_a_broker_of_kafka_does_as_our_controller_decides(controller: Controller) -> None:
    of, raw = controller, controller.raw
    of.decide(brokers.begin(of.context, of.told))
    said = raw.call(apis.METADATA, 12, topics=[])
    assert [one.node_id for one in said.brokers] == [KAFKAS]

    of.decide(of.topic({0: (KAFKAS, OTHER)}))
    assert of.known() == {0: (KAFKAS, 0, [KAFKAS], [OTHER])}
    assert produced(raw, b"one") == (0, 0)

    of.decide(of.topic({0: (KAFKAS, OTHER), 1: (OTHER, KAFKAS)}))  # it grows
    assert of.known()[1] == (KAFKAS, 0, [KAFKAS], [OTHER])

    data = tree.write_broker(BLANK)  # another one comes
    assert of.session.commit([Create(tree.broker_path(OTHER), data, ephemeral=True)]).done
    of.decide(of.brokers())
    assert of.known()[0] == (KAFKAS, 0, [KAFKAS], [])

    epoch = of.context.brokers[KAFKAS].epoch  # it would end, and nobody else has its records
    left = of.decide(brokers.let_go(of.context, of.told, KAFKAS, epoch))
    assert left == (ErrorCode.NONE, [("t", 0), ("t", 1)])
    assert produced(raw, b"two") == (0, 1)

    assert of.session.commit([Delete(tree.broker_path(OTHER))]).done
    of.decide(of.brokers())
    assert of.known()[0] == (KAFKAS, 0, [KAFKAS], [OTHER])
    of.decide(brokers.directories_lost(of.context, of.told, KAFKAS, [("t", 1)]))
    assert of.known()[1] == (NO_LEADER, 1, [KAFKAS], [OTHER, KAFKAS])
    assert produced(raw, b"three") == (0, 2)

    of.decide(of.topic({0: (KAFKAS,)}, "gone"))
    of.session.ensure([f"{tree.DELETE_TOPICS}/gone"])
    of.decide(deletion.topics_to_delete(of.context, of.told, ["gone"]))
    dropped = {("gone", 0): ErrorCode.NONE}  # as it answered, or `decide` had failed
    of.decide(deletion.replicas_dropped(of.context, of.told, KAFKAS, dropped))
    assert of.session.children(tree.TOPICS) == ["t"]
    assert of.session.children(tree.DELETE_TOPICS) == []
    said = raw.call(apis.METADATA, 12, topics=None)
    assert [topic.name for topic in said.topics] == ["t"]
