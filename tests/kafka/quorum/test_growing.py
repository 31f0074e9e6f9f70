"""A single node becomes one of three while it serves, and a single node again: docs/quorum.md.

The commands are those of the documentation, in processes of their own.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers[NODE]}
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


@pytest.mark.long
@pytest.mark.java
def test_one_node_becomes_three_and_one_again(tmp_path: Path) -> None:
    """Under a producer and a consumer; afterwards Apache Kafka serves its directory."""
    ports = {n: apache.free_port() for n in NODES}
    controllers = {n: apache.free_port() for n in NODES}
    files = {n: tmp_path / f"node{n}.properties" for n in NODES}
    places = ",".join(f"127.0.0.1:{controllers[n]}" for n in NODES)
    servers, controls = f"127.0.0.1:{ports[1]}", f"127.0.0.1:{controllers[1]}"

    def write(node: int, text: str) -> None:
        text = text.replace("[NODE]", f"[{node}]")
        files[node].write_text(text.format(
            node=node, port=ports[node], controllers=controllers, places=places,
            data=tmp_path / f"data{node}",
        ))  # fmt: skip

    def serves(node: int) -> bool:
        try:
            with kafkalog.Admin(f"127.0.0.1:{ports[node]}") as admin:
                return bool(admin.describe_cluster().nodes)
        except (KafkalogError, OSError):
            return False

    def voters() -> list[int]:
        with kafkalog.Admin(servers) as admin:
            return sorted(one.node for one in admin.describe_quorum().voters)

    programs = {n: Serving(tmp_path / f"out{n}") for n in NODES}

    def restarted() -> None:
        process = programs[1]._process
        assert process is not None
        before = programs[1].output().count("kafkalog serves")
        os.kill(process.pid, signal.SIGUSR1)
        until(lambda: programs[1].output().count("kafkalog serves") > before, "node 1 restarts")

    with ExitStack() as stack:
        for one in programs.values():
            stack.callback(lambda one=one: one._process and one.kill())
        write(1, SINGLE)
        programs[1].begin(files[1], lambda: serves(1))
        ran("topics", "create", "t", "--partitions", "2", "--bootstrap-server", servers)
        load = Load(",".join(f"127.0.0.1:{port}" for port in ports.values()))
        with load.runs():
            load.goes_on()
            write(1, QUORUM)
            restarted()
            assert voters() == [1]
            load.goes_on()
            cluster = ran("cluster", "id", "--bootstrap-server", servers).split()[-1]
            for n in (2, 3):
                write(n, QUORUM)
                words = ["--cluster-id", cluster, "--config", str(files[n])]
                ran("storage", "format", *words, "--no-initial-controllers")
                programs[n].begin(files[n], lambda n=n: serves(n))
                ran("quorum", "add-controller", "--config", str(files[n]),
                    "--bootstrap-controller", controls)  # fmt: skip
            assert voters() == [1, 2, 3]
            load.goes_on()
            ran("cluster", "reassign", "--to", "1,2,3", "--replication-factor", "3", "--execute",
                "--bootstrap-server", servers)  # fmt: skip
            with kafkalog.Admin(servers) as admin:
                for topic in ("t", "__consumer_offsets"):
                    (found,) = admin.describe_topics([topic]).check().values()
                    assert all(sorted(one.replicas) == [1, 2, 3] for one in found.partitions.values())
            load.goes_on()

            ran("cluster", "reassign", "--to", "1", "--replication-factor", "1", "--execute",
                "--bootstrap-server", servers)  # fmt: skip
            for n in (2, 3):
                with kafkalog.Admin(servers) as admin:
                    (voter,) = (one for one in admin.describe_quorum().voters if one.node == n)
                ran("quorum", "remove-controller", "--controller-id", str(n),
                    "--controller-directory-id", uuid_text(voter.directory_id),
                    "--bootstrap-server", servers)  # fmt: skip
                programs[n].stop()
                ran("cluster", "unregister", str(n), "--bootstrap-server", servers)
            assert voters() == [1]
            load.goes_on()
            write(1, SINGLE)
            restarted()
            load.goes_on()
        assert {*load.read} == {*load.acknowledged}  # after a rebalance some may come twice
        assert programs[1].stop() == 0

        write(1, QUORUM)
        kafka = apache.Kafka(tmp_path / "kafka.out")
        stack.callback(lambda: kafka._process and kafka.kill())
        kafka.start(kafka.command(files[1], "384m", apache.jars()), tmp_path, lambda: serves(1))
        found = values_of(servers, len(load.acknowledged))
        assert sorted(found) == sorted(load.acknowledged)
