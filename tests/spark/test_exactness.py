"""Any request, of a directory or of its broker, returns exactly the records of `Log.read`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pyspark_kafkalog.columns import NAMES

import kafkalog
from kafkalog import Record, TopicPartition
from kafkalog.testing.broker import TestBroker
from tests.spark.reading import batches_of, reader
from tests.support.effort import SEED, examples

TOPIC, PARTITIONS = "t", 4
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SIZES = (0, 1, 20, 150, 30_000)
ISOLATION = ("read_committed", "read_uncommitted")


@dataclass
class Written:
    """A broker's directory, and the records of its logs."""

    directory: Path
    servers: str
    records: dict[str, list[list[Record]]]
    """By isolation and partition."""
    ends: dict[str, list[tuple[int, int]]]

    def place(self, wire: bool) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers} if wire else {"path": str(self.directory)}


def fill(servers: str, number: int, rng: Random) -> None:
    """Batches of all codecs; transactions that are committed, aborted and left open."""
    at = TOPIC, number
    for round_ in range(12):
        config = {"compression.type": rng.choice(CODECS), "batch.size": rng.choice((200, 50_000))}
        kind = rng.choice(("plain", "commit", "abort"))
        name = f"w{number}" if kind != "plain" else None
        with kafkalog.Producer(servers, transactional_id=name, config=config) as producer:
            if name:
                producer.init_transactions()
                producer.begin_transaction()
            rows = range(rng.randrange(10, 60))
            producer.send_many(
                at[0],
                [None if rng.random() < 0.1 else rng.randbytes(rng.choice(SIZES)) for _ in rows],
                [None if rng.random() < 0.3 else b"k%d" % rng.randrange(5) for _ in rows],
                partition=at[1],
                timestamps_ms=[1_700_000_000_000 + 1000 * round_ + i for i in rows],
                headers=[[("h", rng.randbytes(3)), ("ü", None)][: rng.randrange(3)] for _ in rows],
            )
            producer.flush()
            if name:
                getattr(producer, f"{kind}_transaction")()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    directory = tmp_path_factory.mktemp("exact") / "data"
    rng = Random(SEED)
    small = {"segment.bytes": "1048576", "index.interval.bytes": "200"}
    with TestBroker(directory) as broker:
        servers = broker.bootstrap_servers
        with kafkalog.Admin(servers) as admin:
            admin.create_topics([kafkalog.NewTopic(TOPIC, PARTITIONS, config=small)]).check()
            for number in range(PARTITIONS - 1):  # the last one stays empty
                fill(servers, number, rng)
            admin.delete_records({TopicPartition(TOPIC, 1): 30}).check()
        records: dict[str, list[list[Record]]] = {}
        ends: dict[str, list[tuple[int, int]]] = {}
        for isolation in ISOLATION:
            for number in range(PARTITIONS):
                folder = os.path.join(directory, f"{TOPIC}-{number}")
                with kafkalog.Log(folder, mode="r") as log:
                    found = list(log.read(isolation=isolation))
                    assert not found or len(log.segments) > 1
                    committed = isolation == "read_committed"
                    stop = log.last_stable_offset if committed else log.high_watermark
                    ends.setdefault(isolation, []).append((log.start_offset, stop))
                records.setdefault(isolation, []).append(found)
        yield Written(directory, servers, records, ends)


def cell(record: Record, column: str) -> Any:
    if column == "headers":
        return [{"key": key, "value": value} for key, value in record.headers] or None
    if column == "timestamp":
        return pa.scalar(record.timestamp_ms * 1000, pa.timestamp("us", "UTC")).as_py()
    return 0 if column == "timestampType" else getattr(record, column)


def json_of(each: dict[int, int]) -> str:
    return f'{{"{TOPIC}":{{' + ",".join(f'"{number}":{at}' for number, at in each.items()) + "}}"


@seed(SEED)
@settings(
    max_examples=examples(15), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(data=st.data())
def test_any_offsets_splits_and_columns(written: Written, data: st.DataObject) -> None:
    columns = tuple(data.draw(st.permutations(NAMES)))[: data.draw(st.integers(1, len(NAMES)))]
    isolation = data.draw(st.sampled_from(ISOLATION))
    ranges: dict[int, tuple[int, int]] = {}
    for number in data.draw(st.sets(st.integers(0, PARTITIONS - 1), min_size=1)):
        low, high = written.ends[isolation][number]
        start = data.draw(st.integers(low, high))
        ranges[number] = start, data.draw(st.integers(start, high))
    options = {
        "assign": f'{{"{TOPIC}":{sorted(ranges)}}}',
        "startingOffsets": json_of({number: start for number, (start, _) in ranges.items()}),
        "endingOffsets": json_of({number: stop for number, (_, stop) in ranges.items()}),
        "isolation.level": isolation,
        "failOnDataLoss": data.draw(st.sampled_from(("true", "false"))),
    }
    for name, most in (("maxBytesPerPartition", 500_000), ("maxRecordsPerPartition", 100),
                       ("minPartitions", 40)):  # fmt: skip
        if data.draw(st.booleans()):
            options[name] = str(data.draw(st.integers(1, most)))
    expected = [
        tuple(cell(record, column) for column in columns)
        for number, (start, stop) in sorted(ranges.items())
        for record in written.records[isolation][number]
        if start <= record.offset < stop
    ]
    for wire in (False, True):
        made = reader({**written.place(wire), **options}, columns)
        tasks, batches = batches_of(made, columns)
        rows = [
            row
            for batch in batches
            for row in zip(*(one.to_pylist() for one in batch.columns), strict=True)
        ]
        assert rows == expected, wire
        asked = sum(stop - start for start, stop in ranges.values())
        assert sum(one.range.count for task in tasks for one in task.pieces) == asked
        assert len(tasks) >= min(int(options.get("minPartitions", 0)), asked)
