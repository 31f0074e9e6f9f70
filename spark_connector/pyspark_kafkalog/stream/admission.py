"""The ranges of the next micro-batch: `start, logs, limits, now -> ranges`.  Pure.

Three steps: `available` says what is available after `start`, and what has been lost; `admit` how
much of it goes into the batch; `ranges_between` repeats a batch from the offsets that Spark kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..options import Key
from ..plan import Ends, Marks, Range
from .offsets import Offsets


@dataclass(frozen=True)
class Limits:
    """How large a micro-batch is; None: no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 0
    """A batch below the minimum waits no longer than this."""
    max_bytes: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Head:
    """The state of all logs of a stream at one time."""

    ends: Mapping[Key, Ends] = field(default_factory=dict)
    identities: Mapping[Key, str] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of topics that have one."""
    only_flushed: bool = False
    """True if the stream sees only what is on disk."""

    def stop(self, key: Key) -> int:
        """Where the stream's visible part of the log ends."""
        there = self.ends[key]
        if not self.only_flushed or there.flushed is None:
            return there.stop
        return max(there.start, min(there.stop, there.flushed))

    @property
    def offsets(self) -> Offsets:
        """The position of a stream that has read everything."""
        return Offsets({key: self.stop(key) for key in self.ends}, self.ids)


@dataclass(frozen=True)
class Offer:
    """The readable records."""

    begins: Mapping[Key, int]
    stops: Mapping[Key, int]
    ids: Mapping[str, str]
    lost: tuple[str, ...] = ()
    """A sentence for each loss of records."""

    @property
    def total(self) -> int:
        """Offsets."""
        return sum(self.stops[key] - begin for key, begin in self.begins.items())


def available(start: Offsets, head: Head, target: Offsets | None = None) -> Offer:
    """The offsets available after `start`, up to `target` (Trigger.AvailableNow) if there is one.

    With a target nothing new counts: no partition, and no topic that was recreated after it.
    """
    begins, stops, lost, ids = {}, {}, [], dict(head.ids)
    kept = set()
    for key in sorted({*start.at, *head.ends}):
        there = head.ends.get(key)
        if target is not None and not _is_of(target, head, key):
            if key in start.at:
                begins[key] = stops[key] = start.at[key]
                kept.add(key[0])
            continue
        if there is None:
            lost.append(f"{_name(key)}: was deleted; read up to offset {start.at[key]}")
            continue
        begins[key], told = _begin(key, start, head)
        lost += told
        stop = head.stop(key) if target is None else min(head.stop(key), target.at[key])
        stops[key] = max(stop, begins[key])
    for topic in kept:
        ids.pop(topic, None)
        if topic in start.ids:
            ids[topic] = start.ids[topic]
    here = {topic for topic, _ in begins}
    return Offer(begins, stops, {t: i for t, i in ids.items() if t in here}, tuple(lost))


def _is_of(target: Offsets, head: Head, key: Key) -> bool:
    return key in target.at and target.same_topic(head.offsets, key[0])


def _begin(key: Key, start: Offsets, head: Head) -> tuple[int, list[str]]:
    """Where to continue in an existing log."""
    there, at = head.ends[key], start.at.get(key)
    name = _name(key)
    if at is not None and not start.same_topic(head.offsets, key[0]):
        told = f"{name}: the topic was deleted and recreated ({start.ids[key[0]]} is now "
        told += f"{head.ids[key[0]]}); of the old one offsets below {at} were read"
        return there.start, [told]
    if at is None:  # a new partition, from its first record on
        if there.start > 0:
            return there.start, [f"{name}: is new and begins with offset {there.start}, not 0"]
        return 0, []
    if at > there.stop:
        told = f"{name}: offset {at} was to be read next, but the log ends before {there.stop}"
        return there.stop, [told]
    if at < there.start:
        told = f"{name}: offset {at} was to be read next, but the log begins with {there.start}"
        return there.start, [told]
    return at, []


@dataclass(frozen=True)
class Waiting:
    """The state kept from trigger to trigger."""

    since_ms: int | None = None
    """When a batch was last started; None: start the first one immediately."""


Measure = Callable[[Sequence[Range]], Mapping[Key, Marks]]
"""The byte positions of offsets in these ranges; needed only if bytes are limited."""


def admit(
    offer: Offer, limits: Limits, waiting: Waiting, now_ms: int, measure: Measure
) -> tuple[Offsets | None, Waiting]:
    """Where the next batch ends; None: it is not worth starting one yet.

    Each partition gets a share of the limit by how much it is behind, at least an offset (at
    least a batch of records when bytes are limited).
    """
    if limits.min_offsets is not None and offer.total < limits.min_offsets:
        since = waiting.since_ms
        if since is not None and now_ms - since < limits.max_delay_ms:
            return None, waiting
    if limits.min_offsets is not None:
        waiting = replace(waiting, since_ms=now_ms)
    behind = {k: offer.stops[k] - begin for k, begin in offer.begins.items()}
    ends = dict(offer.stops)
    if limits.max_offsets is not None and offer.total > limits.max_offsets:
        for key, share in _shares(behind, limits.max_offsets).items():
            ends[key] = offer.begins[key] + share
    if limits.max_bytes is not None and offer.total:
        wanted = [Range(k, offer.begins[k], ends[k]) for k, count in behind.items() if count]
        ends |= _within_bytes(wanted, measure(wanted), limits.max_bytes)
    return Offsets(ends, offer.ids), waiting


def _shares(sizes: Mapping[Key, int], limit: int) -> dict[Key, int]:
    total = sum(sizes.values())
    return {k: min(size, max(1, limit * size // total)) for k, size in sizes.items() if size}


def _within_bytes(
    wanted: Sequence[Range], marks: Mapping[Key, Marks], limit: int
) -> dict[Key, int]:
    there = [one for one in wanted if one.key in marks]  # the others have gone since
    sizes = {one.key: marks[one.key].at(one.stop) - marks[one.key].at(one.start) for one in there}
    if sum(sizes.values()) <= limit:
        return {}
    shares = _shares(sizes, limit)
    return {
        one.key: _stop_at(marks[one.key], one, shares[one.key])
        for one in there
        if one.key in shares
    }


def _stop_at(marks: Marks, whole: Range, size: int) -> int:
    """The last batch boundary within `size` bytes of the start; the first one, if there is none."""
    reach = bisect_right(marks.bytes_before, marks.at(whole.start) + size) - 1
    at = max(reach, bisect_right(marks.offsets, whole.start))
    return min(whole.stop, marks.offsets[at]) if at < len(marks.offsets) else whole.stop


def ranges_between(start: Offsets, end: Offsets, head: Head) -> tuple[list[Range], list[str]]:
    """The ranges of a micro-batch as far as the logs have them, and what of it is lost.

    A batch may be read again after a crash: then its ranges are what they were.
    """
    ranges, lost = [], []
    for key, stop in sorted(end.at.items()):
        there = head.ends.get(key)
        same = start.same_topic(end, key[0])
        begin = start.at.get(key) if same else None
        if begin is not None and begin >= stop:
            continue  # nothing, or a loss that was reported before
        if there is None or not end.same_topic(head.offsets, key[0]):
            how = "was deleted" if there is None else "was deleted and recreated"
            lost.append(f"{_name(key)}: {how}; offsets {begin or 0} to {stop} were to be read")
            continue
        first = there.start if begin is None else begin
        within = max(first, there.start), min(stop, there.stop)
        if within != (first, stop):
            lost.append(
                f"{_name(key)}: offsets {first} to {stop} were to be read, but the log has "
                f"{there.start} to {there.stop}"
            )
        if within[0] < within[1]:
            ranges.append(Range(key, *within))
    return ranges, lost


def _name(key: Key) -> str:
    return f"{key[0]}-{key[1]}"
