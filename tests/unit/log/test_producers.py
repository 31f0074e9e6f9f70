"""What a log remembers of its producers is bounded, in time and in number."""

import time

import pytest

import kafkalog
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
    """A client's timestamp in the far future kept it for ever, and one of long ago too short."""
    now_ms = time.time_ns() // 1_000_000
    with kafkalog.Log(log_dir) as log:
        log.append_batches(sent(1, now_ms + 10**12) + sent(2, 1_000))
        assert expire(log, now_ms - HOUR_MS) == 0
        assert ids(log) == [1, 2]
        assert expire(log, time.time_ns() // 1_000_000 + HOUR_MS) == 2
        assert ids(log) == []


def test_a_timestamp_of_the_future_does_not_outlive_a_restart(log_dir):
    """What is read back was heard of at the latest when it is read."""
    now_ms = time.time_ns() // 1_000_000
    with kafkalog.Log(log_dir) as log:
        log.append_batches(sent(1, now_ms + 10**12))
    with kafkalog.Log(log_dir) as log:
        assert ids(log) == [1]
        assert expire(log, time.time_ns() // 1_000_000 + HOUR_MS) == 1


@pytest.mark.slow
def test_the_one_silent_longest_makes_room(log_dir):
    """A million ids cost 200 MiB, and 0.7 s a roll."""
    with kafkalog.Log(log_dir) as log:
        log.append_batches(b"".join(sent(i) for i in range(PRODUCERS_MAX)))
        log.append_batches(sent(0, sequence=1))
        assert len(log.producers) == PRODUCERS_MAX
        log.append_batches(sent(10**6) + sent(10**6 + 1))
        assert len(log.producers) == PRODUCERS_MAX
        assert ids(log)[:2] == [0, 3]  # 0 was heard of again; 1 and 2 made room
        log.append_batches(sent(0, sequence=2))
        with pytest.raises(kafkalog.OutOfOrderSequenceNumber):
            log.append_batches(sent(3, sequence=7))
        log.append_batches(sent(1, sequence=7))  # not known any more: any sequence
        log.roll()
        known = log.producers
    with kafkalog.Log(log_dir) as log:
        assert log.producers == known


def test_ids_that_were_chosen_cost_what_others_cost(tmp_path):
    """A mix without a key was turned round: ids that all met in one place of the table."""
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
