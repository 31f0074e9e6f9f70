"""Spark over the wire: our source and Spark's own Kafka source, each from the same broker.

Two partitions of records of a 16 B key and a 100 B value, uncompressed, in batches of 64 KiB, in
Apache Kafka and in `kafkalog serve`; one session, local[2].  All four read the same rows; a
broker has what both of its readers ask for in memory: it was written just before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.measure import Side, Want, scaled

pytest.importorskip("pyspark", "4.0")

from benchmarks.broker.brokers import KAFKA, brokers
from benchmarks.broker.brokers import OURS as BROKER
from benchmarks.spark.session import kafka_source, spark_session
from benchmarks.spark.topics import TOPIC, fill_broker

PARTITIONS = 2
RECORDS = scaled(1_000_000, 1_000)  # a partition
FORMATS = {"kafkalog": "kafkalog's source", "kafka": "Spark's Kafka source"}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    if kafka_source() is None:
        pytest.skip("Spark's Kafka source cannot be had here")
    with spark_session(2) as session:
        yield session


@pytest.fixture(scope="module", params=[KAFKA, BROKER])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A name and an address of a broker that has the topic."""
    name = str(request.param)
    with brokers(tmp_path_factory.mktemp("wire"), [name]) as running:
        fill_broker(running[name].bootstrap, [RECORDS] * PARTITIONS)
        yield name, running[name].bootstrap


def noop(df: Any) -> None:
    df.write.format("noop").mode("overwrite").save()


def aggregate(df: Any) -> None:
    rows = df.selectExpr("sum(length(value))", "count(*)").collect()
    assert tuple(rows[0]) == (PARTITIONS * RECORDS * 100, PARTITIONS * RECORDS)


@pytest.mark.spark
@pytest.mark.parametrize("action", [noop, aggregate])
def test_wire(
    measure: Any, spark: Any, broker: tuple[str, str], action: Callable[[Any], None]
) -> None:
    """Rows a second from a broker through Spark."""
    name, bootstrap = broker

    def loads(kind: str) -> Callable[[], Any]:
        reader = spark.read.format(kind).option("subscribe", TOPIC)
        return lambda: reader.option("kafka.bootstrap.servers", bootstrap).load()

    rows = PARTITIONS * RECORDS
    sides = [Side(shown, rows, action, loads(kind)) for kind, shown in FORMATS.items()]
    wants = [Want(FORMATS["kafkalog"], than=FORMATS["kafka"], factor=3)]
    key = f"spark-wire-{action.__name__}-{'kafka' if name == KAFKA else 'kafkalog'}"
    measure(
        key, f"Spark local[2] {action.__name__}, over the wire from {name}", sides, wants, jvm=True
    )
