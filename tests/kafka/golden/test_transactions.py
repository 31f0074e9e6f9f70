"""Transactional ids that Apache Kafka wrote: all load, and open ones continue or are aborted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.kafka.golden.test_groups import journal_of, lines
from tests.support import trees
from tests.support.answers import read_all
from tests.unit.coordinator.transaction_calls import Office
from tests.unit.coordinator.virtual_core import WALL_MS

TOPIC = "__transaction_state"
OK = ErrorCode.NONE


@pytest.fixture(params=["transactions", "node-4.4"])
def case(request: pytest.FixtureRequest, kafka_cases: Path) -> Path:
    return kafka_cases / str(request.param)


@pytest.fixture
def office(case: Path) -> Office:
    """A coordinator that starts when Kafka's stopped."""
    count = len(list((case / "log").glob(f"{TOPIC}-*")))
    found = Office(journal=journal_of(case / "log", TOPIC), partitions=count)
    begun = [found.described(one["transactional_id"]).transaction_start_time_ms
             for one in ids(case)]  # fmt: skip
    found.now_ms = max(begun) - WALL_MS
    found.waiting = []
    found.restart()
    return found


def ids(case: Path) -> list[Any]:
    return lines(case / "expected" / "transactions.jsonl")


def still_open(case: Path) -> list[Any]:
    return [one for one in ids(case) if one["state"] == "Ongoing"]


def told(office: Office, one: dict[str, Any]) -> dict[str, Any]:
    """The fields of DescribeTransactions, as Kafka's tool showed them."""
    found = office.described(one["transactional_id"])
    return {
        "transactional_id": found.transactional_id,
        "state": found.transaction_state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "partitions": sorted(f"{t.topic}-{p}" for t in found.topics for p in t.partitions),
    }


def test_all_are_as_kafka_told_them(office: Office, case: Path) -> None:
    expected = ids(case)
    assert [told(office, one) for one in expected] == expected
    assert office.listed() == [one["transactional_id"] for one in expected]
    assert not office.waiting


@pytest.mark.parametrize("commit", [True, False])
def test_open_transactions_are_ended_by_their_producer(
    office: Office, case: Path, commit: bool
) -> None:
    """In all its partitions, Kafka's and one that joins now; and again after a restart."""
    for one in still_open(case):
        name, producer = one["transactional_id"], (one["producer_id"], one["producer_epoch"])
        assert office.add(producer, 7, name=name) == [OK]
        office.restart()
        office.waiting = []
        assert office.end(producer, commit, name=name).error is OK
        where = {f"{m.where.topic}-{m.where.partition}" for m in office.waiting}
        assert where == {*one["partitions"], "a-7"}
        assert {(m.producer_id, m.epoch, m.commit) for m in office.waiting} == {(*producer, commit)}
        office.mark_all()
        office.restart()
        assert office.state(name) == ("CompleteCommit" if commit else "CompleteAbort")


def test_open_transactions_are_aborted_at_their_timeout(office: Office, case: Path) -> None:
    opened = still_open(case)
    office.waiting = None
    office.wait(max(one["timeout_ms"] for one in opened) + 20_000)
    marks = {(m.where, m.producer_id, m.epoch, m.commit) for m in office.marks}
    assert marks == {
        (TopicPartition(topic, int(number)), one["producer_id"], one["producer_epoch"] + 1, False)
        for one in opened
        for topic, number in (where.rsplit("-", 1) for where in one["partitions"])
    }
    assert {office.state(one["transactional_id"]) for one in opened} == {"CompleteAbort"}


def test_an_end_shows_or_hides_the_records_of_its_transaction(case: Path, tmp_path: Path) -> None:
    """In the logs that Kafka wrote: only the records of the open transaction differ."""
    rows = [
        r for r in lines(case / "expected" / "producers.jsonl") if r["txn_start_offset"] is not None
    ]
    assert len(rows) == sum(len(one["partitions"]) for one in still_open(case))
    for row in rows:
        name = f"{row['topic']}-{row['partition']}"
        shown = []
        for commit in (True, False):
            copy = trees.copy_tree(case / "log" / name, tmp_path / str(commit) / name)
            with kafkalog.Log(copy) as log:
                assert log.last_stable_offset <= row["txn_start_offset"]
                log.append_marker(row["producer_id"], row["producer_epoch"], commit)
                assert log.last_stable_offset == log.end_offset
                found = read_all(log, isolation="read_committed")
                shown.append({record.offset for record in found})
        committed, aborted = shown
        assert aborted < committed
        opened = committed - aborted
        assert min(opened) == row["txn_start_offset"]
        assert len(opened) == row["last_sequence"] + 1  # it began with its first sequence
