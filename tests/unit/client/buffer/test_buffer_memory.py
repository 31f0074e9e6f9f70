"""buffer.memory: what a batch takes of it is given back once, however the batch ends."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.buffer.accumulator import Accumulator
from kafkalog.client.buffer.delivery import Future
from kafkalog.client.producer.producer import Producer
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import CLOSE, Peer, produced
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.producer.producing import hurried, make

CODES = (
    ErrorCode.NONE, ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)  # fmt: skip
"""Acknowledged, known already, again, split in two, refused, with another producer id."""
BUFFER = 60_000


def counted(waiting: Accumulator) -> None:
    """What is taken is what those batches took that have not ended."""
    with waiting.lock:
        taken = sum(batch.reserved for batch in waiting.unfinished.values())
        assert waiting.used == taken <= BUFFER


class Moody:
    """A leader whose answers chance chooses; held, it says nothing."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.go = threading.Event()

    def __call__(self, request: Any, version: int) -> Any:
        self.go.wait(LIMIT_S)
        if self.chance.random() < 0.05:
            return CLOSE
        rows = sum(len(topic.partition_data) for topic in request.topic_data)
        return produced([self.chance.choice(CODES) for _ in range(rows)])(request, version)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_every_end_gives_back_once(broker: Peer, seed: int, idempotent: bool) -> None:
    chance = random.Random(seed)
    moody = Moody(seed)
    broker.on(apis.PRODUCE, moody)
    producer = make(
        broker, {"max.block.ms": 20}, idempotent=idempotent, batch_bytes=2_000,
        buffer_bytes=BUFFER, retries=chance.choice([2, 1000]),
    )  # fmt: skip
    waiting = producer._waiting
    futures: list[Future] = []
    for _ in range(25):
        if chance.random() < 0.4:
            moody.go.set() if chance.random() < 0.7 else moody.go.clear()
        for _ in range(chance.randrange(20)):
            with suppress(errors.Timeout):  # it is full, and the leader held
                value = bytes(chance.randrange(600))
                futures.append(producer.send("t", value, partition=chance.randrange(2)))
        if chance.random() < 0.2:
            moody.go.set()
            with suppress(errors.KafkalogError):
                producer.flush(LIMIT_S)
            assert waiting.used == 0
        counted(waiting)
    if chance.random() < 0.5:
        moody.go.set()
        with suppress(errors.KafkalogError):
            producer.close(LIMIT_S)
    else:
        with suppress(errors.KafkalogError):
            producer.close(0)  # what is on its way is given up
        moody.go.set()
    assert (waiting.used, waiting.unfinished) == (0, {})
    assert all(future.done() for future in futures)


def test_what_expires_gives_back(broker: Peer) -> None:
    broker.on(apis.PRODUCE, produced([ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000))
    with suppress(errors.KafkalogError), make(broker, delivery_timeout_ms=40, request_timeout_ms=20,
                                              buffer_bytes=BUFFER) as producer:  # fmt: skip
        late = producer.send("t", b"x", partition=0)
        assert late.exception(LIMIT_S) is not None
        wait_for(lambda: producer._waiting.used == 0, "its room is free")
        counted(producer._waiting)


def test_what_a_transaction_aborts_gives_back(store: Any) -> None:
    """Sent or not; the next one begins with all of it."""
    chance = random.Random(11)
    producer = Producer(store, transactional_id="one", linger_ms=1_000, buffer_bytes=BUFFER)
    for _ in range(20):
        producer.begin_transaction()
        for _ in range(chance.randrange(30)):
            producer.send("t", bytes(chance.randrange(500)))
        if chance.random() < 0.5:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        counted(producer._waiting)
        assert producer._waiting.used == 0
    producer.begin_transaction()
    producer.send("t", b"x")
    producer.close()
    assert producer._waiting.used == 0


@pytest.fixture
def store(tmp_path: Any) -> Any:
    from kafkalog import Store
    from kafkalog.testing.broker import SETTINGS

    with Store(tmp_path / "log", config={**SETTINGS, "kafkalog.durability": "os"}) as made:
        yield made


def test_a_slow_callback_lets_no_room_go_and_takes_no_more(broker: Peer) -> None:
    """Others send up to the buffer at that time; then they wait for max.block.ms, as docs say."""
    held, begun = threading.Event(), threading.Event()

    def slow(_: Future) -> None:
        begun.set()
        assert held.wait(LIMIT_S)

    producer = hurried(make(broker, buffer_bytes=BUFFER, batch_bytes=2_000))
    producer.send("t", b"x", partition=0).add_done_callback(slow)
    assert begun.wait(LIMIT_S)
    taken = 0
    with pytest.raises(errors.Timeout, match=r"buffer\.memory"):
        while True:
            producer.send("t", bytes(500), partition=1)
            taken += 1
    counted(producer._waiting)
    assert taken * 500 > BUFFER // 3
    held.set()
    producer.close()
    assert producer._waiting.used == 0
