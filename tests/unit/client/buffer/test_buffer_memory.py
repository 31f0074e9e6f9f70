"""buffer.memory: each batch releases what it reserved exactly once, however it ends."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from kafkalog import errors
from kafkalog._native import direct, ffi
from kafkalog.client.buffer.accumulator import IDLE_S, Accumulator, Bounds
from kafkalog.client.buffer.delivery import Batch, Future
from kafkalog.client.producer.producer import Producer
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import CLOSE, Peer, produced
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.producer.producing import Batch as Produced
from tests.unit.client.producer.producing import hurried, make

CODES = (
    ErrorCode.NONE, ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)  # fmt: skip
"""Acknowledged, duplicate, retried, split in two, refused, sent with another producer id."""
BUFFER = 60_000


def counted(waiting: Accumulator) -> None:
    """The memory in use is what the unfinished batches reserved."""
    with waiting.lock:
        taken = sum(batch.reserved for batch in waiting.unfinished.values())
        assert waiting.used == taken <= BUFFER


class Moody:
    """A leader with random answers; while it is held, it never answers."""

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
            with suppress(errors.Timeout):  # the buffer is full, and the leader is held
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
            producer.close(0)  # requests in flight are abandoned
        moody.go.set()
    assert (waiting.used, waiting.unfinished) == (0, {})
    assert all(future.done() for future in futures)


def test_expired_records_free_their_memory(broker: Peer) -> None:
    broker.on(apis.PRODUCE, produced([ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000))
    with suppress(errors.KafkalogError), make(broker, delivery_timeout_ms=40, request_timeout_ms=20,
                                              buffer_bytes=BUFFER) as producer:  # fmt: skip
        late = producer.send("t", b"x", partition=0)
        assert late.exception(LIMIT_S) is not None
        wait_for(lambda: producer._waiting.used == 0, "its room is free")
        counted(producer._waiting)


def test_aborted_records_free_their_memory(store: Any) -> None:
    """Sent or not; the next transaction begins with the whole buffer."""
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
    """Other sends fill the buffer while it runs, then wait for max.block.ms, as documented."""
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


# ---- the memory itself -----------------------------------------------------------------------

WHOLE = 16_384
_send, _seal = direct("intake_send"), direct("growing_seal")


class Filled:
    """An accumulator of one topic, whose batches a test ends itself."""

    def __init__(self, batch_bytes: int = WHOLE) -> None:
        self.now_s = 100.0
        bounds = Bounds(batch_bytes, 4 * WHOLE, 0.0)
        self.waiting = Accumulator(bounds, (False, False), lambda: None, clock=lambda: self.now_s)
        self.waiting.know("t", 1)

    def batch(self, value: bytes) -> Batch:
        """The next batch, sealed, with one record."""
        waiting, intake = self.waiting, self.waiting.intakes["t"]
        waiting.room(intake, 0, 100, 0.0, waiting.turn)
        assert _send(intake.native, value, None, 1, 0, None) is not None
        queue = waiting.queue(intake, 0)
        waiting.close(queue)
        made = queue.ready.popleft()
        made.data = _seal(made.memory, None, -1, -1, -1, 0)
        return made

    def end(self, batch: Batch) -> None:
        self.waiting.drop(batch)
        batch.end(None, 0)


def place(batch: Batch) -> int:
    return int(ffi.cast("uintptr_t", ffi.from_buffer(batch.data)))


def test_the_memory_of_a_batch_that_has_ended_is_the_next_ones() -> None:
    filled = Filled()
    first = filled.batch(b"one")
    second = filled.batch(b"two")
    places = {place(first), place(second)}
    assert len(places) == 2
    for _ in range(3):
        filled.end(first)
        filled.end(second)
        first, second = filled.batch(b"three"), filled.batch(b"four")
        assert {place(first), place(second)} == places
        for batch, value in ((first, b"three"), (second, b"four")):
            assert Produced(0, bytes(batch.data or b"")).values() == [value]


def test_memory_being_sent_is_not_reused() -> None:
    """A batch that has timed out has ended, but its connection may have sent only half of it."""
    filled = Filled()
    batch = filled.batch(b"one")
    sending, as_it_was = memoryview(batch.data or b"")[10:], bytes(batch.data or b"")
    filled.end(batch)
    others = [filled.batch(b"other") for _ in range(4)]
    assert bytes(sending) == as_it_was[10:]
    assert len({place(one) for one in others}) == 4


def test_memory_that_is_kept_is_bounded_and_goes_in_a_while() -> None:
    filled = Filled()
    for _ in range(3):
        for batch in [filled.batch(b"x") for _ in range(4)]:
            filled.end(batch)
    assert len(filled.waiting._spare) == 4  # buffer.memory
    busy = filled.batch(b"x")
    filled.waiting.close_due(200.0, False)
    assert len(filled.waiting._spare) == 3
    filled.end(busy)
    filled.waiting.close_due(200.5, False)
    assert len(filled.waiting._spare) == 4
    filled.waiting.close_due(200.0 + 2 * IDLE_S, False)
    assert filled.waiting._spare == []


def test_only_whole_batches_are_kept() -> None:
    filled = Filled(batch_bytes=4 * WHOLE)  # the first is smaller
    filled.end(filled.batch(b"x"))
    assert filled.waiting._spare == []


def test_many_threads_share_it() -> None:
    """A thread that gets room after a wait lets no other in beyond the limit."""
    threads, need = 60, BUFFER // 8
    waiting = Accumulator(Bounds(need, BUFFER, 0), (False, False), lambda: None)
    most, taken = 0, 0

    def take() -> None:
        nonlocal most, taken
        with waiting.lock:
            waiting._reserve(need, time.monotonic() + LIMIT_S, waiting.turn)
            most, taken = max(most, waiting.used), taken + 1

    waiting.used = BUFFER  # of batches in flight
    some = [threading.Thread(target=take) for _ in range(threads)]
    for one in some:
        one.start()
    lock: Any = waiting.lock
    wait_for(lambda: len(lock._waiters) == threads, "all wait")
    waiting.release(BUFFER)
    while taken < threads:
        wait_for(lambda: waiting.used + need > BUFFER // 2 or taken == threads, "room is used")
        with waiting.lock:
            waiting.release(waiting.used)
    for one in some:
        one.join(LIMIT_S)
    assert BUFFER // 2 - need < most <= BUFFER
