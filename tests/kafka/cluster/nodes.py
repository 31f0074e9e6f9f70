"""A cluster of nodes of both kinds, each a process: its state, and what can be done to it.

A node keeps its number, directory and address whatever its kind, so it can change hands.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog.client.link.metadata import TopicInfo
from kafkalog.wire import apis
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Session
from tests.kafka.cluster.between import Between
from tests.support import apache
from tests.support.copies import batches_in
from tests.support.raw import Raw
from tests.support.stopped import standing_still
from tests.support.waiting import wait_for
from tests.support.zookeeper import Broker, ZooKeeper, ends

KAFKA, OURS = "kafka", "kafkalog"
PATIENCE_S = 200.0
"""For events that take seconds on an idle machine."""
SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "200",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "100",
    "log.segment.delete.delay.ms": "1000",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "300",
    "replica.lag.time.max.ms": "4000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    # Kafka's gives up if its session ends while it starts.
    "zookeeper.session.timeout.ms": "20000",
    "zookeeper.connection.timeout.ms": "60000",
}
"""Settings of each node, of either kind."""
THEIRS = "controlled.shutdown.enable=true\nlog.initial.task.delay.ms=500\n" + "".join(
    f"{name}={value}\n" for name, value in SETTINGS.items()
)
"""Kafka would otherwise begin to delete files only half a minute after its start."""
INTERNAL = ("__consumer_offsets", "__transaction_state")


def until(condition: Callable[[], Any], what: str) -> Any:
    """As `wait_for`, for events that take seconds.  A check queries every node, on new connections,
    or all znodes: constant checks would take the processor from the nodes."""
    return wait_for(condition, what, PATIENCE_S, pause_s=0.2)


class Serving(apache.Program):
    """One of our nodes, `kafkalog serve`."""

    def __init__(
        self, folder: Path, zookeeper: str, number: int, data: Path, port: int,
        properties: Path | None = None,
    ) -> None:  # fmt: skip
        """`properties`: Kafka's file, which says all of this, and then is used instead."""
        folder.mkdir()
        super().__init__(folder / "output")
        self._folder = folder
        self._address = f"127.0.0.1:{port}"
        self._command = [
            *(sys.executable, "-m", "kafkalog", "serve", "--dir", str(data)),
            *("--listen", self._address, "--zookeeper", zookeeper, "--node-id", str(number)),
            *(word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")),
        ]
        if properties is not None:
            self._command = [sys.executable, "-m", "kafkalog", "serve", "--config", str(properties)]

    def __enter__(self) -> Serving:
        self.start(self._command, Path.cwd(), lambda: apache.answers(self._address))
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Node:
    """One node of a cluster, of one kind or the other."""

    def __init__(self, home: Path, zookeeper: str, number: int) -> None:
        self.number = number
        self.kind = ""
        self.data = home / f"data{number}"
        self.port = apache.free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.lives = False
        self._home, self._zookeeper = home, zookeeper
        self._program: Broker | Serving | None = None

    @property
    def properties(self) -> Path | None:
        """The server.properties of Kafka, if it began as Kafka's."""
        found = self._home / f"{KAFKA}{self.number}" / "server.properties"
        return found if found.exists() else None

    def begin(self, kind: str) -> None:
        """Start it on its directory as this kind, whether or not it was that kind before."""
        if kind != self.kind or self._program is None:
            folder = self._home / f"{kind}{self.number}"
            while folder.exists():
                folder = folder.with_name(f"{folder.name}-again")
            settings = f"{THEIRS}log.dirs={self.data}\n"
            self._program = (
                Broker(folder, self._zookeeper, self.number, settings, known=0, port=self.port)
                if kind == KAFKA
                else Serving(
                    folder, self._zookeeper, self.number, self.data, self.port, self.properties
                )
            )
            self.kind = kind
        self._program.__enter__()
        self.lives = True

    def stop(self) -> None:
        """Stop in order: others take over its partitions first."""
        assert self._program is not None
        self.lives = False
        self._program.stop()

    def kill(self) -> None:
        assert self._program is not None
        self.lives = False
        self._program.kill()

    @contextlib.contextmanager
    def stands_still(self) -> Any:
        """Pause it: others see it as dead, and it notices no time passing."""
        assert self._program is not None and self._program._process is not None
        process, self.lives = self._program._process, False
        try:
            with standing_still(process.pid):
                yield
        finally:
            self.lives = True

    def output(self) -> str:
        return self._program.output() if self._program else ""


class Nodes:
    """A context manager that runs a ZooKeeper; nodes begin on command."""

    def __init__(self, home: Path, numbers: Iterable[int], between: bool = False) -> None:
        """`numbers`: of all nodes that there will be; `between`: each reaches ZooKeeper through a
        port of its own that can withhold answers.  Raises: apache.Unavailable."""
        home.mkdir(exist_ok=True)
        self.zookeeper = ZooKeeper(home / "zookeeper")
        self.hosts = f"{self.zookeeper.hosts}/both"
        self.between = {n: Between(self.zookeeper.port) for n in numbers if between}
        places = {n: f"{one.hosts}/both" for n, one in self.between.items()}
        self.nodes = {n: Node(home, places.get(n, self.hosts), n) for n in numbers}
        self.bootstrap = ",".join(node.address for node in self.nodes.values())
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Nodes:
        with contextlib.ExitStack() as undo:
            for one in self.between.values():
                undo.enter_context(one)
            undo.enter_context(self.zookeeper)
            undo.callback(self._kill)
            self.session = undo.enter_context(Session(self.hosts, lambda _: None))
            self.admin = undo.enter_context(kafkalog.Admin(self.bootstrap))
            self._open = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _kill(self) -> None:
        for node in self.living:
            node.kill()

    @property
    def living(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.lives]

    # ---- queries -----------------------------------------------------------------------------

    def metadata(self, node: Node) -> Any:
        """Metadata as a node answers clients; None if it does not answer."""
        with contextlib.suppress(OSError), Raw(node.address) as raw:
            return raw.call(apis.METADATA, 12, topics=None)
        return None

    def registered(self) -> set[int]:
        return {int(name) for name in self.session.children(tree.BROKERS) or ()}

    def controller(self) -> int:
        """The controller; -1: none."""
        found = self.session.read(tree.CONTROLLER)
        return -1 if found is None else tree.read_controller(found.data).broker

    def all_known(self) -> None:
        """Wait until every live node knows all live nodes and no others, and a live controller."""

        def known() -> bool:
            there = {node.number for node in self.living}
            if self.registered() != there or (controller := self.controller()) not in there:
                return False
            for node in self.living:
                found = self.metadata(node)
                if found is None or found.controller_id != controller:
                    return False
                if {broker.node_id for broker in found.brokers} != there:
                    return False
            return True

        until(known, "all know all")

    def state(self, topic: str, partition: int = 0) -> tree.PartitionState:
        found = self.session.read(tree.partition_path(topic, partition))
        assert found is not None
        return tree.read_partition(topic, partition, found.data)

    def topics(self) -> list[TopicInfo]:
        """All topics, including internal ones, as a node that answers reports them."""
        while True:
            with contextlib.suppress(kafkalog.KafkalogError):
                names = self.admin.list_topics(internal=True)
                return [*self.admin.describe_topics(names).check().values()]

    def in_sync(self) -> None:
        """Wait until all replicas are in sync, none is being moved, and live nodes name the same
        leaders."""

        def wrong() -> str:
            with contextlib.suppress(kafkalog.KafkalogError):
                if moving := self.admin.list_partition_reassignments():
                    return f"moving: {[*moving]}"
            said: dict[tuple[str, int], set[tuple[int, int]]] = {}
            for node in self.living:
                if (found := self.metadata(node)) is None:
                    return f"node {node.number} does not answer"
                for topic in found.topics:
                    for row in topic.partitions:
                        where = said.setdefault((topic.name, row.partition_index), set())
                        where.add((row.leader_id, row.leader_epoch))
                        if len(where) > 1 or {*row.isr_nodes} != {*row.replica_nodes}:
                            return f"node {node.number}: {topic.name} {row}"
            return ""

        last = [""]
        try:
            until(lambda: last.append(wrong()) or not last[-1], "in sync")
        except AssertionError as late:
            raise AssertionError(f"{late}: {last[-1]}") from None

    # ---- actions -----------------------------------------------------------------------------

    def begin(self, number: int, kind: str = "") -> None:
        """Start a node as this kind, or as what it was, once its last registration is gone."""
        node = self.nodes[number]
        until(lambda: number not in self.registered(), f"{number} is forgotten")
        node.begin(kind or node.kind)
        until(lambda: number in self.registered(), f"{number} is registered")

    def missed(self, number: int) -> None:
        """End the sessions of a dead node now, instead of after their timeout."""
        reigned = self.controller() == number
        ends(self.hosts, tree.broker_path(number), PATIENCE_S)
        if reigned:
            ends(self.hosts, tree.CONTROLLER, PATIENCE_S)

    def create(self, topic: str, *replicas: Sequence[int], **settings: str) -> None:
        """Create a topic, also if the first node asked does not know the controller yet."""
        config = {name.replace("_", "."): value for name, value in settings.items()}

        def made() -> bool:
            with contextlib.suppress(kafkalog.errors.TopicExists):
                self.admin.create_topics([(topic, -1, -1, config, replicas)]).check()
            return True

        self.try_until(made, f"{topic} is made")
        self.first_lead([topic])

    def first_lead(self, topics: Iterable[str] = ()) -> None:
        """Let the first replica of each partition, of these or all topics, lead: it is elected as
        soon as it is in sync."""
        wanted = {*topics}

        def lead() -> bool:
            found = [one for one in self.topics() if not wanted or one.name in wanted]
            others = [
                (one.name, row.partition)
                for one in found for row in one.partitions.values() if row.leader != row.replicas[0]
            ]  # fmt: skip
            if others:
                self.admin.elect_leaders(others)
            return not others and {one.name for one in found} >= wanted

        self.try_until(lead, f"the first replicas lead: {wanted or 'all'}")

    def try_until(self, done: Callable[[], Any], what: str) -> Any:
        """Repeat a call, as a client does, while leaders and controllers change."""

        def tried() -> Any:
            with contextlib.suppress(kafkalog.KafkalogError):
                return done()
            return None

        return until(tried, what)

    # ---- results -----------------------------------------------------------------------------

    def copies(self, topic: str, partition: int = 0) -> dict[int, list[bytes]]:
        """The batches of each node that has the partition."""
        name = f"{topic}-{partition}"
        folders = {n: node.data / name for n, node in self.nodes.items()}
        return {n: batches_in(folder) for n, folder in folders.items() if folder.exists()}

    def differences(self, topics: Iterable[TopicInfo]) -> list[str]:
        """Partitions whose bytes differ on two nodes, or that a node has without being a replica;
        call it after all nodes have stopped in order."""
        found = []
        for topic in topics:
            for row in topic.partitions.values():
                copies = self.copies(topic.name, row.partition)
                lengths = {n: len(one) for n, one in copies.items()}
                where = f"{topic.name}-{row.partition} of {row.replicas}: {lengths}"
                if {*copies} != {*row.replicas}:
                    found.append(f"{where}: wrong replicas")
                elif any(one != copies[row.replicas[0]] for one in copies.values()):
                    found.append(f"{where}: other bytes")
        return found
