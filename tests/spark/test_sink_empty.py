"""Micro-batches and writes without rows, and rows without a topic: what is committed, and what is
remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource
from pyspark.sql import functions as f
from pyspark_kafkalog.sink.rows import SinkError

import kafkalog
from tests.spark.test_sink_memory import written
from tests.spark.writing import Job, batch, values

EMPTY = batch(value=[])


def behind(target: Path, sink: str) -> list[int]:
    """The numbers after the last batches of a sink, by topic."""
    with kafkalog.Store(target) as store:
        found = store.admin.list_group_offsets(f"spark-sink-{sink}")
    return [one.offset for _, one in sorted(found.items())]


@pytest.mark.parametrize("tasks", [[], [[]], [[], []], [[EMPTY], [EMPTY, EMPTY]]])
def test_a_micro_batch_without_rows_touches_nothing(
    micro: Any, tmp_path: Path, tasks: list[Any]
) -> None:
    """No directory is created for it, and none is opened: a broker may have it."""
    writer, messages = micro(0, *tasks)
    writer.commit(messages, 0)
    assert not (tmp_path / "data").exists()
    with kafkalog.Broker(tmp_path / "data", listeners=()):
        writer, messages = micro(1, *tasks)
        writer.commit(messages, 1)
    assert not (tmp_path / "data.staging").exists()


def test_micro_batches_without_rows_between_others(micro: Any, tmp_path: Path) -> None:
    """They are not remembered.  The last one with rows is, and is dropped when it comes again."""
    for number, some in [(0, values("a")), (1, []), (2, values("b")), (2, values("b")), (3, [])]:
        writer, messages = micro(number, some, [EMPTY])
        writer.commit(messages, number)
    assert behind(tmp_path / "data", "q1") == [3]
    writer, messages = micro(4, [EMPTY], values("c"))
    writer.commit(messages, 4)
    assert behind(tmp_path / "data", "q1") == [5]
    assert written(tmp_path / "data") == {"t": ["a", "b", "c"]}


def test_a_batch_write_without_rows(job: Job, tmp_path: Path) -> None:
    """Nothing is created; its number can still be written."""
    job([], [EMPTY])
    job([EMPTY], sinkId="s", batchId="7")
    assert not list(tmp_path.iterdir())
    for _ in range(2):
        job(values("a"), sinkId="s", batchId="7")
    job([], sinkId="s", batchId="8")
    assert behind(tmp_path / "data", "s") == [8]
    assert written(tmp_path / "data") == {"t": ["a"]}


@pytest.mark.parametrize("topics", [["a", None], [None, None], [None]])
def test_a_row_without_a_topic_fails_its_task(job: Job, tmp_path: Path, topics: list[Any]) -> None:
    """As in Spark's Kafka sink.  Nothing of the write is left, not even staged rows."""
    wrong = batch(value=[b"x"] * len(topics), topic=topics)
    with pytest.raises(SinkError, match="KAFKA_NULL_TOPIC_IN_DATA: a row has no topic"):
        job([batch(value=[b"v"], topic=["a"]), wrong], schema="all", topic="")
    assert not (tmp_path / "data").exists()
    assert not list((tmp_path / "data.staging").rglob("*.log"))
    job([batch(value=[], topic=[]), wrong], schema="all", topic="t")  # the option has one
    assert written(tmp_path / "data") == {"t": ["x"] * len(topics)}


@pytest.mark.long
@pytest.mark.spark
def test_a_query_with_batches_without_data(spark: Any, tmp_path: Path) -> None:
    """Spark ends a window in a batch without input; the batch with the input has no rows."""
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        pytest.skip("writing streams needs PySpark 4.1")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("0\n1\n2\n100\n")
    counts = (
        spark.readStream.text(str(tmp_path / "in"))
        .select(f.timestamp_seconds(f.col("value").cast("int")).alias("at"))
        .withWatermark("at", "1 second")
        .groupBy(f.window("at", "10 seconds"))
        .count()
        .select(f.col("count").cast("string").alias("value"))
    )
    query = (
        counts.writeStream.format("kafkalog").option("topic", "t")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start(str(tmp_path / "data"))
    )  # fmt: skip
    query.awaitTermination()
    assert sorted(one.name for one in (tmp_path / "checkpoint" / "commits").glob("[0-9]")) == [
        "0",
        "1",
    ]
    assert behind(tmp_path / "data", query.id) == [2]
    assert written(tmp_path / "data") == {"t": ["3"]}
