"""Streams of a directory, of our broker and of Apache Kafka: the same offsets and records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark_kafkalog import DefaultSource, lag
from pyspark_kafkalog.columns import NAMES, schema_of
from pyspark_kafkalog.errors import DataLoss
from pyspark_kafkalog.stream import reader as stream_reader

import kafkalog
from tests.spark.conftest import write_topic
from tests.spark.engine import Checkpoint, Query, ReadAllAvailable
from tests.spark.test_both_places import Target
from tests.support.waiting import wait_for


def drained(target: Target, checkpoint: Checkpoint, **options: str) -> Query:
    given = {"subscribe": target.topic, "startingOffsets": "earliest"} | options
    query = Query(target.options, checkpoint, **given)
    query.drain()
    return query


@pytest.fixture
def target(where: Any, unique: str) -> Target:
    target = Target(where, unique)
    target.create(2)
    return target


def test_a_query_goes_on_where_it_was(target: Target) -> None:
    """In limited batches, over a restart, with new records and a new partition."""
    checkpoint = Checkpoint()
    target.write(2, 50)
    drained(target, checkpoint, maxOffsetsPerTrigger="30")
    assert len(checkpoint.offsets) >= 3
    assert json.loads(checkpoint.offsets[-1])[target.topic] == {"0": 50, "1": 50}
    target.write(1, 10)
    with kafkalog.Admin(target.where) as admin:
        admin.create_partitions({target.topic: 3}).check()
    with kafkalog.Producer(target.where) as producer:
        producer.send(target.topic, b"new", partition=2)

    def all_there() -> bool:
        drained(target, checkpoint)
        return len(checkpoint.rows) >= 111

    wait_for(all_there, "the new partition")
    assert len(checkpoint.rows) == len(set(checkpoint.rows)) == 111


def lag_of(query: Query) -> dict[tuple[str, int], int]:
    """By partition, from a progress as Spark makes it."""
    source = {
        "description": "org.apache.spark.PythonMicroBatchStream@1",
        "endOffset": query.checkpoint.offsets[-1],
        "latestOffset": json.dumps(query.reader.reportLatestOffset()),
    }
    return dict(lag({"sources": [source]}).each)


def test_the_lag_of_a_query_that_catches_up(target: Target) -> None:
    target.write(2, 50)
    query = Query(
        target.options, Checkpoint(), subscribe=target.topic, startingOffsets="earliest",
        maxOffsetsPerTrigger="40",
    )  # fmt: skip
    found = []
    while query.trigger():
        assert set(lag_of(query)) == {(target.topic, 0), (target.topic, 1)}
        found.append(sum(lag_of(query).values()))
    assert found == [60, 20, 0]
    target.write(1, 7)
    query.reader.latestOffset(json.loads(query.checkpoint.offsets[-1]), ReadAllAvailable())
    assert sum(lag_of(query).values()) == 7


def test_records_that_went_unread_are_told(target: Target) -> None:
    strict, loose = Checkpoint(), Checkpoint()
    target.write(2, 10)
    for checkpoint in (strict, loose):
        drained(target, checkpoint)
    target.write(1, 20)
    target.delete_before(25)
    with pytest.raises(DataLoss, match="offset 10 was to be read next, but the log begins with 25"):
        drained(target, strict)
    drained(target, loose, failOnDataLoss="false")
    assert len(loose.rows) == 25


def test_a_recreated_topic_is_another_topic(target: Target) -> None:
    checkpoint = Checkpoint()
    target.write(2, 10)
    drained(target, checkpoint)
    target.delete()

    def made() -> bool:
        try:
            target.create(2)
        except kafkalog.KafkalogError:
            return False
        return True

    wait_for(made, "the old topic is gone")
    target.write(2, 20)
    with pytest.raises(DataLoss, match="deleted and recreated"):
        drained(target, checkpoint)
    drained(target, checkpoint, failOnDataLoss="false")
    assert len(checkpoint.rows) == 20 + 40


@pytest.mark.parametrize("limited", [True, False])
def test_older_sparks_are_warned_about_available_now(tmp_path, monkeypatch, caplog, limited):
    """Spark 4.0 and 4.1 lack that module, and do not say which trigger it is."""
    monkeypatch.setattr(stream_reader, "_admission", None)
    write_topic(tmp_path, "t", 1, 10)
    given = {"path": str(tmp_path), "subscribe": "t", "startingoffsets": "earliest"}
    if limited:
        given["maxoffsetspertrigger"] = "4"
    reader = DefaultSource(given).streamReader(schema_of(NAMES))
    assert reader.initialOffset() == reader.initialOffset() == {"t": {"0": 0}}
    assert reader.latestOffset()["t"]["0"] == (4 if limited else 10)
    assert caplog.text.count("before Spark 4.2 Trigger.AvailableNow") == limited
