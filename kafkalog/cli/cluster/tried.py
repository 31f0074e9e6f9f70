"""Three nodes as processes, in one folder: under their own controllers, or on a ZooKeeper."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Iterable, Mapping
from functools import partial

from kafkalog.cli.cluster.processes import Process
from kafkalog.cli.cluster.zookeeper import ZooKeeper, class_path
from kafkalog.cli.common import PORT_MAX, CommandError, UsageError
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Options
from kafkalog.client.login.security import Security, security_of
from kafkalog.clock import SystemClock
from kafkalog.config.client import ClientConfig
from kafkalog.disk.layout import random_topic_id, uuid_text
from kafkalog.errors import KafkalogError
from kafkalog.kraft.format import Format, format_directory, read_meta

__all__ = ["NODES", "Tried"]

NODES = (1, 2, 3)
HOST = "127.0.0.1"
CHROOT = "/kafkalog"
PORTS_FROM, PORTS_TO = 10_000, 32_000
"""Free ports are taken from here: the system gives higher ones to connections, also to those of the
first nodes, before the last one listens."""
ATTEMPTS = 100
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "replica.lag.time.max.ms": 5000,
    "controlled.shutdown.retry.backoff.ms": 500,
}
"""The nodes' settings: three replicas, two of which acks=all needs; a node that stops together with
others does not wait long for another leader."""
ON_ZOOKEEPER = {
    "zookeeper.session.timeout.ms": 3000,
    "zookeeper.connection.timeout.ms": 18_000,
}
CONTROLLER = "CONTROLLER"
"""The name of the controllers' listener."""
UNDER_CONTROLLERS = {
    "process.roles": "broker,controller",
    "controller.listener.names": CONTROLLER,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.fetch.timeout.ms": 1000,
}
"""In both, a dead node is noticed in 3 s."""


class Tried:
    """The processes, as a context manager; on entry each node knows all others."""

    def __init__(
        self, folder: str, port: int, zookeeper: str | None, protocol: str | None = None
    ) -> None:
        """`port`: the first node's; the other nodes', then those of their controllers, or
        ZooKeeper's, follow; 0: free ones.  `zookeeper`: None: the nodes are their own controllers;
        a running one to use, or empty: start one.  `protocol`: of all listeners, for clients,
        nodes and controllers; None: plain text."""
        self.folder = os.path.abspath(folder)
        self.client_file = ""
        """The file with the settings of a client; empty: it needs none."""
        self._protocol = protocol
        self._secured: dict[str, object] = {}
        self._client: Security | None = None
        self.zookeeper: ZooKeeper | None = None
        self.nodes: dict[int, Process] = {}
        self._hosts = zookeeper
        self._ports = _free_ports(port, 2 * len(NODES) if zookeeper is None else len(NODES) + 1)

    @property
    def on_zookeeper(self) -> bool:
        """True if the nodes are not their own controllers."""
        return self._hosts is not None

    @property
    def servers(self) -> str:
        """The bootstrap servers of all nodes."""
        return ",".join(self.address(node) for node in NODES)

    @property
    def processes(self) -> list[Process]:
        """All processes that were started."""
        return [*([self.zookeeper] if self.zookeeper else []), *self.nodes.values()]

    def address(self, node: int) -> str:
        """Where a node listens."""
        return f"{HOST}:{self._ports[node - 1]}"

    def controller(self, node: int) -> str:
        """Where a node's controller listens."""
        return f"{HOST}:{self._ports[len(NODES) + node - 1]}"

    def __enter__(self) -> Tried:
        if self._hosts == "":
            class_path()  # no ZooKeeper can be started: leave nothing behind
        if self._hosts is None:
            self._check_metadata()
        os.makedirs(self.folder, exist_ok=True)
        if self._protocol is not None:
            self._secure(self._protocol)
        try:
            if self._hosts is None:
                self._format()
            elif self._hosts == "":
                self._begin_zookeeper()
            for node in NODES:
                self.begin(node)
            for node in NODES:
                self.nodes[node].wait(partial(self._knows_all, node))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the nodes at the same time, so that the last ones hand leadership to nobody; then
        ZooKeeper."""
        for process in self.nodes.values():
            process.tell()
        for process in self.nodes.values():
            process.end()
        if self.zookeeper is not None:
            self.zookeeper.end()

    def _begin_zookeeper(self) -> None:
        made = ZooKeeper(os.path.join(self.folder, "zookeeper"), self._ports[-1])
        self.zookeeper = made
        made.wait(made.answers)
        self._hosts = made.hosts + CHROOT

    def _directory(self, node: int) -> str:
        return os.path.join(self.folder, f"node{node}")

    def _check_metadata(self) -> None:
        """Refuse the nodes of a cluster on ZooKeeper, before anything is written.  Raises:
        CommandError."""
        for node in NODES:
            meta = read_meta(self._directory(node))
            if meta is not None and meta.version == 0:
                raise CommandError(
                    f"{self._directory(node)}: is of a cluster on ZooKeeper: give --zookeeper, as "
                    "it was made, or another folder: --dir DIR"
                )

    def _format(self) -> None:
        """Format what is not formatted; the cluster keeps the id that it has."""
        found = [read_meta(self._directory(node)) for node in NODES]
        ids = [meta.cluster_id for meta in found if meta is not None and meta.cluster_id]
        cluster_id = ids[0] if ids else uuid_text(random_topic_id())
        for node, meta in zip(NODES, found, strict=True):
            if meta is None:
                format_directory(self._directory(node), Format(cluster_id, node), SystemClock())

    def _secure(self, protocol: str) -> None:
        """Make certificates, a user with a password, and the file for clients."""
        from kafkalog.testing import security

        users = {"admin": secrets.token_urlsafe(16)} if protocol.startswith("sasl") else None
        made = security.Security(protocol, users)
        self._secured = {
            **made.settings(os.path.join(self.folder, "security")),
            **made.between_nodes("" if self.on_zookeeper else CONTROLLER),
        }  # fmt: skip
        client = made.client_config("kafkalog")
        self.client_file = os.path.join(self.folder, "client.properties")
        _write(self.client_file, client)
        self._client = security_of(ClientConfig(client))

    def begin(self, node: int) -> None:
        """Start a node, also again."""
        directory = self._directory(node)
        settings = {
            "log.dirs": directory,
            "node.id": node,
            **SETTINGS,
            **self._secured,
            **(self._own_controllers(node) if self._hosts is None else self._on_zookeeper(node)),
        }
        path = f"{directory}.properties"
        _write(path, settings)
        command = [sys.executable, "-m", "kafkalog", "serve", "--config", path]
        self.nodes[node] = Process(f"node {node}", command, f"{directory}.log")

    def _on_zookeeper(self, node: int) -> dict[str, object]:
        return {
            "listeners": self._listener(node), "zookeeper.connect": self._hosts, **ON_ZOOKEEPER,
        }  # fmt: skip

    def _own_controllers(self, node: int) -> dict[str, object]:
        voters = ",".join(f"{one}@{self.controller(one)}" for one in NODES)
        protocol = (self._protocol or "plaintext").upper()
        return {
            "listeners": f"{self._listener(node)},{CONTROLLER}://{self.controller(node)}",
            "listener.security.protocol.map": f"{CONTROLLER}:{protocol},{protocol}:{protocol}",
            "controller.quorum.voters": voters, **UNDER_CONTROLLERS,
        }  # fmt: skip

    def _listener(self, node: int) -> str:
        return f"{(self._protocol or 'plaintext').upper()}://{self.address(node)}"

    def _knows_all(self, node: int) -> bool:
        """True if a node serves, and knows the others and a controller.

        Raises: CommandError: one of them has ended.
        """
        for process in self.nodes.values():
            if process.ended is not None:
                process.wait(lambda: False)
        patience = Options(
            connect_timeout_ms=2000, request_timeout_ms=2000, api_timeout_ms=2000,
            security=self._client,
        )  # fmt: skip
        try:
            with Cluster(self.address(node), patience) as cluster:
                cluster.refresh_once([])
                return len(cluster.nodes) >= len(NODES) and cluster.controller_id in cluster.nodes
        except KafkalogError:
            return False


def _write(path: str, settings: Mapping[str, object]) -> None:
    """Write a properties file, which may have passwords: only its owner reads it."""
    with open(path, "w", encoding="utf-8") as file:
        os.chmod(path, 0o600)
        file.writelines(f"{name}={value}\n" for name, value in settings.items())


def _free_ports(first: int, count: int) -> list[int]:
    """The ports of the nodes, then of their controllers or of ZooKeeper.

    Raises: CommandError: one is taken.
    """
    if first + count - 1 > PORT_MAX:
        raise UsageError(f"--port: found {first}, wanted at most {PORT_MAX - count + 1}: "
                         f"{count - 1} follow it")  # fmt: skip
    if first:
        return _bound(range(first, first + count))
    for _ in range(ATTEMPTS):
        from_here = PORTS_FROM + secrets.randbelow(PORTS_TO - PORTS_FROM - count)
        try:
            return _bound(range(from_here, from_here + count))
        except CommandError:
            continue
    raise CommandError(f"no {count} ports are free, one after another; give the first: --port N")


def _bound(ports: Iterable[int]) -> list[int]:
    """These ports, each of which can be bound.  Raises: CommandError."""
    found = list(ports)
    for port in found:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                raise CommandError(
                    f"port {port} is taken; give another first one of {len(found)}: --port N, or 0 "
                    "for free ones"
                ) from None
    return found
