"""The Python consumers: kafkalog's, record by record, by poll and as Arrow batches, and
confluent-kafka's `consume`, which also makes an object per record.

Each reads the same records of 100 B from the same broker, ours and then Apache Kafka, in a
separate process, from the page cache.  "in this process" is our broker inside the reader's
process, without a port.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.broker.brokers import KAFKA, OURS, brokers
from benchmarks.measure import Part, Want, scaled
from kafkalog import Broker, Consumer, TopicPartition
from kafkalog.client.calls.topics import create_topic
from kafkalog.client.link.cluster import Cluster

SIZE, COUNT = 100, 2_000_000
PIECE = 500
"""Records of one poll, and of one consume()."""
ITERATE, POLL, ARROW, INSIDE = "for record in", "poll", "poll_arrow", "in this process"
CONFLUENT = "confluent-kafka"
INSIDE_WANTED = 2_000_000


def fill(bootstrap: str, topic: str, count: int) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    producer = confluent.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    value = b"v" * SIZE
    for at in range(0, count, 10_000):
        for _ in range(min(10_000, count - at)):
            producer.produce(topic, value, partition=0)
        producer.flush()


class Place(NamedTuple):
    """A broker with the topic."""

    key: str
    shown: str
    bootstrap: str
    topic: str
    count: int


@pytest.fixture(params=[OURS, KAFKA], ids=["ours", "apache"])
def place(request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    count = scaled(COUNT, 10_000)
    with brokers(folder, [request.param]) as running:
        if not running:
            pytest.skip("no Apache Kafka: its jars are not there")
        broker = running[request.param]
        topic = broker.new_topic()
        fill(broker.bootstrap, topic, count)
        key = "client-consume" if request.param == OURS else "client-consume-apache"
        yield Place(key, request.param, broker.bootstrap, topic, count)


@pytest.fixture
def inside(place: Place, folder: Path) -> Iterator[Broker | None]:
    """Our broker in this process with the same topic; None for Apache Kafka."""
    if place.shown != OURS:
        yield None
        return
    with Broker(folder / "inside") as broker:
        with Cluster(broker) as cluster:
            create_topic(cluster, place.topic, 1)
        fill(broker.bootstrap_servers, place.topic, place.count)
        yield broker


def ours(where: Any, topic: str, read: Callable[[Consumer], None]) -> Callable[[], float]:
    def once() -> float:
        with Consumer(where) as consumer:
            tp = TopicPartition(topic, 0)
            consumer.assign([tp])
            consumer.seek(tp, 0)
            start_s = time.perf_counter()
            read(consumer)
            return time.perf_counter() - start_s

    return once


def theirs(bootstrap: str, topic: str, count: int) -> Callable[[], float]:
    confluent = pytest.importorskip("confluent_kafka")

    def once() -> float:
        consumer = confluent.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
        )
        consumer.assign([confluent.TopicPartition(topic, 0, 0)])
        seen, start_s = 0, time.perf_counter()
        while seen < count:
            seen += len([m.value() for m in consumer.consume(PIECE, 10)])
        taken_s = time.perf_counter() - start_s
        consumer.close()
        return taken_s

    return once


def iterate(count: int) -> Callable[[Consumer], None]:
    def read(consumer: Consumer) -> None:
        for _ in islice(consumer, count):
            pass

    return read


def poll(count: int) -> Callable[[Consumer], None]:
    def read(consumer: Consumer) -> None:
        seen = 0
        while seen < count:
            seen += len(consumer.poll(10_000, PIECE))

    return read


def arrow(count: int) -> Callable[[Consumer], None]:
    def read(consumer: Consumer) -> None:
        seen = 0
        while seen < count:
            seen += sum(map(len, consumer.poll_arrow(10_000)))

    return read


def test_client_consume(measure_together: Any, place: Place, inside: Broker | None) -> None:
    key, shown, bootstrap, topic, count = place
    runs = {
        ITERATE: ours(bootstrap, topic, iterate(count)),
        POLL: ours(bootstrap, topic, poll(count)),
        ARROW: ours(bootstrap, topic, arrow(count)),
        CONFLUENT: theirs(bootstrap, topic, count),
    }
    wants = [
        Want(ITERATE, than=CONFLUENT, factor=2), Want(POLL, than=CONFLUENT, factor=2),
        Want(ARROW, than=CONFLUENT, factor=10),
    ]  # fmt: skip
    if inside is not None:
        runs[INSIDE] = ours(inside, topic, iterate(count))
        wants.append(Want(INSIDE, figure=INSIDE_WANTED))

    def rate(run: Callable[[], float]) -> Callable[[], dict[str, float]]:
        return lambda: {key: count / run()}

    part = Part(key, f"Consume {SIZE} B by a Python client from {shown}", "records/s", wants)
    sides = {name: rate(run) for name, run in runs.items()}
    measure_together([part], sides, jvm=shown == KAFKA)
