"""Compaction of a topic that Spark reads: a hole in the offsets is not a loss of records.

With failOnDataLoss, the default: removed records are absent, the others come once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from tests.spark.engine import Checkpoint, Killed, Query
from tests.spark.reading import batches_of, reader

KEYS, RECORDS = 50, 4_000
CONFIG = {
    "cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0",
}  # fmt: skip
Place = tuple[dict[str, str], Any]
"""Options that name it, and the log."""


@pytest.fixture(params=["path", "brokers"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A topic of some segments: keys repeat in batches of about ten records."""
    listeners = ["127.0.0.1:0"] if request.param == "brokers" else []
    with kafkalog.Broker(tmp_path / "data", listeners=listeners) as broker:
        broker.store.create_topic("t", 1, config=CONFIG)
        log = broker.store["t"][0]
        fill(log, 0)
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers} if listeners else {}
        yield {**(servers or {"path": str(tmp_path / "data")}), "subscribe": "t"}, log


def fill(log: Any, first: int) -> None:
    rows = range(first, first + RECORDS)
    keys = [b"%d" % (i % KEYS) for i in rows]
    log.append_many([value(i) for i in rows], keys=keys, batch_bytes=10_000)


def value(offset: int) -> bytes:
    return b"%d" % offset + b"." * 1_000


def offsets(log: Any) -> list[int]:
    return [record.offset for record in log.read()]


def read(task_reader: Any, tasks: list[Any]) -> list[int]:
    found = []
    for task in tasks:
        for batch in task_reader.read(task):
            found += batch.column("offset").to_pylist()
            assert batch.column("value").to_pylist() == [value(at) for at in found[-len(batch) :]]
    return found


COLUMNS = ("offset", "value")


def test_between_the_plan_and_the_read(place: Place) -> None:
    """Most tasks lose all their records."""
    options, log = place
    ours = reader({**options, "maxBytesPerPartition": "20k"}, COLUMNS)
    tasks = ours.partitions()
    assert len(tasks) > 50
    log.compact()
    left = offsets(log)
    assert len(left) < RECORDS / 3
    assert read(ours, tasks) == left
    assert sum(not read(ours, [task]) for task in tasks) > len(tasks) / 2


@pytest.mark.parametrize("stop", [RECORDS // 2, RECORDS])
def test_limits_in_a_hole(place: Place, stop: int) -> None:
    options, log = place
    log.compact()
    left = offsets(log)
    limits = {"startingOffsets": '{"t":{"0":1000}}', "endingOffsets": f'{{"t":{{"0":{stop}}}}}'}
    assert not {1000, RECORDS // 2} & {*left}
    for more in ({}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "100"}):
        _, batches = batches_of(reader({**options, **limits, **more}, COLUMNS), COLUMNS)
        found = [at for batch in batches for at in batch.column("offset").to_pylist()]
        assert found == [at for at in left if 1000 <= at < stop]


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": "300"}, {"maxBytesPerTrigger": "300k"}])
def test_between_two_batches(place: Place, limit: dict[str, str]) -> None:
    """Before each batch of a query that is behind, with new records, and over a restart."""
    options, log = place
    checkpoint = Checkpoint()
    given = {**options, "startingOffsets": "earliest", **limit}
    for run in range(2):
        query = Query(given, checkpoint)
        for _ in range(5):
            query.trigger()
            log.compact()
        if not run:
            fill(log, RECORDS)
    Query(given, checkpoint).drain()
    assert len(checkpoint.offsets) > 4
    rows = [at for _, _, at, _ in checkpoint.rows]
    assert rows == sorted({*rows})
    assert {*offsets(log)} <= {*rows} and len(rows) < RECORDS
    assert [found for *_, found in checkpoint.rows] == [value(at) for at in rows]


def test_before_a_batch_that_runs_again(place: Place) -> None:
    """The query died after reading it; its rows are those that are left."""
    options, log = place
    checkpoint = Checkpoint()
    given = {**options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3000"}
    query = Query(given, checkpoint)
    query.kill_at = "read"
    with pytest.raises(Killed):
        query.trigger()
    log.compact()
    Query(given, checkpoint).drain()
    assert [at for _, _, at, _ in checkpoint.rows] == offsets(log)
