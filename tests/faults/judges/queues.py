"""Judges a queue: every sent value is there, in order, once, and all readers see the same.

Kinds of anomaly:

lost        it was acknowledged, and the last reading, of everything, did not find it
duplicate   one value at two offsets
divergent   two values at one offset, as acknowledged or as read
phantom     it was read before it was sent, or never sent
aborted     its send certainly failed, or its transaction was aborted, and it was read
early       it was read before the commit of its transaction was requested
reordered   a send that began when another was over is stored before it; or one producer's values
            are not stored in the order of its sends
backwards   a reader whose position was not set got an offset that is not above its last
skipped     a reader went past an existing record
torn        a part of a transaction is there, and a part is not
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.faults.history import Anomaly, History, Outcome, Poll, Send, Transaction

Place = tuple[int, int]  # partition, offset


class Found:
    """Everything that any client saw: the values at each place, and the places of each value."""

    def __init__(self, history: History) -> None:
        self.sends = {one.value: one for one in history.of(Send)}
        self.polls = history.of(Poll)
        self.at: dict[Place, set[str]] = defaultdict(set)
        self.places: dict[str, set[Place]] = defaultdict(set)
        for poll in self.polls:
            for offset, value in poll.records:
                self._saw((poll.partition, offset), value)
        for send in self.sends.values():
            if send.outcome is Outcome.OK and send.offset is not None:
                self._saw((send.partition, send.offset), send.value)

    def _saw(self, place: Place, value: str) -> None:
        self.at[place].add(value)
        self.places[value].add(place)

    def offset(self, send: Send) -> int | None:
        """Its offset in its partition, if any client knows it."""
        return min((o for p, o in self.places.get(send.value, ()) if p == send.partition),
                   default=None)  # fmt: skip


def check(history: History, *, last: str, once: bool = True, ordered: bool = True) -> list[Anomaly]:
    """`last`: the process that read everything at the end.

    `once`: producers are idempotent.  `ordered`: a producer's sends are stored in their order,
    also those that it did not wait for.
    """
    found = Found(history)
    anomalies = [
        *_lost(found, last), *_divergent(found), *_phantom(found), *_real_time(found),
        *_readers(found), *_transactions(history, found, last),
    ]  # fmt: skip
    if once:
        anomalies += _duplicates(found)
    if ordered:
        anomalies += _own_order(found)
    return anomalies


def _read_by(found: Found, process: str) -> dict[str, Place]:
    return {
        value: (poll.partition, offset)
        for poll in found.polls if poll.process == process for offset, value in poll.records
    }  # fmt: skip


def _lost(found: Found, last: str) -> Iterator[Anomaly]:
    there = _read_by(found, last)
    for send in found.sends.values():
        if send.outcome is Outcome.OK and send.value not in there:
            yield Anomaly("lost", f"{send.value}, acknowledged at {send.partition}:{send.offset}")


def _duplicates(found: Found) -> Iterator[Anomaly]:
    for value, places in found.places.items():
        if len(places) > 1:
            yield Anomaly("duplicate", f"{value} at {sorted(places)}")


def _divergent(found: Found) -> Iterator[Anomaly]:
    for place, values in found.at.items():
        if len(values) > 1:
            yield Anomaly("divergent", f"{place[0]}:{place[1]} is {sorted(values)}")


def _phantom(found: Found) -> Iterator[Anomaly]:
    """Read before it was sent, or never sent, or read though its send failed."""
    for poll in found.polls:
        for offset, value in poll.records:
            send, where = found.sends.get(value), f"{value} at {poll.partition}:{offset}"
            if send is None or send.start > poll.end or send.partition != poll.partition:
                yield Anomaly("phantom", f"{where}, read by {poll.process}")
            elif send.outcome is Outcome.FAIL:
                yield Anomaly("aborted", f"{where}, read by {poll.process}; its send failed")


def _real_time(found: Found) -> Iterator[Anomaly]:
    """A send that began after another had ended has a higher offset."""
    partitions: dict[int, list[tuple[float, float, int, str]]] = defaultdict(list)
    for send in found.sends.values():
        offset = found.offset(send)
        if offset is not None:
            partitions[send.partition].append((send.start, send.end, offset, send.value))
    for partition, rows in partitions.items():
        ended = sorted((end, offset, value) for _, end, offset, value in rows if end < math.inf)
        ends = [end for end, _, _ in ended]
        highest: list[tuple[int, str]] = []  # of the sends that were over by then
        for _, offset, value in ended:
            highest.append(max((offset, value), highest[-1] if highest else (-1, "")))
        for start, _, offset, value in rows:
            over = bisect_right(ends, start)
            if over and highest[over - 1][0] > offset:
                other, before = highest[over - 1]
                yield Anomaly("reordered", f"{partition}: {value} at {offset} began when "
                              f"{before} at {other} was over")  # fmt: skip


def _own_order(found: Found) -> Iterator[Anomaly]:
    """A producer's values are stored in the order of its sends."""
    last: dict[tuple[str, int], tuple[int, str]] = {}
    for send in sorted(found.sends.values(), key=lambda one: one.start):
        offset = found.offset(send)
        if offset is None:
            continue
        whose = (send.process, send.partition)
        before, value = last.get(whose, (-1, ""))
        if offset < before:
            yield Anomaly("reordered", f"{send.process} sent {send.value} ({offset}) after "
                          f"{value} ({before})")  # fmt: skip
        last[whose] = max((offset, send.value), (before, value))


def _readers(found: Found) -> Iterator[Anomaly]:
    """Each reader's offsets rise, and it leaves nothing out."""
    known: dict[int, list[int]] = defaultdict(list)  # to readers: more may be acknowledged
    for partition, offset in sorted({(p.partition, o) for p in found.polls for o, _ in p.records}):
        known[partition].append(offset)
    position: dict[tuple[str, int], int] = {}
    for poll in sorted(found.polls, key=lambda one: one.start):
        whose = (poll.process, poll.partition)
        if poll.seek:
            position.pop(whose, None)
        for offset, value in poll.records:
            before = position.get(whose, -1)
            where = f"{poll.process}, {poll.partition}: {value} at {offset} after {before}"
            if offset <= before:
                yield Anomaly("backwards", where)
            elif before >= 0:
                offsets = known[poll.partition]
                between = offsets[bisect_right(offsets, before)]
                if between < offset:
                    yield Anomaly("skipped", f"{where}, though {between} is there")
            position[whose] = offset


def _transactions(history: History, found: Found, last: str) -> Iterator[Anomaly]:
    """All of a transaction or nothing; nothing of an aborted one; nothing before its commit."""
    there = _read_by(found, last)
    of: dict[str, Transaction] = {}
    for one in history.of(Transaction):
        of.update({value: one for _, value in one.sent})
        if one.outcome is Outcome.FAIL:
            continue
        present = [value for _, value in one.sent if value in there]
        missing = [value for _, value in one.sent if value not in there]
        if missing and (present or one.outcome is Outcome.OK):
            kind = "torn" if present else "lost"
            yield Anomaly(kind, f"{one.process}: {present} are there, {missing} are not")
    yield from _too_soon(found.polls, of)


def _too_soon(polls: Iterable[Poll], of: dict[str, Transaction]) -> Iterator[Anomaly]:
    for poll in polls:
        for offset, value in poll.records:
            transaction = of.get(value)
            if transaction is None:
                continue
            where = f"{value} at {poll.partition}:{offset}, read by {poll.process}"
            if transaction.outcome is Outcome.FAIL:
                yield Anomaly("aborted", where)
            elif transaction.decided > poll.end:
                yield Anomaly("early", where)
