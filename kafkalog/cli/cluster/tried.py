"""Three nodes and a ZooKeeper as processes, in one folder."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Mapping
from functools import partial

from kafkalog.cli.cluster.processes import Process
from kafkalog.cli.cluster.zookeeper import ZooKeeper, class_path
from kafkalog.cli.common import PORT_MAX, CommandError, UsageError
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Options
from kafkalog.client.login.security import Security, security_of
from kafkalog.config.client import ClientConfig
from kafkalog.errors import KafkalogError

__all__ = ["NODES", "Tried"]

NODES = (1, 2, 3)
HOST = "127.0.0.1"
CHROOT = "/kafkalog"
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "zookeeper.session.timeout.ms": 3000,
    "zookeeper.connection.timeout.ms": 18_000,
    "replica.lag.time.max.ms": 5000,
    "controlled.shutdown.retry.backoff.ms": 500,
}
"""The nodes' settings: three replicas, two of which acks=all needs; ZooKeeper notices a dead node
in 3 s, and a node that stops together with others does not wait long for another leader."""


class Tried:
    """The processes, as a context manager; on entry each node knows all others."""

    def __init__(
        self, folder: str, port: int, zookeeper: str | None, protocol: str | None = None
    ) -> None:
        """`port`: the first node's; the other nodes' and ZooKeeper's follow; 0: free ones.
        `zookeeper`: a running one to use.  `protocol`: of the listeners, for clients and nodes;
        None: plain text."""
        self.folder = os.path.abspath(folder)
        self.client_file = ""
        """The file with the settings of a client; empty: it needs none."""
        self._protocol = protocol
        self._secured: dict[str, object] = {}
        self._client: Security | None = None
        self.zookeeper: ZooKeeper | None = None
        self.nodes: dict[int, Process] = {}
        self._hosts = zookeeper
        self._ports = _free_ports(port)

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

    def __enter__(self) -> Tried:
        if self._hosts is None:
            class_path()  # no ZooKeeper can be started: leave nothing behind
        os.makedirs(self.folder, exist_ok=True)
        if self._protocol is not None:
            self._secure(self._protocol)
        try:
            if self._hosts is None:
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

    def _secure(self, protocol: str) -> None:
        """Make certificates, a user with a password, and the file for clients."""
        from kafkalog.testing import security

        users = {"admin": secrets.token_urlsafe(16)} if protocol.startswith("sasl") else None
        made = security.Security(protocol, users)
        self._secured = {
            **made.settings(os.path.join(self.folder, "security")), **made.between_nodes(),
        }  # fmt: skip
        client = made.client_config("kafkalog")
        self.client_file = os.path.join(self.folder, "client.properties")
        _write(self.client_file, client)
        self._client = security_of(ClientConfig(client))

    def begin(self, node: int) -> None:
        """Start a node, also again."""
        directory = os.path.join(self.folder, f"node{node}")
        settings = {
            "log.dirs": directory,
            "listeners": f"{(self._protocol or 'plaintext').upper()}://{self.address(node)}",
            "broker.id": node,
            "zookeeper.connect": self._hosts,
            **SETTINGS,
            **self._secured,
        }
        path = f"{directory}.properties"
        _write(path, settings)
        command = [sys.executable, "-m", "kafkalog", "serve", "--config", path]
        self.nodes[node] = Process(f"node {node}", command, f"{directory}.log")

    def _knows_all(self, node: int) -> bool:
        """True if a node serves, and knows the others and a controller."""
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


def _free_ports(first: int) -> list[int]:
    """The ports of the nodes and of ZooKeeper.  Raises: CommandError: one is taken."""
    if first + len(NODES) > PORT_MAX:
        raise UsageError(
            f"--port: found {first}, wanted at most {PORT_MAX - len(NODES)}: {len(NODES)} follow it"
        )
    found, probes = [], []
    try:
        for number in range(len(NODES) + 1):
            wanted = first + number if first else 0
            probe = socket.socket()
            probes.append(probe)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, wanted))
            except OSError:
                raise CommandError(f"port {wanted} is taken; give another first one of four: "
                                   "--port N, or 0 for free ones") from None  # fmt: skip
            found.append(probe.getsockname()[1])
    finally:
        for probe in probes:
            probe.close()
    return found
