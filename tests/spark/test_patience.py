"""Targets that are away for a while: plans, tasks and deliveries wait for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog.sink import delivery
from pyspark_kafkalog.sink.rows import SinkError

import kafkalog
from kafkalog.client.link.cluster import Backoff
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.port import Port
from tests.spark.engine import Checkpoint, Query
from tests.spark.reading import reader
from tests.spark.writing import Job, values

Away = Callable[[], None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "broker") as made:
        made.create_topic("t")
        made.fill("t", [b"a"])
        yield made


@pytest.fixture
def away(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> Away:
    """Stop the broker; it is back after the first wait."""
    real = Backoff.wait

    def wait(self: Backoff) -> None:
        broker.start()
        real(self)

    monkeypatch.setattr(Backoff, "wait", wait)
    return broker.stop


def wire(broker: TestBroker, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, **more}


def test_a_load_waits(broker: TestBroker, away: Away, caplog: pytest.LogCaptureFixture) -> None:
    """For a job that starts while the broker restarts."""
    given = wire(broker, subscribe="t")
    away()
    assert DefaultSource(given).schema().names[:2] == ["key", "value"]
    (told,) = caplog.messages
    assert f"the brokers at {broker.bootstrap_servers}: PeerGone: " in told
    assert "retrying for up to 180 s" in told


def test_a_plan_and_its_tasks_wait(broker: TestBroker, away: Away) -> None:
    """Tasks wait for kafkaConsumer.pollTimeoutMs, as those of Spark's Kafka source do."""
    away()
    (task,) = reader(wire(broker, subscribe="t")).partitions()
    made = reader(wire(broker, subscribe="t", **{"kafka.default.api.timeout.ms": "1"}))
    away()
    assert [batch.column("value").to_pylist() for batch in made.read(task)] == [[b"a"]]


def test_a_stream_waits(broker: TestBroker, away: Away) -> None:
    kept = Checkpoint()
    query = Query(wire(broker), kept, subscribe="t", startingOffsets="earliest")
    away()
    query.drain()
    broker.fill("t", [b"b"])
    away()
    query = Query(wire(broker), kept, subscribe="t", startingOffsets="earliest")
    query.drain()
    assert [row[3] for row in kept.rows] == [b"a", b"b"]


@pytest.mark.parametrize("step", ["_write", "_recall", "tell_blocking"])
def test_a_delivery_waits(
    broker: TestBroker, away: Away, micro: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The broker goes away before the step."""
    real = getattr(delivery, step)

    def after(*given: Any) -> Any:
        away()
        return real(*given)

    monkeypatch.setattr(delivery, step, after)
    writer, messages = micro(0, values("b"), path="", **wire(broker))
    writer.commit(messages, 0)
    broker.start()
    assert [one.value for one in broker.records("t")] == [b"a", b"b"]


def test_a_delivery_survives_a_restart_in_its_middle(
    broker: TestBroker, micro: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = delivery._send

    def send(*given: Any) -> Any:
        sent = real(*given)
        broker.restart()
        return sent

    monkeypatch.setattr(delivery, "_send", send)
    writer, messages = micro(0, values("b"), values("c"), path="", **wire(broker))
    writer.commit(messages, 0)
    assert sorted(one.value for one in broker.records("t")) == [b"a", b"b", b"c"]


def test_a_delivery_gives_up_in_the_end(job: Job) -> None:
    with closing(Port()) as port:
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{port.number}"}
        with pytest.raises(SinkError, match=r"the brokers at 127\.0\.0\.1:\d+: PeerGone"):
            job(values("a"), path="", **given, **{"kafka.delivery.timeout.ms": "1"})


def test_a_delivery_waits_for_a_directory_that_is_in_use(
    micro: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Used by another stream, which is just delivering, or by a program that has it open."""
    writer, messages = micro(0, values("a"))
    store = kafkalog.Store(tmp_path / "data")
    real = Backoff.wait

    def wait(self: Backoff) -> None:
        store.close()
        real(self)

    monkeypatch.setattr(Backoff, "wait", wait)
    writer.commit(messages, 0)
    assert list(kafkalog.pandas.read(tmp_path / "data", "t")["value"]) == [b"a"]


def test_a_directory_that_stays_in_use_is_told_with_its_owner(job: Job, tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path / "data") as store:
        with pytest.raises(SinkError) as told:
            job(values("a"), **{"kafka.delivery.timeout.ms": "1"})
        for words in (f"process {os.getpid()} owns", "waited for 0.001 s", "if a broker has it"):
            assert words in str(told.value)
        assert "t" not in store


def test_reports_are_read_during_a_sink(job: Job, tmp_path: Path) -> None:
    """Even while another process has the directory's lock."""
    job(values("a", "b"))
    with kafkalog.Store(tmp_path / "data") as store:
        store["t"][0].append(b"c")
        found = kafkalog.pandas.read(tmp_path / "data", "t")
        assert list(found["value"]) == [b"a", b"b", b"c"]
        with kafkalog.Log(tmp_path / "data" / "t-0", mode="r") as log:
            assert [one.value for one in log.read()] == [b"a", b"b", b"c"]
