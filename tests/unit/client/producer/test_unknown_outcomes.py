"""Batches whose outcome is unknown may be stored, and never get another producer id."""

from __future__ import annotations

import logging
import random
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Admin, Producer, errors
from kafkalog.testing.broker import TestBroker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.effort import SEED, rounds
from tests.support.scripted import CLOSE, Peer, produced
from tests.support.waiting import LIMIT_S
from tests.unit.client.producer.producing import PRODUCER_ID, Batch, make

IDS = [PRODUCER_ID, *({"producer_id": 4001 + i, "producer_epoch": 0} for i in range(9))]
MAY_BE = "may have been stored"


class Leader:
    """Partition 0 of topic t; its leader checks sequences as Kafka's does."""

    def __init__(self, broker: Peer) -> None:
        self.taken: list[bytes | None] = []
        self.most = 1000
        """The most records of a batch, from the next request on."""
        self.script: list[Any] = []
        """The fate of the next requests: "lost before" or "lost after" they are stored, or an error
        code."""
        self._limit = self.most
        self._known: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        broker.on(apis.PRODUCE, self)
        broker.on(apis.INIT_PRODUCER_ID, *IDS)

    def __call__(self, request: Any, version: int) -> Any:
        ((row,),) = [topic.partition_data for topic in request.topic_data]
        step = self.script.pop(0) if self.script else None
        if step == "lost before":
            self._limit = self.most
            return CLOSE
        if isinstance(step, ErrorCode):
            return produced([step])(request, version)
        code, offset = self._append(Batch(row.index, bytes(row.records)))
        self._limit = self.most
        return CLOSE if step == "lost after" else produced([code], [offset])(request, version)

    def _append(self, batch: Batch) -> tuple[int, int]:
        count = len(batch.records)
        if count > self._limit:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        known = self._known.setdefault(batch.producer, [])
        for sequence, size, offset in known[-5:]:
            if (sequence, size) == (batch.sequence, count):
                return 0, offset
        if batch.sequence != (known[-1][0] + known[-1][1] if known else 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        known.append((batch.sequence, count, len(self.taken)))
        self.taken += batch.values()
        return 0, known[-1][2]


@pytest.fixture
def leader(broker: Peer) -> Leader:
    return Leader(broker)


@pytest.mark.parametrize("most", [1, 4, 5, 9])
@pytest.mark.parametrize("lost", ["lost before", "lost after"])
def test_parts_of_a_possibly_stored_batch_get_no_new_id(
    broker: Peer, leader: Leader, lost: str, most: int
) -> None:
    """By the time the batch is retried, the topic accepts only smaller ones."""
    values = [b"%02d" % i for i in range(10)]
    with make(broker, linger_ms=1_000_000) as producer:
        first = producer.send("t", b"first", partition=0)
        assert first.result(LIMIT_S).offset == 0
        leader.script, leader.most = [lost], most
        futures = [producer.send("t", value, partition=0) for value in values]
        problems = [future.exception(LIMIT_S) for future in futures]
        if lost == "lost before":
            assert problems == [None] * 10
            assert [f.result().offset for f in futures] == list(range(1, 11))
        else:
            assert all(isinstance(p, errors.OutOfOrderSequenceNumber) for p in problems)
            assert all(MAY_BE in str(p) for p in problems)
            with pytest.raises(errors.OutOfOrderSequenceNumber):
                producer.check()
        assert producer.send("t", b"last", partition=0).result(LIMIT_S).offset == 11
    assert leader.taken == [b"first", *values, b"last"]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
)
def test_a_producer_that_was_forgotten_sends_nothing_twice(
    broker: Peer, leader: Leader, code: ErrorCode
) -> None:
    with make(broker) as producer:
        producer.send("t", b"first", partition=0).result(LIMIT_S)
        leader.script = ["lost after", code]
        with pytest.raises(errors.KafkalogError, match=MAY_BE):
            producer.send("t", b"second", partition=0).result(LIMIT_S)
        with pytest.raises(errors.KafkalogError, match=MAY_BE):
            producer.check()
        producer.send("t", b"third", partition=0).result(LIMIT_S)
    assert leader.taken == [b"first", b"second", b"third"]


def names_nothing(request: Any, version: int) -> Any:
    return {"responses": [], "throttle_time_ms": 0}


@pytest.mark.parametrize(
    "end",
    [
        CLOSE, produced([ErrorCode.REQUEST_TIMED_OUT]), names_nothing,
        produced([ErrorCode.UNKNOWN_SERVER_ERROR]), produced([9999]),
    ],
    ids=["lost", "timed out", "not named", "a fault", "unknown"],
)  # fmt: skip
def test_a_possibly_stored_batch_says_so_after_its_retries(broker: Peer, end: Any) -> None:
    """Also if the last answer does not say so."""
    broker.on(apis.PRODUCE, end)
    producer = make(broker, retries=0)
    with pytest.raises(errors.KafkalogError, match=MAY_BE):
        producer.send("t", b"x", partition=0).result(LIMIT_S)
    with pytest.raises(errors.KafkalogError, match=MAY_BE):
        producer.close()


def test_a_refused_batch_is_reported_as_not_stored(broker: Peer) -> None:
    for code, words in (
        (ErrorCode.NOT_ENOUGH_REPLICAS, r"NOT_ENOUGH_REPLICAS; retries: 0$"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, r"TOPIC_AUTHORIZATION_FAILED$"),
    ):
        broker.on(apis.PRODUCE, produced([code]))
        producer = make(broker, retries=0)
        with pytest.raises(errors.KafkalogError, match=words):
            producer.send("t", b"x", partition=0).result(LIMIT_S)
        with pytest.raises(errors.KafkalogError, match=words):
            producer.close()


# ---- random search -------------------------------------------------------------------------


TROUBLES = ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT",
            "UNKNOWN_PRODUCER_ID", "OUT_OF_ORDER_SEQUENCE_NUMBER"]  # fmt: skip


@pytest.mark.explore
def test_nothing_is_twice_or_missing_whatever_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Lost answers and connections, refusals, limits that shrink and grow: acknowledged records are
    stored once, all others at most once."""
    caplog.set_level(logging.CRITICAL)
    with TestBroker(tmp_path / "data") as broker:
        for seed in rounds(8):
            search(broker, seed)


def search(broker: TestBroker, seed: int) -> None:
    draw = random.Random(SEED + seed)
    config: dict[str, object] = {"retry.backoff.ms": 5}
    topic = f"doubt-{seed}"
    broker.create_topic(topic, 2, config={"max.message.bytes": "20000"})
    with (
        Admin(broker.bootstrap_servers) as admin,
        closing(Producer(broker.bootstrap_servers, linger_ms=2, batch_bytes=4000,
                         config=config)) as producer,
    ):  # fmt: skip
        futures = []
        for number in range(300):
            trouble(draw, broker, admin, topic)
            value = b"%05d" % number + b"x" * draw.choice([10, 100, 300])
            futures.append(producer.send(topic, value, partition=draw.randrange(2)))
        broker.heal()
        told = [future.exception(LIMIT_S) is None for future in futures]
        producer._waiting.take_failure()
    there = Counter(int((r.value or b"")[:5]) for r in broker.records(topic, committed=False))
    twice = [number for number, times in there.items() if times > 1]
    missing = [number for number, taken in enumerate(told) if taken and not there[number]]
    assert (twice, missing) == ([], []), f"seed {seed}"


def trouble(draw: random.Random, broker: TestBroker, admin: Admin, topic: str) -> None:
    if draw.random() < 0.04:
        broker.drop_response("Produce", times=draw.choice([1, 2]))
    if draw.random() < 0.03:
        broker.disconnect("Produce")
    if draw.random() < 0.03:
        broker.fail("Produce", draw.choice(TROUBLES))
    if draw.random() < 0.01:
        most = draw.choice([500, 1000, 2000, 20_000])
        admin.alter_configs({("topic", topic): {"max.message.bytes": most}}).check()
