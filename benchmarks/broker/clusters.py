"""Three nodes each: ours and Apache Kafka as their own quorums, ours on a ZooKeeper; killed and
restarted."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import kafkalog
from benchmarks.broker.brokers import KAFKA, OURS, PROCESS_CPU, SETTINGS, Ours, as_installed
from benchmarks.rivals import kafka_broker
from kafkalog import errors
from tests.support import apache
from tests.support.zookeeper import ZooKeeper

__all__ = [
    "FSYNC", "KAFKA", "ON_ZOOKEEPER", "SESSION_MS", "Cluster", "KafkaCluster", "OurCluster",
    "OurQuorum", "clusters", "until",
]  # fmt: skip

FSYNC = f"{OURS}, fsync"
ON_ZOOKEEPER = f"{OURS}, ZooKeeper"
NODES = 3
SESSION_MS = 6_000
"""The session timeout of both: a node that is silent for longer counts as dead."""
LAG_MS = 10_000
WAIT_S = 120.0
BOTH = {
    "replica.lag.time.max.ms": str(LAG_MS),
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "controlled.shutdown.enable": "true",
    # A topic that is dropped must not cost the next round.
    "log.segment.delete.delay.ms": "0",
}
QUORUM = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={directory}
broker.session.timeout.ms={session}
"""


def until(
    condition: Callable[[], object], what: str, pause_s: float = 0.001, wait_s: float = WAIT_S
) -> None:
    """Wait for `condition`.  Raises: RuntimeError after `wait_s`."""
    pause, end_s = threading.Event(), time.monotonic() + wait_s
    while True:
        with suppress(errors.KafkalogError, OSError):
            if condition():
                return
        if time.monotonic() > end_s:
            raise RuntimeError(f"not in {wait_s:g} s: {what}")
        pause.wait(pause_s)


def _created(admin: kafkalog.Admin, topic: str) -> bool:
    """Create a topic; one that is there was created by an attempt whose answer was lost."""
    with suppress(errors.TopicExists):
        admin.create_topics([(topic, 1, 1)], timeout_ms=500).check()
    return True


class Cluster:
    """Nodes 1 to 3, and what they need; a context manager."""

    name = ""

    def __init__(self) -> None:
        self.ports = {node: apache.free_port() for node in range(1, NODES + 1)}
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        self.directories: dict[int, Path] = {}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.wait_s, self.pause_s = WAIT_S, 0.02
        """How long it is waited for, and how often it is asked if all is in sync."""
        self.others: list[subprocess.Popen[bytes]] = []
        """Other processes that it needs, whose CPU time counts, too."""
        self._spent_s = 0.0  # by those that were killed
        self._numbers = 0

    def launch(self, node: int) -> subprocess.Popen[bytes]:
        raise AssertionError("each kind starts its own way")

    def begin(self, node: int) -> None:
        """Start its process."""
        self.processes[node] = self.launch(node)

    def all_there(self) -> None:
        """Wait until every node knows all others."""
        for port in self.ports.values():
            until(lambda p=port: apache.answers(f"127.0.0.1:{p}", NODES), "all know all", 0.02)

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def kill(self, node: int) -> None:
        """kill -9."""
        process = self.processes.pop(node)
        self._spent_s += _cpu_s(process)
        process.kill()
        process.wait()

    def stop(self, node: int) -> None:
        """Stop it in order."""
        process = self.processes.pop(node)
        process.send_signal(signal.SIGTERM)
        process.wait(self.wait_s)

    def back(self, node: int, topic: str) -> None:
        """Restart a node that was killed; return when it is in sync."""
        self.begin(node)
        self.all_there()
        self.in_sync(topic)

    def replace_controller(self, topic: str) -> float:
        """Kill the controller's node, and restart it; returns the seconds from its death until a
        topic is created.  `topic`: one whose replicas are all in sync before and after."""
        self.in_sync(topic)
        node = self.controller()
        left = ",".join(f"127.0.0.1:{port}" for n, port in self.ports.items() if n != node)
        fresh = f"made-{time.monotonic_ns()}"
        with kafkalog.Admin(left, request_timeout_ms=1_000) as admin:
            admin.describe_cluster()
            begun_s = time.perf_counter()
            self.kill(node)
            until(lambda: _created(admin, fresh), "a topic is created", 0.02)
            taken_s = time.perf_counter() - begun_s
        self.back(node, topic)
        return taken_s

    def pause(self, node: int) -> None:
        self.processes[node].send_signal(signal.SIGSTOP)

    def go_on(self, node: int) -> None:
        self.processes[node].send_signal(signal.SIGCONT)

    def cpu_s(self) -> float:
        """CPU time of all its processes."""
        return self._spent_s + sum(map(_cpu_s, [*self.processes.values(), *self.others]))

    def memory_bytes(self) -> float:
        """Resident memory of the node that uses the most."""
        found = []
        for process in self.processes.values():
            status = Path(f"/proc/{process.pid}/status").read_text()
            line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
            found.append(int(line.split()[1]) * 1024.0)
        return max(found)

    # ---- topics ------------------------------------------------------------------------

    def new_topic(self, partitions: int, settings: Mapping[str, str] | None = None) -> str:
        """A fresh topic, three replicas of each partition, all in sync."""
        self._numbers += 1
        topic = f"topic-{self._numbers}"
        rows = [[(p + n) % NODES + 1 for n in range(NODES)] for p in range(partitions)]
        with kafkalog.Admin(self.bootstrap) as admin:
            made = kafkalog.NewTopic(topic, config=dict(settings or {}), assignment=rows)
            admin.create_topics([made], timeout_ms=60_000).check()
            self._until_in_sync(admin, topic, partitions)
        return topic

    def _until_in_sync(self, admin: kafkalog.Admin, topic: str, partitions: int) -> None:
        until(lambda: self._in_sync(admin, topic, partitions), f"{topic} is in sync",
              self.pause_s, self.wait_s)  # fmt: skip

    def _in_sync(self, admin: kafkalog.Admin, topic: str, partitions: int) -> bool:
        found = admin.describe_topics([topic])[topic].partitions.values()
        whole = [p for p in found if p.leader >= 0 and len(p.isr) == NODES]
        return len(whole) == partitions

    def in_sync(self, topic: str) -> None:
        """Wait until all replicas are in sync."""
        with kafkalog.Admin(self.bootstrap) as admin:
            count = len(admin.describe_topics([topic])[topic].partitions)
            self._until_in_sync(admin, topic, count)

    def drop_topic(self, topic: str) -> None:
        with kafkalog.Admin(self.bootstrap) as admin:
            admin.delete_topics([topic]).check()

    def leader(self, topic: str, partition: int = 0) -> int:
        with kafkalog.Admin(self.bootstrap) as admin:
            return admin.describe_topics([topic])[topic].partitions[partition].leader

    def led(self, topic: str, node: int) -> list[int]:
        """The partitions that a node leads, after the first replica of each was elected."""
        with kafkalog.Admin(self.bootstrap) as admin:
            found = admin.describe_topics([topic])[topic].partitions
            admin.elect_leaders([(topic, number) for number in found])
            found = admin.describe_topics([topic])[topic].partitions
        return [number for number, one in found.items() if one.leader == node]

    def controller(self) -> int:
        """The id of its node; of a quorum that of its leader."""
        with kafkalog.Admin(self.bootstrap) as admin:
            return admin.describe_cluster().controller

    def log_bytes(self, node: int, topic: str) -> int:
        """The bytes of a topic's records on a node."""
        files = self.directories[node].glob(f"{topic}-*/*.log")
        return sum(file.stat().st_size for file in files)


class OurCluster(Cluster):
    """`kafkalog serve --zookeeper`, three times."""

    def __init__(
        self,
        home: Path,
        zookeeper: ZooKeeper,
        durability: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.name = OURS if durability == "os" else FSYNC
        self._zookeeper = zookeeper
        hosts = f"{zookeeper.hosts}/{durability}"
        self._served = {
            node: _Node(home / f"node-{node}", port, node, hosts, durability, settings or {})
            for node, port in self.ports.items()
        }
        self.directories = {node: one.directory for node, one in self._served.items()}

    def __enter__(self) -> OurCluster:
        if self._zookeeper._process:
            self.others.append(self._zookeeper._process)
        for node in self.ports:
            self.begin(node)
        self.all_there()
        return self

    def launch(self, node: int) -> subprocess.Popen[bytes]:
        self._served[node].launch()
        process = self._served[node].process
        assert process
        return process


class _Node(Ours):
    def __init__(
        self, directory: Path, port: int, node: int, hosts: str, durability: str,
        settings: Mapping[str, str],
    ) -> None:  # fmt: skip
        super().__init__(directory, {
            **BOTH, **settings, "kafkalog.durability": durability, "zookeeper.connect": hosts,
            "node.id": str(node), "zookeeper.session.timeout.ms": str(SESSION_MS),
        })  # fmt: skip
        self.port, self.bootstrap = port, f"127.0.0.1:{port}"


class Quorum(Cluster):
    """Each node is broker and voter of the quorum, of one server.properties for either kind."""

    own: ClassVar[Mapping[str, str]] = {}
    """Settings of this kind alone."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.directories = {node: home / f"quorum-{node}" / "data" for node in self.ports}

    def __enter__(self) -> Quorum:
        voting = {node: apache.free_port() for node in self.ports}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in voting.items())
        cluster = urlsafe_b64encode(b"k" + secrets.token_bytes(15)).decode().rstrip("=")
        settings = {**SETTINGS, **BOTH, **self.own}
        more = "".join(f"{name}={value}\n" for name, value in settings.items())
        for node, port in self.ports.items():
            properties = self.properties(node)
            properties.parent.mkdir(parents=True)
            properties.write_text(QUORUM.format(
                node=node, voters=voters, port=port, controller=voting[node],
                directory=self.directories[node], session=SESSION_MS,
            ) + more)  # fmt: skip
            formatting = self.formatting(["format", "-t", cluster, "-c", str(properties)])
            subprocess.run(formatting, check=True, stdout=subprocess.DEVNULL)
            self.begin(node)
        self.all_there()
        return self

    def properties(self, node: int) -> Path:
        return self.directories[node].parent / "server.properties"

    def formatting(self, arguments: Sequence[str]) -> list[str]:
        """The command that formats a directory."""
        raise AssertionError("each kind has its own tool")

    def serving(self) -> list[str]:
        """The command that starts a node, without its properties."""
        raise AssertionError("each kind starts its own way")

    def launch(self, node: int) -> subprocess.Popen[bytes]:
        properties = self.properties(node)
        with properties.with_suffix(".out").open("ab") as output:
            return subprocess.Popen(
                [*self.serving(), str(properties)], env=as_installed(),
                stdout=output, stderr=subprocess.STDOUT, cwd=properties.parent,
            )  # fmt: skip

    def controller(self) -> int:
        with kafkalog.Admin(self.bootstrap) as admin:
            return admin.describe_quorum().leader


class OurQuorum(Quorum):
    """`kafkalog serve` with process.roles=broker,controller, three times."""

    name = OURS
    own: ClassVar[Mapping[str, str]] = {"kafkalog.durability": "os"}  # acks=all as Kafka means it

    def formatting(self, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "kafkalog", "storage", *arguments]

    def serving(self) -> list[str]:
        return [sys.executable, "-m", "kafkalog", "serve", "--config"]


class KafkaCluster(Quorum):
    """Apache Kafka, as its own scripts start it."""

    name = KAFKA

    def formatting(self, arguments: Sequence[str]) -> list[str]:
        return [*apache.java("kafka.tools.StorageTool", *arguments)]

    def serving(self) -> list[str]:
        return ["java", *kafka_broker.JVM, "-cp", f"{apache.jars()}/*", "kafka.Kafka"]


def _cpu_s(process: subprocess.Popen[bytes]) -> float:
    return time.clock_gettime(~process.pid << 3 | PROCESS_CPU)


@contextmanager
def clusters(folder: Path) -> Iterator[dict[str, Cluster]]:
    """Ours, ours with fsync, Apache Kafka's: those that can run here, all running, by name.

    Raises: apache.Unavailable.
    """
    apache.jars()
    made: dict[str, Cluster] = {}
    with ExitStack() as running:
        zookeeper = running.enter_context(ZooKeeper(folder / "zookeeper"))
        for durability in ("os", "fsync"):
            (folder / durability).mkdir()
            one = OurCluster(folder / durability, zookeeper, durability)
            made[one.name] = running.enter_context(one)
        made[KAFKA] = running.enter_context(KafkaCluster(folder / "kafka"))
        yield made
