"""The assignors: how a group may choose to share its partitions out.  Pure.

`uniform` gives each member as many partitions, and moves no more of them than it must; `range`
gives neighbours in sorted order consecutive partitions of each topic.  Racks do not matter to
either, as in Kafka 4.4.0.  Source: Kafka's UniformAssignor, RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from kafkalog.coordinator.consumer_groups.heterogeneous import balanced
from kafkalog.coordinator.consumer_groups.member import Partitions

__all__ = ["ASSIGNORS", "Spec", "Subscriber"]


class Subscriber(NamedTuple):
    """A member, for an assignor."""

    instance_id: str | None
    topics: Collection[UUID]
    """Existing topics to which it subscribes."""


class Spec(NamedTuple):
    """The input of an assignor."""

    members: Mapping[str, Subscriber]
    counts: Mapping[UUID, int]
    """Partitions of each topic to which a member subscribes."""
    before: Mapping[str, Partitions]
    """The assignment so far."""
    homogeneous: bool
    """True if all members subscribe to the same topics."""


Found = dict[str, dict[UUID, set[int]]]


def _uniform(spec: Spec) -> Found:
    if not spec.homogeneous:
        members = {name: set(one.topics) for name, one in sorted(spec.members.items())}
        return balanced(members, spec.counts, spec.before)
    return _equal_shares(spec)


def _equal_shares(spec: Spec) -> Found:
    """All members subscribe to the same topics: shares differ by one partition at most."""
    names = sorted(spec.members)
    topics = sorted(spec.members[names[0]].topics)
    total = sum(spec.counts[topic] for topic in topics)
    least, larger = divmod(total, len(names))
    found: Found = {}
    free = {topic: set(range(spec.counts[topic])) for topic in topics}
    hungry: list[tuple[str, int]] = []
    for index, name in enumerate(names):
        quota = least + (larger > 0)
        kept: dict[UUID, set[int]] = {}
        for topic, numbers in sorted(spec.before.get(name, {}).items()):
            here = sorted(free[topic] & numbers)[:quota] if topic in free else []
            if here:
                kept[topic] = set(here)
                free[topic].difference_update(here)
                quota -= len(here)
        takes_larger = larger > 0
        if quota > 0 and takes_larger and len(names) - index > larger:
            quota, takes_larger = quota - 1, False  # a later member may keep the larger share
        larger -= takes_larger
        if quota > 0:
            hungry.append((name, quota))
        found[name] = kept
    left = [(topic, number) for topic in topics for number in sorted(free[topic])]
    begin = 0
    for name, quota in hungry:
        for topic, number in left[begin : begin + quota]:
            found[name].setdefault(topic, set()).add(number)
        begin += quota
    return found


def _range(spec: Spec) -> Found:
    def place(name: str) -> tuple[bool, str]:
        instance_id = spec.members[name].instance_id
        return instance_id is None, name if instance_id is None else instance_id

    names = sorted(spec.members, key=place)
    found: Found = {name: {} for name in names}
    for topic in sorted({topic for one in spec.members.values() for topic in one.topics}):
        takers = [name for name in names if topic in spec.members[name].topics]
        share, larger = divmod(spec.counts[topic], len(takers))
        begin = 0
        for index, name in enumerate(takers):
            end = begin + share + (index < larger)
            if begin < end:
                found[name][topic] = set(range(begin, end))
            begin = end
    return found


ASSIGNORS: Mapping[str, Callable[[Spec], Found]] = {"uniform": _uniform, "range": _range}
"""By name; the first is the default.  Each is asked for at least one member."""
