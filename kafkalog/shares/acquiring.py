"""A member acquires records that were read: which ones, and how many.

Records are acquired by whole batches of the log; with a record limit, a batch may be acquired in
part.  Records that were delivered often are acquired in ever smaller parts, the last time alone, so
that one bad record does not use up the deliveries of its neighbours.

Source: KIP-932, KIP-1206, and the behaviour of Apache Kafka 4.4's share partitions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from kafkalog.shares.partition import NOBODY, Acquired, Hold, Limits, SharePartition, State
from kafkalog.shares.ranges import Range

__all__ = ["Batch", "Want", "acquire", "without"]

OFTEN_MIN = 2
"""Deliveries from which on records may be delivered in smaller parts, at least."""


class Batch(NamedTuple):
    """A batch of the log."""

    first: int
    last: int


class Want(NamedTuple):
    """The wish of a member."""

    member: str
    records: int
    """At most, but a batch is completed unless `exact`."""
    batch_size: int
    """New records are acquired together up to about this number."""
    exact: bool = False
    """The record limit is exact."""


class _Left:
    """How much may still be acquired."""

    def __init__(self, want: Want, records: int, until_ms: int, limits: Limits) -> None:
        self.want, self.records, self.until_ms, self.limits = want, records, until_ms, limits
        self.found: list[Acquired] = []
        self.often = max(OFTEN_MIN, -(-limits.deliveries // 2))

    def hold(self, count: int, unit: tuple[int, int] | None) -> Hold:
        """A record that the member has now."""
        return Hold(State.ACQUIRED, count, self.want.member, self.until_ms, unit)

    def take(self, first: int, last: int, count: int) -> None:
        """Count what was acquired."""
        self.records -= last - first + 1
        if self.found and self.found[-1].last + 1 == first and self.found[-1].deliveries == count:
            self.found[-1] = self.found[-1]._replace(last=last)
        else:
            self.found.append(Acquired(first, last, count))


def acquire(
    share: SharePartition, want: Want, fetch_offset: int, batches: Sequence[Batch], now_ms: int,
    limits: Limits,
) -> list[Acquired]:  # fmt: skip
    """Let a member acquire records of batches that were read from `fetch_offset` on."""
    if not batches or want.records <= 0:
        return []
    last = batches[-1].last
    records = min(want.records, limits.in_flight - share.in_flight)
    if records <= 0:  # only what is in flight already
        if fetch_offset >= share.end:
            return []
        records = min(want.records, share.end - fetch_offset)
        last = min(last, share.end - 1)
    first = batches[0].first
    if first > fetch_offset:  # what was there has been compacted away
        share.archive(fetch_offset, first - 1, State.AVAILABLE)
        share.advance()
    left = _Left(want, records, now_ms + limits.lock_ms, limits)
    if _acquire_again(share, left, max(first, share.start), last) and left.records > 0:
        begin = max(first, share.end)
        if begin <= last:
            _acquire_new(share, left, begin, last, batches)
    return left.found


# ---- records that were acquired before ---------------------------------------------------------


def _acquire_again(share: SharePartition, left: _Left, first: int, last: int) -> bool:
    """Acquire what is available; False: nothing more may be acquired now."""
    parts = [one for one in share.holds.between(first, last) if one.value.unit is not None]
    for unit, group in groupby(parts, lambda one: one.value.unit):
        if left.records <= 0:
            return False
        free = [_within(one, first, last) for one in group if _free(one.value)]
        if unit is None or not free:
            continue
        often = max(one.value.deliveries for one in free) >= left.often
        if often and left.found:
            return False
        for begin, end, count in list(_portions(free, unit, left)):
            share.put(begin, end, left.hold(count + 1, unit))
            left.take(begin, end, count + 1)
        if often and left.found:
            return False
    return True


def _within(one: Range[Hold], first: int, last: int) -> Range[Hold]:
    return Range(max(one.first, first), min(one.last, last), one.value)


def _free(hold: Hold) -> bool:
    return hold.state is State.AVAILABLE and not hold.write


def _portions(
    free: Iterable[Range[Hold]], unit: tuple[int, int], left: _Left
) -> Iterator[tuple[int, int, int]]:
    """(first, last, deliveries so far) of the available records of a batch that may be acquired."""
    taken, most, limits = 0, -1, left.limits
    exact = left.records if left.want.exact else -1
    for one in free:
        count, size = one.value.deliveries, one.size
        alone = limits.deliveries > OFTEN_MIN and count == limits.deliveries - 1
        if alone and taken:
            return
        if count >= left.often and most < 0:
            most = max(1, unit[1] - unit[0] + 1 >> count - left.often + 1)
            if taken >= most:
                most = 1 << 62  # as many as there are: more than that are in the answer already
        portion = 1 if alone else size
        if most > 0:
            portion = min(portion, most - taken)
        if exact >= 0:
            portion = min(portion, exact - taken)
        yield one.first, one.first + portion - 1, count
        taken += portion
        if alone or portion < size or taken in (most, exact):
            return


# ---- new records -------------------------------------------------------------------------------


def _acquire_new(
    share: SharePartition, left: _Left, first: int, last: int, batches: Sequence[Batch]
) -> None:
    """Acquire the records from `first` on, up to the end of a batch."""
    if not len(share.holds):
        share.start = first
    wanted = left.records
    if wanted < last - first + 1:
        last = _end_of_batch(batches, first + wanted - 1)
    share.end = last + 1
    if left.want.exact:
        end = min(last, first + wanted - 1)
        share.put(first, end, left.hold(1, (first, last)))
        if end < last:
            share.put(end + 1, last, Hold(State.AVAILABLE, 0, NOBODY, unit=(first, last)))
        left.take(first, end, 1)
        return
    for begin, end in _units(batches, first, last, left.want.batch_size):
        share.put(begin, end, left.hold(1, (begin, end)))
        left.records -= end - begin + 1
        left.found.append(Acquired(begin, end, 1))


def _end_of_batch(batches: Sequence[Batch], offset: int) -> int:
    """The last offset of the batch that has this offset; without one, the offset."""
    at = bisect_right(batches, offset, key=lambda one: one.first)
    return max(offset, batches[at - 1].last) if at else offset


def _units(batches: Iterable[Batch], first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """The offsets `first` to `last` in parts of at least `size`, each of whole batches."""
    if last - first + 1 > size:
        for one in batches:
            if one.first > last:
                break
            if one.first - first >= size:
                yield first, one.first - 1
                first = one.first
    yield first, last


# ---- aborted transactions ----------------------------------------------------------------------


def without(
    share: SharePartition, found: Sequence[Acquired], aborted: Iterable[Batch]
) -> list[Acquired]:
    """The rest of acquired records without those of aborted transactions, which are archived:
    the whole batches of the log, in order."""
    left, at = list(found), 0
    for batch in aborted:
        share.archive(batch.first, batch.last, State.ACQUIRED)
        while at < len(left) and left[at].last < batch.first:
            at += 1
        while at < len(left) and left[at].first <= batch.last:
            one = left.pop(at)
            if one.first < batch.first:
                left.insert(at, one._replace(last=batch.first - 1))
                at += 1
            if one.last > batch.last:
                left.insert(at, one._replace(first=batch.last + 1))
                break
    share.advance()
    return left
