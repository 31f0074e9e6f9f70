"""Threads that end one transaction at the same time: it ends once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.producer.producer import Producer
from kafkalog.client.producer.transaction_calls import Transactional
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.gate import Gate
from tests.unit.client.producer.producing import make
from tests.unit.client.producer.test_delivery_timeout import joined

TP = TopicPartition("t", 0)
ENDED = r"has ended|was aborted|was not answered"


@pytest.fixture
def where(broker: Peer) -> dict[str, Any]:
    node = {"key": "x", "node_id": 1, "host": "127.0.0.1", "port": broker.port}
    found = {"coordinators": [node]}
    broker.on(apis.FIND_COORDINATOR, found)
    broker.on(apis.ADD_PARTITIONS_TO_TXN, joined)
    broker.on(apis.ADD_OFFSETS_TO_TXN, {})
    broker.on(apis.TXN_OFFSET_COMMIT, {"topics": []})
    broker.on(apis.END_TXN, {})
    return found


@pytest.fixture
def producer(broker: Peer, where: Any) -> Iterator[Producer]:
    """A producer in a transaction that has sent a record."""
    with make(broker, transactional_id="x") as made:
        made.begin_transaction()
        made.send("t", b"x").result(LIMIT_S)
        yield made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as made:
        yield made


def identity(producer: Producer) -> Transactional:
    found = producer._identity
    assert isinstance(found, Transactional)
    return found


def ends(broker: Peer) -> list[bool]:
    return [request.committed for request in broker.sent(apis.END_TXN)]


def test_an_abort_while_a_commit_looks_for_its_coordinator(
    broker: Peer, where: Any, producer: Producer, pool: ThreadPoolExecutor
) -> None:
    """The commit had sent nothing yet, and sends nothing."""
    gate = Gate(where)
    broker.on(apis.FIND_COORDINATOR, gate)
    producer._sender._line.cluster.forget_coordinators()
    commit = pool.submit(producer.commit_transaction)
    assert gate.reached.wait(LIMIT_S)
    abort = pool.submit(producer.abort_transaction)
    wait_for(lambda: identity(producer).ending is False, "the abort has begun")
    gate.open.set()
    with pytest.raises(errors.InvalidTxnState, match=ENDED):
        commit.result(LIMIT_S)
    abort.result(LIMIT_S)
    assert ends(broker) == [False]
    with producer.transaction():
        producer.send("t", b"y")
    assert ends(broker) == [False, True]


def test_an_abort_while_a_commit_is_on_its_way(
    broker: Peer, producer: Producer, pool: ThreadPoolExecutor
) -> None:
    gate = Gate({})
    broker.on(apis.END_TXN, gate)
    commit = pool.submit(producer.commit_transaction)
    assert gate.reached.wait(LIMIT_S)
    with pytest.raises(errors.InvalidTxnState, match=ENDED):
        producer.abort_transaction()
    gate.open.set()
    commit.result(LIMIT_S)
    assert ends(broker) == [True]


@pytest.mark.parametrize(
    ("part", "name"), [("_boundaries", "whole"), ("_waiting", "drain")], ids=["early", "late"]
)
def test_a_commit_that_an_abort_and_a_begin_overtook(
    broker: Peer, producer: Producer, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch,
    part: str, name: str,
) -> None:  # fmt: skip
    """Its thread paused before or after waiting for the records: the next transaction is not the
    one it commits, and stays open for records."""
    stood, go = threading.Event(), threading.Event()
    call = getattr(getattr(producer, part), name)

    def stand_still(*words: Any) -> Any:
        found = call(*words)
        if not stood.is_set():
            stood.set()
            assert go.wait(LIMIT_S)
        return found

    monkeypatch.setattr(getattr(producer, part), name, stand_still)
    commit = pool.submit(producer.commit_transaction)
    assert stood.wait(LIMIT_S)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"y")
    go.set()
    with pytest.raises(errors.InvalidTxnState, match=ENDED):
        commit.result(LIMIT_S)
    assert ends(broker) == [False]
    producer.send("t", b"z")
    producer.commit_transaction()
    assert ends(broker) == [False, True]


def test_an_end_unknown_to_the_coordinator(broker: Peer, producer: Producer) -> None:
    """UNKNOWN_SERVER_ERROR: it may be committed, so it is not aborted instead."""
    broker.on(apis.END_TXN, {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR}, {})
    with pytest.raises(errors.Timeout, match="UNKNOWN_SERVER_ERROR"):
        producer.commit_transaction()
    assert producer.in_doubt
    with pytest.raises(errors.InvalidTxnState, match="may have succeeded"):
        producer.abort_transaction()
    producer.commit_transaction()
    assert ends(broker) == [True, True] and not producer.in_doubt
    with producer.transaction():
        producer.send("t", b"y")


def test_an_end_is_decided_once(producer: Producer) -> None:
    """Also by a thread that saw the transaction open, and paused while it ended."""
    one = identity(producer)
    one.decide(commit=True)
    with pytest.raises(errors.InvalidTxnState, match="may have succeeded"):
        one.decide(commit=False)
    one.decide(commit=True)
    producer.commit_transaction()
    for commit in (True, False):
        with pytest.raises(errors.InvalidTxnState, match="has ended"):
            one.decide(commit)
    assert one.ending is None
    producer.begin_transaction()
    one.decide(commit=False)
    with pytest.raises(errors.InvalidTxnState, match="was aborted"):
        one.decide(commit=True)
    producer.abort_transaction()


@pytest.mark.parametrize("end", [Producer.commit_transaction, Producer.abort_transaction])
def test_offsets_that_come_after_the_end_are_in_no_transaction(
    broker: Peer, producer: Producer, pool: ThreadPoolExecutor, end: Callable[[Producer], None]
) -> None:
    """They waited until it had ended: they neither begin the next transaction nor spoil it."""
    gate = Gate({})
    broker.on(apis.END_TXN, gate)
    ended = pool.submit(end, producer)
    assert gate.reached.wait(LIMIT_S)
    producer._waiting.resume(False)  # the sending thread has checked before the end began
    late = pool.submit(producer.send_offsets, {TP: 1}, "g")
    wait_for(lambda: len(producer._sender.tasks._waiting) == 2, "they wait behind the end")
    gate.open.set()
    ended.result(LIMIT_S)
    with pytest.raises(errors.InvalidTxnState, match=ENDED):
        late.result(LIMIT_S)
    assert not broker.count(apis.ADD_OFFSETS_TO_TXN)
    with producer.transaction():
        producer.send_offsets({TP: 2}, "g")
    assert ends(broker) == [end is Producer.commit_transaction, True]
