"""Spark over topics of other shapes: compressed, uneven, of ten thousand segments.

Compressed topics are compared with Spark's own Kafka source on Apache Kafka, local[2].  The uneven
topic has a partition a hundred times as large as each of the others; the even one has the same
rows spread over the same partitions.  What is planned is a batch read of the whole topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from benchmarks.measure import Side, Want, scaled

pytest.importorskip("pyspark", "4.0")

from benchmarks.broker.brokers import KAFKA, brokers
from benchmarks.spark.session import KAFKA_SOURCE, OURS, kafka_source, spark_session
from benchmarks.spark.topics import TOPIC, fill_broker, fill_directory

RECORDS = scaled(1_000_000, 2_000)
CODECS = ("zstd", "lz4")
UNEVEN_PARTITIONS = 8
SEGMENTS = scaled(10_000, 20)
SEGMENT_BYTES = 1 << 10
PLANNING_S = 1.0
EVEN, UNEVEN = "even partitions", "one is 100 x the others"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session(2) as session:
        yield session


def noop(df: Any) -> None:
    df.write.format("noop").mode("overwrite").save()


@pytest.mark.spark
@pytest.mark.parametrize("codec", CODECS)
def test_compressed(
    measure: Any, spark: Any, tmp_path_factory: pytest.TempPathFactory, codec: str
) -> None:
    """Rows a second of a compressed topic."""
    folder = tmp_path_factory.mktemp(codec)
    counts = [RECORDS // 2] * 2
    fill_directory(folder / "ours", counts, codec)
    with brokers(folder, [KAFKA] if kafka_source() else []) as running:
        reader = spark.read.format("kafkalog").option("subscribe", TOPIC)
        sides = [Side(OURS, RECORDS, noop, lambda: reader.load(str(folder / "ours")))]
        if KAFKA in running:
            bootstrap = running[KAFKA].bootstrap
            fill_broker(bootstrap, counts, codec)
            theirs = spark.read.format("kafka").option("subscribe", TOPIC)
            theirs = theirs.option("kafka.bootstrap.servers", bootstrap)
            sides.append(Side(KAFKA_SOURCE, RECORDS, noop, theirs.load))
        wants = [Want(OURS, than=KAFKA_SOURCE, factor=3)]
        measure(f"spark-noop-{codec}", f"Spark local[2] noop, {codec}", sides, wants, jvm=True)


@pytest.mark.spark
def test_uneven(measure: Any, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Seconds for a topic of which nearly all is in one partition."""
    folder = tmp_path_factory.mktemp("uneven")
    small = RECORDS // (100 + UNEVEN_PARTITIONS - 1)
    counts = [small * 100] + [small] * (UNEVEN_PARTITIONS - 1)
    even = sum(counts) // UNEVEN_PARTITIONS
    fill_directory(folder / "uneven", counts)
    fill_directory(folder / "even", [even] * UNEVEN_PARTITIONS)

    def side(name: str, place: str) -> Side:
        reader = spark.read.format("kafkalog").option("subscribe", TOPIC)
        return Side(name, 1, noop, lambda: reader.load(str(folder / place)))

    wants = [Want(UNEVEN, than=EVEN, factor=1 / 1.2)]
    sides = [side(UNEVEN, "uneven"), side(EVEN, "even")]
    measure(
        "spark-uneven", "Spark local[2] noop, uneven partitions", sides, wants, unit="s", jvm=True
    )


@pytest.mark.spark
def test_planning(measure: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Seconds to plan a topic of many segments, without a session."""
    from pyspark_kafkalog import DefaultSource

    directory = tmp_path_factory.mktemp("segments")
    fill_segments(directory)

    def plan() -> None:
        source = DefaultSource({"path": str(directory), "subscribe": TOPIC})
        assert source.reader(source.schema()).partitions()

    wants = [Want(OURS, figure=PLANNING_S)]
    work = f"Spark plans a topic of {SEGMENTS:,} segments"
    measure("spark-planning", work, [Side(OURS, 1, plan)], wants, unit="s", jvm=False)


def fill_segments(directory: Path) -> None:
    """One partition of SEGMENTS segments, one batch each."""
    config = {"segment.bytes": SEGMENT_BYTES}
    with kafkalog.Log(directory / f"{TOPIC}-0", config=config) as log:
        for _ in range(SEGMENTS):
            log.append_many([b"v" * (SEGMENT_BYTES - 200)])
        assert len(log.segments) == SEGMENTS
