"""Spark over the same directory: delay by carrier and month."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import layout
import sparks
from source import read_rows
from tour import check, code, say, table

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def by_carrier_and_month(session: sparks.Session, directory: Path) -> None:
    """Average departure delay of the year, by Spark's own engine, checked against the source."""
    code(
        'spark.read.format("kafkalog").option("path", ...).option("subscribe", "flights").load()\n'
        '     .select(key, from_json(value)).groupBy(carrier, month).agg(avg("dep_delay"))'
    )
    with session.use() as spark:
        rows = _aggregate(spark, directory)
    shown = []
    for carrier in sorted({carrier for carrier, _ in rows}):
        cells = [rows.get((carrier, month)) for month in range(1, 13)]
        shown.append([carrier, *("·" if c is None else f"{c[0]:.1f}" for c in cells)])
    say("average departure delay in minutes")
    table(["", *MONTHS], shown)
    known = _known()
    same = rows.keys() == known.keys() and all(
        count == known[place][1] and abs(mean - known[place][0]) < 1e-9
        for place, (mean, count) in rows.items()
    )
    check(same, f"all {len(rows)} averages are those that Arrow finds in the source")


def _known() -> dict[tuple[str, int], tuple[float, int]]:
    """The same from the source."""
    grouped = read_rows().group_by(["carrier", "month"])
    means = grouped.aggregate([("dep_delay", "mean"), ("dep_delay", "count")])
    columns = ("carrier", "month", "dep_delay_mean", "dep_delay_count")
    rows = zip(*(means[name].to_pylist() for name in columns), strict=True)
    return {(carrier, month): (mean, count) for carrier, month, mean, count in rows if count}


def _aggregate(spark: Any, directory: Path) -> dict[tuple[str, int], tuple[float, int]]:
    """Mean and number of known delays, by carrier and month."""
    from pyspark.sql import functions as f

    frame = (
        spark.read.format("kafkalog")
        .option("path", str(directory))
        .option("subscribe", layout.TOPIC)
        .load()
    )
    flight = f.from_json(frame.value.cast("string"), "month int, dep_delay int")
    means = (
        frame.select(frame.key.cast("string").alias("carrier"), flight.alias("flight"))
        .groupBy("carrier", "flight.month")
        .agg(f.avg("flight.dep_delay").alias("mean"), f.count("flight.dep_delay").alias("count"))
    )
    return {
        (row.carrier, row.month): (row["mean"], row["count"])
        for row in means.collect()
        if row["count"]
    }
