"""Requests that outlive a poll: each is sent once, and waited for as long as a request may take."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import answering
from kafkalog.client.link.patience import KEPT_MAX, Errand, NotYet
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import STALL, Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.conftest import QUICK
from tests.unit.client.gate import Gate

TP = TopicPartition("t", 0)
RESETS = ["earliest", "latest", "by_duration:PT1H", "none"]
POLLS = 40
"""More than the answers that may be pending on a connection."""


def reading(peer: Peer, reset: str) -> Consumer:
    config = {"fetch.max.wait.ms": 5, "retry.backoff.ms": 1, "request.timeout.ms": 60_000}
    made = Consumer(peer.servers, auto_offset_reset=reset, config=config)
    made.assign([TP])
    return made


def found(request: Any, version: int) -> Any:
    """A partition with the offsets 5 to 7."""
    (topic,) = request.topics
    (row,) = topic.partitions
    at = {"partition_index": 0, "offset": 8 if row.timestamp == -1 else 5}
    return {"topics": [{"name": "t", "partitions": [at]}]}


def fetched(request: Any, version: int) -> Any:
    code = ErrorCode.OFFSET_OUT_OF_RANGE
    rows = [
        {"partition_index": 0, "error_code": 0 if 5 <= p.fetch_offset <= 8 else code}
        for topic in request.topics for p in topic.partitions
    ]  # fmt: skip
    topics = [{"topic": one.topic, "partitions": rows} for one in request.topics]
    return {"responses": topics}


@pytest.mark.parametrize("reset", RESETS)
def test_a_partition_that_is_reset_is_not_fetched_until_that_is_answered(
    peer: Peer, reset: str
) -> None:
    gate = Gate(found)
    peer.on(apis.METADATA, peer.metadata({"t": 1}))
    peer.on(apis.LIST_OFFSETS, gate)
    peer.on(apis.FETCH, fetched)
    with reading(peer, reset) as consumer:
        consumer.seek(TP, 99)
        wait_for(lambda: consumer.poll(1) or gate.reached.is_set(), "it asks where to go on")
        for _ in range(POLLS):
            assert not consumer.poll(1)
        assert peer.count(apis.FETCH) == peer.count(apis.LIST_OFFSETS) == 1
        gate.open.set()
        if reset == "none":
            with pytest.raises(errors.OffsetOutOfRange, match="offset 99, wanted 5 to 8"):
                wait_for(lambda: consumer.poll(1) and False, "it says so")
            assert consumer.position(TP) == 99
        else:
            wait_for(lambda: consumer.poll(1) or consumer.position(TP) < 99, "it goes on")
            assert consumer.position(TP) == (8 if reset == "latest" else 5)
            assert peer.count(apis.LIST_OFFSETS) == 1


def test_a_partition_that_is_sought_elsewhere_waits_for_no_reset(peer: Peer) -> None:
    gate = Gate(found)
    peer.on(apis.METADATA, peer.metadata({"t": 1}))
    peer.on(apis.LIST_OFFSETS, gate)
    peer.on(apis.FETCH, fetched)
    with reading(peer, "earliest") as consumer:
        consumer.seek(TP, 99)
        wait_for(lambda: consumer.poll(1) or gate.reached.is_set(), "it asks where to go on")
        consumer.seek(TP, 6)
        wait_for(lambda: consumer.poll(1) or peer.count(apis.FETCH) > 2, "it is fetched")
        gate.open.set()
        for _ in range(POLLS):
            assert not consumer.poll(1)
        assert consumer.position(TP) == 6


@pytest.mark.parametrize("reset", RESETS[:-1])
def test_where_to_begin_is_asked_once(peer: Peer, reset: str) -> None:
    """Also by time: that of the first poll, not of each."""
    gate = Gate(found)
    peer.on(apis.METADATA, peer.metadata({"t": 1}))
    peer.on(apis.LIST_OFFSETS, gate)
    peer.on(apis.FETCH, fetched)
    with reading(peer, reset) as consumer:
        wait_for(lambda: consumer.poll(1) or gate.reached.is_set(), "it asks")
        for _ in range(POLLS):
            assert not consumer.poll(1)
        gate.open.set()
        wait_for(lambda: consumer.poll(1) or peer.count(apis.FETCH), "it is fetched")
        assert peer.count(apis.LIST_OFFSETS) == 1


# ---- brokers that answer late ------------------------------------------------------------------


def looked(cluster: Cluster) -> bool:
    """True if metadata is there, without waiting."""
    patience = cluster.patience
    wait: Callable[..., Any] = answering
    with patience.whole(math.inf, wait):
        try:
            with patience.errand_of("look", 0):
                cluster.refresh_once([])
        except NotYet:
            return False
    return True


def test_a_broker_that_answers_late_is_asked_first_all_the_same(peer: Peer) -> None:
    gate = Gate(peer.metadata({}))
    peer.on(apis.METADATA, gate)
    with Peer() as other, Cluster(f"{peer.servers},{other.servers}", QUICK) as cluster:
        wait_for(lambda: looked(cluster) or gate.reached.is_set(), "it is asked")
        assert not looked(cluster)
        gate.open.set()
        wait_for(lambda: looked(cluster), "it has answered")
        first = cluster.any()
        first.close()
        assert cluster.any().address == first.address
        assert not other.connections


def test_an_answer_that_comes_while_another_is_waited_for_is_kept(peer: Peer) -> None:
    """Otherwise the two would be asked for again and again, as each drops the other's answer."""
    let = threading.Semaphore(0)

    def answer(request: Any, version: int) -> Any:
        assert let.acquire(timeout=LIMIT_S)
        (group,) = request.coordinator_keys
        return {"coordinators": [{"key": group, "node_id": 1, "host": "h", "port": 1}]}

    peer.on(apis.FIND_COORDINATOR, answer)
    with Cluster(peer.servers, QUICK) as cluster:
        connection = cluster.any()

        def found(group: str) -> bool:
            wait: Callable[..., Any] = answering
            with cluster.patience.whole(math.inf, wait):
                try:
                    with cluster.patience.errand_of(group, 0):
                        body = {"key_type": 0, "coordinator_keys": [group]}
                        connection.call(apis.FIND_COORDINATOR, body)
                except NotYet:
                    return False
            return True

        assert not found("a") and not found("b")
        let.release()
        assert answering([connection], LIMIT_S)
        assert not found("b")  # that was a's answer
        let.release()
        assert answering([connection], LIMIT_S)
        wait_for(lambda: found("a"), "a's answer")
        wait_for(lambda: found("b"), "b's answer")
    assert peer.count(apis.FIND_COORDINATOR) == 2


def test_answers_that_are_never_used_are_bounded() -> None:
    errand = Errand()
    for number in range(3 * KEPT_MAX):
        errand.keep(number, f"answer {number}")
        errand.rewind()
    assert [n for n in range(3 * KEPT_MAX) if errand.known(n)] == [
        *range(2 * KEPT_MAX, 3 * KEPT_MAX)
    ]


def test_a_broker_that_never_answers_is_given_up(peer: Peer) -> None:
    """When the request times out, even though no poll has waited that long."""
    peer.on(apis.METADATA, STALL)
    options = QUICK._replace(request_timeout_ms=200)
    with Peer() as other, Cluster(f"{peer.servers},{other.servers}", options) as cluster:
        with pytest.raises(errors.Timeout, match="no answer in 200 ms"):
            wait_for(lambda: looked(cluster) and False, "it is given up")
        wait_for(lambda: looked(cluster), "the other one answers")
        assert other.count(apis.METADATA)
