"""Nodes of a cluster in this process, whose connections to each other are protected."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog.metadata.image import Partition
from kafkalog.server.broker import node_of
from tests.support.bearer import Issuer
from tests.support.secured import ALICE, PASSWORD, PLAIN, SCRAM, jaas, papers
from tests.support.waiting import wait_for

__all__ = ["LISTENER", "NODES", "SETTINGS", "SecuredNodes"]

NODES = (1, 2, 3)
LISTENER = "INSIDE"
LOGIN, SECRET = "node", "what; nodes=say"
"""The name and the password of the nodes."""
SETTINGS: dict[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "replica.fetch.wait.max.ms": 50,
    "replica.fetch.backoff.ms": 20,
    "replica.lag.time.max.ms": 1000,
    "controlled.shutdown.retry.backoff.ms": 20,
    "num.network.threads": 1,
    "num.io.threads": 3,
}


class SecuredNodes:
    """Nodes that begin on command.  A context manager; it ends those that run."""

    def __init__(self, home: Path, zookeeper: str, protocol: str, mechanism: str = "PLAIN") -> None:
        """`zookeeper`: its hosts; `protocol`: of the only listener."""
        self.home, self.zookeeper = home, zookeeper
        self.protocol, self.mechanism = protocol, mechanism
        self.papers = papers(home)
        self.issuer = Issuer(home) if mechanism == "OAUTHBEARER" else None
        self.nodes: dict[int, kafkalog.Broker] = {}

    def __enter__(self) -> SecuredNodes:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.nodes.values():
            one.close()

    # ---- nodes ---------------------------------------------------------------------------------

    def key(self, number: int) -> Path:
        """The file with the key of a node."""
        path = self.home / f"node{number}.pem"
        if not path.exists():
            shutil.copy(self.papers.server, path)
        return path

    def present(self, number: int, key: Path) -> None:
        """Give a node, which may run, another key and certificate."""
        fresh = self.home / "fresh.pem"
        shutil.copy(key, fresh)
        os.replace(fresh, self.key(number))

    def security(self, number: int, password: str = SECRET) -> dict[str, object]:
        """The settings of a node's security; `password`: what it logs in to others with."""
        found: dict[str, object] = {}
        if self.protocol.endswith("SSL"):
            found |= {
                "ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.key(number)),
                "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.papers.authority),
                "ssl.client.auth": "required",
            }  # fmt: skip
        if self.issuer is not None:
            found |= {
                "sasl.enabled.mechanisms": self.mechanism,
                "sasl.mechanism.inter.broker.protocol": self.mechanism,
                **self.issuer.node(LISTENER, LOGIN),
            }  # fmt: skip
        elif self.protocol.startswith("SASL"):
            users = {f"user_{LOGIN}": SECRET, f"user_{ALICE}": PASSWORD}
            users = users if self.mechanism == "PLAIN" else {}
            module = PLAIN if self.mechanism == "PLAIN" else SCRAM
            own = f"listener.name.{LISTENER.lower()}.{self.mechanism.lower()}.sasl.jaas.config"
            found |= {
                "sasl.enabled.mechanisms": self.mechanism,
                "sasl.mechanism.inter.broker.protocol": self.mechanism,
                own: jaas(module, username=LOGIN, password=password, **users),
            }
        return found

    def settings(self, number: int, **how: Any) -> dict[str, object]:
        """A node's settings; `how`: as for `security`."""
        return {
            **SETTINGS, "node.id": number, "zookeeper.connect": self.zookeeper,
            "listeners": f"{LISTENER}://127.0.0.1:0",
            "listener.security.protocol.map": f"{LISTENER}:{self.protocol}",
            "inter.broker.listener.name": LISTENER, **self.security(number, **how),
        }  # fmt: skip

    def begin(self, *numbers: int, settings: dict[str, object] | None = None, **how: Any) -> None:
        """Start nodes, each on its directory; `settings`: these go before its own, None: none."""
        for number in numbers:
            both = {**self.settings(number, **how), **(settings or {})}
            own = {name: value for name, value in both.items() if value is not None}
            self.nodes[number] = kafkalog.Broker(self.home / f"node{number}", config=own)

    def end(self, number: int) -> None:
        """End a node in order."""
        self.nodes.pop(number).close()

    def kill(self, number: int) -> None:
        """End a node as in a crash."""
        self.nodes.pop(number).abandon()

    # ---- clients -------------------------------------------------------------------------------

    @property
    def servers(self) -> str:
        return ",".join(one.bootstrap_servers for one in self.nodes.values())

    @property
    def client(self) -> dict[str, str]:
        """The settings of a client."""
        found = {"security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found |= {
                "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.papers.authority),
                "ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.papers.client),
            }  # fmt: skip
        if self.issuer is not None:
            found |= self.issuer.client(ALICE)
        elif self.protocol.startswith("SASL"):
            module = PLAIN if self.mechanism == "PLAIN" else SCRAM
            found["sasl.mechanism"] = self.mechanism
            found["sasl.jaas.config"] = jaas(module, username=ALICE, password=PASSWORD)
        return found

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic with all nodes, and wait until all replicas are in sync."""
        with kafkalog.Admin(self.servers, config=self.client) as admin:
            admin.create_topic(topic, partitions)
        for number in range(partitions):
            self.in_sync(topic, *self.nodes, partition=number)

    def produce(self, topic: str, *values: bytes) -> None:
        """Send with acks=all, and wait for the acknowledgements."""
        with kafkalog.Producer(self.servers, config=self.client) as producer:
            for value in values:
                producer.send(topic, value, partition=0).result(60)

    # ---- what is in them -----------------------------------------------------------------------

    def state(self, node: int, topic: str, partition: int = 0) -> Partition | None:
        """A partition, as a node knows it."""
        return node_of(self.nodes[node]).image.partition(topic, partition)

    def all_known(self) -> None:
        """Wait until each node knows all and a controller."""
        wait_for(lambda: all(
            {*node_of(one).image.brokers} == {*self.nodes}
            and node_of(one).metadata.controller in self.nodes
            for one in self.nodes.values()), "all know all")  # fmt: skip

    def in_sync(self, topic: str, *nodes: int, partition: int = 0) -> None:
        """Wait until all running nodes say that these are in sync."""
        wait_for(lambda: all(
            (found := self.state(one, topic, partition)) is not None and {*found.isr} == {*nodes}
            for one in self.nodes), f"in sync: {nodes}")  # fmt: skip

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader of a partition, as the first node knows it."""
        found = self.state(next(iter(self.nodes)), topic, partition)
        return -1 if found is None else found.leader

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The committed values of a partition, from its leader."""
        leader = wait_for(lambda: max(self.leader(topic, partition), 0), "a leader")
        log = node_of(self.nodes[leader]).partitions.existing_log(topic, partition)
        return [] if log is None else [one.value for one in log.read(isolation="read_committed")]
