"""Streams in a real Spark session: behaviour that needs Spark's own engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark_kafkalog import lag

import kafkalog
from tests.conftest import ROOT
from tests.spark.conftest import spark_environment
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark

LONG_S = 280


def started(spark: Any, place: Path, run: Any = None, **options: str) -> Any:
    """A query from the topic `t` to files, of all that is there unless `run` is another trigger."""
    rows = spark.readStream.format("kafkalog").option("subscribe", "t")
    rows = rows.option("startingOffsets", "earliest").options(**options).load(str(place / "data"))
    return (
        rows.selectExpr("topic", "partition", "offset", "cast(value as string) value")
        .writeStream.format("json")
        .option("path", str(place / "out"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(**(run or {"availableNow": True}))
        .start()
    )


def wrote(spark: Any, place: Path) -> list[Any]:
    columns = "partition int, offset long, value string"
    rows = spark.read.schema(columns).json(str(place / "out")).collect()
    assert len({(row.partition, row.offset) for row in rows}) == len(rows)
    return list(rows)


def found(spark: Any, place: Path) -> list[str]:
    """The values that it wrote, in the order of the log."""
    rows = {(row.partition, row.offset): row.value for row in wrote(spark, place)}
    return [rows[place] for place in sorted(rows)]


def append(store: kafkalog.Store, partition: int, *values: str) -> None:
    store["t"][partition].append_many([value.encode() for value in values])


def test_available_now_again_and_again(spark: Any, tmp_path: Path) -> None:
    """From its checkpoint, with new partitions, in limited batches; lag in the progress."""
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", 1)
        append(store, 0, *"abcde")
        query = started(spark, tmp_path, maxOffsetsPerTrigger="2")
        query.awaitTermination(LONG_S)
        batches = [one for one in query.recentProgress if one.numInputRows]
        assert [one.numInputRows for one in batches] == [2, 2, 1]
        assert [lag(one).total for one in batches] == [3, 1, 0]
        append(store, 0, "f")
        store.admin.create_partitions({"t": 2})
        append(store, 1, "g")
        started(spark, tmp_path).awaitTermination(LONG_S)
        started(spark, tmp_path).awaitTermination(LONG_S)
        assert found(spark, tmp_path) == list("abcdefg")


def test_a_stream_that_runs_while_records_partitions_and_transactions_come(
    spark: Any, tmp_path: Path
) -> None:
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", 1)
        query = started(spark, tmp_path, {"processingTime": "0 seconds"})
        try:
            append(store, 0, "a")
            wait_for(lambda: reached(query, "0", 1), "the first record")
            store.admin.create_partitions({"t": 2})
            append(store, 1, "b")
            wait_for(lambda: reached(query, "1", 1), "a record of the new partition")
            with kafkalog.Producer(store, transactional_id="p") as producer:
                producer.init_transactions()
                with producer.transaction():
                    producer.send("t", b"c", partition=1)
            wait_for(lambda: reached(query, "1", 3), "the transaction with its marker")
        finally:
            query.stop()
        assert found(spark, tmp_path) == list("abc")


def reached(query: Any, partition: str, offset: int) -> bool:
    if query.exception() is not None:
        raise query.exception()
    progress = query.lastProgress
    return progress is not None and f'"{partition}": {offset}' in str(progress.sources[0].endOffset)


def test_missing_records_are_reported_or_skipped(spark: Any, tmp_path: Path) -> None:
    """Retention between two runs, then a topic recreated between two more."""
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", 1)
        append(store, 0, "a")
        started(spark, tmp_path).awaitTermination(LONG_S)
        append(store, 0, "b", "c", "d")
        store["t"][0].delete_before(3)
        with pytest.raises(StreamingQueryException, match="t-0: offset 1 was to be read next"):
            started(spark, tmp_path).awaitTermination(LONG_S)
        started(spark, tmp_path, failOnDataLoss="false").awaitTermination(LONG_S)
        store.delete_topic("t")
        store.create_topic("t", 1)
        append(store, 0, *"uvwxyz")
        with pytest.raises(StreamingQueryException, match="the topic was deleted and recreated"):
            started(spark, tmp_path).awaitTermination(LONG_S)
        loose = started(spark, tmp_path, failOnDataLoss="false")
        loose.awaitTermination(LONG_S)
    values = [
        row.value for row in spark.read.schema("value string").json(str(tmp_path / "out")).collect()
    ]
    assert sorted(values) == [*"adu", *"vwxyz"]


APP = """
import sys
from pathlib import Path
from tests.spark.conftest import build_session
from tests.spark.test_stream_session import started
place = Path(sys.argv[1])
spark = build_session(place / "warehouse")
spark.sparkContext.setLogLevel("OFF")
print("up", flush=True)
started(spark, place, maxOffsetsPerTrigger="1").awaitTermination()
"""


@pytest.mark.long
def test_a_driver_that_is_killed_in_the_middle(spark: Any, java: str, tmp_path: Path) -> None:
    """In one of many small batches; the next run has each record once."""
    wanted = [f"{number:03}" for number in range(200)]
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", 1)
        append(store, 0, *wanted)
        child = subprocess.Popen(
            [sys.executable, "-c", APP, str(tmp_path)],
            cwd=ROOT, env={**os.environ, **spark_environment()}, start_new_session=True,
        )  # fmt: skip
        try:
            commits = tmp_path / "checkpoint" / "commits"
            # The other driver must start first.
            wait_for(lambda: len(list(commits.glob("[0-9]*"))) > 3, "batches", LONG_S)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        assert len(list(commits.glob("[0-9]*"))) < len(wanted)
        started(spark, tmp_path).awaitTermination(LONG_S)
    assert found(spark, tmp_path) == wanted


def test_errors_come_at_the_start(spark: Any, tmp_path: Path) -> None:
    """Missing things at load; options that only the engine asks for at the start."""
    (tmp_path / "data").mkdir()
    with pytest.raises(Exception, match="no topic 't' here"):
        started(spark, tmp_path)
    with kafkalog.Log(tmp_path / "data" / "t-0") as log:
        log.append(b"a")
    with pytest.raises(Exception, match="'endingOffsets' belongs to batch reads"):
        started(spark, tmp_path, endingOffsets="latest").awaitTermination(LONG_S)


def test_a_schema_of_fewer_columns(spark: Any, tmp_path: Path) -> None:
    with kafkalog.Log(tmp_path / "t-0") as log:
        log.append_many([b"a", b"b"])
    rows = (
        spark.readStream.format("kafkalog").schema("offset long, value binary")
        .option("subscribe", "t").option("startingOffsets", "earliest").load(str(tmp_path))
    )  # fmt: skip
    query = (
        rows.writeStream.format("memory").queryName("fewer").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    query.awaitTermination(LONG_S)
    assert [bytes(row.value) for row in spark.table("fewer").orderBy("offset").collect()] == [
        b"a", b"b",
    ]  # fmt: skip
