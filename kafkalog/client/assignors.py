"""Who reads which partition of a group: pure functions, run by the group's leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkalog.types import TopicPartition

__all__ = ["Subscriber", "range_assignment"]


class Subscriber(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]


def range_assignment(
    members: Iterable[Subscriber], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """The partitions of each member: of each topic a run of as many as the others have.

    `partitions`: how many each topic has; a topic that is not in it is given to nobody.
    Members with an instance id come first, by that; the first ones get one more.

    Source: Kafka's RangeAssignor.
    """
    ordered = sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id))
    found: dict[str, list[TopicPartition]] = {m.member_id: [] for m in ordered}
    for topic in sorted({topic for m in ordered for topic in m.topics}):
        readers = [m.member_id for m in ordered if topic in m.topics]
        each, more = divmod(partitions.get(topic, 0), len(readers))
        first = 0
        for i, member in enumerate(readers):
            count = each + (i < more)
            found[member] += [TopicPartition(topic, p) for p in range(first, first + count)]
            first += count
    return found
