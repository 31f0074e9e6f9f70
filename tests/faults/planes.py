"""The control plane of a cluster: a ZooKeeper, controllers of ours, or the nodes themselves."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

from kafkalog.disk.layout import METADATA_TOPIC, random_topic_id, uuid_text
from kafkalog.wire import apis
from kafkalog.zookeeper import tree
from tests.faults.members import (
    CLIENT_PORT,
    CONTROLLER_PORT,
    PORT,
    Controller,
    KafkaBroker,
    KafkaController,
    KafkaNode,
    Member,
    Node,
    Serving,
    ZooKeeperServer,
)
from tests.faults.network import Host, Network
from tests.support.copies import batches_in
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.support.zookeeper import ends

PATIENCE_S = 300.0
CHROOT = "/kafka"
FIRST_CONTROLLER = 101
TIMES = {
    "broker.session.timeout.ms": 4_000,
    "broker.heartbeat.interval.ms": 500,
    "initial.broker.registration.timeout.ms": 300_000,
}


KAFKA = 9
"""The number of the broker of Apache Kafka, if there is one."""
AnyKafka = KafkaNode | KafkaBroker


class Plane(Protocol):
    members: Sequence[Member]
    """Its own programs, on their own hosts."""

    def settings(self, host: Host) -> dict[str, object]:
        """A broker's listeners, and how it finds the control plane."""

    def kafka(self, host: Host, folder: Path, settings: Mapping[str, object]) -> AnyKafka:
        """A broker of Apache Kafka, of the line that this control plane goes with."""

    def begin(self, nodes: Collection[Serving]) -> None:
        """Start its programs, and make the nodes' directories ready."""

    def active(self, nodes: Iterable[Node]) -> int:
        """The number of the active controller, as the first that answers says; -1: none does."""

    def expire(self, node: int) -> None:
        """End a node's session, without its doing."""

    def release(self, node: int) -> None:
        """Let a node that was killed start again, if a session of its last life could refuse it."""

    def settle(self, nodes: Iterable[Node]) -> None:
        """Wait until what is committed is everywhere; then its logs can be compared."""

    def end(self) -> None:
        """Stop its programs."""

    def differs(self, nodes: Iterable[Node]) -> list[str]:
        """Its logs that are not equal; call it when all have stopped."""


class OnZooKeeper:
    """An ensemble, and a controller that the brokers elect among themselves."""

    def __init__(self, home: Path, network: Network, count: int) -> None:
        hosts = [network.host(f"z{n}") for n in range(1, count + 1)]
        self.members = [
            ZooKeeperServer(host, home / host.name, n, hosts) for n, host in enumerate(hosts, 1)
        ]
        self._servers = ",".join(f"{host.address}:{CLIENT_PORT}" for host in hosts) + CHROOT

    def settings(self, host: Host) -> dict[str, object]:
        return {
            "listeners": f"PLAINTEXT://{host.address}:{PORT}",
            "zookeeper.connect": self._servers,
            "zookeeper.session.timeout.ms": 4_000,
            "zookeeper.connection.timeout.ms": 60_000,
        }

    def kafka(self, host: Host, folder: Path, settings: Mapping[str, object]) -> AnyKafka:
        return KafkaNode(host, folder, KAFKA, settings, self.settings(host))

    def begin(self, nodes: Collection[Serving]) -> None:
        for one in self.members:
            one.begin(wait=False)
        for one in self.members:
            wait_for(one._answers, f"{one.host.name} serves", PATIENCE_S, 0.1)

    def active(self, nodes: Iterable[Node]) -> int:
        for node in nodes:
            if node.lives and not node.paused:
                with contextlib.suppress(OSError), Raw(node.address) as raw:
                    return int(raw.call(apis.METADATA, 12, topics=[]).controller_id)
        return -1

    def expire(self, node: int) -> None:
        ends(self._servers, tree.broker_path(node), PATIENCE_S)

    release = expire

    def settle(self, nodes: Iterable[Node]) -> None:
        pass

    def end(self) -> None:
        """They are killed: they keep nothing of ours."""

    def differs(self, nodes: Iterable[Node]) -> list[str]:
        return []


class Own:
    """A quorum: on its own hosts, or of the nodes."""

    def __init__(
        self, home: Path, network: Network, count: int, nodes: Mapping[int, Host], theirs: int = 0
    ) -> None:  # fmt: skip
        """`count`: so many hosts of its own; 0: `nodes` are brokers and controllers.  `theirs`: so
        many of the hosts are Apache Kafka's, the others are ours."""
        self._combined = not count
        self._home = home
        hosts = {n: network.host(f"c{n}") for n in range(1, count + 1)}
        voters = {FIRST_CONTROLLER + n - 1: host for n, host in hosts.items()} or dict(nodes)
        self._places = {n: f"{host.address}:{CONTROLLER_PORT}" for n, host in voters.items()}
        self._committed = 0
        self.members = [
            (KafkaController if n < FIRST_CONTROLLER + theirs else Controller)(
                host, home / host.name, n, home / host.name / "data",
                self._common("controller", [self._listener(host)]),
            )
            for n, host in voters.items() if not self._combined
        ]  # fmt: skip

    @staticmethod
    def _listener(host: Host) -> str:
        return f"CONTROLLER://{host.address}:{CONTROLLER_PORT}"

    def _common(self, roles: str, listeners: Sequence[str]) -> dict[str, object]:
        return {
            "process.roles": roles,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": ",".join(f"{n}@{at}" for n, at in self._places.items()),
            **TIMES,
        }

    def settings(self, host: Host) -> dict[str, object]:
        broker = f"PLAINTEXT://{host.address}:{PORT}"
        if self._combined:
            return self._common("broker,controller", [broker, self._listener(host)])
        return self._common("broker", [broker])

    def kafka(self, host: Host, folder: Path, settings: Mapping[str, object]) -> AnyKafka:
        return KafkaBroker(host, folder, KAFKA, {**settings, **self.settings(host)})

    def begin(self, nodes: Collection[Serving]) -> None:
        cluster_id = uuid_text(random_topic_id())
        every: list[Serving] = [*self.members, *nodes]
        for one in every:
            one.format(cluster_id)
        for one in self.members:
            one.begin(wait=False)

    def _described(self) -> Any:
        """The metadata log, as its leader describes it; None if none answers."""
        wanted = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
        for place in self._places.values():
            with contextlib.suppress(OSError), Raw(place) as raw:
                raw.socket.settimeout(5)
                row = raw.call(apis.DESCRIBE_QUORUM, 2, topics=wanted)
                if not row.error_code and not row.topics[0].partitions[0].error_code:
                    return row.topics[0].partitions[0]
        return None

    def active(self, nodes: Iterable[Node]) -> int:
        found = self._described()
        return -1 if found is None else int(found.leader_id)

    def expire(self, node: int) -> None:
        raise AssertionError("brokers of a quorum have no session that could be ended from outside")

    def release(self, node: int) -> None:
        """The controllers let it register once its session is over; until then it asks again."""

    def settle(self, nodes: Iterable[Node]) -> None:
        """Every voter and broker has what was committed when this began."""

        def everywhere() -> bool:
            found = self._described()
            if found is None:
                return False
            rows = [*found.current_voters, *found.observers]
            self._committed = self._committed or int(found.high_watermark)
            brokers = {one.number for one in nodes}
            return brokers <= {one.replica_id for one in rows} and all(
                one.log_end_offset >= self._committed for one in rows
            )

        wait_for(everywhere, "all have the metadata", PATIENCE_S, 0.2)

    def end(self) -> None:
        for one in self.members:
            one.stop()

    def differs(self, nodes: Iterable[Node]) -> list[str]:
        """Metadata logs that are not equal up to what was committed, and damage that `kafkalog
        verify` finds."""
        found = []
        every: list[Serving] = [*self.members, *nodes]
        logs = {one.number: one.data / f"{METADATA_TOPIC}-0" for one in every}
        for one, other in combinations(logs, 2):
            start = max(_start(logs[one]), _start(logs[other]))
            ours, theirs = (
                b"".join(batches_in(logs[n], start, self._committed)) for n in (one, other)
            )
            if ours != theirs or not ours:
                found.append(f"{METADATA_TOPIC} of {one} and {other}: from {start} up to "
                             f"{self._committed}: {len(ours)} and {len(theirs)} bytes")  # fmt: skip
        command = [sys.executable, "-m", "kafkalog", "verify", *(str(one.data) for one in every)]
        verified = subprocess.run(command, capture_output=True, text=True)
        if verified.returncode:
            found.append((verified.stdout + verified.stderr)[-2000:])
        return found


def _start(folder: Path) -> int:
    """The offset that its first segment is named after."""
    return min(int(one.stem) for one in folder.glob("*.log"))
