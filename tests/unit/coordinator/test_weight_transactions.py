"""The memory of transactional ids and open transactions is counted, and its sum is bounded."""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest

from kafkalog.coordinator.transactions.transaction import PARTITION_BYTES, name_bytes
from kafkalog.errors import ArgumentError
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.transaction_calls import Office, settings

OK = ErrorCode.NONE
FULL = ErrorCode.COORDINATOR_NOT_AVAILABLE
LIMIT = 30_000


def check(office: Office) -> None:
    """Check the sum while no write is in flight."""
    ids = [one for shard in office.core.shards.values() for one in shard.ids.values()]
    taken = [
        name_bytes(one.transactional_id) + len(one.status.partitions) * PARTITION_BYTES
        for one in ids
    ]
    assert [one.weight.bytes for one in ids] == taken
    assert office.core.weight.bytes == sum(taken)


@pytest.mark.parametrize("seed", [1, 2, 11_031])
def test_the_sum_always_equals_the_contents(seed: int) -> None:
    """New ids, joins, ends, timeouts, expiry, restarts, failing journals."""
    rng = random.Random(seed)
    office = Office(settings(transactional_id_expiration_ms=1_000_000))
    known: dict[str, tuple[int, int]] = {}
    for _ in range(300):
        name = rng.choice("abcdefgh")
        if rng.random() < 0.1:
            office.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
        match rng.randrange(6):
            case 0:
                reply = office.init(name)
                if reply.error is OK:
                    known[name] = reply.producer_id, reply.producer_epoch
            case 1 | 2 if name in known:
                office.batch(known[name], *rng.sample(range(50), 5), name=name)
            case 3 if name in known:
                reply = office.end(known[name], rng.random() < 0.5, name=name, version=5)
                if reply.error is OK:
                    known[name] = reply.producer_id, reply.producer_epoch
            case 4:
                office.wait(rng.choice([0, 1_000, 100_000]))
            case _ if rng.random() < 0.1:
                office.wait(5_000_000)
                office.restart()
        office.errors = []
        office.wait(0)
        check(office)


def test_requests_beyond_the_limit_are_retriable() -> None:
    """New ids with long names, and new partitions, get a retriable error; existing transactions
    continue, and their ends make room."""
    office = Office(settings(kafkalog_transactions_max_bytes=LIMIT))
    producer = office.new()
    assert office.init("n" * LIMIT).error is FULL
    joined = list(range(50))
    assert set(office.batch(producer, *joined)) == {OK}
    other = office.new("other")
    some = (LIMIT - office.core.weight.bytes) // PARTITION_BYTES
    assert set(office.add(other, *range(some + 1), topic="b", name="other")) == {FULL}
    assert office.state("other") == "Empty"
    assert set(office.add(other, *range(some), topic="b", name="other")) == {OK}
    assert office.core.weight.bytes <= LIMIT
    assert office.add(other, some, topic="b", name="other") == [FULL]
    assert office.add(other, 0, topic="b", name="other") == [OK]  # already part of it
    assert office.init("new").error is FULL
    assert office.end(producer, version=5).error is OK
    assert office.init("new").error is OK
    assert office.add(other, some, topic="b", name="other") == [OK]
    assert office.end(other, name="other").error is OK
    check(office)


def test_the_longest_id_has_room_in_the_journal() -> None:
    """Its limit is that of a string in the protocol; otherwise its tombstone could never be
    written, and no later id would expire."""
    office = Office(settings(transactional_id_expiration_ms=1_000_000))
    for longer in ("n" * 32_768, "\u00fc" * 16_384):
        with pytest.raises(ArgumentError, match="found a string of 32768 bytes"):
            office.init(longer)
    assert office.init("").error is ErrorCode.INVALID_REQUEST
    assert office.core.weight.bytes == 0
    assert office.init("n" * 32_767).error is OK
    office.new("behind it")
    office.wait(5_000_000)
    office.wait(0)
    assert office.core.weight.bytes == 0


@pytest.mark.parametrize("letter", ["n", "\u00fc", "\u3042", "\U0001f600"])
def test_an_id_counts_with_the_memory_of_its_characters(letter: str) -> None:
    """One that is not ASCII takes up to four bytes, in the bound, too."""
    office, empty = Office(), name_bytes("")
    name = letter * 8_000
    office.new(name)
    check(office)
    taken = office.core.weight.bytes
    assert taken - empty >= sys.getsizeof(name) - sys.getsizeof("")
    office.config = settings(kafkalog_transactions_max_bytes=2 * taken - 1)
    office.restart()
    assert office.init(letter * 7_999 + "x").error is FULL


def test_appends_in_flight_count() -> None:
    office = Office(settings(kafkalog_transactions_max_bytes=LIMIT))
    one, other = office.new("one"), office.new("other")
    some = LIMIT // PARTITION_BYTES * 2 // 3
    office.held = []
    first = office.adding(one, *range(some), name="one")
    assert set(office.add(other, *range(some), name="other")) == {FULL}
    office.release(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert set(office.codes(first)) == {FULL}
    assert set(office.add(other, *range(some), name="other")) == {OK}
    check(office)


def test_a_lowered_bound_loses_nothing() -> None:
    """Everything in the journal is loaded anyway, and continues."""
    office = Office()
    producer = office.new()
    office.batch(producer, 1, 2)
    office.config = settings(kafkalog_transactions_max_bytes=1)
    office.restart()
    assert office.batch(producer, 1) == [OK]
    assert office.end(producer, version=5).error is OK
    assert office.init().error is OK
    assert office.init("new").error is FULL
    check(office)


def test_an_id_that_is_named_again_and_again_is_described_once() -> None:
    office = Office()
    office.batch(office.new(), 1)
    found = office.ask(apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t", "u", "t", "t"])
    assert [one.transactional_id for one in found.transaction_states] == ["t", "u"]


def test_the_numbers_approximate_the_memory() -> None:
    """Measured with decided transactions whose markers are not written: they take most."""
    office = Office()
    office.waiting = []
    office.new("first")
    tracemalloc.start()
    for number in range(50):
        name = f"t{number:04d}"
        producer = office.new(name)
        office.batch(producer, *range(1_000, 1_090), name=name)
        office.end(producer, name=name)
        office.waiting.clear()
        office.journal.batches.clear()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    weight = office.core.weight.bytes
    assert weight / 4 < taken < weight
