"""Lags, and numbers that stand for times, mean what they mean in Kafka's tools."""

from __future__ import annotations

import pytest

from kafkalog import Admin, Producer
from kafkalog.types import TopicPartition
from tests.unit.cli.conftest import Command, Ran


@pytest.fixture
def at(kafkalog: Command, servers: str) -> Command:
    """Run `kafkalog WORDS --bootstrap-server ...`; it must succeed."""

    def run(*words: object) -> Ran:
        ran = kafkalog(*words, "--bootstrap-server", servers)
        assert ran.status == 0, (words, ran)
        return ran

    return run


@pytest.fixture
def topic(at: Command, unique: str) -> str:
    """A topic of one partition."""
    at("topics", "create", unique, "--partitions", 1)
    at("offsets", unique)
    return unique


def test_a_lag_is_told_as_it_is(at: Command, servers: str, topic: str) -> None:
    """Negative past the end of the log; `readable` counts the records that still exist."""
    tp = TopicPartition(topic, 0)
    found = []
    with Producer(servers) as producer, Admin(servers) as admin:
        for _ in range(10):
            producer.send(topic, b"v")
        producer.flush()
        admin.delete_records({tp: 4}).check()
        for offset in (50, 10, 7, 2):
            admin.alter_group_offsets(topic, {tp: offset}).check()
            (row,) = at("groups", "describe", topic, "--json").rows()
            found.append((row["committed"], row["end"], row["lag"], row["readable"]))
            table = at("groups", "describe", topic).out
            assert str(row["lag"]) in table and "readable" in table.lower()
    assert found == [(50, 10, -40, 0), (10, 10, 0, 0), (7, 10, 3, 3), (2, 10, 8, 6)]


@pytest.mark.parametrize(("time_ms", "offset"), [("5000", 0), ("5001", 1), ("9001", 2)])
def test_a_number_that_names_a_time_is_of_milliseconds(
    at: Command, servers: str, topic: str, time_ms: str, offset: int
) -> None:
    """In every option that takes a time."""
    with Producer(servers) as producer:
        for at_ms in (5000, 9000):
            producer.send(topic, b"v", timestamp_ms=at_ms)
    shown = at("consume", "--topic", topic, "--from-time", time_ms, "--format", "%o\n").out
    assert shown.split() == [str(one) for one in range(offset, 2)]
    at("groups", "reset-offsets", topic, "--topic", topic, "--to-datetime", time_ms, "--execute")
    (row,) = at("groups", "describe", topic, "--json").rows()
    assert row["committed"] == offset
