"""A cluster of nodes of both kinds on ZooKeeper, each a process.

A node keeps its number, directory and address whatever its kind, so it can change hands.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog.cli import main
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Session
from tests.kafka.cluster.between import Between
from tests.kafka.cluster.members import KAFKA, PATIENCE_S, SETTINGS, Members
from tests.support import apache
from tests.support.stopped import standing_still
from tests.support.zookeeper import Broker, ZooKeeper, ends

ON_ZOOKEEPER = {
    **SETTINGS,
    # Kafka's gives up if its session ends while it starts.
    "zookeeper.session.timeout.ms": "20000",
    "zookeeper.connection.timeout.ms": "60000",
}
"""Settings of each node, of either kind."""
THEIRS = "controlled.shutdown.enable=true\nlog.initial.task.delay.ms=500\n" + "".join(
    f"{name}={value}\n" for name, value in ON_ZOOKEEPER.items()
)
"""Kafka would otherwise begin to delete files only half a minute after its start."""


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
            *(
                word
                for name, value in ON_ZOOKEEPER.items()
                for word in ("--set", f"{name}={value}")
            ),
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


class Nodes(Members):
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

    # ---- queries -----------------------------------------------------------------------------

    def registered(self) -> set[int]:
        return {int(name) for name in self.session.children(tree.BROKERS) or ()}

    def controller(self) -> int:
        """The controller; -1: none."""
        found = self.session.read(tree.CONTROLLER)
        return -1 if found is None else tree.read_controller(found.data).broker

    def state(self, topic: str, partition: int = 0) -> tree.PartitionState:
        found = self.session.read(tree.partition_path(topic, partition))
        assert found is not None
        return tree.read_partition(topic, partition, found.data)

    def fits(self, number: int) -> None:
        properties = self.nodes[number].properties
        if properties is not None:
            assert main(["cluster", "precheck", "--config", str(properties)]) == 0

    # ---- actions -----------------------------------------------------------------------------

    def missed(self, number: int) -> None:
        """End the sessions of a dead node now, instead of after their timeout."""
        reigned = self.controller() == number
        ends(self.hosts, tree.broker_path(number), PATIENCE_S)
        if reigned:
            ends(self.hosts, tree.CONTROLLER, PATIENCE_S)
