"""Which log is compacted, and how far: pure decisions from facts about segments."""

import sys
from typing import NamedTuple

import pytest

from kafkalog.config.topic import TopicConfig
from kafkalog.log.compaction import Cleanable, Throttle, cleanable, due, filthiest
from kafkalog.types import TopicPartition


class Facts(NamedTuple):
    base_offset: int
    next_offset: int
    size_bytes: int = 100
    largest_timestamp_ms: int = 0
    created_ms: int = 0
    first_timestamp_ms: int = 0


SEGMENTS = [Facts(i * 10, i * 10 + 10, 100, 1_000 * i + 999, 0, 1_000 * i) for i in range(5)]


def look(checkpoint=-1, last_stable=50, start=0, now_ms=10_000, **settings):
    config = TopicConfig.of({"cleanup.policy": "compact", **settings})
    return cleanable(SEGMENTS, config, start, 50, last_stable, checkpoint, now_ms)


def test_all_but_the_active_segment():
    assert look() == Cleanable(0, 40, 0, 400, 1_000)


@pytest.mark.parametrize(("last_stable", "end"), [(50, 40), (40, 40), (39, 30), (30, 30), (5, 0)])
def test_not_at_or_above_an_open_transaction(last_stable, end):
    """Nor any part of the segment with its first record."""
    assert look(last_stable=last_stable).end == end


@pytest.mark.parametrize(
    ("now_ms", "end"), [(10_000, 40), (4_500, 40), (4_499, 40), (3_500, 30), (1_500, 10), (0, 0)]
)
def test_records_younger_than_the_lag_stay(now_ms, end):
    assert look(now_ms=now_ms, **{"min.compaction.lag.ms": 500}).end == end


@pytest.mark.parametrize(
    ("checkpoint", "first", "clean", "dirty"),
    [(-1, 0, 0, 400), (10, 10, 100, 300), (15, 15, 200, 300), (40, 40, 400, 0), (51, 0, 0, 400)],
)
def test_the_dirty_range(checkpoint, first, clean, dirty):
    """A checkpoint above the end counts as none; its own segment counts as clean and as dirty."""
    found = look(checkpoint=checkpoint)
    assert (found.first_dirty, found.clean_bytes, found.dirty_bytes) == (first, clean, dirty)
    assert found.ratio == dirty / (clean + dirty)


def test_a_checkpoint_below_the_start_is_none():
    assert look(checkpoint=5, start=20).first_dirty == 20


def test_due_by_ratio():
    config = TopicConfig.of({"min.cleanable.dirty.ratio": 0.5})
    assert not due(look(checkpoint=20), config, 10_000)
    assert due(look(checkpoint=10), config, 10_000)


@pytest.mark.parametrize(("now_ms", "wanted"), [(8_000, False), (8_001, True)])
def test_due_by_age(now_ms, wanted):
    """The first batch of the oldest dirty segment is from second 3."""
    config = TopicConfig.of({"max.compaction.lag.ms": 5_000, "min.cleanable.dirty.ratio": 0.9})
    assert due(look(checkpoint=30), config, now_ms) == wanted
    assert not due(look(checkpoint=40), config, now_ms)


def test_the_filthiest_first():
    a, b, c = (TopicPartition(name, 0) for name in "abc")
    assert filthiest({}) is None
    assert filthiest({a: look(checkpoint=30), b: look(checkpoint=10), c: look(checkpoint=20)}) == b
    assert filthiest({c: look(), a: look()}) == a


class Waited:
    """A clock whose waits end immediately and are summed up."""

    def __init__(self):
        self.s = 0.0

    def now_ms(self):
        return 0

    def monotonic_s(self):
        return self.s

    def wait_until(self, condition, until_s):
        self.s = until_s


def test_a_throttle_holds_the_rate():
    clock = Waited()
    throttle = Throttle(1_000, clock)
    assert throttle.step_bytes == 250
    for _ in range(8):
        throttle.done(250)
    assert clock.s == 2
    clock.s = 100  # idle time does not count later
    throttle.done(500)
    assert clock.s == 100.5
    free = Throttle(sys.float_info.max, clock)
    free.done(1 << 40)
    assert clock.s == 100.5
