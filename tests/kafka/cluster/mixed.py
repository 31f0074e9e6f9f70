"""A cluster of one broker of Apache Kafka 3.9, which is the controller, and one of our nodes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.log.log import Log
from kafkalog.server.broker import node_of
from kafkalog.wire import apis
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Session
from tests.support.copies import batches_in
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.support.zookeeper import Broker, ZooKeeper

KAFKA, OURS = 1, 2
NUMBERS = itertools.count()
RACKS = {KAFKA: "east", OURS: "west"}
NEAREST = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {
    "node.id": OURS,
    "log.retention.ms": -1,
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 50,
    "replica.lag.time.max.ms": 2000,
    "controlled.shutdown.retry.backoff.ms": 50,
    "zookeeper.session.timeout.ms": 10_000,
    "zookeeper.connection.timeout.ms": 60_000,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 2,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "broker.rack": RACKS[OURS],
    "replica.selector.class": NEAREST,
}
KAFKAS = f"""
broker.rack={RACKS[KAFKA]}
replica.selector.class={NEAREST}
replica.lag.time.max.ms=2000
replica.fetch.wait.max.ms=100
offsets.topic.num.partitions=4
offsets.topic.replication.factor=2
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=2
"""


class Cluster:
    """A broker of Kafka, which is the controller, and our broker."""

    def __init__(self, home: Path, kafka: Broker, session: Session) -> None:
        self.kafka = kafka
        self.session = session
        self.folders = {KAFKA: home / "kafka" / "data", OURS: home / "ours"}
        self.raw = Raw(kafka.bootstrap_servers)
        self.begin()

    def begin(self) -> None:
        """Start ours, and wait until both know it."""
        config = {**SETTINGS, "zookeeper.connect": self.session.hosts}
        self.ours = kafkalog.Broker(self.folders[OURS], config=config)
        self.mine = Raw(self.ours.bootstrap_servers)
        wait_for(lambda: all(len(brokers) == 2 for brokers in self.known()), "both know both")

    def end(self, how: Callable[[], Any]) -> None:
        """End ours with `how`, and wait until Kafka knows that it is gone."""
        self.mine.close()
        how()
        wait_for(lambda: len(self.metadata(self.raw).brokers) == 1, "Kafka is alone")

    def known(self) -> list[Any]:
        return [self.metadata(raw).brokers for raw in (self.raw, self.mine)]

    @staticmethod
    def metadata(raw: Raw, *topics: str) -> Any:
        return raw.call(apis.METADATA, 12, topics=[{"name": name} for name in topics])

    def topic(self, *replicas: list[int], **settings: str) -> str:
        """Create a topic, and wait until both nodes know it."""
        number = next(NUMBERS)
        name, asked = f"shared{number}", (self.raw, self.mine)[number % 2]
        row = {
            "name": name, "num_partitions": -1, "replication_factor": -1,
            "assignments": [
                {"partition_index": n, "broker_ids": ids} for n, ids in enumerate(replicas)
            ],
            "configs": [{"name": k.replace("_", "."), "value": v} for k, v in settings.items()],
        }  # fmt: skip
        done = asked.call(apis.CREATE_TOPICS, 5, topics=[row], timeout_ms=30_000)
        assert not done.topics[0].error_code, done
        for partition, ids in enumerate(replicas):
            self.led(name, partition, ids[0])
        return name

    def led(self, topic: str, partition: int, leader: int) -> None:
        """Wait until both name this leader."""
        for raw in (self.raw, self.mine):
            wait_for(lambda raw=raw: self.leader(raw, topic, partition) == leader, "led")

    def leader(self, raw: Raw, topic: str, partition: int) -> int:
        return getattr(self.row(raw, topic, partition), "leader_id", -1)

    def row(self, raw: Raw, topic: str, partition: int) -> Any:
        (found,) = self.metadata(raw, topic).topics
        rows = {row.partition_index: row for row in found.partitions}
        return rows.get(partition) or found

    def state(self, topic: str, partition: int = 0) -> tree.PartitionState:
        found = self.session.read(tree.partition_path(topic, partition))
        assert found is not None
        return tree.read_partition(topic, partition, found.data)

    def in_sync(self, topic: str, *nodes: int, partition: int = 0) -> None:
        wait_for(lambda: {*self.state(topic, partition).isr} == {*nodes}, f"in sync: {nodes}")

    def produce(self, topic: str, count: int = 50, partition: int = 0) -> None:
        """Send to the leader, with each codec and acks=all."""
        servers = f"{self.kafka.bootstrap_servers},{self.ours.bootstrap_servers}"
        for codec in CODECS:
            with kafkalog.Producer(servers, compression=codec) as producer:
                for n in range(count):
                    producer.send(topic, b"%d" % n * 20, partition=partition)

    def same(self, topic: str, partition: int = 0) -> int:
        """Wait until both replicas are equal, byte for byte; returns the number of batches."""

        def found() -> list[list[bytes]]:
            name = f"{topic}-{partition}"
            return [batches_in(folder / name) for folder in self.folders.values()]

        wait_for(lambda: found()[0] == found()[1], "both copies are equal")
        return len(found()[0])

    def log(self, topic: str, partition: int = 0) -> Log:
        return node_of(self.ours).partitions.log(topic, partition)


class Load:
    """A producer with acks=all that runs until it is stopped."""

    def __init__(self, servers: str, topic: str) -> None:
        self.sent: list[bytes] = []
        self._ending = threading.Event()
        self._servers, self._topic = servers, topic
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with kafkalog.Producer(self._servers, linger_ms=1) as producer:
            for number in itertools.count():
                if self._ending.is_set():
                    return
                value = b"%d" % number
                producer.send(self._topic, value, partition=0).result()
                self.sent.append(value)

    def more(self, count: int = 20) -> None:
        """Wait until `count` more records are acknowledged."""
        before = len(self.sent)
        alive = self._thread.is_alive
        wait_for(lambda: len(self.sent) >= before + count or not alive(), "it goes on")
        assert alive()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


@pytest.fixture(scope="module")
def cluster(memory: Path, zookeeper: ZooKeeper) -> Iterator[Cluster]:
    home = memory / "member"
    home.mkdir()
    hosts = f"{zookeeper.hosts}/member"
    with (
        Broker(home / "kafka", hosts, KAFKA, KAFKAS) as kafka,
        Session(hosts, lambda _: None) as session,
    ):
        made = Cluster(home, kafka, session)
        yield made
        made.ours.close()
