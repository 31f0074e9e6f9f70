"""A cluster on separate hosts: its control plane, our nodes, and what can be done to them."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog.wire import apis
from tests.damage.powercut import disks
from tests.damage.powercut.disks import Disk
from tests.faults.clocks import library
from tests.faults.members import KafkaBroker, Member, Node, Serving
from tests.faults.network import Host, Network
from tests.faults.planes import AnyKafka, OnZooKeeper, Own, Plane
from tests.support.copies import batches_in
from tests.support.raw import Raw
from tests.support.waiting import wait_for

PATIENCE_S = 300.0
"""For events that take seconds on an idle machine."""
SETTINGS: dict[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 3_000,
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 100,
    "controlled.shutdown.retry.backoff.ms": 200,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 100,
    "auto.create.topics.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
}
DISK_BYTES = 512 << 20  # sparse
INTERNAL = {"__consumer_offsets": 2, "__transaction_state": 2}


def _moving(admin: kafkalog.Admin) -> bool:
    """True if partitions are still being reassigned, or no node can say."""
    try:
        return bool(admin.list_partition_reassignments())
    except kafkalog.KafkalogError:
        return True


def _wait_until(condition: Callable[[], object], what: str) -> None:
    wait_for(condition, what, PATIENCE_S, 0.05)


class Cluster:
    """A context manager; inside it every node is running."""

    def __init__(
        self, home: Path, network: Network, *, zookeepers: int = 1,
        controllers: int | None = None, theirs: int = 0, nodes: int = 3, with_kafka: bool = False,
        kafka_keeps: bool = False, disks: bool = False, clocks: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        """`controllers`: so many hosts of a quorum instead of ZooKeeper's; 0: the nodes are their
        own controllers.  `theirs`: so many of the hosts are Apache Kafka's.  `kafka_keeps`: Kafka's
        node, if there is one, also has replicas; otherwise it may only be the controller.  `disks`:
        each node has its own file system, whose power can be cut.  `clocks`: each node has its own
        wall clock."""
        self.home = home
        self.network = network
        self._deaf: dict[str, set[str]] = defaultdict(set)  # by host: addresses
        hosts = {n: network.host(f"n{n}") for n in range(1, nodes + 1)}
        self.plane: Plane = (
            OnZooKeeper(home, network, zookeepers) if controllers is None
            else Own(home, network, controllers, hosts, theirs)
        )  # fmt: skip
        clock = library(home) if clocks else None
        self.nodes = {
            n: Node(host, home / host.name, n, home / f"disk{n}" / "mounted" / "data",
                    {**SETTINGS, **self.plane.settings(host), **(settings or {})}, clock)
            for n, host in hosts.items()
        }  # fmt: skip
        self.has_disks, self.has_clocks = disks, clocks
        self.kafka = (
            self.plane.kafka(network.host("k"), home / "k", SETTINGS) if with_kafka else None
        )
        self.brokers: dict[int, Node | AnyKafka] = dict(self.nodes)
        if self.kafka is not None:
            self.brokers[self.kafka.number] = self.kafka
        self.keepers = [*(self.brokers if kafka_keeps else self.nodes)]
        self.topics: dict[str, int] = {}
        self.copies: dict[tuple[str, int], list[int]] = {}
        """The nodes of each partition, when the cluster was last whole."""

    @property
    def members(self) -> Sequence[Member]:
        """All programs, the control plane's own ones first."""
        return [*self.plane.members, *self.brokers.values()]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def __enter__(self) -> Cluster:
        with contextlib.ExitStack() as undo:
            undo.callback(self.__exit__)
            for n, node in self.nodes.items():
                if self.has_disks:
                    node.disk = Disk("ext4", self.home / f"disk{n}", _wait_until, DISK_BYTES)
                    node.disk.mount()
                else:
                    node.data.parent.mkdir(parents=True)
            formatted: list[Serving] = [*self.nodes.values()]
            formatted += [self.kafka] if isinstance(self.kafka, KafkaBroker) else []
            self.plane.begin(formatted)
            if self.kafka is not None:
                self.kafka.begin()
            for node in self.nodes.values():
                node.begin(wait=False)
            self.all_known()
            for name, partitions in INTERNAL.items():
                self.topic(name, partitions, cleanup_policy="compact")
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._mend()
        for one in reversed(self.members):
            if one.lives:
                one.kill()
        for node in self.nodes.values():
            if node.disk is not None:
                node.disk.unmount()

    # ---- queries -----------------------------------------------------------------------------

    def metadata(self, node: int, *topics: str) -> Any:
        """Metadata as a node answers clients.  Raises: OSError."""
        with Raw(self.nodes[node].address) as raw:
            return raw.call(apis.METADATA, 12, topics=[{"name": name} for name in topics])

    def all_known(self) -> None:
        """Wait until every node knows every other node and the controller."""

        def known(node: int) -> bool:
            try:
                found = self.metadata(node)
            except OSError:
                return False
            there = {broker.node_id for broker in found.brokers}
            return set(self.brokers) <= there and found.controller_id >= 0

        for node in self.nodes:
            wait_for(partial(known, node), f"{node} knows all", PATIENCE_S, 0.1)

    def leader(self, topic: str, partition: int) -> int:
        """According to the first node that answers; -1: none is known."""
        for node, member in self.nodes.items():
            if member.lives and not member.paused:
                with contextlib.suppress(OSError):
                    for row in self.metadata(node, topic).topics[0].partitions:
                        if row.partition_index == partition:
                            return int(row.leader_id)
        return -1

    def controller(self) -> int:
        """According to the first that answers; -1: none is known."""
        return self.plane.active(self.nodes.values())

    def places(self, partition: int, anywhere: bool = False) -> list[int]:
        """The nodes of a partition, the preferred leader first; `anywhere`: of all keepers,
        otherwise of our nodes."""
        nodes = self.keepers if anywhere else [*self.nodes]
        first = partition % len(nodes)
        return (nodes[first:] + nodes[:first])[: len(self.nodes)]

    def topic(self, name: str, partitions: int, anywhere: bool = False, **settings: str) -> None:
        """Create a topic with three replicas a partition, on our nodes or `anywhere`; each node
        leads some."""
        row = {
            "name": name, "num_partitions": -1, "replication_factor": -1,
            "assignments": [
                {"partition_index": n, "broker_ids": self.places(n, anywhere)}
                for n in range(partitions)
            ],
            "configs": [{"name": k.replace("_", "."), "value": v} for k, v in settings.items()],
        }  # fmt: skip

        def made() -> bool:
            with contextlib.suppress(OSError), Raw(self.nodes[1].address) as raw:
                done = raw.call(apis.CREATE_TOPICS, 5, topics=[row], timeout_ms=30_000)
                assert done.topics[0].error_code in (0, 36, 41, 7, 13), done
                return done.topics[0].error_code in (0, 36)  # it exists
            return False

        wait_for(made, f"{name} is made", PATIENCE_S, 0.2)
        self.topics[name] = partitions
        self.in_sync({name: partitions})

    def in_sync(self, topics: Mapping[str, int] | None = None) -> None:
        """Wait until every node reports all replicas of all partitions in sync, and all report the
        same leaders: then no node wrongly believes that it leads."""
        wanted = self.topics if topics is None else topics

        leaders: dict[tuple[str, int], set[tuple[int, int]]] = {}

        def missing(node: int) -> list[str]:
            try:
                found = self.metadata(node, *wanted)
            except OSError as gone:
                return [f"{node}: {gone}"]
            for topic in found.topics:
                for row in topic.partitions:
                    said = leaders.setdefault((topic.name, row.partition_index), set())
                    said.add((row.leader_id, row.leader_epoch))
            there = [
                f"{topic.name}-{row.partition_index}: leader {row.leader_id}, {row.isr_nodes}"
                for topic in found.topics for row in topic.partitions
                if row.leader_id < 0 or len(row.isr_nodes) < len(row.replica_nodes)
            ]  # fmt: skip
            count = sum(len(topic.partitions) for topic in found.topics)
            return there if count == sum(wanted.values()) else [f"{node} knows {count}", *there]

        last: list[str] = []

        def all_there() -> bool:
            leaders.clear()
            last[:] = [line for node in self.nodes for line in missing(node)]
            last.extend(f"{tp}: {said} lead" for tp, said in leaders.items() if len(said) > 1)
            return not last

        try:
            wait_for(all_there, "all are in sync", PATIENCE_S, 0.2)
        except AssertionError as late:
            raise AssertionError(f"{late}: {last[:6]}") from None

    # ---- actions -----------------------------------------------------------------------------

    def deafen(self, pairs: Iterable[tuple[Host, Host]]) -> None:
        """In each pair the first host no longer hears the second."""
        for one, other in pairs:
            self._deaf[one.name].add(other.address)
        for name, addresses in self._deaf.items():
            self.network.hosts[name].hears(addresses)

    def hear(self, host: Host) -> None:
        """The host hears all others again."""
        self._deaf.pop(host.name, None)
        host.hears()

    def divide(self, *sides: Iterable[Host]) -> None:
        """Hosts hear only those of their own side."""
        groups = [[*side] for side in sides]
        self.deafen(
            (one, other)
            for a in groups for b in groups if a is not b for one in a for other in b
        )  # fmt: skip

    def heal(self) -> None:
        """Heal the network, disks and clocks, resume paused nodes and restart dead ones."""
        self._deaf.clear()
        self.network.heal()
        self._mend()
        for one in self.members:
            if one.paused:
                one.resume()
        for one in self.members:
            if not one.lives:
                if one is self.kafka:  # which ends where its last life is still registered
                    self.plane.release(self.kafka.number)
                one.begin(wait=False)

    def _mend(self) -> None:
        """Give disks space and speed, and set clocks right."""
        for node in self.nodes.values():
            if node.disk is not None and node.disk.is_mounted:
                if disks.why_not_slow() is None:
                    node.disk.slow(None)
                node.ballast.unlink(missing_ok=True)
            if node.clock is not None:
                node.clock.set_ahead(0)

    def whole(self) -> None:
        """Heal the cluster, and wait until everything is where it should be.

        Kafka's node restarts: a leader whose controller lost the answer to a change of the ISR
        waits forever, or until another node leads."""
        if self.kafka is not None and self.kafka.lives:
            self.kafka.kill()
        self.heal()
        self.all_known()
        with kafkalog.Admin(self.bootstrap) as admin:
            wait_for(lambda: not _moving(admin), "nothing moves", PATIENCE_S, 0.2)
        self.in_sync()
        self.copies = {
            (topic.name, row.partition_index): list(row.replica_nodes)
            for topic in self.metadata(1, *self.topics).topics for row in topic.partitions
        }  # fmt: skip

    def end(self) -> None:
        """Stop all nodes, once no group has a member: removing a lost member writes a record, which
        nodes that had already stopped would lack."""
        with kafkalog.Admin(self.bootstrap) as admin:
            wait_for(
                lambda: {one.state for one in admin.list_groups()} <= {"Empty", "Dead"},
                "no group has a member", PATIENCE_S, 0.2,
            )  # fmt: skip
        self.plane.settle(self.nodes.values())
        for node in self.brokers.values():
            node.stop()
        self.plane.end()

    def keep(self, folder: Path) -> None:
        """Write each member's output to files for people."""
        for one in self.members:
            (folder / f"{one.host.name}.output").write_text(one.output())

    def copies_differ(self) -> list[str]:
        """Partitions whose bytes differ on two nodes; call it when all nodes have stopped."""
        found = []
        for (topic, partition), nodes in self.copies.items():
            name = f"{topic}-{partition}"
            copies = [batches_in(self.brokers[node].data / name) for node in nodes]
            if any(one != copies[0] for one in copies[1:]):
                lengths = [len(one) for one in copies]
                found.append(f"{name}: batches {lengths}")
        return [*found, *self.plane.differs(self.nodes.values())]
