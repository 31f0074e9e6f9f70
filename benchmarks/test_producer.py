"""Producers in Python: `send` and `send_many`, compared with confluent-kafka's `produce`.

`send_many` is given a list, or an Arrow column.  One call a record (or one for all), acks=all with
idempotence, linger 5 ms, no compression, until all is acknowledged; batches are each client's own
default.  The broker, durability `os`, is a separate process, like Apache Kafka; in process it is a
`Store`, which uses this process's threads, and is compared with direct appends to a `Log`.  A
fresh topic of one partition each round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafkalog
from benchmarks.broker.brokers import KAFKA, OURS, Served, brokers
from benchmarks.measure import Side, Want, scaled
from benchmarks.work import log_side, values

SEND, MANY, THEIRS = "kafkalog: send", "kafkalog: send_many", "confluent-kafka: produce"
COLUMN, APPEND = "kafkalog: send_many, Arrow", "kafkalog: Log.append_many, Arrow"
RECORDS = 500_000


@pytest.fixture
def running(folder: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Served]]:
    """The broker that a test's parameter names."""
    with brokers(folder, request.param) as made:
        yield made


def sends(where: Any, rows: list[bytes]) -> Callable[[str], None]:
    def run(topic: str) -> None:
        with kafkalog.Producer(where) as producer:
            send = producer.send
            for row in rows:
                send(topic, row)

    return run


def sends_many(where: Any, rows: Any) -> Callable[[str], None]:
    def run(topic: str) -> None:
        with kafkalog.Producer(where) as producer:
            producer.send_many(topic, rows)

    return run


def sends_column(where: Any, rows: list[bytes]) -> Callable[[str], None]:
    return sends_many(where, pa.array(rows, pa.binary()))


def produces(where: str, rows: list[bytes]) -> Callable[[str], None]:
    confluent = pytest.importorskip("confluent_kafka")

    def run(topic: str) -> None:
        producer = confluent.Producer(
            {"bootstrap.servers": where, "linger.ms": 5, "enable.idempotence": True,
             "queue.buffering.max.messages": len(rows) + 1}
        )  # fmt: skip
        produce = producer.produce
        for row in rows:
            produce(topic, row)
        assert producer.flush(60) == 0

    return run


@pytest.mark.parametrize("running", [[OURS], [KAFKA]], indirect=True, ids=["ours", "apache"])
def test_producers(measure: Any, running: dict[str, Served]) -> None:
    """Everything through a port, the same broker for all."""
    if not running:
        pytest.skip("no Apache Kafka: its jars are not there")
    ((name, broker),) = running.items()
    rows = values(scaled(RECORDS, 1_000))
    made = {SEND: sends, MANY: sends_many, COLUMN: sends_column, THEIRS: produces}
    sides = [
        Side(side, len(rows), make(broker.bootstrap, rows), lambda: broker.new_topic(1),
             broker.drop_topic)
        for side, make in made.items()
    ]  # fmt: skip
    key = "producer" if name == OURS else "producer-apache"
    wants = [
        Want(SEND, than=THEIRS, factor=1),
        Want(MANY, than=THEIRS, factor=5),
        Want(COLUMN, than=THEIRS, factor=5),
    ]
    work = f"Producers in Python, 100 B, {name}"
    measure(key, work, sides, wants, jvm=name == KAFKA, writes=len(rows) * 100)


def test_producer_inside(measure: Any, folder: Path) -> None:
    """Without a port."""
    rows = values(scaled(RECORDS, 1_000))
    config = {"kafkalog.durability": "os", "num.partitions": 1}
    with kafkalog.Store(folder / "store", config=config) as store:
        topics = iter(range(1_000_000))

        def fresh() -> str:
            name = f"t{next(topics)}"
            store.create_topic(name)
            return name

        made = {SEND: sends, MANY: sends_many, COLUMN: sends_column}
        sides = [
            Side(side, len(rows), make(store, rows), fresh, store.delete_topic)
            for side, make in made.items()
        ]
        column = pa.array(rows, pa.binary())
        sides.append(log_side(APPEND, folder, len(rows), lambda log: log.append_many(column)))
        wants = [Want(SEND, 700_000), Want(COLUMN, than=APPEND, factor=0.7)]
        measure("producer-inside", "Producers in Python, 100 B, in process", sides, wants,
                jvm=False, writes=len(rows) * 100)  # fmt: skip
