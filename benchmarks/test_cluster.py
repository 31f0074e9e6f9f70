"""Three nodes, three replicas: kafkalog on ZooKeeper, Apache Kafka as its own quorum.

All run on one machine, each node in its own process; the session timeout of both is 6 s.
acks=all, min.insync.replicas=2, three partitions, each node leads one; a C program on librdkafka
produces.  The CPU time is that of all nodes together, and of ZooKeeper.  Kafka never syncs; `fsync`
is kafkalog.durability=fsync, where an acknowledged record is on the disks of all in-sync replicas.
A fail-over is timed from kill -9 to the first acknowledgement of a record of the same
partition, a controller's from kill -9 until a topic is created; both include the session timeout.
A follower that is stopped for a while catches up with what its leaders have written since; the
floor is sendfile over a socket into a file.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from benchmarks.broker import programs
from benchmarks.broker.brokers import OURS
from benchmarks.broker.clusters import FSYNC, KAFKA, SESSION_MS, Cluster, clusters, until
from benchmarks.measure import Part, Want, scaled
from tests.support import apache

BYTES = {100: 60_000_000, 1000: 200_000_000}
COPIES = 3
PARTITIONS = 3
SAFE = {"min.insync.replicas": "2"}
MESSAGES = 2_000
IDLE_S = 12
"""Until memory that was kept for the next requests is given back."""
MANY = scaled(1_000, 30)
BEHIND_BYTES = 200_000_000
FLOOR = "sendfile into a file"
MB = 1e6
KILLED = "A fail-over is not warmed: a node dies in each round, and another starts."


@pytest.fixture(scope="module")
def running(module_folder: Path) -> Iterator[dict[str, Cluster]]:
    """All three clusters, for all rows."""
    pytest.importorskip("kazoo")
    try:
        programs.program("load")
        with clusters(module_folder) as made:
            yield made
    except (programs.Missing, apache.Unavailable) as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("size", BYTES)
def test_bulk(measure_together: Any, running: dict[str, Cluster], size: int) -> None:
    key, count = f"cluster-{size}", scaled(BYTES[size] // size, 3000)

    def side(cluster: Cluster) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            topic = cluster.new_topic(PARTITIONS, SAFE)
            before_s = cluster.cpu_s()
            found = programs.load(
                "produce", cluster.bootstrap, topic, count, size, PARTITIONS, 1, acks="all",
                queue_buffering_max_kbytes=131_072,
            )  # fmt: skip
            taken_s = cluster.cpu_s() - before_s
            cluster.drop_topic(topic)
            return {
                key: count * size / found["seconds"],
                f"{key}-cpu": taken_s / (count * size / 1e9),
            }

        return once

    work = f"Three copies, {size} B, acks=all"
    parts = [
        Part(
            key, f"{work}, bytes of values", "B/s",
            [Want(OURS, than=KAFKA, factor=3), Want(FSYNC, than=KAFKA, factor=1)],
        ),
        Part(
            f"{key}-cpu", f"{work}, CPU time of all nodes", "s/GB",
            [Want(OURS, than=KAFKA, factor=1 / 0.35)],
        ),
    ]  # fmt: skip
    sides = {name: side(one) for name, one in running.items()}
    measure_together(parts, sides, rounds=3, jvm=True, writes=COPIES * count * size)


def test_memory_after_a_burst(measure_together: Any, running: dict[str, Cluster]) -> None:
    """Memory after a burst of the node that has the most, usually the leader."""
    count = scaled(BYTES[1000] // 1000, 3000)

    def side(cluster: Cluster) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            topic = cluster.new_topic(1, SAFE)
            programs.load(
                "produce", cluster.bootstrap, topic, count, 1000, 1, 1, acks="all",
                queue_buffering_max_kbytes=131_072,
            )  # fmt: skip
            threading.Event().wait(scaled(IDLE_S))
            found = cluster.memory_bytes()
            cluster.drop_topic(topic)
            return {"cluster-burst": found}

        return once

    work = f"Resident memory of a node {IDLE_S} s after a burst of acks=all"
    parts = [Part("cluster-burst", work, "B", [Want(OURS, figure=100 * MB)])]
    sides = {name: side(one) for name, one in running.items() if name != FSYNC}
    cold = "A burst's memory is that of nodes that the rows before have loaded, without a warm-up."
    measure_together(parts, sides, rounds=3, cold=cold, writes=COPIES * count * 1000)


def test_one_in_flight(measure_together: Any, running: dict[str, Cluster]) -> None:
    topics = {name: one.new_topic(1, SAFE) for name, one in running.items()}
    count = scaled(MESSAGES, 100)

    def side(name: str) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            found = programs.load(
                "latency", running[name].bootstrap, topics[name], count, 100, 1, 1, acks="all",
                linger_ms=0,
            )  # fmt: skip
            return {f"cluster-one-{at}": found[at] for at in ("p50", "p99")}

        return once

    work = "Three copies, one in flight, acks=all"
    parts = [
        Part("cluster-one-p50", f"{work}, median", "s", [Want(OURS, than=KAFKA)]),
        Part(
            "cluster-one-p99", f"{work}, 99th percentile", "s", [Want(OURS, than=KAFKA, factor=3)]
        ),
    ]
    measure_together(parts, {name: side(name) for name in running}, rounds=3, jvm=True)


def test_catch_up(measure_together: Any, running: dict[str, Cluster], folder: Path) -> None:
    count = scaled(BEHIND_BYTES // 1000, 3000)
    stopped = 3

    def side(cluster: Cluster) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            topic = cluster.new_topic(2)  # led by the other two
            cluster.pause(stopped)
            try:
                programs.load("produce", cluster.bootstrap, topic, count, 1000, 2, 1, acks=1)
                wanted = cluster.log_bytes(1, topic)
                behind = wanted - cluster.log_bytes(stopped, topic)
                begun_s = time.perf_counter()
            finally:
                cluster.go_on(stopped)
            until(lambda: cluster.log_bytes(stopped, topic) >= wanted, "it has caught up")
            taken_s = time.perf_counter() - begun_s
            cluster.drop_topic(topic)
            return {"cluster-catch-up": behind / taken_s}

        return once

    sides = {name: side(one) for name, one in running.items() if name != FSYNC}
    sides[FLOOR] = lambda: {"cluster-catch-up": sendfile(folder, count * 1000)}
    want = Want(OURS, than=FLOOR, factor=0.8)
    parts = [Part("cluster-catch-up", "A follower catches up, bytes of batches", "B/s", [want])]
    measure_together(parts, sides, rounds=3, jvm=True, writes=COPIES * count * 1000)


def sendfile(folder: Path, size: int) -> float:
    """Bytes per second of a file over a socket into another file."""
    source, target = folder / "source", folder / "target"
    with source.open("wb") as file:
        for _ in range(size // (1 << 20) + 1):
            file.write(b"x" * (1 << 20))
    here, there = socket.socketpair()

    def take() -> None:
        room = memoryview(bytearray(1 << 20))
        with target.open("wb", buffering=0) as file:
            while got := there.recv_into(room):
                file.write(room[:got])

    thread = threading.Thread(target=take)
    begun_s = time.perf_counter()
    thread.start()
    with source.open("rb") as file, here:
        here.sendfile(file)
    thread.join()
    taken_s = time.perf_counter() - begun_s
    there.close()
    done = os.path.getsize(target)
    target.unlink()
    return done / taken_s


@pytest.fixture(scope="module")
def crowded(running: dict[str, Cluster]) -> dict[str, str]:
    """A topic with many partitions in each cluster, for the tests below."""
    return {
        name: one.new_topic(MANY, SAFE) for name, one in running.items() if name != FSYNC
    }  # fmt: skip


def test_memory(
    measure_together: Any, running: dict[str, Cluster], crowded: dict[str, str]
) -> None:
    parts = [
        Part(
            "cluster-memory", f"Resident memory of a node, {MANY:,} partitions", "B",
            [Want(OURS, figure=100 * MB)],
        )
    ]  # fmt: skip
    sides = {
        name: lambda one=running[name]: {"cluster-memory": one.memory_bytes()} for name in crowded
    }
    cold = (
        "Memory is looked at once the rows before have been measured, without a warm-up of its own."
    )
    measure_together(parts, sides, rounds=3, cold=cold)


def test_fail_over(
    measure_together: Any, running: dict[str, Cluster], crowded: dict[str, str]
) -> None:
    def side(name: str) -> Callable[[], dict[str, float]]:
        cluster, topic = running[name], crowded[name]

        def once() -> dict[str, float]:
            cluster.in_sync(topic)
            leader = cluster.leader(topic)
            config = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 50}
            with kafkalog.Producer(
                cluster.bootstrap, linger_ms=0, request_timeout_ms=1_000, config=config
            ) as producer:
                producer.send(topic, b"before", partition=0).result()
                begun_s = time.perf_counter()
                cluster.kill(leader)
                producer.send(topic, b"behind", partition=0).result()
                taken_s = time.perf_counter() - begun_s
            cluster.back(leader, topic)
            return {"cluster-fail-over": taken_s}

        return once

    limit_s = SESSION_MS / 1000 + 0.2
    work = f"A leader of {MANY:,} partitions dies: until the next acknowledges"
    parts = [Part("cluster-fail-over", work, "s", [Want(OURS, figure=limit_s)])]
    measure_together(parts, {name: side(name) for name in crowded}, rounds=2, cold=KILLED)


def test_controller(
    measure_together: Any, running: dict[str, Cluster], crowded: dict[str, str]
) -> None:
    def side(name: str) -> Callable[[], dict[str, float]]:
        return lambda: {"cluster-controller": running[name].replace_controller(crowded[name])}

    limit_s = SESSION_MS / 1000 + 1
    work = f"The controller of {MANY:,} partitions dies: until a topic is made"
    parts = [Part("cluster-controller", work, "s", [Want(OURS, figure=limit_s)])]
    measure_together(parts, {name: side(name) for name in crowded}, rounds=2, cold=KILLED)
