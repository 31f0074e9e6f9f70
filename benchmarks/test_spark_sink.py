"""Rows from Spark into a topic: our sink, and Spark's own Kafka sink on Apache Kafka.

A batch write of records of a 16 B key and a 100 B value out of parquet, local[2], into two
partitions, uncompressed.  Ours is one transaction, exactly once, into a directory, a broker of
ours, and Apache Kafka; Spark's own sink sends at least once, acks=all.  Each round writes to its
own topic.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.measure import Side, Want, scaled

pytest.importorskip("pyspark", "4.0")

from benchmarks.broker.brokers import KAFKA, OURS, Served, brokers
from benchmarks.spark.session import kafka_source, spark_session
from tests.support import apache

RECORDS = scaled(500_000, 2_000)
PARTITIONS = 2
DIRECTORY, BROKER = "kafkalog, a directory", "kafkalog, a broker"
TO_KAFKA = f"kafkalog, into Kafka {apache.VERSION}"
THEIRS = f"Spark's Kafka sink, Kafka {apache.VERSION}"
_numbers = count()


class Target(NamedTuple):
    """Where a round writes to."""

    topic: str
    options: dict[str, str]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session(PARTITIONS) as session:
        yield session


@pytest.fixture(scope="module")
def rows(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The records as a frame, read from parquet each time that it is used."""
    path = str(tmp_path_factory.mktemp("rows") / "parquet")
    frame = spark.range(0, RECORDS, 1, PARTITIONS).selectExpr(
        "cast(lpad(id, 16, '0') as binary) key", "cast(lpad(id, 100, '0') as binary) value"
    )
    frame.write.parquet(path)
    return spark.read.parquet(path)


@pytest.mark.spark
def test_batch_write(measure: Any, folder: Path, rows: Any) -> None:
    """Rows a second into a topic."""
    servers = [OURS, KAFKA] if kafka_source() else [OURS]
    with brokers(folder, servers) as running:
        sides = [to_directory(folder, rows), to_broker(BROKER, "kafkalog", running[OURS], rows)]
        if KAFKA in running:
            sides.append(to_broker(TO_KAFKA, "kafkalog", running[KAFKA], rows))
            sides.append(to_broker(THEIRS, "kafka", running[KAFKA], rows))
        wants = [Want(DIRECTORY, than=THEIRS, factor=3), Want(BROKER, than=THEIRS, factor=3)]
        measure(
            "spark-sink", "Spark local[2] batch write", sides, wants, writes=RECORDS * 160, jvm=True
        )


def write(kind: str, rows: Any, target: Target) -> None:
    writer = rows.write.format(kind).mode("append").option("topic", target.topic)
    writer.options(**target.options).save()


def to_directory(folder: Path, rows: Any) -> Side:
    def setup() -> Target:
        return Target("bench", {"path": str(folder / f"directory-{next(_numbers)}")})

    def done(target: Target) -> None:
        shutil.rmtree(target.options["path"])

    return Side(DIRECTORY, RECORDS, lambda target: write("kafkalog", rows, target), setup, done)


def to_broker(name: str, kind: str, broker: Served, rows: Any) -> Side:
    def setup() -> Target:
        options = {"kafka.bootstrap.servers": broker.bootstrap}
        return Target(broker.new_topic(PARTITIONS), options)

    def done(target: Target) -> None:
        broker.drop_topic(target.topic)

    return Side(name, RECORDS, lambda target: write(kind, rows, target), setup, done)
