"""How dead letters are written: the limits of a round, other leaders, and failures that pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.coordinator.transactions.requests import ProducerClaim
from kafkalog.server import dead_letters
from kafkalog.server.broker import node_of
from kafkalog.server.dead_letters import DeadLetters, LetterCounts
from kafkalog.server.node import Node
from kafkalog.server.transactions import inter_broker_client
from kafkalog.server.transactions.inter_broker_client import InterBrokerClient
from kafkalog.shares.partition import Letter
from kafkalog.testing.broker import TestBroker as Broker
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.membership import joined, led_by
from tests.support.scripted import Peer, produced
from tests.support.waiting import LIMIT_S, wait_for

NAME, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
ENABLED = {"errors.deadletterqueue.group.enable": "true"}


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """The group g has the dead-letter topic dlq.t."""
    monkeypatch.setattr(dead_letters, "PAUSE_S", 0.001)
    with Broker(tmp_path / "data") as made:
        with kafkalog.Admin(made.bootstrap_servers) as admin:
            admin.update_features({"share.version": 2}).check()
            admin.create_topic("t", 1)
            admin.create_topic("dlq.t", 1, config=ENABLED)
            admin.alter_configs({("group", "g"): {NAME: "dlq.t", COPY: "true"}}).check()
        yield made


def node(broker: Broker) -> Node:
    assert broker.broker is not None
    return node_of(broker.broker)


def bury(letters: DeadLetters, first: int, last: int) -> None:
    """Write the letters of rejected records of t-0, and wait for their end."""
    ended = threading.Event()
    letters.bury("g", "t", 0, Letter(first, last, 1, True), ended.set)
    assert ended.wait(LIMIT_S)


@contextmanager
def led_elsewhere(broker: Broker, peer: Peer) -> Iterator[tuple[DeadLetters, InterBrokerClient]]:
    """Letters to a topic that node 7 leads, and the requests of others to that node."""
    parts: Any = node(broker)
    with joined({7: peer}) as member:
        led_by(member, {7: peer}, "dlq.t", 7)
        client = InterBrokerClient(member, "test")
        letters = DeadLetters(
            parts.metadata, parts.partitions, parts.reactor, client, parts.clock,
            lambda: parts.config, lambda _: ErrorCode.NONE, 10, "test",
        )  # fmt: skip
        yield letters, client
        peer.__exit__()
        letters.stop()
        client.stop()


# ---- failures that pass ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ],
)  # fmt: skip
def test_failures_that_pass_are_waited_out(broker: Broker, code: ErrorCode) -> None:
    peer = Peer()
    peer.on(apis.PRODUCE, produced([code, code]))
    with led_elsewhere(broker, peer) as (letters, _):
        bury(letters, 0, 0)
        assert letters.counts() == {"g": LetterCounts(records=1, writes=3, failed=0)}


def test_other_failures_are_final(broker: Broker) -> None:
    peer = Peer()
    peer.on(apis.PRODUCE, produced([ErrorCode.TOPIC_AUTHORIZATION_FAILED]))
    with led_elsewhere(broker, peer) as (letters, _):
        bury(letters, 0, 0)
        assert letters.counts() == {"g": LetterCounts(records=0, writes=1, failed=1)}


def test_a_thread_that_cannot_start_is_waited_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, left = threading.Thread.start, [1]

    def refuse(one: threading.Thread) -> None:
        if one.name.endswith("to broker 7") and left[0]:
            left[0] -= 1
            raise RuntimeError("can't start new thread")
        start(one)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    peer = Peer()
    peer.on(apis.PRODUCE, produced([]))
    with led_elsewhere(broker, peer) as (letters, _):
        bury(letters, 0, 0)
        assert letters.counts() == {"g": LetterCounts(records=1, writes=2, failed=0)}


# ---- what else waits for the other broker --------------------------------------------------------


def test_letters_hold_up_no_other_request(broker: Broker) -> None:
    """A slow dead-letter partition leaves transactions alone."""
    let, written, peer = threading.Event(), threading.Event(), Peer()

    def slow(request: Any, version: int) -> Any:
        let.wait(LIMIT_S)
        return produced([])(request, version)

    peer.on(apis.PRODUCE, slow)
    peer.on(apis.ADD_PARTITIONS_TO_TXN, {"error_code": 0, "results_by_transaction": []})
    with led_elsewhere(broker, peer) as (letters, client):
        letters.bury("g", "t", 0, Letter(0, 0, 1, True), written.set)
        wait_for(lambda: peer.count(apis.PRODUCE), "the letter")
        where = TopicPartition("u", 0)
        client.allow(7, ProducerClaim("x", 1, 0), [where], False, lambda _: None)
        wait_for(lambda: peer.count(apis.ADD_PARTITIONS_TO_TXN), "the transaction's request")
        assert not written.is_set()
        let.set()
        assert written.wait(LIMIT_S)
        (sent,) = peer.sent(apis.PRODUCE)
        assert sent.timeout_ms < inter_broker_client.ANSWER_MS


def test_the_connections_of_letters_end_with_them(broker: Broker) -> None:
    peer = Peer()
    peer.on(apis.PRODUCE, produced([]))
    with led_elsewhere(broker, peer) as (letters, _):
        assert peer.connections == 0
        bury(letters, 0, 0)
        assert peer.connections == 1
        letters.stop()
        wait_for(lambda: peer.open == 0, "the end of the connection")
