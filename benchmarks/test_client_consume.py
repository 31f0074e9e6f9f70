"""The Python consumers: kafkalog's, record by record, by poll and as Arrow batches, and
confluent-kafka's `consume`, which also makes an object a record.

Each reads the same records of 100 B from the same broker, in a process of its own, from the
page cache.  "in this process" is the broker inside of the reader's process, without a port.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks import environment
from benchmarks.broker.brokers import OURS, Served, brokers
from benchmarks.measure import Part, Want, scaled
from kafkalog import Broker, Consumer, TopicPartition
from kafkalog.client.cluster import Cluster
from kafkalog.client.topics import create_topic

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


@pytest.fixture(scope="module")
def places() -> Iterator[tuple[Served, str, Any, int]]:
    """A broker with its topic, one in this process with the same, and how many records."""
    count = scaled(COUNT, 10_000)
    with (
        tempfile.TemporaryDirectory(prefix="kafkalog-bench-", dir=environment.place()) as folder,
        brokers(Path(folder), [OURS]) as running,
        Broker(Path(folder) / "inside") as inside,
    ):
        broker = running[OURS]
        topic = broker.new_topic()
        fill(broker.bootstrap, topic, count)
        with Cluster(inside) as cluster:
            create_topic(cluster, topic, 1)
        fill(inside.bootstrap_servers, topic, count)
        yield broker, topic, inside, count


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


def test_client_consume(measure_together: Any, places: tuple[Served, str, Any, int]) -> None:
    broker, topic, inside, count = places
    key = "client-consume"
    runs = {
        ITERATE: ours(broker.bootstrap, topic, iterate(count)),
        POLL: ours(broker.bootstrap, topic, poll(count)),
        ARROW: ours(broker.bootstrap, topic, arrow(count)),
        INSIDE: ours(inside, topic, iterate(count)),
        CONFLUENT: theirs(broker.bootstrap, topic, count),
    }

    def rate(run: Callable[[], float]) -> Callable[[], dict[str, float]]:
        return lambda: {key: count / run()}

    wants = [
        Want(ITERATE, than=CONFLUENT, factor=2), Want(POLL, than=CONFLUENT, factor=2),
        Want(ARROW, than=CONFLUENT, factor=10), Want(INSIDE, figure=INSIDE_WANTED),
    ]  # fmt: skip
    part = Part(key, f"Consume {SIZE} B by a Python client", "records/s", wants)
    measure_together([part], {name: rate(run) for name, run in runs.items()})
