"""Answers that a short poll leaves to a later one, after the group has moved on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Consumer, Producer, errors
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Options
from kafkalog.client.producer.background_calls import Line
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from tests.support.waiting import wait_for
from tests.unit.client.consumer.members import ZERO

OPTIONS: dict[str, Any] = {"group": "g", "heartbeat_ms": 20, "auto_commit": False}
COUNT = 20


def fill(broker: TestBroker, partitions: int) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for i in range(COUNT):
            producer.send("t", b"%d" % i, partition=i % partitions)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "b") as made:
        yield made


@contextmanager
def polled(consumer: Consumer, offsets: Mapping[TopicPartition, int] = {}) -> Iterator[None]:
    """Poll in another thread until the end; then commit these offsets and close."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            consumer.poll(20)
        if offsets:
            consumer.commit(offsets)
        consumer.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_offsets_that_were_asked_for_in_an_earlier_generation(
    broker: TestBroker, reset: str
) -> None:
    """The answer has old commits: another member has read and committed since."""
    broker.create_topic("t", 1)
    fill(broker, 1)
    options = {**OPTIONS, "auto_offset_reset": reset, "assignor": "range"}
    servers = broker.bootstrap_servers
    late = Consumer(servers, "t", client_id="z", **options)
    first = Consumer(servers, "t", client_id="a", **options)  # to which range assigns the partition
    broker.delay("OffsetFetch", 300)

    def left() -> bool:
        late.poll(0)
        connections = (*late._cluster._open.values(), late._cluster._first)
        left = any(one is not None and one._left for one in connections)
        return bool(late.assignment) and left

    wait_for(left, "it has asked for its offsets")
    with late:
        with polled(first, {ZERO: COUNT // 2}):
            wait_for(
                lambda: late.poll(20) is not None and first.assignment == [ZERO],
                "the other one has it",
            )
            assert not late.assignment
        found = []
        wait_for(lambda: found.extend(late.poll(20)) or found, "it reads again")
        assert found[0].offset == COUNT // 2


@pytest.fixture
def parting(broker: TestBroker) -> Iterator[tuple[Consumer, Consumer]]:
    """A cooperative member that has read everything, and a new one; the first commits slowly."""
    broker.create_topic("t", 2)
    fill(broker, 2)
    options = {**OPTIONS, "auto_offset_reset": "earliest", "assignor": "cooperative-sticky"}
    options["session_timeout_ms"] = 30_000
    settings = {"auto_commit": True, "auto_commit_interval_ms": 600_000}
    servers = broker.bootstrap_servers
    one = Consumer(servers, "t", client_id="z", **{**options, **settings})
    found: list[Any] = []
    wait_for(lambda: found.extend(one.poll(20)) or len(found) == COUNT, "it has read all")
    with one:
        yield one, Consumer(servers, "t", client_id="a", **options)


def test_a_share_that_wants_nothing_back_any_more(
    broker: TestBroker, parting: tuple[Consumer, Consumer]
) -> None:
    """Its new owner has left, so the partition stays and is still read."""
    one, two = parting
    broker.delay("OffsetCommit", 2_000, client_id="z")
    with polled(two):
        wait_for(lambda: one.poll(5) is not None and one._state.revoking, "it is to give one up")
    wait_for(lambda: one.poll(5) is not None and one._state.member.state == "in", "it is alone")
    fill(broker, 2)
    found: list[Any] = []
    wait_for(lambda: found.extend(one.poll(20)) or len(found) == COUNT, "both are read on")
    assert not one._state.revoking


def test_a_wakeup_while_a_share_is_taken(
    broker: TestBroker, parting: tuple[Consumer, Consumer]
) -> None:
    """The partition is still handed over, once what was read of it is committed."""
    one, two = parting
    broker.delay("OffsetCommit", 1_000, client_id="z")

    def poll() -> None:
        while not one._state.revoking:
            one.poll(5)
        threading.Timer(0.1, one.wakeup).start()  # while it waits for its commit
        one.poll(60_000)

    with polled(two):
        with pytest.raises(errors.WakeUp):
            poll()
        wait_for(lambda: one.poll(20) is not None and two.assignment, "the other one has its share")
        assert len(one.assignment) == len(two.assignment) == 1
    assert {*one.assignment} <= {TopicPartition("t", 0), TopicPartition("t", 1)}


def test_a_close_ends_retries(broker: TestBroker) -> None:
    """Not after default.api.timeout.ms: closing its producer would wait that long."""
    began, rung = threading.Event(), threading.Event()

    def ask(cluster: Cluster) -> None:
        cluster.refresh([])
        began.set()
        cluster.connect(17)  # not in the metadata, so it is looked up again and again

    line = Line(Cluster(broker.bootstrap_servers, Options(api_timeout_ms=600_000)), rung.set)
    line.begin(ask)
    wait_for(began.is_set, "it asks")
    line.close()
    assert rung.is_set()
