"""The assignor of share groups: how many members read each partition, and which.  Pure.

Every partition has as many readers as any other, as far as the numbers allow: one each while there
are more partitions than members, several otherwise; and members have equally many.  A member keeps
what it has as far as that allows.  Source: KIP-932, Kafka's SimpleAssignor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil
from typing import NamedTuple
from uuid import UUID

from kafkalog.coordinator.consumer_groups.member import Partitions

__all__ = ["NAME", "Part", "ShareSpec", "simple"]

NAME = "simple"
Part = tuple[UUID, int]
"""A partition of a topic."""
Found = dict[str, dict[UUID, set[int]]]


class ShareSpec(NamedTuple):
    """The input of the assignor."""

    members: Mapping[str, Collection[UUID]]
    """The existing topics to which each member subscribes, in the order in which members get their
    parts."""
    partitions: Mapping[UUID, Collection[int]]
    """The partitions of each subscribed topic that may be assigned."""
    before: Mapping[str, Partitions]
    """The assignment so far."""
    homogeneous: bool
    """True if all members subscribe to the same topics."""


def simple(spec: ShareSpec) -> Found:
    """Assign the partitions; a member without any has no entry, or an empty one, and so has a topic
    of which it lost all partitions."""
    topics = sorted({topic for some in spec.members.values() for topic in some})
    if not topics:
        return {}
    if spec.homogeneous:
        return _all_alike(spec, topics)
    found: Found = {
        name: {topic: set(numbers) for topic, numbers in spec.before.get(name, {}).items()}
        for name in spec.members
    }
    for topic in topics:
        takers = [name for name, some in spec.members.items() if topic in some]
        has = {
            name: {(topic, number) for number in some[topic]}
            for name, some in found.items() if topic in some
        }  # fmt: skip
        parts = [(topic, number) for number in sorted(spec.partitions.get(topic, ()))]
        shared = _Sharing(takers, parts, has).share()
        for name, some in shared.items():
            if name in has or some:
                found[name][topic] = {number for _, number in some}
    return found


def _all_alike(spec: ShareSpec, topics: list[UUID]) -> Found:
    parts = [(topic, n) for topic in topics for n in sorted(spec.partitions.get(topic, ()))]
    wanted = set(topics)
    kept = {
        name: {t: some for t, some in spec.before.get(name, {}).items() if t in wanted}
        for name in spec.members
    }
    has = {name: {(t, n) for t in some for n in some[t]} for name, some in kept.items()}
    found: Found = {}
    for name, some in _Sharing(list(spec.members), parts, has).share().items():
        found[name] = {topic: set() for topic in kept.get(name, ())}
        for topic, number in some:
            found[name].setdefault(topic, set()).add(number)
    return found


class _Sharing:
    """One assignment of partitions to members that subscribe to all of them."""

    def __init__(self, members: list[str], parts: list[Part], has: Mapping[str, set[Part]]) -> None:
        """`has`: what members have so far; some may subscribe no more."""
        self._parts = parts
        self._has = {name: set(some) for name, some in has.items()}
        self._readers: dict[Part, dict[str, None]] = {}
        for name, some in has.items():
            for part in some:
                self._readers.setdefault(part, {})[name] = None
        count = len(members)
        self._sharing = -(-count // len(parts)) if parts else 0
        # Kafka computes in floating point too: where it rounds up once too often, so do we.
        each = self._sharing * len(parts) / count
        ends = [ceil(each * number) for number in range(count + 1)]
        self._wanted = {name: ends[i + 1] - ends[i] for i, name in enumerate(members)}

    def share(self) -> Mapping[str, set[Part]]:
        """The partitions of each member."""
        for name, some in self._has.items():
            for part in sorted(some)[: max(len(some) - self._wanted.get(name, 0), 0)]:
                self._take(name, part)
        for part, readers in self._readers.items():
            for name in list(readers)[: max(len(readers) - self._sharing, 0)]:
                self._take(name, part)
        self._fill()
        return self._has

    def _take(self, name: str, part: Part) -> None:
        self._has[name].discard(part)
        del self._readers[part][name]

    def _fill(self) -> None:
        """Give partitions with too few readers to members with too few partitions, in turn."""
        hungry = [
            name for name, wanted in self._wanted.items() if len(self._has.get(name, ())) < wanted
        ]
        at, gave = 0, False
        for part in sorted({*self._readers, *self._parts}):
            readers = self._readers.setdefault(part, {})
            while len(readers) < self._sharing and hungry:
                if at >= len(hungry):
                    if not gave:
                        break
                    at, gave = 0, False
                name = hungry[at]
                if name in readers:
                    at += 1
                    continue
                has = self._has.setdefault(name, set())
                has.add(part)
                readers[name] = None
                gave = True
                if len(has) >= self._wanted[name]:
                    del hungry[at]
                else:
                    at += 1
