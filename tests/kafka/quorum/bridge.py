"""A cluster of ours that leaves ZooKeeper through Apache Kafka 3.9, as docs/moving.md says.

Each node keeps its number, directory and port; its file says what it is.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

import kafkalog
from kafkalog.batch.walk import whole_batches
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.kraft.batches import raw_records
from kafkalog.kraft.records import decode
from kafkalog.metadata.changes import Entry
from tests.kafka.cluster.members import KAFKA, OURS, SETTINGS, Members, until
from tests.kafka.quorum.nodes import Serving
from tests.support import apache
from tests.support.stopped import standing_still
from tests.support.zookeeper import ZooKeeper

CONTROLLER = 101
ZOOKEEPER, BRIDGE, KRAFT = "on ZooKeeper", "migrating", "under controllers"
COMMON = """
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={data}
"""
ON_ZOOKEEPER = """
broker.id={node}
zookeeper.connect={zookeeper}
zookeeper.session.timeout.ms=20000
zookeeper.connection.timeout.ms=60000
inter.broker.protocol.version=3.9
"""
MIGRATION = """
zookeeper.metadata.migration.enable=true
zookeeper.connect={zookeeper}
zookeeper.session.timeout.ms=20000
zookeeper.connection.timeout.ms=60000
"""
CONTROLLED = """
controller.quorum.voters=101@{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
"""
BROKER = """
process.roles=broker
node.id={node}
broker.heartbeat.interval.ms=500
"""
FILES = {
    ZOOKEEPER: COMMON + ON_ZOOKEEPER,
    BRIDGE: COMMON + ON_ZOOKEEPER + CONTROLLED + "zookeeper.metadata.migration.enable=true\n",
    KRAFT: COMMON + BROKER + CONTROLLED,
}
"""A node's file at each stage."""
KINDS = {ZOOKEEPER: OURS, BRIDGE: KAFKA, KRAFT: OURS}
"""The kind of the nodes at each stage."""
CONTROLLERS = """
process.roles=controller
node.id=101
listeners=CONTROLLER://{controller}
broker.session.timeout.ms=6000
auto.leader.rebalance.enable=false
log.dirs={data}
"""
MIGRATED, ENDED = 1, 3
"""States in ZkMigrationStateRecord: the log has the metadata; ZooKeeper gets no copy any more."""


class Program:
    """A process with a file, of one kind or the other."""

    def __init__(self, home: Path, number: int) -> None:
        self.number, self.kind, self.lives = number, "", False
        self.data = home / f"data{number}"
        self.properties = home / f"server{number}.properties"
        self._home = home
        self._program: apache.Program | None = None

    def run(self, kind: str, text: str, address: str) -> None:
        """Start it with this file; it answers at this address, or need not (empty)."""
        self.kind = kind
        self.properties.write_text(text)
        output = self._home / f"{kind}{self.number}.out"

        def serves() -> bool:
            return not address or apache.answers(address)

        if kind == OURS:
            ours = Serving(output)
            ours.begin(self.properties, serves)
            self._program = ours
        else:
            kafka = apache.Kafka(output)
            command = kafka.command(self.properties, "384m", apache.jars_with_zookeeper())
            kafka.start(command, self._home, serves)
            self._program = kafka
        self.lives = True

    def stop(self) -> None:
        assert self._program is not None
        self.lives = False
        self._program.stop()

    def kill(self) -> None:
        assert self._program is not None
        self.lives = False
        self._program.kill()

    @contextlib.contextmanager
    def stands_still(self):
        assert self._program is not None and self._program._process is not None
        with standing_still(self._program._process.pid):
            yield

    def output(self) -> str:
        return self._program.output() if self._program is not None else ""


class Controller(Program):
    """The only controller."""

    def __init__(self, home: Path, zookeeper: str) -> None:
        super().__init__(home, CONTROLLER)
        self.address = f"127.0.0.1:{apache.free_port()}"
        self._text = (CONTROLLERS + CONTROLLED).format(controller=self.address, data=self.data)
        self._migration = MIGRATION.format(zookeeper=zookeeper)

    def format(self, cluster: str) -> None:
        """As kafka-storage of Kafka 3.9 does."""
        self.properties.write_text(self._text)
        command = apache.java(
            "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.properties),
            folder=apache.jars_with_zookeeper(),
        )  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def begin(self, kind: str, migrates: bool = False) -> None:
        """Start it; `migrates`: it takes the metadata over from ZooKeeper."""
        self.run(kind, self._text + (self._migration if migrates else ""), "")

    def reached(self) -> int:
        """The last state of the migration in its metadata log; 0: there is none."""
        state = 0
        for path in sorted((self.data / f"{METADATA_TOPIC}-0").glob("*.log")):
            for batch, whole in whole_batches(path.read_bytes()):
                for raw in raw_records(batch, whole):
                    found = decode(raw.value) if raw.control is None else None
                    if isinstance(found, Entry) and found.name == "ZkMigrationStateRecord":
                        state = found.fields.zk_migration_state
        return state


class Bridged(Members):
    """A context manager that runs a ZooKeeper; nodes begin on command, as `stage` says."""

    controller_is_told = False
    controllers_apart = True

    def __init__(self, home: Path, numbers: Iterable[int]) -> None:
        home.mkdir()
        self.zookeeper = ZooKeeper(home / "zookeeper")
        self.hosts = f"{self.zookeeper.hosts}/leaving"
        self.controller_node = Controller(home, self.hosts)
        self.stage = ZOOKEEPER
        self.nodes = {n: Bridging(home, n, self) for n in numbers}
        self.bootstrap = ",".join(node.address for node in self.nodes.values())
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Bridged:
        with contextlib.ExitStack() as undo:
            undo.enter_context(self.zookeeper)
            undo.callback(self._kill)
            self.admin = undo.enter_context(kafkalog.Admin(self.bootstrap))
            self._open = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _kill(self) -> None:
        for node in (*self.living, self.controller_node):
            if node.lives:
                node.kill()

    def controller(self) -> int:
        return -1

    def all_known(self) -> None:
        """Wait until every live node knows all live nodes.  Kafka's nodes whose metadata come from
        a controller go on naming one that has ended."""

        def known() -> bool:
            there = {node.number for node in self.living}
            found = [self.metadata(node) for node in self.living]
            return all(one and {row.node_id for row in one.brokers} >= there for one in found)

        until(known, "all know all")

    def begin(self, number: int, kind: str = "") -> None:
        self.nodes[number].begin(kind)
        self.all_known()

    def fits(self, number: int) -> None:
        """No command: to `storage info` a directory from ZooKeeper is a problem, as to Kafka's."""


class Bridging(Program):
    """A node."""

    def __init__(self, home: Path, number: int, cluster: Bridged) -> None:
        super().__init__(home, number)
        self.port = apache.free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._cluster = cluster

    def begin(self, kind: str = "") -> None:
        """Start it as the stage says; `kind` is that of the stage."""
        stage = self._cluster.stage
        assert kind in ("", KINDS[stage])
        text = FILES[stage].format(
            node=self.number, port=self.port, data=self.data, zookeeper=self._cluster.hosts,
            controller=self._cluster.controller_node.address,
        )  # fmt: skip
        text += "".join(f"{name}={value}\n" for name, value in SETTINGS.items())
        self.run(KINDS[stage], text, self.address)
