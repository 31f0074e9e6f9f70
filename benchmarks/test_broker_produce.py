"""Produce: a C program on librdkafka (or one that sends the same request again and again, or
Kafka's own tool) loads one broker after another.

acks=1, no compression, 10,000 messages a batch, linger 5 ms, PLAINTEXT over loopback; the
broker, durability `os`, is a separate process, compared with Apache Kafka with its default
settings and the JVM options of its scripts. At most 1 GB a round to a fresh topic, after `sync` and
with the memory for it touched. The bare sink is the least that a broker can do
(benchmarks/broker/sink.c); librdkafka's mock has no disk and runs in the client: the limit of
the client itself.  ProducerPerformance is a new JVM in each round, for both brokers: its compiler's
time is in both figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.broker import programs
from benchmarks.broker.brokers import KAFKA, MOCK, OURS, SINK, Served, brokers
from benchmarks.measure import Part, Want, scaled

BYTES = {100: 200_000_000, 1000: 400_000_000, 10_000: 400_000_000}
JAVA_BYTES = 400_000_000
IN_FLIGHT = 5
"""Requests in flight, as in librdkafka with idempotence."""
AS_GOOD = 0.9
CPU_FACTOR = 1 / 0.3


@pytest.fixture(scope="module")
def running(module_folder: Path) -> Iterator[dict[str, Served]]:
    """All of them, for all rows: a JVM stays warm from one to the next."""
    try:
        programs.program("load")
    except programs.Missing as reason:
        pytest.skip(str(reason))
    with brokers(module_folder, [OURS, SINK, KAFKA, MOCK]) as made:
        yield made


def those(running: dict[str, Served], *names: str) -> dict[str, Served]:
    """The ones of these names that run here."""
    return {name: running[name] for name in names if name in running}


def side(
    broker: Served, size: int, count: int, run: Callable[[str], float], key: str,
    partitions: int = 1,
) -> Callable[[], dict[str, float]]:  # fmt: skip
    """A fresh topic, `run` on it, then the figures: bytes a second, CPU seconds per GB."""

    def once() -> dict[str, float]:
        topic = broker.new_topic(partitions)
        before_s = broker.cpu_s() if broker.process else 0.0
        taken_s = run(topic)
        figures = {key: count * size / taken_s}
        if broker.process:
            figures[f"{key}-cpu"] = (broker.cpu_s() - before_s) / (count * size / 1e9)
        broker.drop_topic(topic)
        return figures

    return once


def parts(key: str, work: str, wants: list[Want]) -> list[Part]:
    return [
        Part(key, f"{work}, bytes of values", "B/s", wants),
        Part(
            f"{key}-cpu", f"{work}, the broker's CPU time", "s/GB",
            [Want(OURS, than=KAFKA, factor=CPU_FACTOR)],
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("size", BYTES)
def test_produce(measure_together: Any, running: dict[str, Served], size: int) -> None:
    count, key = scaled(BYTES[size] // size, 1000), f"produce-{size}"

    def run(broker: Served) -> Callable[[str], float]:
        return lambda topic: programs.load(
            "produce", broker.bootstrap, topic, count, size, 1, 1, acks=1
        )["seconds"]

    wants = [Want(OURS, than=SINK, factor=AS_GOOD)]
    wants += [Want(OURS, than=KAFKA, factor=3)] if size >= 1000 else []
    sides = {name: side(broker, size, count, run(broker), key) for name, broker in running.items()}
    work = f"Produce {size} B, one partition"
    measure_together(parts(key, work, wants), sides, jvm=True, writes=BYTES[size])


@pytest.mark.parametrize("size", BYTES)
def test_frames(measure_together: Any, running: dict[str, Served], size: int) -> None:
    """With a client that only sends what it built once, the broker is the limit."""
    count, key = scaled(BYTES[size] // size, 1000), f"produce-frames-{size}"

    def run(broker: Served) -> Callable[[str], float]:
        return lambda topic: programs.frames(broker.bootstrap, topic, count, size, IN_FLIGHT)[
            "seconds"
        ]

    wants = [Want(OURS, than=SINK, factor=AS_GOOD), Want(OURS, than=KAFKA, factor=3)]
    sides = {
        name: side(broker, size, count, run(broker), key)
        for name, broker in those(running, OURS, SINK, KAFKA).items()
    }
    work = f"Produce {size} B, prebuilt requests"
    measure_together(parts(key, work, wants), sides, jvm=True, writes=BYTES[size])


@pytest.mark.parametrize(("partitions", "clients"), [(12, 1), (1, 16)], ids=["12p", "16c"])
def test_spread(
    measure_together: Any, running: dict[str, Served], partitions: int, clients: int
) -> None:
    count, key = scaled(BYTES[1000] // 1000, 1600), f"produce-{partitions}p-{clients}c"

    def run(broker: Served) -> Callable[[str], float]:
        return lambda topic: programs.load(
            "produce", broker.bootstrap, topic, count, 1000, partitions, clients, acks=1,
            queue_buffering_max_kbytes=65536,
        )["seconds"]  # fmt: skip

    sides = {
        name: side(broker, 1000, count, run(broker), key, partitions)
        for name, broker in those(running, OURS, SINK, KAFKA).items()
    }
    work = f"Produce 1,000 B, {partitions} partition(s), {clients} connection(s)"
    wants = [Want(OURS, than=KAFKA, factor=2)]
    measure_together(parts(key, work, wants), sides, jvm=True, writes=BYTES[1000])


@pytest.mark.parametrize("size", [100, 1000])
def test_java(measure_together: Any, running: dict[str, Served], size: int) -> None:
    if KAFKA not in running:
        pytest.skip("no Apache Kafka: its tools are not there")
    total = JAVA_BYTES if size >= 1000 else JAVA_BYTES // 3
    count, key = scaled(total // size, 1000), f"produce-java-{size}"

    def run(broker: Served) -> Callable[[str], float]:
        return lambda topic: programs.producer_performance(broker.bootstrap, topic, count, size)

    sides = {
        name: side(broker, size, count, run(broker), key)
        for name, broker in those(running, OURS, KAFKA).items()
    }
    work = f"Produce {size} B, Kafka's ProducerPerformance"
    wants = [Want(OURS, than=KAFKA, factor=2)]
    measure_together(parts(key, work, wants), sides, rounds=3, jvm=True, writes=total)
