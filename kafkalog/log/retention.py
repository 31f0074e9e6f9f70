"""Which segments may be deleted: pure decisions over a log's segments.

Source: Kafka's UnifiedLog.deleteOldSegments.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kafkalog.config.topic import TopicConfig

__all__ = ["Expiry", "SegmentFacts", "ahead", "expired", "held_back"]

AHEAD_MS = 3_600_000
"""How far a clock may be wrong; a broker's message.timestamp.after.max.ms is the same."""


class SegmentFacts(Protocol):
    """The inputs of a decision; a log's own segments provide them."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int:
        """The next segment's base, or the log's end."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def largest_timestamp_ms(self) -> int:
        """-1: no record has one."""

    @property
    def created_ms(self) -> int:
        """Or the file's modification time: used if no record has a timestamp."""


class Expiry(NamedTuple):
    """The segments to delete, all those below `before_offset`, and why."""

    before_offset: int
    time: int
    """Segments that are older than retention.ms."""
    size: int
    """Further ones above retention.bytes."""
    start: int
    """Further ones below the log start."""
    held: int = 0
    """Segments that are kept only for a reader's hold."""


def expired(
    segments: Sequence[SegmentFacts],
    config: TopicConfig,
    high_watermark: int,
    log_start: int,
    now_ms: int,
) -> Expiry | None:
    """The oldest segments that `config` no longer keeps; None if all stay.

    `segments` are in the order of offsets, the active one last.  Never past the high
    watermark; an empty active segment stays.  If the active one is deleted, too, it must be
    rolled first, so that an empty one remains.
    """
    left = list(segments)
    time = size = 0
    if "delete" in config.cleanup_policy:
        if config.retention_ms >= 0:
            time = _cut(left, high_watermark, _older(now_ms - config.retention_ms))
        if config.retention_bytes >= 0:
            excess = sum(segment.size_bytes for segment in left) - config.retention_bytes
            size = _cut(left, high_watermark, _above(excess))
    # The last one never ends below the log start: records may still be appended to it.
    tail = left[-1:]
    left = left[:-1]
    start = _cut(left, high_watermark, lambda segment: segment.next_offset <= log_start)
    left += tail
    gone = len(segments) - len(left)
    return Expiry(segments[gone - 1].next_offset, time, size, start) if gone else None


def ahead(
    segments: Sequence[SegmentFacts], config: TopicConfig, before_offset: int, now_ms: int
) -> SegmentFacts | None:
    """The first segment that stays because retention.ms finds a record of the future in it: it
    stays until that time, and so do all later ones.  None if there is none."""
    if config.retention_ms < 0 or "delete" not in config.cleanup_policy:
        return None
    first = next((one for one in segments if one.next_offset > before_offset), None)
    late = first is not None and first.largest_timestamp_ms > now_ms + AHEAD_MS
    return first if late else None


def held_back(
    segments: Sequence[SegmentFacts], expiry: Expiry, wanted: int, max_bytes: int
) -> Expiry:
    """Segments to delete if a reader holds offsets from `wanted` on, at most `max_bytes` of them.

    Nobody holds what is below the log start, so `wanted` is at least that.  If the hold exceeds
    its bytes, the oldest segments are deleted.
    """
    going = [one for one in segments if one.next_offset <= expiry.before_offset]
    count, kept_bytes = len(going), 0
    while count and going[count - 1].next_offset > wanted:
        kept_bytes += going[count - 1].size_bytes
        if kept_bytes > max_bytes:
            break
        count -= 1
    time = min(expiry.time, count)
    size = min(expiry.size, count - time)
    before = going[count - 1].next_offset if count else segments[0].base_offset
    return Expiry(before, time, size, count - time - size, len(going) - count)


def _cut(
    left: list[SegmentFacts], high_watermark: int, goes: Callable[[SegmentFacts], bool]
) -> int:
    """Take the segments to delete from the front of `left`; returns how many."""
    count = 0
    for index, segment in enumerate(left):
        empty = index == len(left) - 1 and segment.size_bytes == 0
        if empty or segment.next_offset > high_watermark or not goes(segment):
            break
        count += 1
    del left[:count]
    return count


def _older(than_ms: int) -> Callable[[SegmentFacts], bool]:
    def goes(segment: SegmentFacts) -> bool:
        newest_ms = segment.largest_timestamp_ms
        return (newest_ms if newest_ms >= 0 else segment.created_ms) < than_ms

    return goes


def _above(excess: int) -> Callable[[SegmentFacts], bool]:
    left = excess

    def goes(segment: SegmentFacts) -> bool:
        nonlocal left
        left -= segment.size_bytes
        return left >= 0

    return goes
