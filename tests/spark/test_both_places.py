"""A batch read of a directory, of our broker and of Apache Kafka: the same options and rows."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog.columns import NAMES
from pyspark_kafkalog.errors import BadOption, DataLoss
from pyspark_kafkalog.options import parse_batch
from pyspark_kafkalog.places import open_place

import kafkalog
from kafkalog import TopicPartition
from tests.spark.conftest import START_MS
from tests.spark.reading import batches_of, reader, run

RECORDS = 600
PARTITIONS = 3


class Target:
    """A topic of a place: clients write it, and a reader reads it as Spark does."""

    def __init__(self, where: Any, topic: str) -> None:
        self.where = where
        self.topic = topic
        inside = isinstance(where, kafkalog.Store)
        self.options = {"path": str(where.path)} if inside else {"kafka.bootstrap.servers": where}

    def create(self, partitions: int = PARTITIONS, **config: str) -> None:
        given = {name.replace("_", "."): text for name, text in config.items()}
        with kafkalog.Admin(self.where) as admin:
            admin.create_topics([kafkalog.NewTopic(self.topic, partitions, config=given)]).check()

    def write(self, partitions: int = PARTITIONS, records: int = RECORDS, **config: Any) -> None:
        """Record i of partition p: value `p:i`, padded, key `i % 7` or none, i s after START_MS."""
        with kafkalog.Producer(self.where, config={"batch.size": 2_000, **config}) as producer:
            for number in range(partitions):
                rows = range(records)
                producer.send_many(
                    self.topic,
                    [f"{number}:{i}:".encode().ljust(60, b".") for i in rows],
                    [b"%d" % (i % 7) if i % 7 else None for i in rows],
                    partition=number,
                    timestamps_ms=[START_MS + 1000 * i for i in rows],
                    headers=[[("h", b"%d" % i)] if i % 5 == 0 else [] for i in rows],
                )

    def reader(self, columns: tuple[str, ...] = NAMES, **options: str) -> Any:
        if not {"subscribe", "subscribePattern", "assign"} & {*options}:
            options["subscribe"] = self.topic
        return reader({**self.options, **options}, columns)

    def rows(self, **options: str) -> list[tuple[int, int]]:
        """(partition, offset)"""
        return [row[1:] for row in run(self.reader(**options))[1]]

    def each(self, *offsets: int) -> str:
        """JSON of an offset, or a time, for each partition."""
        inner = ",".join(f'"{number}":{at}' for number, at in enumerate(offsets))
        return f'{{"{self.topic}":{{{inner}}}}}'

    def delete_before(self, offset: int, partition: int = 0) -> None:
        with kafkalog.Admin(self.where) as admin:
            admin.delete_records({TopicPartition(self.topic, partition): offset}).check()

    def delete(self) -> None:
        with kafkalog.Admin(self.where) as admin:
            admin.delete_topics([self.topic]).check()


@pytest.fixture
def empty(where: Any, unique: str) -> Target:
    """A topic that does not exist yet."""
    return Target(where, unique)


@pytest.fixture(scope="module")
def written(where: Any) -> Target:
    """A topic that no test changes."""
    target = Target(where, "written")
    target.create()
    target.write(**{"compression.type": "zstd"})
    return target


ALL = [(number, i) for number in range(PARTITIONS) for i in range(RECORDS)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxBytesPerPartition": "3000"},
        {"maxBytesPerPartition": "500"},
        pytest.param({"maxBytesPerPartition": "1"}, marks=pytest.mark.long),
        {"maxRecordsPerPartition": "77"},
        {"minPartitions": "2"},
        {"minPartitions": "23"},
        {"minPartitions": "23", "maxBytesPerPartition": "5k", "maxRecordsPerPartition": "100"},
    ],
)
def test_no_record_is_lost_or_read_twice_at_the_cuts(written, options):
    tasks, rows = run(written.reader(**options))
    assert [row[1:] for row in rows] == ALL
    assert len(tasks) >= int(options.get("minPartitions", 1))
    most = int(options.get("maxRecordsPerPartition", len(ALL)))
    assert all(sum(one.range.count for one in task.pieces) <= most for task in tasks)


def test_large_ranges_are_cut_and_small_ones_share_a_task(written):
    assert len(written.reader().partitions()) == 1
    assert len(written.reader(maxBytesPerPartition="2k").partitions()) > PARTITIONS


def test_rows_are_the_records(written):
    batches = batches_of(written.reader(assign=f'{{"{written.topic}":[1]}}'))[1]
    assert pa.Table.from_batches(batches).to_pylist() == [
        {
            "key": b"%d" % (i % 7) if i % 7 else None,
            "value": f"1:{i}:".encode().ljust(60, b"."),
            "topic": written.topic,
            "partition": 1,
            "offset": i,
            "timestamp": pa.scalar((START_MS + 1000 * i) * 1000, pa.timestamp("us", "UTC")).as_py(),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"%d" % i}] if i % 5 == 0 else None,
        }
        for i in range(RECORDS)
    ]


@pytest.mark.parametrize("columns", [("offset",), ("value", "key"), ("headers",), NAMES[::-1]])
def test_only_the_columns_asked_for(written, columns):
    batches = batches_of(written.reader(columns), columns)[1]
    assert sum(batch.num_rows for batch in batches) == len(ALL)


def test_offsets(written):
    limits = {
        "startingOffsets": written.each(100, -2, 599),
        "endingOffsets": written.each(100, 3, -1),
    }
    assert written.rows(**limits) == [(1, 0), (1, 1), (1, 2), (2, 599)]


def test_offsets_by_topic(written):
    limits = {
        "startingOffsets": json.dumps({written.topic: "earliest"}),
        "endingOffsets": written.each(1, 0, 2),
    }
    assert written.rows(**limits) == [(0, 0), (2, 0), (2, 1)]
    limits = {
        "startingOffsets": written.each(599, 598, 600),
        "endingOffsets": json.dumps({written.topic: "latest"}),
    }
    assert written.rows(**limits) == [(0, 599), (1, 598), (1, 599)]
    with pytest.raises(BadOption, match="names nobody, which is not read here"):
        both = {written.topic: "earliest", "nobody": "earliest"}
        written.rows(startingOffsets=json.dumps(both))


def test_times(written):
    limits = {
        "startingTimestamp": str(START_MS + 9_001),
        "endingTimestamp": str(START_MS + 12_000),
    }
    assert written.rows(**limits) == [(number, i) for number in range(PARTITIONS) for i in (10, 11)]
    limits = {
        "startingOffsetsByTimestamp": written.each(START_MS, START_MS + 599_000, START_MS + 1),
        "endingOffsetsByTimestamp": written.each(START_MS + 1, START_MS + 10**9, START_MS + 2),
    }
    assert written.rows(**limits) == [(0, 0), (1, 599)]


@pytest.mark.parametrize(
    ("start", "end", "there"),
    [
        ("-1", None, []),
        ("-2", None, ALL),
        ("-3", None, [(number, RECORDS - 1) for number in range(PARTITIONS)]),
        (None, "-1", ALL),
        (None, "-2", []),
        (None, "-3", [one for one in ALL if one[1] < RECORDS - 1]),
    ],
)
def test_times_below_zero_are_those_of_kafkas_source(written, start, end, there):
    """It queries a broker for them, where they have special meanings."""
    given = {"startingTimestamp": start, "endingTimestamp": end}
    assert written.rows(**{name: text for name, text in given.items() if text}) == there
    by_partition = {
        name.replace("Timestamp", "OffsetsByTimestamp"): written.each(*[int(text)] * PARTITIONS)
        for name, text in given.items()
        if text
    }
    assert written.rows(**by_partition) == there


def test_no_record_at_the_starting_time(written):
    late = {"startingTimestamp": str(START_MS + 10**9)}
    with pytest.raises(BadOption, match=f"{written.topic}-0: no record at or after"):
        written.reader(**late).partitions()
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert written.rows(**late, **latest) == []


def test_missing_topics_and_partitions_are_reported_at_load(written):
    for options, words in (
        ({"subscribe": "writte"}, "no topic 'writte' here; did you mean 'written'"),
        ({"assign": f'{{"{written.topic}":[7]}}'}, "no partition 7 of"),
    ):
        with pytest.raises(BadOption, match=words):
            DefaultSource({**written.options, **options}).schema()
        loose = {**options, "failondataloss": "false"}
        DefaultSource({**written.options, **loose}).schema()
        with pytest.raises(BadOption, match=words):
            written.reader(**loose).partitions()


def test_offsets_that_are_not_there(written, caplog):
    limits = {"endingOffsets": written.each(601, 1, 1)}
    with pytest.raises(DataLoss, match="written-0: wanted offsets 0 to 601, found committed"):
        written.reader(**limits).partitions()
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        rows = written.rows(**limits, failOnDataLoss="false")
    assert Counter(row[0] for row in rows) == {0: 600, 1: 1, 2: 1}
    assert "written-0: wanted offsets 0 to 601" in caplog.text


def test_a_pattern(written, caplog):
    assert written.rows(subscribePattern="writt.*") == ALL
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        assert written.rows(subscribePattern="q.*") == []
    assert "no topic of" in caplog.text and "matches 'q.*'" in caplog.text


def test_a_partition_that_was_never_written_is_there(empty):
    empty.create(2)
    assert empty.rows() == []
    empty.write(1, 5)
    assert empty.rows(startingOffsets=empty.each(0, 0)) == [(0, i) for i in range(5)]


def test_committed_and_all_records(empty):
    """With records of aborted transactions, of an open one, and records after it."""
    empty.create(1)
    settings = {"batch.size": 100}
    with kafkalog.Producer(empty.where, transactional_id=empty.topic, config=settings) as producer:
        producer.init_transactions()
        for end in ("commit", "abort", "commit", None):
            producer.begin_transaction()
            producer.send_many(empty.topic, [b"%d" % i for i in range(50)], partition=0)
            producer.flush()
            if end is not None:
                getattr(producer, f"{end}_transaction")()
        with kafkalog.Producer(empty.where) as other:
            other.send(empty.topic, b"behind", partition=0).result()
        committed = [*range(50), *range(102, 152)]
        both = [*range(50), *range(51, 101), *range(102, 152), *range(153, 204)]
        for cuts in ({}, {"maxRecordsPerPartition": "7"}):
            assert [at for _, at in empty.rows(**cuts)] == committed
            for name in ("isolation.level", "kafka.isolation.level"):
                assert [at for _, at in empty.rows(**{name: "read_uncommitted"}, **cuts)] == both


def test_records_deleted_after_planning(empty, caplog):
    empty.create(1)
    empty.write(1)
    strict, lenient = empty.reader(), empty.reader(failOnDataLoss="false")
    (task,) = strict.partitions()
    empty.delete_before(400)
    with pytest.raises(DataLoss, match=rf"{empty.topic}-0, offsets 0 to 600.* found committed off"):
        list(strict.read(task))
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        assert sum(batch.num_rows for batch in lenient.read(task)) == 200
    assert "offsets 400 to 600" in caplog.text


@pytest.mark.parametrize("columns", [("offset", "value"), ("value",)])
def test_records_deleted_while_they_are_read(empty, columns, caplog):
    """Retention overtakes a reader: it continues at the new start, or reports the loss."""
    empty.create(1, segment_bytes="1048576")
    empty.write(1, 30_000, **{"batch.size": 50_000})
    given = {} if "path" in empty.options else {"kafka.max.partition.fetch.bytes": "1000"}
    for strict in (False, True):
        made = empty.reader(columns, failOnDataLoss=str(strict).lower(), **given)
        (task,) = made.partitions()
        batches = made.read(task)
        seen = [next(batches).column("value").to_pylist()]
        new_start = 25_000 + strict
        empty.delete_before(new_start)
        if strict:
            with pytest.raises(DataLoss):
                list(batches)
                list(made.read(task))
            continue
        seen += [batch.column("value").to_pylist() for batch in batches]
        offsets = [int(value.split(b":")[1]) for some in seen for value in some]
        assert offsets == sorted(set(offsets)) and (offsets[0], offsets[-1]) == (0, 29_999)
        assert {*range(new_start, 30_000)} <= {*offsets}


def test_a_recreated_topic_is_another_topic(empty, caplog, wait_until):
    empty.create(1)
    empty.write(1, 10)
    strict, lenient = empty.reader(), empty.reader(failOnDataLoss="false")
    (task,) = strict.partitions()
    assert sum(batch.num_rows for batch in strict.read(task)) == 10
    empty.delete()
    place = open_place(parse_batch({**empty.options, "subscribe": "x"}, NAMES))
    wait_until(lambda: (empty.topic, 0) not in place.present(), "the topic is gone")
    with pytest.raises(DataLoss, match="the topic was deleted"):
        list(strict.read(task))
    assert list(lenient.read(task)) == []
    empty.create(1)
    empty.write(1, 10)
    with pytest.raises(DataLoss, match="was deleted and recreated"):
        list(strict.read(task))
    assert list(lenient.read(task)) == []
    assert "recreated" in caplog.text
    place.close()
