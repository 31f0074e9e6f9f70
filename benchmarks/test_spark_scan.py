"""Spark over a log, against the most that Spark takes from any Python source, against Spark's own
Kafka source on Apache Kafka, and against parquet.

Two partitions of records of a 16 B key and a 100 B value, uncompressed, in batches of 64 KiB; one
session, PySpark's Unix socket to its workers on.  The ceiling is a data source that yields one
prebuilt Arrow batch again and again: the difference to it is what reading, checking and decoding
the log costs.  parquet is what Spark itself writes of the same columns (snappy), and answers
count() from its footers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.measure import Side, Want, scaled

pytest.importorskip("pyspark", "4.0")

from benchmarks.broker.brokers import KAFKA, brokers
from benchmarks.spark.session import (
    CEILING,
    KAFKA_SOURCE,
    OURS,
    PARQUET,
    kafka_source,
    spark_session,
)
from benchmarks.spark.topics import TOPIC, fill_broker, fill_directory

PARTITIONS = 2
RECORDS = scaled(1_000_000, 1_000)  # a partition
CEILING_SHARE = {1: 0.9, 2: 0.8}


class Places(NamedTuple):
    """Where the topic is."""

    directory: Path
    parquet: Path
    bootstrap: str
    """Apache Kafka's; "" if it cannot run here."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    folder = tmp_path_factory.mktemp("spark")
    counts = [RECORDS] * PARTITIONS
    fill_directory(folder / "ours", counts)
    rivals = [KAFKA] if kafka_source() else []
    with brokers(folder, rivals) as running:
        bootstrap = running[KAFKA].bootstrap if KAFKA in running else ""
        if bootstrap:
            fill_broker(bootstrap, counts)
        yield Places(folder / "ours", folder / "parquet", bootstrap)


@pytest.fixture(scope="module", params=[2, 1])
def slots(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def spark(slots: int, places: Places) -> Iterator[Any]:
    with spark_session(slots) as session:
        if not places.parquet.exists():
            rows = session.read.format("kafkalog").option("subscribe", TOPIC)
            rows.load(str(places.directory)).write.parquet(str(places.parquet))
        yield session


def count(df: Any) -> None:
    assert df.count() == PARTITIONS * RECORDS


def noop(df: Any) -> None:
    df.write.format("noop").mode("overwrite").save()


def aggregate(df: Any) -> None:
    df.selectExpr("sum(length(value))", "max(offset)", "count(key)").collect()


def loads(spark: Any, places: Places, columns: str) -> dict[str, Callable[[], Any]]:
    """For the name of each side, what makes its frame of those columns ("": all)."""

    def ours() -> Any:
        reader = spark.read.format("kafkalog").option("subscribe", TOPIC)
        reader = reader.options(maxBytesPerPartition="1g", minPartitions=str(PARTITIONS))
        return (reader.option("columns", columns) if columns else reader).load(
            str(places.directory)
        )

    def prebuilt() -> Any:
        reader = spark.read.format("prebuilt").option("subscribe", TOPIC)
        reader = reader.options(rows=str(RECORDS), partitions=str(PARTITIONS))
        return (reader.option("columns", columns) if columns else reader).load(
            str(places.directory)
        )

    def theirs() -> Any:
        reader = spark.read.format("kafka").option("subscribe", TOPIC)
        frame = reader.option("kafka.bootstrap.servers", places.bootstrap).load()
        return frame.select(*columns.split(",")) if columns else frame

    def parquet() -> Any:
        frame = spark.read.parquet(str(places.parquet))
        return frame.select(*columns.split(",")) if columns else frame

    sides = {OURS: ours, CEILING: prebuilt, KAFKA_SOURCE: theirs, PARQUET: parquet}
    if not places.bootstrap:
        del sides[KAFKA_SOURCE]
    return sides


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "action"),
    [("", count), ("", noop), ("", aggregate), ("value,offset", noop), ("offset", noop)],
)
def test_rows(
    measure: Any,
    spark: Any,
    slots: int,
    places: Places,
    columns: str,
    action: Callable[[Any], None],
) -> None:
    """Rows a second through Spark."""
    rows = PARTITIONS * RECORDS
    sides = [Side(name, rows, action, load) for name, load in loads(spark, places, columns).items()]
    shown = columns.replace(",", " and ") or "all columns"
    key = f"spark-{action.__name__}-{columns.replace(',', '-') or 'all'}-{slots}"
    wants = [
        Want(OURS, than=CEILING, factor=CEILING_SHARE[slots]),
        Want(OURS, than=KAFKA_SOURCE, factor=5),
    ]
    measure(key, f"Spark local[{slots}] {action.__name__}, {shown}", sides, wants, jvm=True)
