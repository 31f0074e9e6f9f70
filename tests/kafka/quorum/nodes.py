"""A KRaft cluster of controllers of Apache Kafka, and of brokers of both kinds.

Each node is a process with a directory and a server.properties, which either kind of broker reads.
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import kafkalog
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import Options, parse_servers
from kafkalog.client.login.security import security_of
from kafkalog.config.client import ClientConfig
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import KafkalogError
from kafkalog.wire import apis
from tests.support import apache
from tests.support.copies import batches_in
from tests.support.stopped import standing_still
from tests.support.waiting import wait_for

KAFKA, OURS = "kafka", "kafkalog"
CONTROLLER = 1
PATIENCE_S = 120.0
COMMON = """
{voters}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
"""
CONTROLLERS = """
process.roles=controller
node.id={node}
listeners=CONTROLLER://127.0.0.1:{port}
broker.session.timeout.ms=3000
auto.leader.rebalance.enable=false
"""
BROKERS = """
process.roles=broker
node.id={node}
listeners=PLAINTEXT://127.0.0.1:{port}
broker.heartbeat.interval.ms=300
replica.lag.time.max.ms=3000
replica.fetch.wait.max.ms=100
replica.fetch.backoff.ms=100
log.retention.ms=-1
num.partitions=1
default.replication.factor=2
offsets.topic.num.partitions=2
offsets.topic.replication.factor=2
transaction.state.log.num.partitions=2
transaction.state.log.replication.factor=2
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class Dress(NamedTuple):
    """How the listeners are protected, and how clients reach them; usually not at all."""

    settings: Callable[[bool, int], str] = lambda _controls, _port: ""
    """More lines of a server.properties, of a controller or of a broker with this port."""
    client: Mapping[str, str] = MappingProxyType({})
    """The settings of an administrator."""
    between: Mapping[str, str] = MappingProxyType({})
    """The settings of a broker as a client of the controllers."""
    formatted: Sequence[str] = ()
    """More arguments for the tool that formats the controllers' directories."""


OPEN = Dress()


def until(condition: Any, what: str) -> Any:
    """As `wait_for`, for events that take seconds."""
    return wait_for(condition, what, PATIENCE_S, pause_s=0.1)


class Serving(apache.Program):
    """One of our brokers, `kafkalog serve`."""

    def begin(self, properties: Path, serves: Callable[[], bool]) -> None:
        command = [sys.executable, "-m", "kafkalog", "serve", "--config", str(properties)]
        self.start(command, Path.cwd(), serves)


def _our_tool(*words: str) -> None:
    command = [sys.executable, "-m", "kafkalog", "storage", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _directory_id(number: int) -> str:
    return urlsafe_b64encode(bytes([number]) * 16).decode().rstrip("=")


class Process:
    """A node's process while it lives, on its directory and with its server.properties."""

    def __init__(
        self, home: Path, number: int, cluster: str, port: int, settings: str,
        formatted: Iterable[str], controls: bool = False, dress: Dress = OPEN,
    ) -> None:  # fmt: skip
        """`port`: where `connection` goes; `settings`: its file, with `{data}` for its directory;
        `formatted`: more arguments for the tool that formats; `controls`: it is only a controller.
        """
        self._dress = dress
        self.number, self.kind, self.lives = number, "", False
        self.data = home / f"data{number}"
        self._controls = controls
        self.port = port
        self.address = f"127.0.0.1:{self.port}"
        self._home, self._cluster = home, cluster
        self._formatted = [*formatted]
        self._properties = home / f"server{number}.properties"
        self._properties.write_text(settings.replace("{data}", str(self.data)))
        self._program: apache.Program | None = None

    @property
    def metadata(self) -> Path:
        """The folder of its metadata log."""
        return self.data / f"{METADATA_TOPIC}-0"

    def begin(self, kind: str = "") -> None:
        """Start it as this kind, or as what it was."""
        self.kind = kind or self.kind
        output = self._home / f"{self.kind}{self.number}.out"
        if self.kind == OURS:
            if self._controls or self._formatted:
                self._format(_our_tool)
            ours = Serving(output)
            ours.begin(self._properties, self._begun)
            self._program = ours
        else:
            self._program = self._kafka(output)
        self.lives = True

    def _kafka(self, output: Path) -> apache.Kafka:
        self._format(partial(apache.ask, "kafka.tools.StorageTool"))
        found = apache.Kafka(output)
        found.start(found.command(self._properties, "384m", apache.jars()), self._home, self._begun)
        return found

    def _format(self, tool: Callable[..., object]) -> None:
        """Format the directory, with the tool of either kind, if it is new."""
        if not (self.data / "meta.properties").exists():
            tool("format", "-t", self._cluster, *self._formatted, "-c", str(self._properties))

    def _begun(self) -> bool:
        # A controller of several answers once the others are there, too.
        return self._controls or self._serves()

    def _serves(self) -> bool:
        with contextlib.suppress(OSError, KafkalogError), self.connection() as made:
            return bool(made.call(apis.METADATA, {"topics": []}, 9).brokers)
        return False

    @contextlib.contextmanager
    def connection(self, client: Mapping[str, str] | None = None) -> Iterator[Connection]:
        """A connection of a client with these settings; None: the administrator's, or at a
        controller a broker's."""
        usual = self._dress.between if self._controls else self._dress.client
        security = security_of(ClientConfig(usual if client is None else client))
        (address,) = parse_servers(self.address)
        with contextlib.closing(Connection(address, Options(security=security))) as made:
            yield made

    def answers(self) -> bool:
        """True if the controller answers as one."""
        body = {"include_cluster_authorized_operations": False, "endpoint_type": 2}
        with contextlib.suppress(OSError, KafkalogError), self.connection() as made:
            return not made.call(apis.DESCRIBE_CLUSTER, body, 1).error_code
        return False

    def stop(self) -> int:
        """Stop in order; returns the exit status."""
        assert self._program is not None
        self.lives = False
        return self._program.stop()

    def kill(self) -> None:
        assert self._program is not None
        self.lives = False
        self._program.kill()

    def ended(self) -> bool:
        """True if its process ended by itself."""
        assert self._program is not None and self._program._process is not None
        return self._program._process.poll() is not None

    @contextlib.contextmanager
    def stands_still(self) -> Iterator[None]:
        """Pause it: others see it as dead, and it notices no time passing."""
        assert self._program is not None and self._program._process is not None
        process, self.lives = self._program._process, False
        try:
            with standing_still(process.pid):
                yield
        finally:
            self.lives = True

    def output(self) -> str:
        return self._program.output() if self._program is not None else ""


class Node(Process):
    """One node: a controller or a broker."""

    def __init__(
        self, home: Path, number: int, voters: Mapping[int, int], cluster: str, more: str,
        dynamic: bool, dress: Dress = OPEN,
    ) -> None:  # fmt: skip
        """`voters`: the controllers' ports by number; `dynamic`: they are in the metadata log
        (KIP-853), not in the settings."""
        controls = number in voters
        port = voters.get(number) or apache.free_port()
        formatted = ["--standalone"] if dynamic and controls else []
        formatted += dress.formatted if controls else ()
        places = {n: f"127.0.0.1:{port}" for n, port in voters.items()}
        named = (
            "bootstrap.servers=" + ",".join(places.values()) if dynamic
            else "voters=" + ",".join(f"{n}@{place}" for n, place in places.items())
        )  # fmt: skip
        text = (COMMON + (CONTROLLERS if controls else BROKERS)).format(
            voters=f"controller.quorum.{named}", node=number, port=port, data="{data}"
        )
        text += dress.settings(controls, port) + more
        super().__init__(home, number, cluster, port, text, formatted, controls, dress)


class Quorum:
    """A context manager that runs the controllers; brokers begin on command."""

    def __init__(
        self, home: Path, numbers: Iterable[int], more: str = "", dynamic: bool = False,
        controllers: Iterable[int] = (CONTROLLER,), dress: Dress = OPEN,
        kinds: Mapping[int, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """`numbers`: of all brokers that there will be; `more`: settings of the controllers;
        `dynamic`: the voters are in the metadata log; `dress`: how everything is protected;
        `kinds`: of the controllers, Kafka's where it does not say.

        Raises: apache.Unavailable."""
        home.mkdir()
        ports = {n: apache.free_port() for n in controllers}
        self.cluster = urlsafe_b64encode(b"k" + secrets.token_bytes(15)).decode().rstrip("=")
        self.client = dict(dress.client)
        """The settings of an administrator."""
        made = partial(Node, home, voters=ports, cluster=self.cluster, dynamic=dynamic, dress=dress)
        self.controllers = {n: made(n, more=more) for n in ports}
        if dynamic and len(ports) > 1:
            named = ",".join(
                f"{n}@127.0.0.1:{port}:{_directory_id(n)}" for n, port in ports.items()
            )
            for one in self.controllers.values():
                one._formatted[:1] = ["--initial-controllers", named]
        self._kinds = kinds
        self.controller = self.controllers[CONTROLLER]
        self.nodes = {n: made(n, more="") for n in numbers}
        self.bootstrap = ",".join(one.address for one in self.nodes.values())

    def __enter__(self) -> Quorum:
        for number, one in self.controllers.items():
            one.begin(self._kinds.get(number, KAFKA))
        for one in self.controllers.values():
            until(one.answers, "the controllers answer")
        return self

    def __exit__(self, *_: object) -> None:
        for node in (*self.nodes.values(), *self.controllers.values()):
            if node.lives:
                node.kill()

    # ---- queries -----------------------------------------------------------------------------

    def row(self, node: int, topic: str, partition: int = 0) -> Any:
        """A partition as a broker describes it; None if it does not answer, or knows none."""
        with contextlib.suppress(OSError, KafkalogError), self.nodes[node].connection() as made:
            (found,) = made.call(apis.METADATA, {"topics": [{"name": topic}]}, 12).topics
            return {one.partition_index: one for one in found.partitions}.get(partition)
        return None

    def brokers(self, node: int) -> set[int]:
        """The living brokers, as one describes them."""
        with contextlib.suppress(OSError, KafkalogError), self.nodes[node].connection() as made:
            return {one.node_id for one in made.call(apis.METADATA, {"topics": []}, 12).brokers}
        return set()

    def all_known(self) -> None:
        there = {number for number, one in self.nodes.items() if one.lives}
        for number in there:
            until(lambda number=number: self.brokers(number) == there, f"{number} knows {there}")

    def led(self, topic: str, leader: int, partition: int = 0) -> None:
        """Wait until all living brokers name this leader."""

        def agreed() -> bool:
            rows = [self.row(n, topic, partition) for n, one in self.nodes.items() if one.lives]
            return all(row is not None and row.leader_id == leader for row in rows)

        until(agreed, f"{leader} leads {topic}-{partition}")

    def in_sync(self, topic: str, *replicas: int, partition: int = 0) -> None:
        """Wait until all living brokers name these replicas as the ISR."""

        def agreed() -> bool:
            rows = [self.row(n, topic, partition) for n, one in self.nodes.items() if one.lives]
            return all(row is not None and {*row.isr_nodes} == {*replicas} for row in rows)

        until(agreed, f"the ISR of {topic}-{partition} is {replicas}")

    # ---- actions -----------------------------------------------------------------------------

    def create(self, topic: str, *replicas: Sequence[int], **settings: str) -> None:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        with kafkalog.Admin(self.bootstrap, config=self.client) as admin:
            admin.create_topics([(topic, -1, -1, config, replicas)]).check()
        for partition, ids in enumerate(replicas):
            self.led(topic, ids[0], partition)

    def produce(self, topic: str, numbers: Iterable[int], partition: int = 0) -> None:
        """Send with acks=all."""
        with kafkalog.Producer(self.bootstrap, config=self.client) as producer:
            sent = [producer.send(topic, b"%d" % n, partition=partition) for n in numbers]
            for one in sent:
                one.result()

    def consumed(self, topic: str, count: int, group: str = "readers") -> list[bytes]:
        """The values of a topic, by a consumer of a group, sorted."""
        found: list[bytes] = []
        with kafkalog.Consumer(
            self.bootstrap, topic, group=group, auto_offset_reset="earliest", config=self.client
        ) as consumer:
            until(lambda: found.extend(one.value for one in consumer.poll(500)) or (
                len(found) >= count), f"{count} records of {topic}")  # fmt: skip
        return sorted(found, key=int)

    # ---- results -----------------------------------------------------------------------------

    def same(self, topic: str, *replicas: int, partition: int = 0) -> int:
        """Wait until the replicas are equal byte for byte; returns the number of batches."""
        folders = [self.nodes[n].data / f"{topic}-{partition}" for n in replicas]
        until(lambda: len({tuple(batches_in(one)) for one in folders}) == 1, "copies are equal")
        return len(batches_in(folders[0]))

    def same_metadata(self, *numbers: int) -> int:
        """Check that the metadata logs of stopped brokers are beginnings of the controller's;
        returns the size of the shortest one."""
        whole = b"".join(batches_in(self.controller.metadata))
        shortest = len(whole)
        for number in numbers:
            found = b"".join(batches_in(self.nodes[number].metadata))
            assert found, f"{number} has metadata"
            assert whole.startswith(found), f"the metadata log of {number}"
            shortest = min(shortest, len(found))
        return shortest
