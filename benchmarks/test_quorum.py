"""Three combined nodes, no ZooKeeper: kafkalog's own quorum and Apache Kafka's, three replicas.

Both read the same server.properties: process.roles=broker,controller, election timeout 1 s,
session timeout 6 s, min.insync.replicas=2.  All nodes run on one machine, each in its own process.
Produce is acks=all from a C program on librdkafka, compared with kafkalog's nodes on a ZooKeeper,
too.  A broker's fail-over is timed from kill -9 until every partition that it led has acknowledged
a record; the quorum's from kill -9 of its leader until the next topic is created.  A node that
restarts in order is timed from its start until it is in every ISR.  Idle: no client is connected.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from benchmarks.broker import programs
from benchmarks.broker.brokers import OURS
from benchmarks.broker.clusters import (
    KAFKA,
    ON_ZOOKEEPER,
    SESSION_MS,
    Cluster,
    KafkaCluster,
    OurCluster,
    OurQuorum,
)
from benchmarks.measure import Part, Want, scaled
from tests.support import apache
from tests.support.zookeeper import ZooKeeper

BYTES = {100: 60_000_000, 1000: 200_000_000}
COPIES = 3
PARTITIONS = 3
SAFE = {"min.insync.replicas": "2"}
MANY = scaled(1_000, 30)
CROWD = scaled(10_000, 60)
CROWD_S, CROWD_PAUSE_S = 900.0, 0.25
"""How long that many partitions may take on either side.  A question about all of them costs the
nodes 20 ms: asked as often as elsewhere, they would do little else."""
AT_ONCE = 2_000
"""Partitions of one topic: a request of Kafka's creates at most 10,000, and holds all of them."""
ELECTION_S = 1.0
IDLE_S = scaled(20)
MB = 1e6
KILLED = "A fail-over is not warmed: a node dies in each round, and another starts."


@pytest.fixture(scope="module")
def running(module_folder: Path) -> Iterator[dict[str, Cluster]]:
    """Our quorum and Kafka's."""
    try:
        programs.program("load")
        apache.jars()
        with ExitStack() as ends:
            quorums = [OurQuorum(module_folder / "ours"), KafkaCluster(module_folder / "kafka")]
            yield {one.name: ends.enter_context(one) for one in quorums}
    except (programs.Missing, apache.Unavailable) as reason:
        pytest.skip(str(reason))


# ---- topics and fail-overs -----------------------------------------------------------------------


def test_creation(measure_together: Any, running: dict[str, Cluster]) -> None:
    def side(cluster: Cluster) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            begun_s = time.perf_counter()
            topic = cluster.new_topic(MANY, SAFE)
            taken_s = time.perf_counter() - begun_s
            cluster.drop_topic(topic)
            return {"quorum-creation": taken_s}

        return once

    work = f"A topic of {MANY:,} partitions: created, led and in sync"
    parts = [Part("quorum-creation", work, "s", [Want(OURS, than=KAFKA, factor=2)])]
    measure_together(parts, {name: side(one) for name, one in running.items()}, rounds=3, jvm=True)


@pytest.fixture(scope="module")
def crowded(running: dict[str, Cluster]) -> dict[str, str]:
    """A topic with many partitions in each cluster, for the tests below."""
    return {name: one.new_topic(MANY, SAFE) for name, one in running.items()}


def test_idle(measure_together: Any, running: dict[str, Cluster], crowded: dict[str, str]) -> None:
    def side(cluster: Cluster) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            before_s, begun_s = cluster.cpu_s(), time.perf_counter()
            threading.Event().wait(IDLE_S)
            share = (cluster.cpu_s() - before_s) / (time.perf_counter() - begun_s)
            return {
                "quorum-idle": share / len(cluster.ports),
                "quorum-memory": cluster.memory_bytes(),
            }

        return once

    parts = [
        Part(
            "quorum-idle", f"A second of an idle node, {MANY:,} partitions: CPU time", "s",
            [Want(OURS, figure=0.02)],
        ),
        Part(
            "quorum-memory", f"Resident memory of a node, {MANY:,} partitions", "B",
            [Want(OURS, figure=100 * MB)],
        ),
    ]  # fmt: skip
    cold = "Nothing happens, so nothing is warmed."
    measure_together(parts, {name: side(running[name]) for name in crowded}, rounds=3, cold=cold)


def test_fail_over(
    measure_together: Any, running: dict[str, Cluster], crowded: dict[str, str]
) -> None:
    def side(name: str) -> Callable[[], dict[str, float]]:
        cluster, topic = running[name], crowded[name]

        def once() -> dict[str, float]:
            cluster.in_sync(topic)
            quorum = cluster.controller()
            leader = next(n for n in cluster.ports if n != quorum)
            led = cluster.led(topic, leader)
            assert len(led) >= MANY // (2 * COPIES)
            config = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 50}
            with kafkalog.Producer(
                cluster.bootstrap, linger_ms=0, request_timeout_ms=1_000, config=config
            ) as producer:
                for one in [producer.send(topic, b"before", partition=p) for p in led]:
                    one.result()
                begun_s = time.perf_counter()
                cluster.kill(leader)
                for one in [producer.send(topic, b"behind", partition=p) for p in led]:
                    one.result()
                taken_s = time.perf_counter() - begun_s
            cluster.back(leader, topic)
            return {"quorum-fail-over": taken_s}

        return once

    limit_s = SESSION_MS / 1000 + 0.2
    work = f"A broker dies: until all its partitions of {MANY:,} acknowledge again"
    parts = [Part("quorum-fail-over", work, "s", [Want(OURS, figure=limit_s)])]
    measure_together(parts, {name: side(name) for name in crowded}, rounds=3, cold=KILLED)


def test_leader_of_the_quorum(
    measure_together: Any, running: dict[str, Cluster], crowded: dict[str, str]
) -> None:
    def side(name: str) -> Callable[[], dict[str, float]]:
        return lambda: {"quorum-leader": running[name].replace_controller(crowded[name])}

    work = f"The quorum's leader dies, {MANY:,} partitions: until a topic is created"
    parts = [
        Part(
            "quorum-leader", work, "s",
            [Want(OURS, than=KAFKA), Want(OURS, figure=ELECTION_S + 0.2)],
        )
    ]  # fmt: skip
    measure_together(parts, {name: side(name) for name in crowded}, rounds=3, cold=KILLED)


@pytest.mark.timeout(7_200)
def test_restart(measure_together: Any, running: dict[str, Cluster]) -> None:
    """The last of these tests: it leaves many partitions behind."""
    for one in running.values():
        one.wait_s, one.pause_s = CROWD_S, CROWD_PAUSE_S
    topics = {
        name: [one.new_topic(min(AT_ONCE, CROWD), SAFE) for _ in range(-(-CROWD // AT_ONCE))]
        for name, one in running.items()
    }

    def side(name: str) -> Callable[[], dict[str, float]]:
        cluster = running[name]

        def once() -> dict[str, float]:
            node = next(n for n in cluster.ports if n != cluster.controller())
            cluster.stop(node)
            begun_s = time.perf_counter()
            cluster.begin(node)
            for topic in topics[name]:
                cluster.in_sync(topic)
            return {"quorum-restart": time.perf_counter() - begun_s}

        return once

    work = f"A node of {CROWD:,} partitions restarts: until it is in all ISRs"
    parts = [Part("quorum-restart", work, "s", [Want(OURS, than=KAFKA, factor=2)])]
    cold = "A start is not warmed."
    measure_together(parts, {name: side(name) for name in running}, rounds=2, cold=cold)


# ---- records -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def producing(module_folder: Path) -> Iterator[dict[str, Cluster]]:
    """Fresh clusters without those partitions, and ours on a ZooKeeper."""
    pytest.importorskip("kazoo")
    try:
        programs.program("load")
        apache.jars()
        with ExitStack() as ends:
            zookeeper = ends.enter_context(ZooKeeper(module_folder / "zookeeper"))
            (module_folder / "nodes").mkdir()
            ours = OurCluster(module_folder / "nodes", zookeeper, "os")
            ours.name = ON_ZOOKEEPER
            yield {one.name: ends.enter_context(one) for one in (
                OurQuorum(module_folder / "ours-too"), ours,
                KafkaCluster(module_folder / "kafka-too"),
            )}  # fmt: skip
    except (programs.Missing, apache.Unavailable) as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("size", BYTES)
def test_produce(measure_together: Any, producing: dict[str, Cluster], size: int) -> None:
    key, count = f"quorum-{size}", scaled(BYTES[size] // size, 3000)

    def side(cluster: Cluster) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            topic = cluster.new_topic(PARTITIONS, SAFE)
            found = programs.load(
                "produce", cluster.bootstrap, topic, count, size, PARTITIONS, 1, acks="all",
                queue_buffering_max_kbytes=131_072,
            )  # fmt: skip
            cluster.drop_topic(topic)
            return {key: count * size / found["seconds"]}

        return once

    work = f"Three copies, {size} B, acks=all, bytes of values"
    wants = [Want(OURS, than=KAFKA, factor=3), Want(OURS, than=ON_ZOOKEEPER)]
    sides = {name: side(one) for name, one in producing.items()}
    measure_together(
        [Part(key, work, "B/s", wants)], sides, rounds=3, jvm=True, writes=COPIES * count * size
    )
