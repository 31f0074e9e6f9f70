"""Streams through Spark into nothing (`noop`), against the most that Spark takes from any Python
source and against Spark's own Kafka source on Apache Kafka.

Records of a 16 B key and a 100 B value, all columns, local[2], PySpark's Unix socket to its workers
on, the checkpoint on the file system that is measured.  A figure is the median duration that Spark
reports for a query's micro-batches, without the first one; with AvailableNow, of the whole query.
The fast checkpoint manager is `FileSystemBasedCheckpointFileManager`, which Spark has but does not
use by default.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.measure import Side, Want, scaled

pytest.importorskip("pyspark", "4.2")

from benchmarks.broker.brokers import KAFKA, brokers
from benchmarks.spark.session import CEILING, KAFKA_SOURCE, OURS, kafka_source, spark_session
from benchmarks.spark.topics import TOPIC, fill_broker, fill_directory

PARTITIONS = 2
BATCHES = 4
ROWS = scaled(1_000_000, 2_000)  # a micro-batch
TINY_BATCHES = scaled(30, 5)
TINY_TOPIC = "tiny"
LIMIT_S = 120
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
FAST = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class Places(NamedTuple):
    """Where the topics are."""

    directory: Path
    checkpoints: Iterator[Path]
    bootstrap: str
    """Apache Kafka's; "" if it cannot run here."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    folder = tmp_path_factory.mktemp("spark")
    large, tiny = [ROWS * BATCHES // PARTITIONS] * PARTITIONS, [TINY_BATCHES + 1]
    fill_directory(folder / "ours", large)
    fill_directory(folder / "ours", tiny, topic=TINY_TOPIC)
    checkpoints = (folder / "checkpoints" / str(number) for number in count())
    with brokers(folder, [KAFKA] if kafka_source() else []) as running:
        bootstrap = running[KAFKA].bootstrap if KAFKA in running else ""
        if bootstrap:
            fill_broker(bootstrap, large)
            fill_broker(bootstrap, tiny, topic=TINY_TOPIC)
        yield Places(folder / "ours", checkpoints, bootstrap)


@pytest.fixture(scope="module")
def spark(places: Places) -> Iterator[Any]:
    with spark_session(2) as session:
        yield session


def streams(spark: Any, places: Places, topic: str, offsets: int) -> dict[str, Callable[[], Any]]:
    """For the name of each side, what makes its stream, with `offsets` per micro-batch."""
    partitions = PARTITIONS if topic == TOPIC else 1
    common = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": offsets}

    def ours() -> Any:
        return spark.readStream.format("kafkalog").options(**common).load(str(places.directory))

    def prebuilt() -> Any:
        reader = spark.readStream.format("prebuilt").option("subscribe", topic)
        reader = reader.options(rows=str(offsets // partitions), partitions=str(partitions))
        return reader.load(str(places.directory))

    def theirs() -> Any:
        reader = spark.readStream.format("kafka").options(**common)
        return reader.option("kafka.bootstrap.servers", places.bootstrap).load()

    sides = {OURS: ours, CEILING: prebuilt, KAFKA_SOURCE: theirs}
    if not places.bootstrap:
        del sides[KAFKA_SOURCE]
    return sides


def batch_s(stream: Any, places: Places, batches: int) -> float:
    """Seconds of a micro-batch, the median of `batches` without the first."""
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(next(places.checkpoints)))
        .start()
    )
    try:
        ends = time.monotonic() + LIMIT_S
        while len(found := _durations_ms(query)) < batches:
            if query.exception() is not None:
                raise query.exception()
            assert time.monotonic() < ends, f"{len(found)} of {batches} micro-batches"
            time.sleep(0.02)
    finally:
        query.stop()
    return statistics.median(found[1:batches]) / 1000


def _durations_ms(query: Any) -> list[int]:
    progress = query.recentProgress
    return [one["durationMs"]["triggerExecution"] for one in progress if one["numInputRows"]]


@pytest.mark.spark
def test_large_batches(measure: Any, spark: Any, places: Places) -> None:
    """Rows a second in micro-batches of a million."""
    sides = [
        Side(name, ROWS, lambda stream: batch_s(stream, places, BATCHES), stream)
        for name, stream in streams(spark, places, TOPIC, ROWS).items()
    ]
    wants = [Want(OURS, than=CEILING, factor=0.85), Want(OURS, than=KAFKA_SOURCE)]
    work = "Spark local[2] stream, 1,000,000 rows a micro-batch"
    measure("spark-stream-large", work, sides, wants, rounds=3, jvm=True)


def whole_s(stream: Any, places: Places) -> float:
    """Seconds of a query that reads what is there and ends, from its start to its end."""
    begun_s = time.monotonic()
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(next(places.checkpoints)))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(LIMIT_S), f"it has not ended in {LIMIT_S} s"
    found_s = time.monotonic() - begun_s
    assert sum(one["numInputRows"] for one in query.recentProgress) == ROWS * BATCHES
    return found_s


@pytest.mark.spark
def test_available_now(measure: Any, spark: Any, places: Places) -> None:
    """Rows a second of a whole query with the trigger AvailableNow."""
    sides = [
        Side(name, ROWS * BATCHES, lambda stream: whole_s(stream, places), stream)
        for name, stream in streams(spark, places, TOPIC, ROWS * BATCHES).items()
        if name != CEILING  # it has no end
    ]
    wants = [Want(OURS, than=KAFKA_SOURCE, factor=2.5)]
    work = f"Spark local[2] AvailableNow, {ROWS * BATCHES:,} rows, the whole query"
    measure("spark-stream-available", work, sides, wants, rounds=5, jvm=True)


@pytest.mark.spark
@pytest.mark.parametrize(("manager", "wanted_s"), [("", 0.130), (FAST, 0.070)])
def test_tiny_batches(
    measure: Any, spark: Any, places: Places, manager: str, wanted_s: float
) -> None:
    """Seconds a micro-batch of one row."""
    if manager:
        spark.conf.set(MANAGER, manager)
    try:
        sides = [
            Side(name, 1, lambda stream: batch_s(stream, places, TINY_BATCHES), stream)
            for name, stream in streams(spark, places, TINY_TOPIC, 1).items()
        ]
        name = "the fast checkpoint manager" if manager else "Spark's checkpoint manager"
        wants = [Want(OURS, figure=wanted_s), Want(OURS, than=KAFKA_SOURCE)]
        key = f"spark-stream-tiny-{'fast' if manager else 'default'}"
        work = f"Spark local[2] stream, a row a micro-batch, {name}"
        measure(key, work, sides, wants, unit="s", rounds=3, jvm=True)
    finally:
        spark.conf.unset(MANAGER)
