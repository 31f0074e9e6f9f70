"""Which segments may be deleted: Kafka's rules, decided from numbers alone."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.config.topic import TopicConfig
from kafkalog.log.retention import Expiry, expired


class Segment(NamedTuple):
    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    created_ms: int = 0


def log(*times: int, size: int = 100) -> list[Segment]:
    """Segments of ten records and `size` bytes each, with these largest timestamps."""
    return [Segment(10 * i, 10 * i + 10, size, t) for i, t in enumerate(times)]


def decide(segments, config=None, high_watermark=None, log_start=0, now_ms=1_000):
    end = segments[-1].next_offset
    top = end if high_watermark is None else high_watermark
    return expired(segments, TopicConfig.of(config), top, log_start, now_ms)


def test_nothing_goes_unless_a_setting_says_so():
    """However old and large they are."""
    assert decide(log(0, 0, 0, size=1 << 40), now_ms=1 << 50) is None


def test_segments_older_than_retention_ms_go():
    """A segment's newest record decides; one of exactly that age stays."""
    segments = log(100, 300, 899, 900, 950)
    assert decide(segments, {"retention.ms": 100}) == Expiry(30, 3, 0, 0)


def test_a_late_record_keeps_its_segment_and_all_behind_it():
    """Deletion stops at the first segment that stays."""
    assert decide(log(100, 999, 100, 100), {"retention.ms": 100}) == Expiry(10, 1, 0, 0)


def test_a_segment_without_timestamps_is_as_old_as_its_file():
    """-1 means that it has no timestamp."""
    segments = [Segment(0, 10, 100, -1, 800), Segment(10, 20, 100, -1, 950), *log(0)[:0]]
    assert decide(segments, {"retention.ms": 100}) == Expiry(10, 1, 0, 0)


def test_when_all_are_old_the_active_one_goes_too():
    """It is rolled first, so the offset is the log's end."""
    assert decide(log(0, 0), {"retention.ms": 100}) == Expiry(20, 2, 0, 0)
    assert decide(log(0), {"retention.ms": 0}, now_ms=1) == Expiry(10, 1, 0, 0)


def test_an_empty_active_segment_stays():
    """There is nothing in it to delete."""
    segments = [*log(0), Segment(10, 10, 0, -1, 0)]
    assert decide(segments, {"retention.ms": 100}) == Expiry(10, 1, 0, 0)
    assert decide(segments[1:], {"retention.ms": 0, "retention.bytes": 0}) is None


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(500, None), (400, None), (350, None), (300, Expiry(10, 0, 1, 0)), (299, Expiry(10, 0, 1, 0)),
     (200, Expiry(20, 0, 2, 0)), (1, Expiry(30, 0, 3, 0)), (0, Expiry(40, 0, 4, 0))],
)  # fmt: skip
def test_the_excess_over_retention_bytes_goes(limit, expected):
    """A segment is deleted if the rest is still at least the limit."""
    assert decide(log(0, 0, 0, 0), {"retention.bytes": limit}) == expected


def test_size_applies_after_age():
    """Both rules apply, one after the other."""
    segments = log(0, 950, 950, 950)
    config = {"retention.ms": 100, "retention.bytes": 200}
    assert decide(segments, config) == Expiry(20, 1, 1, 0)


def test_nothing_at_or_above_the_high_watermark_goes():
    """A segment is deleted only if all of it is committed."""
    config = {"retention.ms": 0}
    assert decide(log(0, 0, 0), config, high_watermark=9) is None
    assert decide(log(0, 0, 0), config, high_watermark=10) == Expiry(10, 1, 0, 0)
    assert decide(log(0, 0, 0), config, high_watermark=29) == Expiry(20, 2, 0, 0)


def test_segments_below_the_log_start_are_always_deleted():
    """After delete_before the segment that contains the start stays, and so does the active one."""
    assert decide(log(0, 0, 0), log_start=9) is None
    assert decide(log(0, 0, 0), log_start=10) == Expiry(10, 0, 0, 1)
    assert decide(log(0, 0, 0), log_start=25) == Expiry(20, 0, 0, 2)
    assert decide(log(0, 0, 0), log_start=30) == Expiry(20, 0, 0, 2)


def test_a_compacted_topic_loses_only_segments_below_its_start():
    """Unless its policy also has delete."""
    config = {"cleanup.policy": "compact", "retention.ms": 0, "retention.bytes": 0}
    assert decide(log(0, 0, 0), config) is None
    assert decide(log(0, 0, 0), config, log_start=10) == Expiry(10, 0, 0, 1)
    both = config | {"cleanup.policy": "compact,delete"}
    assert decide(log(0, 0, 0), both) == Expiry(30, 3, 0, 0)
    assert decide(log(0, 0, 0), config | {"cleanup.policy": ""}) is None


def test_a_clock_that_goes_back_deletes_nothing():
    """Segments with future timestamps count as young."""
    assert decide(log(5_000, 6_000), {"retention.ms": 100}, now_ms=10) is None


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(-1, 2_000)), min_size=1, max_size=12),
    st.integers(-1, 2_000),
    st.integers(-1, 400),
    st.integers(0, 120),
    st.integers(0, 120),
)
def test_only_whole_segments_below_the_high_watermark_ever_go(
    shape, retention_ms, retention_bytes, high_watermark, log_start
):
    """They are deleted from the oldest on, without a gap; the counts add up."""
    segments = [Segment(10 * i, 10 * i + 10, s, t, 500) for i, (s, t) in enumerate(shape)]
    config = {"retention.ms": retention_ms, "retention.bytes": retention_bytes}
    found = decide(segments, config, min(high_watermark, 10 * len(shape)), log_start)
    if found is None:
        return
    assert found.before_offset in [segment.next_offset for segment in segments]
    assert found.before_offset <= high_watermark
    assert found.before_offset == 10 * (found.time + found.size + found.start)
    kept = sum(s.size_bytes for s in segments if s.base_offset >= found.before_offset)
    if found.size and retention_ms < 0 and not found.start:
        assert kept >= retention_bytes
