"""Drivers and workers are killed while two streams write, one into a directory and one into a
running broker: the rows at the end have no duplicate and no gap, and are in order.

A separate application runs the streams.  A stream that lost its worker continues in the same
application, one that lost its driver in the next.  Five kills, in `make torture` sixty.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.testing.broker import TestBroker
from tests.conftest import ROOT
from tests.spark.conftest import build_session, spark_environment
from tests.spark.cutting import CuttingSource, next_order
from tests.support.effort import LONG, SEED

pytestmark = [
    pytest.mark.spark, pytest.mark.long, pytest.mark.explore,
    pytest.mark.timeout(3600 if LONG else 600),
]  # fmt: skip

TARGETS = ("directory", "broker")
PARTITIONS, ROWS = 2, 60
"""Per micro-batch; each partition of the topic belongs to one task."""
BATCH_ROWS = 10
"""In each piece of rows that a task gets."""
KILLS = 60 if LONG else 5
TASK, COMMIT = "worker in a task", "worker in a commit"
KINDS = [TASK, "driver", COMMIT, TASK, "driver and worker", COMMIT, TASK, COMMIT]
"""In turn.  Killing a driver is expensive: the next takes seconds to start."""
STEPS = ["_target", "_write", "_recall", "_send", "forget"]


def orders_of(draw: random.Random, kinds: list[str]) -> list[str]:
    """A kill of each kind, in the form of `cutting`, at random steps of random micro-batches."""
    orders, batch = [], 0
    for kind in kinds:
        batch += draw.randrange(3)
        if kind in ("driver", COMMIT):
            step = draw.choice(STEPS)
            when = draw.choice(["before", "after", str(draw.randrange(60))])
        else:
            step = "write"
            when = draw.choice(["before", "within", "after", str(draw.randrange(60))])
        orders.append(f"{step}:{when}:{'driver' if 'driver' in kind else 'worker'}:{batch}")
    return orders


def run_streams(place: Path, servers: str) -> None:
    """The application: both streams, until no order is left."""
    from pyspark.errors import PySparkException

    # A task that died is retried.
    spark = build_session(place / "warehouse", "local[2,3]")
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH_ROWS)
    spark.dataSource.register(CuttingSource)
    where = {
        "directory": {"path": str(place / "data")},
        "broker": {"kafka.bootstrap.servers": servers},
    }
    queries: dict[str, Any] = {}
    left = {target: count_orders(place / target) for target in TARGETS}
    while any(next_order(place / target) for target in TARGETS):
        for target, options in where.items():
            if target not in queries:
                queries[target] = start(spark, place, target, options)
        try:
            spark.streams.awaitAnyTermination(1)
        except PySparkException as error:
            spark.streams.resetTerminated()
            for target in [name for name, query in queries.items() if not query.isActive]:
                del queries[target]
                now = count_orders(place / target)
                assert now < left[target], f"{target} ended without an order: {error}"
                left[target] = now
    for target in TARGETS:  # a batch after the last kill
        query = queries.get(target)
        if query is None or not query.isActive:
            query = start(spark, place, target, where[target])
        last = query.lastProgress["batchId"] if query.lastProgress else -1
        while (query.lastProgress["batchId"] if query.lastProgress else -1) <= last:
            query.awaitTermination(0.1)
        query.stop()
    print("ended")
    spark.stop()


def start(spark: Any, place: Path, target: str, options: dict[str, str]) -> Any:
    rows = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=ROWS, numPartitions=PARTITIONS)
        .load()
        .selectExpr("cast(value as string) value", f"cast(value % {PARTITIONS} as int) partition")
    )
    return (
        rows.writeStream.format("kafkalog_cutting")
        .option("checkpointLocation", str(place / f"{target}-checkpoint"))
        .options(topic="t", orders=str(place / target), **options)
        .start()
    )


def count_orders(folder: Path) -> int:
    return len(list(folder.iterdir()))


def check(where: Any) -> int:
    """Check that the rows of whole micro-batches are there, once and in order; returns their
    number."""
    with kafkalog.Consumer(
        where, config={"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    ) as consumer:
        parts = [kafkalog.TopicPartition("t", number) for number in range(PARTITIONS)]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        while any(consumer.position(part) < ends[part] for part in parts):
            for one in consumer.poll(1.0):
                found[one.partition].append(int(one.value))
    for number, values in found.items():
        assert values == list(range(number, len(values) * PARTITIONS, PARTITIONS))
    counts = {len(values) for values in found.values()}
    assert len(counts) == 1 and counts.pop() % (ROWS // PARTITIONS) == 0, counts
    return sum(map(len, found.values()))


def test_streams_survive_kills_of_their_processes(java: str, tmp_path: Path) -> None:
    draw = random.Random(SEED)
    kinds = [KINDS[number % len(KINDS)] for number in range(KILLS)]
    draw.shuffle(kinds)
    for number, target in enumerate(TARGETS):
        (tmp_path / target).mkdir()
        for index, order in enumerate(orders_of(draw, kinds[number :: len(TARGETS)])):
            (tmp_path / target / f"{index:03}").write_text(order)
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", PARTITIONS)
    with TestBroker(tmp_path / "served") as broker:
        with kafkalog.Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([kafkalog.NewTopic("t", PARTITIONS)]).check()
        ends = Counter(run_until_killed(tmp_path, broker.bootstrap_servers))
        assert not any(count_orders(tmp_path / target) for target in TARGETS)
        assert check(broker.bootstrap_servers) > 0
    with kafkalog.Store(tmp_path / "data") as store:
        assert check(store) > 0
    print(f"{KILLS} kills, {ends['killed']} of drivers")


def run_until_killed(place: Path, servers: str) -> list[str]:
    """Run the application until it ends well; how each run ended."""
    words = [sys.executable, "-m", "tests.spark.test_sink_kills", str(place), servers]
    environment = {**os.environ, **spark_environment()}
    ends: list[str] = []
    while True:
        before = sum(count_orders(place / target) for target in TARGETS)
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800
        )
        if done.returncode == 0:
            assert done.stdout.splitlines()[-1] == "ended"
            return [*ends, "ended"]
        ends.append("killed")
        after = sum(count_orders(place / target) for target in TARGETS)
        assert after < before, f"it died without an order: {done.stderr[-4000:]}"


if __name__ == "__main__":
    run_streams(Path(sys.argv[1]), sys.argv[2])
