"""A log's state of producers is bounded in time and in number."""

import time
from collections.abc import Iterable
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog._native import check, ffi, lib
from tests.support import batches
from tests.support.batches import Row

HOUR_MS = 3_600_000
PRODUCERS_MAX = 100_000
"""KL_PRODUCERS_MAX of producers.h."""


def sent(producer_id: int, timestamp_ms: int = 5, sequence: int = 0) -> bytes:
    return batches.batch([Row(b"v", timestamp_ms=timestamp_ms)], producer_id=producer_id,
                         producer_epoch=0, base_sequence=sequence)  # fmt: skip


def expire(log: kafkalog.Log, before_ms: int) -> int:
    count = ffi.new("size_t *")
    check(lib.kl_log_expire_producers(log._c, before_ms, count))
    return count[0]


def ids(log: kafkalog.Log) -> list[int]:
    return [producer.producer_id for producer in log.producers]


def test_a_producer_is_forgotten_by_our_clock(log_dir):
    """A client's timestamp must not keep it forever, if in the future, nor too briefly, if old."""
    now_ms = time.time_ns() // 1_000_000
    with kafkalog.Log(log_dir) as log:
        log.append_batches(sent(1, now_ms + 10**12) + sent(2, 1_000))
        assert expire(log, now_ms - HOUR_MS) == 0
        assert ids(log) == [1, 2]
        assert expire(log, time.time_ns() // 1_000_000 + HOUR_MS) == 2
        assert ids(log) == []


def test_a_timestamp_of_the_future_does_not_outlive_a_restart(log_dir):
    """A producer that is read back counts as last heard of when it is read, at the latest."""
    now_ms = time.time_ns() // 1_000_000
    with kafkalog.Log(log_dir) as log:
        log.append_batches(sent(1, now_ms + 10**12))
    with kafkalog.Log(log_dir) as log:
        assert ids(log) == [1]
        assert expire(log, time.time_ns() // 1_000_000 + HOUR_MS) == 1


@pytest.mark.slow
def test_the_one_silent_longest_makes_room(log_dir):
    """Without a bound a million ids would cost 200 MiB, and 0.7 s at each roll."""
    with kafkalog.Log(log_dir) as log:
        log.append_batches(b"".join(sent(i) for i in range(PRODUCERS_MAX)))
        log.append_batches(sent(0, sequence=1))
        assert len(log.producers) == PRODUCERS_MAX
        log.append_batches(sent(10**6) + sent(10**6 + 1))
        assert len(log.producers) == PRODUCERS_MAX
        assert ids(log)[:2] == [0, 3]  # 0 was heard of again; 1 and 2 were forgotten
        log.append_batches(sent(0, sequence=2))
        with pytest.raises(kafkalog.errors.OutOfOrderSequenceNumber):
            log.append_batches(sent(3, sequence=7))
        log.append_batches(sent(1, sequence=7))  # forgotten, so any sequence
        log.roll()
        known = log.producers
    with kafkalog.Log(log_dir) as log:
        assert log.producers == known


def opened(producer_id: int, sequence: int = 0) -> bytes:
    return batches.batch([Row(b"v", timestamp_ms=5)], producer_id=producer_id, producer_epoch=0,
                         base_sequence=sequence, transactional=True)  # fmt: skip


@pytest.mark.slow
def test_when_all_are_in_transactions_nobody_joins_them(log_dir):
    """None of them may be forgotten: a new producer gets an error until a transaction ends."""
    with kafkalog.Log(log_dir) as log:
        log.append_batches(b"".join(opened(i) for i in range(PRODUCERS_MAX - 1)))
        with pytest.raises(errors.NoMemory, match="100000 others are in transactions"):
            log.append_batches(opened(10**6) + opened(10**6 + 1) + opened(10**6 + 2))
        log.append_batches(sent(2 * 10**6) + sent(2 * 10**6 + 1))  # the second replaces the first
        log.append_batches(opened(10**6))
        assert len(log.producers) == PRODUCERS_MAX
        for data in (opened(10**6 + 1), sent(10**6 + 1), sent(10**6 + 1) + sent(10**6 + 2)):
            with pytest.raises(errors.NoMemory, match="100000 others are in transactions"):
                log.append_batches(data)
        log.append_batches(opened(7, 1) + opened(8, 1))
        assert len(log.producers) == PRODUCERS_MAX
        assert log.last_stable_offset == 0
        log.append_marker(0, 0, commit=True)
        assert log.last_stable_offset == 1
        log.append_marker(2, 0, commit=True)
        assert log.last_stable_offset == 1
        log.append_marker(1, 0, commit=False)
        assert log.last_stable_offset == 3
        log.append_batches(opened(10**6 + 1))
        assert len(log.producers) == PRODUCERS_MAX
        known = log.producers
    with kafkalog.Log(log_dir) as log:
        assert log.producers == known
        assert log.last_stable_offset == 3
        log.append_marker(3, 0, commit=True)
        assert log.last_stable_offset == 4


def test_to_make_room_costs_the_same_however_many_are_in_transactions(log_dir):
    """A new producer must not search all that may not be forgotten."""
    spent = []
    with kafkalog.Log(log_dir) as log:
        for first, count in ((0, 1_000), (10_000, PRODUCERS_MAX - 2_000)):
            log.append_batches(b"".join(opened(first + i) for i in range(count)))
            if first:
                log.append_batches(b"".join(sent(10**6 + i) for i in range(1_000)))
            newcomers = [sent(10**7 + first + i) for i in range(2_000)]
            began = time.process_time()
            for data in newcomers:
                log.append_batches(data)
            spent.append(time.process_time() - began)
        assert len(log.producers) == PRODUCERS_MAX
    assert spent[1] < 10 * spent[0]


def test_chosen_producer_ids_do_not_collide(tmp_path):
    """The hash has a secret; otherwise chosen ids could all have the same place in the table."""
    inverse = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
    chosen = [((k << 32 | k) * inverse) % (1 << 64) for k in range(1, 40_000)]
    chosen = [one for one in chosen if one < 1 << 63]
    spread = {}
    for name, numbers in (("plain", range(len(chosen))), ("chosen", chosen)):
        data = b"".join(sent(number) for number in numbers)
        with kafkalog.Log(tmp_path / f"{name}-0") as log:
            began = time.process_time()
            log.append_batches(data)
            spread[name] = time.process_time() - began
            assert len(log.producers) == len(chosen)
    assert spread["chosen"] < 10 * spread["plain"]


def allocations(lib: Any, log: kafkalog.Log, sequence_of: Iterable[tuple[int, int]]) -> int:
    """Allocations in one append of batches, each by (producer id, sequence)."""
    sent_ones = b"".join(sent(producer_id, sequence=n) for producer_id, n in sequence_of)
    lib.kl_io_reset()
    log.append_batches(sent_ones)
    return int(lib.kl_io_calls(b"alloc"))


def test_a_producer_takes_room_once_however_many_batches_it_sends(log_dir, native_test):
    """Otherwise 270,000 of 70 bytes in one append take 68 MiB, which the log keeps."""
    _, lib = native_test
    with kafkalog.Log(log_dir) as log:
        log.append(b"x")
        assert allocations(lib, log, ((7, i) for i in range(2_000))) < 50
        assert allocations(lib, log, ((7, 2_000 + i) for i in range(2_000))) < 50
        both = ((8 + i % 2, i // 2) for i in range(2_000))
        allocations(lib, log, both)  # room for 2,000, since they alternate; released again
        assert allocations(lib, log, ((100 + i, 0) for i in range(200))) > 200
    lib.kl_io_reset()


def test_forgotten_producers_free_their_memory(log_dir, native_test):
    """Otherwise 25 MB stay in a log whose producers have come and gone, until it is closed."""
    _, lib = native_test
    with kafkalog.Log(log_dir) as log:
        allocations(lib, log, ((i, 0) for i in range(1_000)))
        assert expire(log, time.time_ns() // 1_000_000 + HOUR_MS) == 1_000
        assert allocations(lib, log, ((i, 0) for i in range(1_000))) > 1_000 - 100 + 1_000
    lib.kl_io_reset()
