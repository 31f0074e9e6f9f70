"""Turns options and the state of the logs into tasks.  Pure: no file, no clock, no Spark.

A read is planned in four steps: `choose` the topic-partitions, `resolve` the limits of each to a
range of offsets, `check_loss` against what is there, then `tasks` cuts large ranges at batch
boundaries and packs small ones together.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from heapq import heapify, heapreplace
from itertools import pairwise

from .errors import BadOption, DataLoss, MissingTopic
from .options import EARLIEST, LATEST, Key, Limit, ReadOptions, Selection

INTERNAL_TOPICS = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
)
"""Never matched by a pattern, just as a Kafka client's listing leaves them out."""

PACK_SHARE = 4
"""Small ranges are packed up to this part of maxBytesPerPartition: enough to make a task worth
its start, little enough to leave a middle-sized topic some parallelism."""
PACK_OFFSETS = 250_000
"""Most offsets that packed ranges have together: Spark works by the row, and compressed rows may
be few bytes."""


@dataclass(frozen=True)
class Ends:
    """The readable range of one topic-partition: offsets `start` up to, not including, `stop`."""

    start: int
    stop: int
    flushed: int | None = field(default=None, compare=False)
    """All records below it are on disk, readable or not; None: unknown."""


@dataclass(frozen=True)
class Range:
    """Offsets `start` up to, not including, `stop` of one topic-partition."""

    key: Key
    start: int
    stop: int

    @property
    def count(self) -> int:
        """Offsets in the range; records may be fewer."""
        return self.stop - self.start


@dataclass(frozen=True)
class Marks:
    """Where offsets are in a log, from its sparse indexes.

    `offsets[i]` is where a batch may begin and `bytes_before[i]` how many bytes of the log precede
    it; both ascend, and the last entry is the end.
    """

    offsets: Sequence[int]
    bytes_before: Sequence[int]

    def at(self, offset: int) -> int:
        """About how many bytes precede `offset`."""
        right = bisect_right(self.offsets, offset)
        if right == 0:
            return self.bytes_before[0] if self.bytes_before else 0
        if right == len(self.offsets):
            return self.bytes_before[-1]
        low, high = self.offsets[right - 1], self.offsets[right]
        before, after = self.bytes_before[right - 1], self.bytes_before[right]
        return before + (after - before) * (offset - low) // (high - low)


def choose(selection: Selection, present: Sequence[Key]) -> list[Key]:
    """The topic-partitions to read, sorted.

    Raises: MissingTopic for a missing topic or partition that is named.
    """
    there = set(present)
    topics = {topic for topic, _ in present}
    if selection.pattern is not None:
        wanted = {
            topic
            for topic in topics - INTERNAL_TOPICS
            if re.fullmatch(selection.pattern, topic) is not None
        }
        return sorted(key for key in present if key[0] in wanted)
    if selection.topics is not None:
        for topic in selection.topics:
            if topic not in topics:
                raise MissingTopic(
                    f"option 'subscribe': no topic {topic!r} here{_near(topic, topics)}"
                )
        return sorted(key for key in present if key[0] in selection.topics)
    assigned = selection.assigned or ()
    for topic, partition in assigned:
        if topic not in topics:
            raise MissingTopic(f"option 'assign': no topic {topic!r} here{_near(topic, topics)}")
        if (topic, partition) not in there:
            have = sorted(p for t, p in present if t == topic)
            told = f"option 'assign': no partition {partition} of {topic!r}; found {have}"
            raise MissingTopic(told)
    return sorted(assigned)


def _near(topic: str, topics: set[str]) -> str:
    near = get_close_matches(topic, topics, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    shown = sorted(topics)[:10]
    return f"; found {', '.join(shown) or 'none'}{', ...' if len(topics) > len(shown) else ''}"


def times_wanted(limit: Limit, keys: Sequence[Key]) -> dict[Key, int]:
    """The timestamps (ms, or LARGEST) that must be looked up for a limit; empty for offsets.

    Raises: BadOption when the limit does not name exactly these topic-partitions.
    """
    _check_names(limit, keys)
    if not limit.by_time:
        return {}
    times_ms = {key: value_of(limit, key) for key in keys}
    return {key: ms for key, ms in times_ms.items() if ms not in (EARLIEST, LATEST)}


def resolve(
    options: ReadOptions,
    ends: Mapping[Key, Ends],
    start_found: Mapping[Key, int | None],
    stop_found: Mapping[Key, int | None],
) -> list[Range]:
    """The ranges that the limits ask for, whether they exist or not, sorted by topic-partition.

    `start_found`, `stop_found`: for a limit by time, the first offset at or after its timestamp,
    None when there is none.

    Raises: BadOption.
    """
    ranges = []
    for key in sorted(ends):
        start = resolve_start(options, key, ends[key], start_found.get(key))
        stop = _stop(options, key, ends[key], stop_found)
        if stop < ends[key].start and not _is_named(options.start, key):
            start = 0  # the log began somewhere: all requested records are gone
        if start > stop:
            raise BadOption(
                f"{_name(key)}: {options.start.option} gives offset {start}, which is after "
                f"offset {stop} of {options.end.option}"
            )
        ranges.append(Range(key, start, stop))
    return ranges


def check_loss(
    wanted: Sequence[Range], ends: Mapping[Key, Ends], options: ReadOptions
) -> tuple[list[Range], list[str]]:
    """The existing parts of the ranges, without empty ones, and warnings about lost records.

    Raises: DataLoss when failOnDataLoss is on.
    """
    ranges = []
    warnings: list[str] = []
    for asked in wanted:
        there = within(asked, ends[asked.key])
        if there != asked and asked.stop:
            warning = lost(asked, ends[asked.key], options.isolation)
            if options.fail_on_data_loss:
                raise DataLoss(warning)
            warnings.append(warning)
        if there.count:
            ranges.append(there)
    return ranges, warnings


def within(wanted: Range, ends: Ends) -> Range:
    """The readable part of a range."""
    start = min(max(wanted.start, ends.start), ends.stop)
    return Range(wanted.key, start, max(start, min(wanted.stop, ends.stop)))


def lost(wanted: Range, ends: Ends, isolation: str) -> str:
    """A sentence for records that cannot be read, and what to do."""
    what = "committed offsets" if isolation == "read_committed" else "offsets"
    return (
        f"{_name(wanted.key)}: wanted offsets {wanted.start} to {wanted.stop}, found {what} "
        f"{ends.start} to {ends.stop}: records may have been deleted, or do not exist yet.  "
        "Ask for what is there, or set failOnDataLoss to false to read just that"
    )


def resolve_start(options: ReadOptions, key: Key, ends: Ends, offset: int | None) -> int:
    """The offset for a start; `offset`: the result of a lookup by time, if any.

    Raises: BadOption where nothing was found, and that is an error.
    """
    limit = options.start
    value = value_of(limit, key)
    if value in (EARLIEST, LATEST):
        return ends.start if value == EARLIEST else ends.stop
    if limit.by_time:
        if offset is not None and offset < ends.stop:
            return max(offset, ends.start)
        if options.start_without_match == "latest":
            return ends.stop
        raise BadOption(
            f"{_name(key)}: no record at or after {value} ms ({limit.option}); set "
            "startingOffsetsByTimestampStrategy to latest to start at the end then"
        )
    return value


def _stop(options: ReadOptions, key: Key, ends: Ends, found: Mapping[Key, int | None]) -> int:
    limit = options.end
    value = value_of(limit, key)
    if value in (EARLIEST, LATEST):
        return ends.start if value == EARLIEST else ends.stop
    if limit.by_time:
        offset = found[key]
        return ends.stop if offset is None else max(ends.start, min(offset, ends.stop))
    return value


def _is_named(limit: Limit, key: Key) -> bool:
    """True if a limit is an offset, rather than the log's beginning or a time."""
    return not limit.by_time and value_of(limit, key) != EARLIEST


def value_of(limit: Limit, key: Key) -> int:
    if limit.each is not None:
        return limit.each[key] if key in limit.each else limit.topics[key[0]]
    assert limit.everywhere is not None
    return limit.everywhere


def _check_names(limit: Limit, keys: Sequence[Key]) -> None:
    if limit.each is None:
        return
    missing = sorted(key for key in set(keys) - set(limit.each) if key[0] not in limit.topics)
    extra = list(map(_name, sorted(set(limit.each) - set(keys))))
    extra += sorted(set(limit.topics) - {topic for topic, _ in keys})
    if missing or extra:
        parts = []
        if missing:
            parts.append(f"leaves out {', '.join(map(_name, missing))}")
        if extra:
            parts.append(f"names {', '.join(extra)}, which is not read here")
        raise BadOption(
            f"option {limit.option!r} {' and '.join(parts)}; wanted exactly the topic-partitions "
            "that are read"
        )


def tasks(
    ranges: Sequence[Range], marks: Mapping[Key, Marks], options: ReadOptions
) -> list[list[Range]]:
    """The ranges as tasks of about equal work; each offset is in exactly one of them.

    A range above maxBytesPerPartition (less when minPartitions asks for more tasks) is cut at
    batch boundaries; maxRecordsPerPartition cuts anywhere.  Small ranges share a task.
    """
    goal = task_bytes(sum(_bytes(piece, marks) for piece in ranges), options)
    pieces = [
        piece
        for whole in ranges
        for part in split_bytes(whole, marks[whole.key], goal)
        for piece in split_count(part, options.max_records)
    ]
    packed = _pack(pieces, marks, options)
    wanted = options.min_partitions or 0
    if len(packed) >= wanted:
        return packed
    if len(pieces) < wanted:
        pieces = _split_until(pieces, wanted)
    return _spread(pieces, marks, wanted, options.max_records)


def task_bytes(total: int, options: ReadOptions) -> int:
    """The size above which a range is cut, for a read of `total` bytes."""
    return max(1, min(options.max_bytes, -(-total // (options.min_partitions or 1))))


def split_bytes(whole: Range, marks: Marks, goal: int) -> list[Range]:
    """Cut where a batch begins, into pieces of about `goal` bytes or as near as batches allow."""
    first, last = marks.at(whole.start), marks.at(whole.stop)
    parts = -(-(last - first) // goal)
    cuts = [whole.start]
    for part in range(1, parts):
        target = first + (last - first) * part // parts
        at = bisect_left(marks.bytes_before, target)
        if at < len(marks.offsets) and cuts[-1] < marks.offsets[at] < whole.stop:
            cuts.append(marks.offsets[at])
    cuts.append(whole.stop)
    return [Range(whole.key, a, b) for a, b in pairwise(cuts)]


def split_count(whole: Range, max_records: int | None) -> list[Range]:
    """Cut into even pieces of at most `max_records` offsets."""
    parts = 1 if max_records is None else -(-whole.count // max_records)
    return _even(whole, parts)


def _even(whole: Range, parts: int) -> list[Range]:
    cuts = [whole.start + whole.count * part // parts for part in range(parts + 1)]
    return [Range(whole.key, a, b) for a, b in pairwise(cuts)]


def _split_until(pieces: Sequence[Range], wanted: int) -> list[Range]:
    """Cut the longest pieces, even inside batches, until there are `wanted` (or single offsets)."""
    parts = [1] * len(pieces)
    longest_first = [(-piece.count, i) for i, piece in enumerate(pieces)]
    heapify(longest_first)
    for _ in range(min(wanted, sum(piece.count for piece in pieces)) - len(pieces)):
        _, i = longest_first[0]
        parts[i] += 1
        heapreplace(longest_first, (-pieces[i].count // parts[i], i))  # rounded up
    return [part for piece, n in zip(pieces, parts, strict=True) for part in _even(piece, n)]


def _pack(
    pieces: Sequence[Range], marks: Mapping[Key, Marks], options: ReadOptions
) -> list[list[Range]]:
    """Let neighbours share a task while it stays small; the order is kept."""
    room = options.max_bytes // PACK_SHARE
    packed: list[list[Range]] = []
    bytes_used = count_used = rows_used = 0
    for piece in pieces:
        piece_bytes = _bytes(piece, marks)
        rows = min(piece.count, piece_bytes)  # at most: compaction leaves few of the offsets
        bytes_used += piece_bytes
        count_used += piece.count
        rows_used += rows
        too_many = options.max_records is not None and count_used > options.max_records
        if not packed or bytes_used > room or rows_used > PACK_OFFSETS or too_many:
            packed.append([])
            bytes_used, count_used, rows_used = piece_bytes, piece.count, rows
        packed[-1].append(piece)
    return packed


def _spread(
    pieces: Sequence[Range],
    marks: Mapping[Key, Marks],
    wanted: int,
    max_records: int | None,
) -> list[list[Range]]:
    """The pieces as this many tasks or more, or one per piece, of about equal bytes;
    the order is kept."""
    left_bytes = sum(_bytes(piece, marks) for piece in pieces)
    spread: list[list[Range]] = []
    room, count = 0.0, 0
    for at, piece in enumerate(pieces):
        size = _bytes(piece, marks)
        owed = max(wanted - len(spread), 0)  # tasks that are not started yet
        count += piece.count
        too_many = max_records is not None and count > max_records
        # A piece goes where more than half of it fits; and none may be missing at the end.
        full = owed > 0 and (size > 2 * room or len(pieces) - at <= owed)
        if not spread or too_many or full:
            spread.append([])
            room, count = left_bytes / max(owed, 1), piece.count
        spread[-1].append(piece)
        room -= size
        left_bytes -= size
    return spread


def _bytes(piece: Range, marks: Mapping[Key, Marks]) -> int:
    return marks[piece.key].at(piece.stop) - marks[piece.key].at(piece.start)


def _name(key: Key) -> str:
    return f"{key[0]}-{key[1]}"
