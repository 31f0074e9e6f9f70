"""A single node becomes one of three while it serves, and a single node again: docs/quorum.md.

The commands are those of the documentation, in processes of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kafkalog
from kafkalog.disk.layout import uuid_text
from kafkalog.errors import KafkalogError
from tests.kafka.quorum.nodes import Serving, until
from tests.support import apache
from tests.support.waiting import wait_for

SINGLE = """
node.id={node}
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={data}
offsets.topic.num.partitions=2
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
"""
QUORUM = """
process.roles=broker,controller
node.id={node}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.bootstrap.servers={places}
log.dirs={data}
offsets.topic.num.partitions=2
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
"""
NODES = (1, 2, 3)


def ran(*words: str) -> str:
    """A command's output."""
    done = subprocess.run(
        [sys.executable, "-m", "kafkalog", *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


class Load:
    """A producer with acks=all, and a consumer of a group, that never end before `end`."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.acknowledged: list[bytes] = []
        self.read: list[bytes] = []
        self.problems: list[BaseException] = []
        self._ends, self._written = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (self._write, self._consume)
        ]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as problem:
            self.problems.append(problem)

    def _write(self) -> None:
        with kafkalog.Producer(self._servers, config={"acks": "all"}) as producer:
            for number in itertools.count():
                if self._ends.is_set():
                    return
                sent = [producer.send("t", b"%d.%d" % (number, p), partition=p) for p in (0, 1)]
                for one in sent:
                    one.result()
                self.acknowledged += [b"%d.%d" % (number, p) for p in (0, 1)]

    def _consume(self) -> None:
        with kafkalog.Consumer(
            self._servers, "t", group="readers", auto_offset_reset="earliest"
        ) as consumer:
            while not self._written.is_set() or {*self.acknowledged} - {*self.read}:
                self.read += [one.value for one in consumer.poll(200)]

    def goes_on(self) -> None:
        """Both do, from now on."""
        written, read = len(self.acknowledged), len(self.read)
        wait_for(
            lambda: self.problems or (
                len(self.acknowledged) > written + 20 and len(self.read) > read + 20
            ), "records are written and read",
        )  # fmt: skip
        assert not self.problems

    @contextmanager
    def runs(self) -> Iterator[Load]:
        for one in self._threads:
            one.start()
        try:
            yield self
        finally:
            self._ends.set()
            self._threads[0].join(60)
            self._written.set()
            self._threads[1].join(60)
        assert not self.problems and not any(one.is_alive() for one in self._threads)


def values_of(servers: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    with kafkalog.Consumer(servers, "t", auto_offset_reset="earliest", group="after") as consumer:
        until(
            lambda: found.extend(one.value for one in consumer.poll(500)) or len(found) >= count,
            f"{count} records",
        )
    return found


class Nodes:
    """Three nodes by their files.  A context manager, which kills what is left."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.ports = {n: apache.free_port() for n in NODES}
        self._controllers = {n: apache.free_port() for n in NODES}
        self.servers = f"127.0.0.1:{self.ports[1]}"
        self._programs = {n: Serving(home / f"out{n}") for n in NODES}

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._programs.values():
            if one._process is not None:
                one.kill()

    def file(self, node: int) -> Path:
        return self._home / f"node{node}.properties"

    def write(self, node: int, text: str) -> None:
        """Write a node's file."""
        self.file(node).write_text(text.format(
            node=node, port=self.ports[node], controller=self._controllers[node],
            places=",".join(f"127.0.0.1:{port}" for port in self._controllers.values()),
            data=self._home / f"data{node}",
        ))  # fmt: skip

    def serves(self, node: int) -> bool:
        try:
            with kafkalog.Admin(f"127.0.0.1:{self.ports[node]}") as admin:
                return bool(admin.describe_cluster().nodes)
        except (KafkalogError, OSError):
            return False

    def begin(self, node: int) -> None:
        self._programs[node].begin(self.file(node), lambda: self.serves(node))

    def stop(self, node: int) -> None:
        assert self._programs[node].stop() == 0

    def become(self, text: str, node: int = 1) -> None:
        """Let a node read another file."""
        self.write(node, text)
        program = self._programs[node]
        assert program._process is not None
        before = program.output().count("kafkalog serves")
        os.kill(program._process.pid, signal.SIGUSR1)
        until(lambda: program.output().count("kafkalog serves") > before, f"node {node} restarts")

    def voters(self) -> dict[int, str]:
        """The voters with the ids of their directories."""
        with kafkalog.Admin(self.servers) as admin:
            return {n.node: uuid_text(n.directory_id) for n in admin.describe_quorum().voters}

    def replicas(self) -> set[tuple[int, ...]]:
        """The different sets of replicas of all partitions."""
        with kafkalog.Admin(self.servers) as admin:
            found = admin.describe_topics(["t", "__consumer_offsets"]).check().values()
            return {
                tuple(sorted(one.replicas)) for topic in found for one in topic.partitions.values()
            }

    def in_sync(self) -> None:
        """Wait until every partition has all its replicas in sync."""

        def there() -> bool:
            with contextlib.suppress(KafkalogError), kafkalog.Admin(self.servers) as admin:
                found = admin.describe_topics(["t", "__consumer_offsets"]).check().values()
                rows = [one for topic in found for one in topic.partitions.values()]
                return all({*one.isr} == {*one.replicas} for one in rows)
            return False

        until(there, "all are in sync")

    def ask(self, *words: str) -> str:
        """The output of a command to the cluster."""
        return ran(*words, "--bootstrap-server", self.servers)

    def grow(self) -> None:
        """Add nodes 2 and 3, and copy every partition to them."""
        cluster = self.ask("cluster", "id").split()[-1]
        for n in (2, 3):
            self.write(n, QUORUM)
            file = str(self.file(n))
            words = ["--cluster-id", cluster, "--config", file, "--no-initial-controllers"]
            ran("storage", "format", *words)
            self.begin(n)
            ran("quorum", "add-controller", "--config", file,
                "--bootstrap-controller", f"127.0.0.1:{self._controllers[1]}")  # fmt: skip
        self.ask("cluster", "reassign", "--to", "1,2,3", "--replication-factor", "3", "--execute")

    def shrink(self) -> None:
        """Take them away again."""
        self.ask("cluster", "reassign", "--to", "1", "--replication-factor", "1", "--execute")
        for n in (2, 3):
            words = ["--controller-id", str(n), "--controller-directory-id", self.voters()[n]]
            self.ask("quorum", "remove-controller", *words)
            self.stop(n)
            self.ask("cluster", "unregister", str(n))


@pytest.mark.long
@pytest.mark.java
def test_one_node_becomes_three_and_one_again(tmp_path: Path) -> None:
    """Under a producer and a consumer; afterwards Apache Kafka serves its directory."""
    with Nodes(tmp_path) as nodes:
        nodes.write(1, SINGLE)
        nodes.begin(1)
        nodes.ask("topics", "create", "t", "--partitions", "2")
        load = Load(",".join(f"127.0.0.1:{port}" for port in nodes.ports.values()))
        with load.runs():
            load.goes_on()
            nodes.become(QUORUM)
            assert [*nodes.voters()] == [1]
            load.goes_on()
            nodes.grow()
            assert (sorted(nodes.voters()), nodes.replicas()) == ([1, 2, 3], {(1, 2, 3)})
            load.goes_on()
            for node in NODES:  # also the one that leads the quorum
                nodes.become(QUORUM + "num.io.threads=4\n", node)
                load.goes_on()
                nodes.in_sync()
            assert sorted(nodes.voters()) == [1, 2, 3]
            nodes.shrink()
            assert ([*nodes.voters()], nodes.replicas()) == ([1], {(1,)})
            load.goes_on()
            nodes.become(SINGLE)
            load.goes_on()
        assert {*load.read} == {*load.acknowledged}  # after a rebalance some may come twice
        nodes.stop(1)

        nodes.write(1, QUORUM)
        kafka = apache.Kafka(tmp_path / "kafka.out")
        command = kafka.command(nodes.file(1), "384m", apache.jars())
        try:
            kafka.start(command, tmp_path, lambda: nodes.serves(1))
            found = values_of(nodes.servers, len(load.acknowledged))
        finally:
            kafka.kill()
        assert sorted(found) == sorted(load.acknowledged)
