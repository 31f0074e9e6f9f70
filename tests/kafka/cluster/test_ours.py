"""A cluster of only our nodes, on a real ZooKeeper: one of them is the controller.

When a node dies another takes over its work, and every record that all in-sync replicas
acknowledged is there.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.coordinator.partitions import partition_for
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper import tree
from tests.support import apache
from tests.support.copies import batches_in
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeper, ends

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.slow]

NODES = (1, 2, 3)
NUMBERS = itertools.count()
SETTINGS = {
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 50,
    "replica.lag.time.max.ms": 10_000,
    "controlled.shutdown.retry.backoff.ms": 50,
    "zookeeper.session.timeout.ms": 20_000,
    "zookeeper.connection.timeout.ms": 60_000,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
}


class Cluster:
    """Three nodes."""

    def __init__(self, home: Path, zookeeper: ZooKeeper) -> None:
        self.home = home
        self.zookeeper = zookeeper
        self.nodes: dict[int, kafkalog.Broker] = {}
        for number in NODES:
            self.begin(number)
        self.all_there()

    def begin(self, number: int) -> None:
        """Start a node on its directory."""
        config = self.config(number)
        self.nodes[number] = kafkalog.Broker(self.home / f"node{number}", config=config)

    def config(self, number: int) -> dict[str, object]:
        """The settings of a node."""
        return {**SETTINGS, "node.id": number, "zookeeper.connect": self.hosts}

    @property
    def hosts(self) -> str:
        return f"{self.zookeeper.hosts}/ours"

    @property
    def servers(self) -> str:
        return ",".join(one.bootstrap_servers for one in self.nodes.values())

    def call(self, number: int, api: Any, version: int, **fields: Any) -> Any:
        """A node's answer."""
        with contextlib.closing(Raw(self.nodes[number].bootstrap_servers)) as raw:
            return raw.call(api, version, **fields)

    def metadata(self, number: int, *topics: str) -> Any:
        names = [{"name": name} for name in topics]
        return self.call(number, apis.METADATA, 12, topics=names, allow_auto_topic_creation=False)

    def all_there(self) -> None:
        """Wait until all nodes know each other and obey one live controller."""

        def known() -> bool:
            found = [self.metadata(number) for number in self.nodes]
            (controller, *others) = {one.controller_id for one in found}
            return (
                not others
                and controller in self.nodes
                and self.nodes[controller]._controller.is_active
                and all({b.node_id for b in one.brokers} == {*self.nodes} for one in found)
            )

        wait_for(known, "all know all")

    def controller(self) -> int:
        """The controller, once all nodes agree."""
        self.all_there()
        return int(self.metadata(next(iter(self.nodes))).controller_id)

    def topic(self, *replicas: list[int], by: int = 1) -> str:
        """Create a topic through one node, and wait until all nodes know it.  The first of its
        replicas leads, unless its session has just ended, as on a machine that stalls."""
        name = f"ours{next(NUMBERS)}"
        rows = [{"partition_index": n, "broker_ids": ids} for n, ids in enumerate(replicas)]
        row = {"name": name, "num_partitions": -1, "replication_factor": -1,
               "assignments": rows, "configs": []}  # fmt: skip

        def made() -> bool:
            done = self.call(by, apis.CREATE_TOPICS, 5, topics=[row], timeout_ms=30_000)
            code = done.topics[0].error_code
            # Not all know the new leader yet: clients ask again.
            again = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
            assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, *again), done
            return code not in again

        wait_for(made, "it is made", pause_s=0.05)
        for number, ids in enumerate(replicas):
            self.led(name, number, *ids)
        return name

    def led(self, topic: str, partition: int, *leaders: int) -> None:
        """Wait until all nodes name one of these as the leader."""
        for node in self.nodes:
            wait_for(lambda node=node: self.state(node, topic, partition)[0] in leaders, "led")

    def state(self, node: int, topic: str, partition: int) -> tuple[int, set[int]]:
        """The leader and the ISR, as a node reports them."""
        row = self.row(node, topic, partition)
        return (-1, set()) if row is None else (row.leader_id, {*row.isr_nodes})

    def row(self, node: int, topic: str, partition: int) -> Any:
        """A node's metadata of a partition; None if it has none."""
        (found,) = self.metadata(node, topic).topics
        return next((row for row in found.partitions if row.partition_index == partition), None)

    def offline(self, topic: str, *nodes: int) -> None:
        """Wait until all nodes report these replicas as offline."""
        for one in self.nodes:
            wait_for(
                lambda one=one: self.row(one, topic, 0).offline_replicas == [*nodes],
                f"offline: {nodes}",
            )

    def in_sync(self, topic: str, *nodes: int, partition: int = 0) -> None:
        for one in self.nodes:
            wait_for(
                lambda one=one: self.state(one, topic, partition)[1] == {*nodes},
                f"in sync: {nodes}",
            )

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Produce with acks=all; the records are there when this returns."""
        with kafkalog.Producer(self.servers, acks="all") as producer:
            for value in values:
                producer.send(topic, value, partition=partition)
            producer.flush()

    def values(self, topic: str, count: int, partition: int = 0) -> list[bytes]:
        """The first records of a partition, as its leader serves them."""
        found: list[bytes] = []
        with kafkalog.Consumer(self.servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([kafkalog.TopicPartition(topic, partition)])
            wait_for(
                lambda: found.extend(r.value for r in consumer.poll(100)) or len(found) >= count,
                "it reads all",
            )
        return found

    def same(self, topic: str, partition: int = 0) -> None:
        """Wait until all replicas are equal, byte for byte."""
        folders = [self.home / f"node{n}" / f"{topic}-{partition}" for n in NODES]
        wait_for(
            lambda: len({tuple(batches_in(folder)) for folder in folders}) == 1, "copies are equal"
        )
        assert batches_in(folders[0])


@pytest.fixture(scope="module")
def cluster(memory: Path) -> Iterator[Cluster]:
    home = memory / "ours"
    home.mkdir()
    try:
        with ZooKeeper(home / "zookeeper") as zookeeper:
            made = Cluster(home, zookeeper)
            yield made
            for one in made.nodes.values():
                one.close()
    except apache.Unavailable as reason:
        pytest.skip(f"ZooKeeper cannot run here: {reason}")


@pytest.mark.parametrize("by", NODES)
def test_the_controller_answers_through_every_node(cluster: Cluster, by: int) -> None:
    """A topic is created, enlarged, configured, moved and deleted, whichever node a client asks."""
    topic = cluster.topic([1, 2, 3], by=by)
    cluster.produce(topic, b"a", b"b")
    cluster.same(topic)
    more = {"name": topic, "count": 2, "assignments": [{"broker_ids": [2, 3, 1]}]}
    done = cluster.call(by, apis.CREATE_PARTITIONS, 3, topics=[more], timeout_ms=30_000)
    assert not done.results[0].error_code, done
    cluster.led(topic, 1, *NODES)
    cluster.produce(topic, b"c", partition=1)
    setting = {"name": "retention.ms", "config_operation": 0, "value": "777000"}
    rows = [{"resource_type": 2, "resource_name": topic, "configs": [setting]}]
    done = cluster.call(by, apis.INCREMENTAL_ALTER_CONFIGS, 1, resources=rows)
    assert not done.responses[0].error_code, done
    for one in cluster.nodes.values():
        wait_for(
            lambda one=one: one._node.partitions.config(topic).retention_ms == 777_000, "obeyed"
        )
    row = {"name": topic, "partitions": [{"partition_index": 1, "replicas": [3, 1]}]}
    done = cluster.call(by, apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[row], timeout_ms=30_000)
    assert not done.responses[0].partitions[0].error_code, done
    cluster.in_sync(topic, 3, 1, partition=1)
    done = cluster.call(by, apis.DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=30_000)
    assert not done.responses[0].error_code, done
    for number in cluster.nodes:
        wait_for(lambda n=number: cluster.metadata(n, topic).topics[0].error_code, "it is gone")
        folder = cluster.home / f"node{number}" / f"{topic}-0"
        wait_for(lambda folder=folder: not folder.exists(), "so are its files")


def test_a_leader_dies(cluster: Cluster) -> None:
    """Another leads, and every acknowledged record is there; the old leader comes back, and leads
    again on request."""
    controller = cluster.controller()
    dies, second, third = *[n for n in NODES if n != controller], controller
    topic = cluster.topic([dies, second, third])
    cluster.produce(topic, b"1", b"2", b"3")
    cluster.nodes.pop(dies).abandon()
    cluster.led(topic, 0, second, third)
    cluster.in_sync(topic, second, third)
    cluster.offline(topic, dies)
    cluster.produce(topic, b"4")
    assert cluster.values(topic, 4) == [b"1", b"2", b"3", b"4"]
    cluster.begin(dies)
    cluster.in_sync(topic, *NODES)
    cluster.offline(topic)
    elect = [{"topic": topic, "partitions": [0]}]

    def elected() -> bool:
        done = cluster.call(second, apis.ELECT_LEADERS, 2, election_type=0, topic_partitions=elect)
        code = done.replica_election_results[0].partition_result[0].error_code
        return code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)

    wait_for(elected, "it may lead", pause_s=0.05)
    cluster.led(topic, 0, dies)
    cluster.produce(topic, b"5")
    cluster.same(topic)


@pytest.mark.parametrize("how", ["in order", "at once"])
def test_the_controller_ends(cluster: Cluster, how: str) -> None:
    """Another node takes over and does what is due: others lead what the last controller led."""
    ends = cluster.controller()
    others = [n for n in NODES if n != ends]
    topic = cluster.topic([ends, *others], by=ends)
    cluster.produce(topic, b"1")
    node = cluster.nodes.pop(ends)
    node.close() if how == "in order" else node.abandon()
    assert cluster.controller() in others
    cluster.led(topic, 0, *others)
    cluster.produce(topic, b"2")
    later = cluster.topic([*others, ends], by=others[0])
    cluster.produce(later, b"3")
    cluster.begin(ends)
    for one in (topic, later):
        cluster.in_sync(one, *NODES)
        cluster.same(one)
    assert cluster.values(topic, 2) == [b"1", b"2"]


def test_the_controller_restarts_with_other_settings(cluster: Cluster) -> None:
    """Inside its process, as on SIGUSR1: others lead and one is the controller while it is away.
    Settings that would make it a node of a quorum are refused, and it goes on as before."""
    restarts = cluster.controller()
    others = [n for n in NODES if n != restarts]
    topic = cluster.topic([restarts, *others], by=restarts)
    cluster.produce(topic, b"1")
    node = cluster.nodes[restarts]
    config = cluster.config(restarts) | {"listeners": f"PLAINTEXT://{node.bootstrap_servers}"}
    node.restart({**config, "replica.fetch.wait.max.ms": 200})
    cluster.all_there()
    cluster.in_sync(topic, *NODES)
    cluster.produce(topic, b"2")
    quorum = {
        "process.roles": "broker", "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters": f"101@127.0.0.1:{apache.free_port()}",
    }  # fmt: skip
    with pytest.raises(kafkalog.errors.InvalidSetting, match=r"process\.roles"):
        node.restart(config | quorum)
    del config["zookeeper.connect"]
    with pytest.raises(kafkalog.KafkalogError):
        node.restart(config | quorum | {"initial.broker.registration.timeout.ms": 1_000})
    cluster.all_there()
    cluster.in_sync(topic, *NODES)
    cluster.produce(topic, b"3")
    cluster.same(topic)
    assert cluster.values(topic, 3) == [b"1", b"2", b"3"]


def test_sessions_end(cluster: Cluster) -> None:
    """The controller's, then a broker's: one controller is left, and the broker registers again."""
    topic = cluster.topic([1, 2, 3])
    ends(cluster.hosts, tree.CONTROLLER)
    cluster.all_there()
    member = cluster.nodes[2]._member
    epoch = member.epoch
    ends(cluster.hosts, tree.broker_path(2))
    wait_for(lambda: member.epoch > epoch, "it is back")
    cluster.all_there()
    cluster.in_sync(topic, *NODES)
    later = cluster.topic([2, 3, 1], by=3)
    for one in (topic, later):
        cluster.produce(one, b"1")
        cluster.same(one)


def test_zookeeper_is_away_for_a_while(cluster: Cluster) -> None:
    """All leaders go on leading, with all in sync; then everything works as before."""
    topic = cluster.topic([1, 2, 3], [2, 3, 1], [3, 1, 2])
    cluster.zookeeper.kill()
    for partition in range(3):
        cluster.produce(topic, b"away", partition=partition)
    cluster.zookeeper.begin()
    later = cluster.topic([3, 2, 1], by=2)
    cluster.produce(later, b"back")
    for partition in range(3):
        assert cluster.values(topic, 1, partition) == [b"away"]
        cluster.same(topic, partition)


def test_producers_and_groups(cluster: Cluster) -> None:
    """The controller gives each id once; coordinators are where their partitions are led."""
    topic = cluster.topic([1, 2, 3], [2, 3, 1])
    with kafkalog.Producer(cluster.servers, transactional_id="ours") as producer:
        for value in (b"1", b"2"):
            with producer.transaction():
                for partition in (0, 1):
                    producer.send(topic, value, partition=partition)
    with kafkalog.Consumer(cluster.servers, group="ours", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        seen: list[Any] = []
        wait_for(lambda: seen.extend(consumer.poll(100)) or len(seen) >= 4, "it reads all")
        consumer.commit()
    assert sorted(one.value for one in seen) == [b"1", b"1", b"2", b"2"]
    given = [one._member.allocate_producer_ids() for one in cluster.nodes.values()]
    assert len({first for block in given for first in block}) == 3000


def test_transactional_offsets_with_remote_coordinators(cluster: Cluster) -> None:
    """One node has the only partition of offsets; a transaction of each coordinator."""
    topic = cluster.topic([1, 2, 3])
    ids = {partition_for(f"till{n}", 3): f"till{n}" for n in range(50)}
    where = TopicPartition(topic, 0)
    for offset, transactional_id in enumerate(ids.values()):
        producer = kafkalog.Producer(cluster.servers, transactional_id=transactional_id)
        with producer, producer.transaction():
            producer.send(topic, b"1", partition=0)
            producer.send_offsets({where: offset}, "till")

    def committed() -> bool:
        with kafkalog.Admin(cluster.servers) as admin:
            found = admin.list_group_offsets("till").get(where)
        return found is not None and found.offset == 2

    wait_for(committed, "the last one's offset")
