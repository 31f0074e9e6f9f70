"""The sink in a real Spark session: batch, streams, and workers that die."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import datasource
from pyspark_kafkalog import register

import kafkalog
from tests.spark.cutting import CuttingSource

pytestmark = pytest.mark.spark

FILES, LINES = 2, 25


def lines(folder: Path) -> list[str]:
    """Text files, read one a micro-batch."""
    folder.mkdir()
    for number in range(FILES):
        text = "".join(f"{number:02}-{line:02}\n" for line in range(LINES))
        (folder / f"{number}.txt").write_text(text)
        os.utime(folder / f"{number}.txt", (1_700_000_000 + number,) * 2)
    return [f"{number:02}-{line:02}" for number in range(FILES) for line in range(LINES)]


def stream(
    spark: Any, tmp_path: Path, kind: str = "kafkalog", checkpoint: str = "checkpoint",
    name: str = "", **options: str,
) -> Any:  # fmt: skip
    """All files into the topic `t`, one file a micro-batch.  No `checkpoint`: the session's."""
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    writer = rows.writeStream.queryName(name) if name else rows.writeStream
    if checkpoint:
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
    return (
        writer.format(kind)
        .options(topic="t", path=str(tmp_path / "data"), **options)
        .trigger(availableNow=True)
        .start()
    )


def records(directory: Path, topic: str = "t") -> list[str]:
    with kafkalog.Store(directory) as store:
        log = store[topic][0]
        return [(one.value or b"").decode() for one in log.read(isolation="read_committed")]


def test_a_data_frame(spark: Any, tmp_path: Path) -> None:
    """As into Spark's Kafka sink, and read back by the source."""
    frame = spark.range(1000).selectExpr(
        "cast(id % 7 as string) key", "cast(id as string) value",
        "array(named_struct('key', 'h', 'value', encode(string(id), 'utf-8'))) headers",
        "id unused",
    )  # fmt: skip
    write = frame.write.format("kafkalog").mode("append")
    write.option("topic", "t").save(str(tmp_path / "data"))
    found = (
        spark.read.format("kafkalog").option("includeHeaders", "true").option("subscribe", "t")
        .load(str(tmp_path / "data"))
        .selectExpr("cast(key as string) k", "cast(value as string) v", "headers[0].value h")
        .collect()
    )  # fmt: skip
    assert sorted((int(row.v), row.k) for row in found) == [(i, str(i % 7)) for i in range(1000)]
    assert all(row.h.decode() == row.v for row in found)


def test_a_stream(spark: Any, tmp_path: Path) -> None:
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        pytest.skip("writing streams needs PySpark 4.1")
    wanted = lines(tmp_path / "in")
    query = stream(spark, tmp_path)
    query.awaitTermination()
    assert records(tmp_path / "data") == wanted
    with kafkalog.Store(tmp_path / "data") as store:
        (found,) = store.admin.list_group_offsets(f"spark-sink-{query.id}").values()
    assert found.offset == FILES


@pytest.mark.parametrize("by", ["option", "session"])
def test_a_copied_checkpoint(spark: Any, tmp_path: Path, by: str) -> None:
    """Spark passes a query's checkpoint to the sink; test_sink_checkpoints.py tests the rest."""
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        pytest.skip("writing streams needs PySpark 4.1")

    def stream_there() -> Any:
        if by == "option":
            return stream(spark, tmp_path)
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
        try:
            return stream(spark, tmp_path, checkpoint="", name="checkpoint")
        finally:
            spark.conf.unset("spark.sql.streaming.checkpointLocation")

    wanted = lines(tmp_path / "in")
    stream_there().awaitTermination()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    (tmp_path / "in" / f"{FILES}.txt").write_text("02-00\n")
    stream_there().awaitTermination()
    with pytest.raises(PySparkException, match=rf"batch {FILES}: .*/checkpoint; .*/copy, a copy"):
        stream(spark, tmp_path, checkpoint="copy").awaitTermination()
    assert records(tmp_path / "data") == [*wanted, "02-00"]


def test_foreach_batch(spark: Any, tmp_path: Path) -> None:
    """Two topics under one sinkId; then a write too many, which Spark's run id reveals."""
    wanted = lines(tmp_path / "in")
    routes = {"even": "value like '%0' or value like '%5'", "odd": "value like '%1'"}

    def route(rows: Any, batch: int) -> None:
        for topic, which in [*routes.items(), *more]:
            write = rows.where(which).write.format("kafkalog").mode("append").option("topic", topic)
            write.option("sinkId", "route").option("batchId", batch).save(str(tmp_path / "data"))

    def run() -> None:
        rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
        writer = rows.writeStream.foreachBatch(route).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    more: list[tuple[str, str]] = []
    run()
    found = {topic: records(tmp_path / "data", topic) for topic in routes}
    assert found == {
        "even": [one for one in wanted if one[-1] in "05"],
        "odd": [one for one in wanted if one[-1] == "1"],
    }
    (tmp_path / "in" / f"{FILES}.txt").write_text("02-00\n02-01\n02-05\n")
    more = [("even", "value like '%1'")]
    with pytest.raises(PySparkException, match=r"in even with 2 rows, and this write has 1\."):
        run()
    assert records(tmp_path / "data", "even") == [*found["even"], "02-00", "02-05"]


def test_a_write_from_a_thread(spark: Any, tmp_path: Path) -> None:
    """Where no session is active, until `register` sets it."""

    def write() -> str:
        register(spark)
        rows = spark.createDataFrame([("x",)], "value string")
        rows.write.format("kafkalog").mode("append").option("topic", "t").save(path)
        return "written"

    path = str(tmp_path / "data")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(write).result() == "written"
    assert records(tmp_path / "data") == ["x"]


def test_update_mode_wants_foreach_batch(spark: Any, tmp_path: Path) -> None:
    lines(tmp_path / "in")
    rows = spark.readStream.text(str(tmp_path / "in")).groupBy("value").count()
    writer = rows.selectExpr("value").writeStream.outputMode("update").trigger(availableNow=True)

    def write(some: Any, batch: int) -> None:
        to = some.write.format("kafkalog").mode("append").option("topic", "t")
        to.option("sinkId", "s").option("batchId", batch).save(str(tmp_path / "data"))

    refused = writer.format("kafkalog").option("checkpointLocation", str(tmp_path / "first"))
    with pytest.raises(PySparkException, match="not support Update mode"):
        refused.option("topic", "t").start(str(tmp_path / "data")).awaitTermination()
    taken = writer.foreachBatch(write).option("checkpointLocation", str(tmp_path / "second"))
    taken.start().awaitTermination()
    assert len(records(tmp_path / "data")) == FILES * LINES


CUTS = ["write:before", "_send:after", "_write:after", "forget:before", "forget:after"]
"""test_sink.py runs the other steps without a session."""


@pytest.mark.long
def test_workers_that_die_at_every_step(spark: Any, tmp_path: Path) -> None:
    """Each time the query fails, and continues from its checkpoint."""
    spark.dataSource.register(CuttingSource)
    for number, cut in enumerate(CUTS):
        place = tmp_path / str(number)
        place.mkdir()
        wanted = lines(place / "in")
        orders = place / "orders"
        orders.mkdir()
        (orders / "0").write_text(f"{cut}:worker")
        with pytest.raises(PySparkException):
            stream(spark, place, "kafkalog_cutting", orders=str(orders)).awaitTermination()
        assert not list(orders.iterdir()), cut
        stream(spark, place, "kafkalog_cutting", orders=str(orders)).awaitTermination()
        assert records(place / "data") == wanted, cut
