"""Judges a group: its position never goes back, no record is left out, one member reads each.

A member records a record as processed (a `Poll`) before it commits an offset beyond it.

A coordinator that was cut off, or paused, does not know that another has its groups.  Until it
learns that, it answers from its old state, as Kafka's does.  So a position reported in such a time
is not compared with earlier ones; one reported later is compared with all of them.

Kinds of anomaly:

regression  a position was reported below one that was committed, or reported, before
phantom     a position was reported that no member had asked to commit
left out    the group's last position is above a record that no member processed
two owners  two members of one generation have the same partition
behind      at the end the position is not the end of the partition
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.faults.history import (
    Anomaly,
    Assigned,
    Commit,
    Committed,
    History,
    Outcome,
    Poll,
)

Span = tuple[float, float]


def check(
    history: History, *, records: dict[int, list[int]], disputed: Sequence[Span] = ()
) -> list[Anomaly]:
    """`records`: the offsets of all records of each partition, as the last reader found them.
    `disputed`: the times in which there may have been two coordinators."""
    return [
        *_regressions(history, disputed), *_phantoms(history), *_left_out(history, records),
        *_owners(history), *_behind(history, records),
    ]  # fmt: skip


def _regressions(history: History, disputed: Sequence[Span]) -> Iterator[Anomaly]:
    known: dict[int, list[tuple[float, int]]] = defaultdict(list)  # by when it held
    all_told: list[Commit | Committed] = [*history.of(Commit), *history.of(Committed)]
    for one in all_told:
        if one.outcome is Outcome.OK and one.end < math.inf:
            known[one.partition].append((one.end, one.offset))
    for partition, rows in known.items():
        rows.sort()
        highest, top = [], -1
        for _, offset in rows:
            highest.append(top := max(top, offset))
        ends = [end for end, _ in rows]
        for told in history.of(Committed):
            in_dispute = any(told.start < end and start < told.end for start, end in disputed)
            if told.partition == partition and told.outcome is Outcome.OK and not in_dispute:
                over = bisect_right(ends, told.start)
                if over and told.offset < highest[over - 1]:
                    yield Anomaly("regression", f"{partition}: {told.offset} was reported to "
                                  f"{told.process} after {highest[over - 1]}")  # fmt: skip


def _phantoms(history: History) -> Iterator[Anomaly]:
    asked: dict[tuple[int, int], float] = {}
    for one in sorted(history.of(Commit), key=lambda one: one.start):
        if one.outcome is not Outcome.FAIL:
            asked.setdefault((one.partition, one.offset), one.start)
    for told in history.of(Committed):
        if told.outcome is Outcome.OK and told.offset >= 0:
            start = asked.get((told.partition, told.offset), math.inf)
            if start > told.end:
                yield Anomaly("phantom", f"{told.partition}: {told.offset} was reported to "
                              f"{told.process}, but never committed")  # fmt: skip


def _last(history: History) -> dict[int, int]:
    """Each partition's position as it was last reported."""
    ordered = sorted(history.of(Committed), key=lambda one: one.start)
    return {one.partition: one.offset for one in ordered if one.outcome is Outcome.OK}


def _left_out(history: History, records: dict[int, list[int]]) -> Iterator[Anomaly]:
    processed = {(p.partition, offset) for p in history.of(Poll) for offset, _ in p.records}
    for partition, position in _last(history).items():
        left = [
            offset for offset in records.get(partition, [])
            if offset < position and (partition, offset) not in processed
        ]  # fmt: skip
        if left:
            yield Anomaly("left out", f"{partition}: {left[:9]} below {position}")


def _owners(history: History) -> Iterator[Anomaly]:
    owner: dict[tuple[int, int], str] = {}
    for one in history.of(Assigned):
        for partition in one.partitions:
            other = owner.setdefault((one.generation, partition), one.process)
            if other != one.process:
                yield Anomaly("two owners", f"{partition} in generation {one.generation}: "
                              f"{other} and {one.process}")  # fmt: skip


def _behind(history: History, records: dict[int, list[int]]) -> Iterator[Anomaly]:
    last = _last(history)
    for partition, offsets in records.items():
        if offsets and last.get(partition, -1) <= offsets[-1]:
            yield Anomaly("behind", f"{partition}: {last.get(partition, -1)} of {offsets[-1] + 1}")
