"""Assigns a group's partitions to its members: pure functions, run by the group's leader."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalog import errors
from kafkalog.arguments import methods_called
from kafkalog.client.consumer.sticky import Claims, balanced
from kafkalog.client.link.chunks import by_topic
from kafkalog.types import TopicPartition

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "Subscriber",
    "cooperative_assignment",
    "find_assignors",
    "range_assignment",
    "round_robin_assignment",
    "sticky_assignment",
    "sticky_user_data",
]

NO_GENERATION = -1
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


class Subscriber(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    """The partitions that it reports to own: none, unless it rebalances cooperatively."""
    generation: int = NO_GENERATION
    """The generation that assigned them; -1: not reported."""
    user_data: bytes | None = None
    """The data of its assignor for the leader's."""


Shares = dict[str, list[TopicPartition]]
"""By member id."""
Assign = Callable[[Iterable[Subscriber], Mapping[str, int]], Shares]
UserData = Callable[[Sequence[TopicPartition], int], "bytes | None"]


class Assignor(NamedTuple):
    """A way to assign partitions."""

    name: str
    """As clients of all languages call it."""
    assign: Assign
    """Members and the number of partitions of each topic -> the partitions of each member."""
    cooperative: bool = False
    """True if members keep their partitions while others join (KIP-429)."""
    user_data: UserData = lambda assignment, generation: None
    """The user data a member sends the leader, from its last assignment and generation."""


def _ordered(members: Iterable[Subscriber]) -> list[Subscriber]:
    """Members with an instance id first, by that; the others by member id."""
    return sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id))


def _readers(ordered: Iterable[Subscriber]) -> dict[str, list[str]]:
    """The ids of the members that read each topic, in their order."""
    found: dict[str, list[str]] = {}
    for member in ordered:
        for topic in dict.fromkeys(member.topics):
            found.setdefault(topic, []).append(member.member_id)
    return found


def range_assignment(members: Iterable[Subscriber], partitions: Mapping[str, int]) -> Shares:
    """The partitions of each member: of each topic a range of equal length.

    `partitions`: how many each topic has; a topic without a number is not assigned.  Members with
    an instance id come first, ordered by it; the first members get one more.

    Source: Kafka's RangeAssignor.
    """
    ordered = _ordered(members)
    found: Shares = {m.member_id: [] for m in ordered}
    for topic, readers in sorted(_readers(ordered).items()):
        each, more = divmod(partitions.get(topic, 0), len(readers))
        first = 0
        for i, member in enumerate(readers):
            count = each + (i < more)
            found[member] += [TopicPartition(topic, p) for p in range(first, first + count)]
            first += count
    return found


def round_robin_assignment(members: Iterable[Subscriber], partitions: Mapping[str, int]) -> Shares:
    """All partitions dealt out one by one, to the next member that reads the topic.

    Source: Kafka's RoundRobinAssignor.
    """
    ordered = _ordered(members)
    found: Shares = {m.member_id: [] for m in ordered}
    place = {member: i for i, member in enumerate(found)}
    turn = 0
    for topic, readers in sorted(_readers(ordered).items()):
        first = bisect_left(readers, turn, key=place.__getitem__)
        for p in range(partitions.get(topic, 0)):
            reader = readers[(first + p) % len(readers)]
            found[reader].append(TopicPartition(topic, p))
            turn = place[reader] + 1
    return found


def sticky_assignment(members: Iterable[Subscriber], partitions: Mapping[str, int]) -> Shares:
    """As balanced as possible, while members keep their partitions as far as that allows.

    The partitions of each are in its user data: see `sticky_user_data`.

    Source: KIP-54, KIP-341; the user data is that of Kafka's StickyAssignor.
    """
    members = list(members)
    claims = {m.member_id: _read_user_data(m.user_data) for m in members}
    return balanced({m.member_id: m.topics for m in members}, partitions, claims)


def cooperative_assignment(members: Iterable[Subscriber], partitions: Mapping[str, int]) -> Shares:
    """As sticky, but a partition that another member still reads is not assigned now: that member
    gives it up when it gets its assignment, and joins again.

    Source: KIP-429; Kafka's CooperativeStickyAssignor.
    """
    members = list(members)
    claims = {m.member_id: Claims(_generation(m), m.owned) for m in members}
    found = balanced({m.member_id: m.topics for m in members}, partitions, claims)
    readers: dict[TopicPartition, set[str]] = {}
    for m in members:
        for tp in m.owned:
            readers.setdefault(tp, set()).add(m.member_id)
    return {
        member: [tp for tp in share if not readers.get(tp, set()) - {member}]
        for member, share in found.items()
    }


def _generation(member: Subscriber) -> int:
    """From the subscription, or from the user data if the subscription's version lacks it."""
    data = member.user_data
    if member.generation != NO_GENERATION or data is None or len(data) < _INT32.size:
        return member.generation
    return int(_INT32.unpack_from(data)[0])


# ---- user data ---------------------------------------------------------------------------------


def sticky_user_data(assignment: Sequence[TopicPartition], generation: int) -> bytes | None:
    """A member's last assignment, as Java's StickyAssignor writes it (its version 1)."""
    if generation == NO_GENERATION:
        return None
    topics = by_topic(assignment)
    out = [_INT32.pack(len(topics))]
    for topic, some in topics.items():
        name = topic.encode()
        out += [_INT16.pack(len(name)), name, _INT32.pack(len(some)), *map(_INT32.pack, some)]
    return b"".join([*out, _INT32.pack(generation)])


def _read_user_data(data: bytes | None) -> Claims:
    """Reads what `sticky_user_data` wrote; version 0 has no generation.  Other bytes: nothing."""
    if not data:
        return Claims(NO_GENERATION, ())
    owned: list[TopicPartition] = []
    pos = 4
    try:
        for _ in range(_INT32.unpack_from(data)[0]):
            (size,) = _INT16.unpack_from(data, pos)
            name = bytes(data[pos + 2 : pos + 2 + size]).decode()
            (count,) = _INT32.unpack_from(data, pos + 2 + size)
            if size < 0 or count < 0:  # it would be read again and again
                return Claims(NO_GENERATION, ())
            pos += 6 + size
            owned += (TopicPartition(name, p) for p in struct.unpack_from(f">{count}i", data, pos))
            pos += 4 * count
        generation = _INT32.unpack_from(data, pos)[0] if pos < len(data) else NO_GENERATION
    except (struct.error, UnicodeDecodeError):
        return Claims(NO_GENERATION, ())
    return Claims(generation, tuple(owned))


def _generation_data(_: Sequence[TopicPartition], generation: int) -> bytes:
    """As Java's CooperativeStickyAssignor, for leaders that read the generation only here."""
    return _INT32.pack(generation)


ASSIGNORS = {
    found.name: found
    for found in (
        Assignor("range", range_assignment),
        Assignor("roundrobin", round_robin_assignment),
        Assignor("sticky", sticky_assignment, user_data=sticky_user_data),
        Assignor("cooperative-sticky", cooperative_assignment, True, _generation_data),
    )
}
"""The built-in assignors, by name."""
_JAVA = "org.apache.kafka.clients.consumer."
_OTHER_NAMES = {
    "round-robin": "roundrobin",
    "cooperative_sticky": "cooperative-sticky",
    f"{_JAVA}RangeAssignor": "range",
    f"{_JAVA}RoundRobinAssignor": "roundrobin",
    f"{_JAVA}StickyAssignor": "sticky",
    f"{_JAVA}CooperativeStickyAssignor": "cooperative-sticky",
}


def find_assignors(wanted: str | Assignor | Sequence[str | Assignor]) -> tuple[Assignor, ...]:
    """Assignors by name (ours, or Java's classes; several with commas), most preferred first.

    Raises: ArgumentError.
    """
    if isinstance(wanted, str):
        wanted = [piece.strip() for piece in wanted.split(",")]
    if not isinstance(wanted, (Assignor, Sequence)):
        raise errors.ArgumentError(f"assignor: found {wanted!r}, wanted names or assignors")
    some = [wanted] if isinstance(wanted, Assignor) else list(wanted)
    found = []
    for one in some:
        if isinstance(one, str):
            name = _OTHER_NAMES.get(one, one)
            if name not in ASSIGNORS:
                raise errors.ArgumentError(
                    f"assignor {one!r}: wanted one of {', '.join(ASSIGNORS)}"
                )
            one = ASSIGNORS[name]
        methods_called("assignor", [one], "assign", "user_data")
        found.append(one)
    if not found:
        raise errors.ArgumentError("assignor: none given, wanted at least one")
    return tuple(found)
