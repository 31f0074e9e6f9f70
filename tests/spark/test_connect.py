"""Spark Connect: a client that has no JVM reads and writes through a server of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.spark.conftest import spark_environment, write_topic

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

CLIENT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

place = Path(sys.argv[1])
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.warehouse.dir", str(place / "warehouse"))
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
print(type(spark).__module__)
source = spark.read.format("kafkalog").option("subscribe", "orders").load(str(place / "in"))
print(source.count(), source.where("partition = 1").agg({"offset": "max"}).first()[0])
rows = source.selectExpr("key", "value").where("partition = 0")
rows.write.format("kafkalog").mode("append").option("topic", "batch").save(str(place / "out"))
query = (
    spark.readStream.format("kafkalog").options(subscribe="orders", startingOffsets="earliest")
    .option("maxOffsetsPerTrigger", 200).load(str(place / "in")).select("key", "value")
    .writeStream.format("kafkalog").option("topic", "stream")
    .option("checkpointLocation", str(place / "checkpoint"))
    .trigger(availableNow=True).start(str(place / "out"))
)
query.awaitTermination()
print(len(query.recentProgress) > 1)
for topic in ("batch", "stream"):
    read = spark.read.format("kafkalog").option("subscribe", topic).load(str(place / "out"))
    print(topic, read.count(), read.select("value").distinct().count())
try:
    spark.read.format("kafkalog").option("subscribe", "nowhere").load(str(place / "in")).count()
except Exception as error:
    print("nowhere" in str(error))
spark.stop()
"""


def test_a_session_through_connect(java: str, tmp_path: Path) -> None:
    """read, write, readStream and writeStream, and an error with its cause."""
    pytest.importorskip("grpc")
    write_topic(tmp_path / "in", "orders", 2, 300)
    environment = {**os.environ, **spark_environment()}
    environment.pop("SPARK_REMOTE", None)
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=550,
    )  # fmt: skip
    assert done.returncode == 0, _told(done.stderr)
    assert done.stdout.splitlines() == [
        "pyspark.sql.connect.session", "600 299", "True", "batch 300 300", "stream 600 600", "True",
    ]  # fmt: skip


def _told(text: str) -> str:
    """The cause, without the JVM's many lines of stack trace."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("at ")]
    return "\n".join(lines)[-6000:]
