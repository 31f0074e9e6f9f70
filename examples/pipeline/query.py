"""The Spark program: departures in, one record for each airport and day out, each exactly once.

As a program: `query.py DATA CHECKPOINT [OFFSETS]` reads what is in the topic `departures` of the
data directory, at most OFFSETS per micro-batch, and ends.  When started again, it continues from
its checkpoint, whatever stopped it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

SOURCE, SINK = "departures", "days"
OFFSETS_PER_TRIGGER = 40_000
DAY = "1 day"
MIDNIGHT_H = 5
"""New York's, in UTC, all year: no flight leaves in the hour that summer time moves."""
WATERMARK_DAYS = 10
"""How long a day waits for its last flight.  A topic's partitions are read in parallel, each by
its share: one may be days ahead of another, and what is older than the watermark is dropped."""


def session(folder: Path, stderr: int | None = None) -> Any:
    """A small Spark on this machine.  `stderr`: the file descriptor that its JVM writes to."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    settings = {
        "spark.master": "local[2]",
        "spark.app.name": "days",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.python.unix.domain.socket.enabled": "true",
        # A job of seconds: the JVM's second compiler costs more than it gains.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    conf = SparkConf().setAll(list(settings.items()))
    if stderr is not None:
        SparkContext(conf=conf, gateway=launch_gateway(conf, {"stderr": stderr}))
    builder: Any = SparkSession.builder
    return builder.config(conf=conf).getOrCreate()


def start(spark: Any, data: Path, checkpoint: Path, offsets: int = OFFSETS_PER_TRIGGER) -> Any:
    """Start the streaming query."""
    from pyspark.sql import functions as f

    departures = (
        spark.readStream.format("kafkalog")
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", offsets)
        .load(str(data))
    )
    flight = f.from_json(f.col("value").cast("string"), "dep_delay int")
    days = (
        departures.select(
            "timestamp",
            f.col("key").cast("string").alias("airport"),
            flight["dep_delay"].alias("dep_delay"),
        )
        .withWatermark("timestamp", f"{WATERMARK_DAYS} days")
        .groupBy(f.window("timestamp", DAY, startTime=f"{MIDNIGHT_H} hours"), "airport")
        .agg(
            f.count("*").alias("planned"),
            f.count("dep_delay").alias("departed"),
            f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("delay_minutes"),
        )
    )
    day = f.date_format(f.col("window.start"), "yyyy-MM-dd").alias("day")
    records = days.select(
        f.col("airport").alias("key"),
        f.to_json(f.struct(day, "airport", "planned", "departed", "delay_minutes")).alias("value"),
        f.col("window.start").alias("timestamp"),
    )
    return (
        records.writeStream.format("kafkalog")
        .option("topic", SINK)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(data))
    )


def main() -> None:
    data, checkpoint, *offsets = sys.argv[1:]
    spark = session(Path(checkpoint).parent)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        query = start(spark, Path(data), Path(checkpoint), *map(int, offsets))
        query.awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
