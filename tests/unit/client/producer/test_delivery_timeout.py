"""delivery.timeout.ms also limits records in flight: they fail in time, and may be stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.link.failures import failure_class
from kafkalog.client.producer.producer import Producer
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import CLOSE, Peer, produced
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.producer.producing import PRODUCER_ID, batches, make

LATE = failure_class(ErrorCode.REQUEST_TIMED_OUT)
OTHER_ID = {"producer_id": 4001, "producer_epoch": 0}
LONG = {"request_timeout_ms": 3_600_000, "delivery_timeout_ms": 7_200_000}


class Slow:
    """Holds the first request until `let`, then answers it with `answer`."""

    def __init__(self, broker: Peer) -> None:
        self.let = threading.Event()
        self.answer: Any = produced([])
        broker.on(apis.PRODUCE, self, produced([]))
        broker.on(apis.INIT_PRODUCER_ID, PRODUCER_ID, OTHER_ID)

    def __call__(self, request: Any, version: int) -> Any:
        assert self.let.wait(LIMIT_S)
        return self.answer(request, version) if callable(self.answer) else self.answer


@pytest.fixture
def slow(broker: Peer) -> Iterator[Slow]:
    made = Slow(broker)
    yield made
    made.let.set()


def impatient(producer: Producer) -> None:
    """Limit its records to 100 ms from now on, instead of hours."""
    core = producer._sender.core
    core.options = core.options._replace(delivery_s=0.1)
    producer._sender.wake()


def given_up(broker: Peer, producer: Producer) -> None:
    """Send a record that stays in flight too long."""
    late = producer.send("t", b"late", partition=0)
    wait_for(lambda: broker.count(apis.PRODUCE) == 1, "it is in flight")
    impatient(producer)
    with pytest.raises(LATE, match="t-0: 1 records not acknowledged in 100 ms; they may have been"):
        late.result(LIMIT_S)
    core = producer._sender.core
    core.options = core.options._replace(delivery_s=7_200.0)
    assert producer._waiting.used == 0


@pytest.mark.parametrize("idempotent", [True, False])
def test_it_was_taken_after_all(broker: Peer, slow: Slow, idempotent: bool) -> None:
    """The next record has the next sequence."""
    with make(broker, idempotent=idempotent, **LONG) as producer:
        given_up(broker, producer)
        with pytest.raises(LATE):
            producer.flush(LIMIT_S)
        after = producer.send("t", b"next", partition=0)
        slow.let.set()
        after.result(LIMIT_S)
        assert broker.count(apis.INIT_PRODUCER_ID) == int(idempotent)
    first, second = batches(broker)
    assert (first.producer, first.sequence) == (second.producer, 0 if idempotent else -1)
    assert second.sequence == (1 if idempotent else -1)


@pytest.mark.parametrize("answer", [CLOSE, produced([ErrorCode.NOT_ENOUGH_REPLICAS])])
def test_it_was_not_taken_or_nobody_knows(broker: Peer, slow: Slow, answer: Any) -> None:
    """Its sequence may be missing: later records use a new producer id; it is not sent again."""
    slow.answer = answer
    with make(broker, **LONG) as producer:
        given_up(broker, producer)
        after = producer.send("t", b"next", partition=0)
        slow.let.set()
        after.result(LIMIT_S)
        with pytest.raises(LATE):
            producer.flush(LIMIT_S)
    last = batches(broker)[-1]
    assert [one.values() for one in batches(broker)] == [[b"late"], [b"next"]]
    assert (last.producer, last.sequence) == ((4001, 0), 0)


def test_a_transaction_with_an_expired_record_can_only_be_aborted(broker: Peer, slow: Slow) -> None:
    where = {"key": "x", "node_id": 1, "host": "127.0.0.1", "port": broker.port}
    broker.on(apis.FIND_COORDINATOR, {"coordinators": [where]})
    broker.on(apis.ADD_PARTITIONS_TO_TXN, joined)
    broker.on(apis.END_TXN, {})
    with make(broker, transactional_id="x", **LONG) as producer:
        producer.begin_transaction()
        given_up(broker, producer)
        with pytest.raises(LATE) as told:
            producer.commit_transaction()
        assert told.value.abortable
        producer.abort_transaction()
        slow.let.set()
        with producer.transaction():  # a late answer does not concern the next one
            producer.send("t", b"next", partition=1).result(LIMIT_S)
    assert [request.committed for request in broker.sent(apis.END_TXN)] == [False, True]


def joined(request: Any, version: int) -> Any:
    topics = [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": p, "partition_error_code": 0} for p in topic.partitions
            ],
        }
        for topic in request.v3_and_below_topics
    ]
    return {"results_by_topic_v3_and_below": topics}


def test_an_expired_retry_reports_a_possible_store(broker: Peer) -> None:
    """It waits for a retry: an attempt may have stored it."""
    broker.on(apis.PRODUCE, CLOSE)
    producer = make(broker, **LONG)
    late = producer.send("t", b"late", partition=0)
    wait_for(lambda: broker.count(apis.PRODUCE) > 1, "it was lost")
    broker.on(apis.METADATA, CLOSE)  # it knows of no leader any more
    impatient(producer)
    with pytest.raises(LATE, match="may have been stored"):
        late.result(LIMIT_S)
    with pytest.raises(errors.KafkalogError):
        producer.close()
