"""The sink in a real Spark session: batch, streams, and workers and drivers that die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import kafkalog
from tests.conftest import ROOT
from tests.spark.conftest import spark_environment
from tests.spark.cutting import CuttingSource

pytestmark = pytest.mark.spark

FILES, LINES = 2, 25


def lines(folder: Path) -> list[str]:
    """Files of text, read one a micro-batch."""
    folder.mkdir()
    for number in range(FILES):
        text = "".join(f"{number:02}-{line:02}\n" for line in range(LINES))
        (folder / f"{number}.txt").write_text(text)
        os.utime(folder / f"{number}.txt", (1_700_000_000 + number,) * 2)
    return [f"{number:02}-{line:02}" for number in range(FILES) for line in range(LINES)]


def stream(spark: Any, tmp_path: Path, kind: str = "kafkalog", **options: str) -> Any:
    """All files into the topic `t`, a file a micro-batch."""
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    return (
        rows.writeStream.format(kind)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
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
    write = frame.write.format("kafkalog").mode("append").option("includeHeaders", "true")
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
    wanted = lines(tmp_path / "in")
    query = stream(spark, tmp_path)
    query.awaitTermination()
    assert records(tmp_path / "data") == wanted
    with kafkalog.Store(tmp_path / "data") as store:
        (found,) = store.admin.list_group_offsets(str(query.id)).values()
    assert found.offset == FILES


CUTS = ["write:before", "_send:after", "_write:after", "forget:before", "forget:after"]
"""The rest of the steps without a session: test_sink.py."""


def test_workers_that_die_at_every_step(spark: Any, tmp_path: Path) -> None:
    """Each time the query fails, and goes on from its checkpoint."""
    spark.dataSource.register(CuttingSource)
    once = tmp_path / "once"
    for number, cut in enumerate(CUTS):
        place = tmp_path / str(number)
        place.mkdir()
        wanted = lines(place / "in")
        once.touch()
        with pytest.raises(PySparkException):
            stream(
                spark, place, "kafkalog_cutting", cut=f"{cut}:worker", cutonce=str(once)
            ).awaitTermination()
        assert not once.exists(), cut
        stream(
            spark, place, "kafkalog_cutting", cut=f"{cut}:worker", cutonce=str(once)
        ).awaitTermination()
        assert records(place / "data") == wanted, cut


APP = """
import json, sys
from pathlib import Path
from tests.spark.conftest import build_session
from tests.spark.cutting import CuttingSource
from tests.spark.test_sink_session import stream
place, cut = Path(sys.argv[1]), sys.argv[2]
spark = build_session(place / "warehouse")
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(CuttingSource)
stream(spark, place, "kafkalog_cutting", cut=cut, cutonce=str(place / "once")).awaitTermination()
print(json.dumps("ended"))
"""


def test_a_driver_that_is_killed(java: str, tmp_path: Path) -> None:
    """Between the transaction's commit and Spark's note of it."""
    wanted = lines(tmp_path / "in")
    environment = {**os.environ, **spark_environment()}
    for cut, dies in (("_write:after:driver", True), ("", False)):
        if dies:
            (tmp_path / "once").touch()
        words = [sys.executable, "-c", APP, str(tmp_path), cut or "write:before:worker"]
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110
        )
        assert (done.returncode == 0) is not dies, done.stderr[-2000:]
        assert not (tmp_path / "once").exists()
    assert json.loads(done.stdout.splitlines()[-1]) == "ended"
    assert records(tmp_path / "data") == wanted
