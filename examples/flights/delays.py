"""Spark over the same directory: delay by carrier and month."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import layout
from source import Flight
from tour import check, code, say, table

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def why_no_spark() -> str | None:
    """Why Spark cannot run here; None when it can."""
    java = shutil.which("java")
    if java is None:
        return "there is no Java (17 or newer) on this machine"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'"(\d+)', said)
    if version is None or int(version[1]) < 17:
        return f"Spark needs Java 17 or newer, {java} is {said.splitlines()[0] if said else '?'}"
    return None


def by_carrier_and_month(directory: Path, flights: list[Flight]) -> None:
    """Average departure delay of the year, by Spark's own engine, checked against Python."""
    if reason := why_no_spark():
        say(f"skipped: {reason}")
        return
    code(
        'spark.read.format("kafkalog").option("path", ...).option("subscribe", "flights").load()\n'
        '     .select(key, from_json(value)).groupBy(carrier, month).agg(avg("dep_delay"))'
    )
    with _without_greeting():
        rows = _aggregate(directory)
    known: dict[tuple[str, int], list[int]] = defaultdict(list)
    for flight in flights:
        record = json.loads(flight.value)
        if record["dep_delay"] is not None:
            known[record["carrier"], record["month"]].append(record["dep_delay"])
    shown = []
    for carrier in sorted({carrier for carrier, _ in rows}):
        cells = [rows.get((carrier, month)) for month in range(1, 13)]
        shown.append([carrier, *("·" if c is None else f"{c[0]:.1f}" for c in cells)])
    say("average departure delay in minutes")
    table(["", *MONTHS], shown)
    same = rows.keys() == known.keys() and all(
        count == len(known[place]) and abs(mean - sum(known[place]) / count) < 1e-9
        for place, (mean, count) in rows.items()
    )
    check(same, f"all {len(rows)} averages are those that Python finds in the source")


def _aggregate(directory: Path) -> dict[tuple[str, int], tuple[float, int]]:
    """Mean and number of known delays, by carrier and month."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    builder: Any = SparkSession.builder
    spark = (
        builder.master("local[2]")
        .appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        # A job of seconds: what the JVM's second compiler costs it never gives back.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    try:
        frame = (
            spark.read.format("kafkalog")
            .option("path", str(directory))
            .option("subscribe", layout.TOPIC)
            .load()
        )
        flight = f.from_json(frame.value.cast("string"), "month int, dep_delay int")
        means = (
            frame.select(frame.key.cast("string").alias("carrier"), flight.alias("flight"))
            .where("flight.dep_delay is not null")
            .groupBy("carrier", "flight.month")
            .agg(f.avg("flight.dep_delay").alias("mean"), f.count("*").alias("count"))
        )
        return {(row.carrier, row.month): (row["mean"], row["count"]) for row in means.collect()}
    finally:
        spark.stop()


@contextmanager
def _without_greeting() -> Iterator[None]:
    """Keep what Spark and Java write to standard error, and show it only on failure."""
    sys.stderr.flush()
    shown = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(shown, kept.read())
            raise
        finally:
            os.dup2(shown, 2)
            os.close(shown)
