"""A broker that accepts requests and never answers does not delay other leaders' records."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.link.failures import failure_class
from kafkalog.client.producer.producer import Producer
from kafkalog.testing.cluster import TestCluster
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import STALL, Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.link.test_two_nodes import pair, partitions
from tests.unit.client.producer.producing import make
from tests.unit.client.producer.test_delivery_timeout import impatient, joined

__all__ = ["pair"]

LONG = {"request_timeout_ms": 3_600_000, "delivery_timeout_ms": 7_200_000}


@contextmanager
def given_up(producer: Producer) -> Iterator[None]:
    """Close the producer at the end without waiting for answers."""
    try:
        yield
    finally:
        producer._sender.stop()
        with suppress(errors.KafkalogError):
            producer.close(timeout=0)


def goes_on(producer: Producer, two: Peer) -> None:
    """Node 2 accepts and acknowledges another record."""
    before = len(partitions(two))
    assert producer.send("t", b"x", partition=1).result(LIMIT_S).partition == 1
    assert len(partitions(two)) == before + 1


def aside(call: Any) -> threading.Thread:
    """Run another thread's call, which fails in the end."""

    def run() -> None:
        with suppress(errors.KafkalogError):
            call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_metadata_that_does_not_come(pair: tuple[Peer, Peer]) -> None:
    one, two = pair
    producer = make(one, **LONG)
    with given_up(producer):
        goes_on(producer, two)
        asked = one.count(apis.METADATA)
        one.on(apis.METADATA, STALL)
        other = aside(lambda: producer.send("u", b"x"))
        wait_for(lambda: one.count(apis.METADATA) > asked, "it is asked for another topic")
        for _ in range(3):
            goes_on(producer, two)
    other.join(LIMIT_S)
    assert not other.is_alive()


def test_a_leader_that_is_gone_and_metadata_that_does_not_come(pair: tuple[Peer, Peer]) -> None:
    """Nothing has changed about the other node's partitions."""
    one, two = pair
    producer = make(one, **LONG)
    with given_up(producer):
        goes_on(producer, two)
        asked = one.count(apis.METADATA)
        one.on(apis.METADATA, STALL)

        def refuses(request: Any, version: int) -> Any:
            row = {"index": 0, "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}
            return {"responses": [{"name": "t", "partition_responses": [row]}]}

        one.on(apis.PRODUCE, refuses)
        late = producer.send("t", b"late", partition=0)
        wait_for(lambda: one.count(apis.METADATA) > asked, "metadata is requested")
        goes_on(producer, two)
        assert not late.done()
        assert partitions(one) == [0]


def test_a_producer_id_that_does_not_come(pair: tuple[Peer, Peer]) -> None:
    """Nothing can be sent without one; waiting records time out."""
    one, _ = pair
    one.on(apis.INIT_PRODUCER_ID, STALL)
    producer = make(one, **LONG)
    with given_up(producer):
        late = producer.send("t", b"late", partition=1)
        wait_for(lambda: one.count(apis.INIT_PRODUCER_ID), "it is asked for")
        impatient(producer)
        with pytest.raises(failure_class(ErrorCode.REQUEST_TIMED_OUT), match="not taken in 100 ms"):
            late.result(LIMIT_S)


@pytest.mark.parametrize("asks", ["for a partition", "for offsets"])
def test_a_coordinator_that_does_not_answer(pair: tuple[Peer, Peer], asks: str) -> None:
    """Records of partitions already in the transaction are still sent."""
    one, two = pair
    where = {"key": "x", "node_id": 1, "host": "127.0.0.1", "port": one.port}
    one.on(apis.FIND_COORDINATOR, {"coordinators": [where]})
    one.on(apis.ADD_PARTITIONS_TO_TXN, joined)
    one.on(apis.ADD_OFFSETS_TO_TXN, STALL)
    producer = make(one, transactional_id="x", **LONG)
    with given_up(producer):
        producer.begin_transaction()
        goes_on(producer, two)
        if asks == "for a partition":
            one.on(apis.ADD_PARTITIONS_TO_TXN, STALL)
            late = producer.send("t", b"late", partition=0)
            wait_for(lambda: one.count(apis.ADD_PARTITIONS_TO_TXN) == 2, "it is asked")
        else:
            aside(lambda: producer.send_offsets({TopicPartition("t", 0): 1}, "g"))
            wait_for(lambda: one.count(apis.ADD_OFFSETS_TO_TXN), "it is asked")
        goes_on(producer, two)
        assert asks == "for offsets" or not late.done()


@pytest.mark.kafkalog(topics={"t": 3}, config={"replica.lag.time.max.ms": 60_000})
def test_a_node_that_stands_still(kafkalog_cluster: TestCluster) -> None:
    """One of three, which has answered all requests so far."""
    cluster = kafkalog_cluster
    first = cluster.nodes[1]
    number = next(n for n in range(3) if cluster.leader("t", n) != 1)
    with Producer(cluster.bootstrap_servers, acks=1, linger_ms=0) as producer:
        producer.send("t", b"x", partition=number).result(LIMIT_S)
        first.pause()
        try:
            aside(lambda: producer.send("nowhere", b"x"))
            for _ in range(20):
                producer.send("t", b"x", partition=number).result(LIMIT_S)
        finally:
            first.resume()
