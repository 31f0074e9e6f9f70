"""One message at a time: the next is sent when the last one is acknowledged.

A C program on librdkafka, linger 0, 100 B a message.  `through`: from a producer to a consumer
that waits, in one process.  Durable rows: kafkalog.durability=fsync and acks=all, Apache Kafka
with flush.messages=1, which is the same promise; the floor is pwrite and fdatasync in a loop,
and for bulk the bare sink with an fdatasync before each answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.broker import programs
from benchmarks.broker.brokers import KAFKA, MOCK, OURS, SINK, Served, brokers
from benchmarks.measure import Part, Want, scaled

SIZE = 100
MESSAGES = 10_000
DURABLE_MESSAGES = 2_000
DURABLE_BYTES = 200_000_000
BARE = "bare pwrite, fdatasync"
FLUSHED = {"flush.messages": "1"}
PERCENTILES = {"p50": "median", "p99": "99th percentile", "p999": "99.9th percentile"}
FLOOR_FACTOR = 1 / 1.3


NAMES = {"os": [OURS, KAFKA, MOCK], "fsync": [OURS, SINK, KAFKA]}
"""The brokers by the durability of a record that is acknowledged."""
OS = pytest.mark.parametrize("running", ["os"], indirect=True)
FSYNC = pytest.mark.parametrize("running", ["fsync"], indirect=True)


@pytest.fixture(scope="module")
def running(module_folder: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Served]]:
    """Brokers by name; the parameter is their durability."""
    try:
        programs.program("load")
    except programs.Missing as reason:
        pytest.skip(str(reason))
    folder = module_folder / request.param
    folder.mkdir()
    with brokers(folder, NAMES[request.param], request.param) as made:
        yield made


def those(running: dict[str, Served], *names: str) -> dict[str, Served]:
    """The ones of these names that run here."""
    return {name: running[name] for name in names if name in running}


def percentiles(key: str, work: str, wants: dict[str, list[Want]]) -> list[Part]:
    return [
        Part(f"{key}-{name}", f"{work}, {title}", "s", wants.get(name, []))
        for name, title in PERCENTILES.items()
    ]


def of(found: dict[str, float], key: str) -> dict[str, float]:
    return {f"{key}-{name}": found[name] for name in PERCENTILES}


@OS
@pytest.mark.parametrize("acks", ["1", "all"])
def test_one_in_flight(measure_together: Any, running: dict[str, Served], acks: str) -> None:
    key, count = f"latency-acks-{acks}", scaled(MESSAGES, 500)
    topics = {name: broker.new_topic() for name, broker in running.items()}

    def side(name: str) -> Callable[[], dict[str, float]]:
        where = running[name].bootstrap
        return lambda: of(
            programs.load(
                "latency", where, topics[name], count, SIZE, 1, 1, acks=acks, linger_ms=0
            ),
            key,
        )

    wants = {
        "p50": [Want(OURS, than=MOCK, factor=1)], "p999": [Want(OURS, than=KAFKA, factor=2)],
    }  # fmt: skip
    work = f"One in flight, acks={acks}, durability os"
    sides = {name: side(name) for name in running}
    measure_together(percentiles(key, work, wants), sides, jvm=True)


@OS
def test_from_producer_to_waiting_consumer(
    measure_together: Any, running: dict[str, Served]
) -> None:
    key, count = "latency-through", scaled(MESSAGES // 2, 300)

    def side(broker: Served) -> Callable[[], dict[str, float]]:
        return lambda: of(
            programs.load(
                "through", broker.bootstrap, broker.new_topic(), count, SIZE, acks=1, linger_ms=0
            ),
            key,
        )

    wants = {"p50": [Want(OURS, than=KAFKA, factor=2)]}
    work = "From a producer to a consumer that waits"
    sides = {name: side(broker) for name, broker in those(running, OURS, KAFKA).items()}
    measure_together(percentiles(key, work, wants), sides, jvm=True)


@FSYNC
def test_durable_one_in_flight(
    measure_together: Any, running: dict[str, Served], folder: Path
) -> None:
    key, count = "safe-one", scaled(DURABLE_MESSAGES, 50)

    def side(broker: Served) -> Callable[[], dict[str, float]]:
        topic = broker.new_topic(settings=FLUSHED if broker.name == KAFKA else {})
        return lambda: of(
            programs.load(
                "latency", broker.bootstrap, topic, count, SIZE, 1, 1, acks="all", linger_ms=0
            ),
            key,
        )

    sides = {name: side(broker) for name, broker in those(running, OURS, KAFKA).items()}
    sides[BARE] = lambda: of(programs.load("sync", folder / "bare", count, SIZE), key)
    wants = {"p50": [Want(OURS, than=BARE, factor=FLOOR_FACTOR)]}
    measure_together(percentiles(key, "Durable, one in flight", wants), sides, jvm=True)


@FSYNC
def test_durable_from_16_connections(measure_together: Any, running: dict[str, Served]) -> None:
    key, count = "safe-16", scaled(4 * DURABLE_MESSAGES, 160)

    def side(broker: Served) -> Callable[[], dict[str, float]]:
        topic = broker.new_topic(settings=FLUSHED if broker.name == KAFKA else {})

        def once() -> dict[str, float]:
            found = programs.load(
                "latency", broker.bootstrap, topic, count, SIZE, 1, 16, acks="all", linger_ms=0
            )
            return {key: count / found["seconds"], f"{key}-p99": found["p99"]}

        return once

    parts = [
        Part(
            key, "Durable, one in flight on each of 16 connections", "/s",
            [Want(OURS, than=KAFKA, factor=5)],
        ),
        Part(f"{key}-p99", "The same, 99th percentile", "s"),
    ]  # fmt: skip
    sides = {name: side(broker) for name, broker in those(running, OURS, KAFKA).items()}
    measure_together(parts, sides, jvm=True)


@FSYNC
def test_durable_bulk(measure_together: Any, running: dict[str, Served]) -> None:
    key, size = "safe-bulk", 1000
    count = scaled(DURABLE_BYTES // size, 1000)

    def side(broker: Served) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            topic = broker.new_topic(settings=FLUSHED if broker.name == KAFKA else {})
            found = programs.load("produce", broker.bootstrap, topic, count, size, 1, 1, acks="all")
            broker.drop_topic(topic)
            return {key: count * size / found["seconds"]}

        return once

    wants = [Want(OURS, than=SINK, factor=0.9), Want(OURS, than=KAFKA, factor=1.5)]
    parts = [Part(key, "Durable, bulk, 1,000 B, bytes of values", "B/s", wants)]
    sides = {name: side(broker) for name, broker in running.items()}
    measure_together(parts, sides, jvm=True, writes=count * size)
