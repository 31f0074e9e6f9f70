"""A member of a consumer group: what it says, and what it was given.  Never changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from kafkalog.coordinator.weight import text_bytes

__all__ = [
    "JOINING",
    "LEFT",
    "LEFT_STATIC",
    "MEMBER_BYTES",
    "NOTHING",
    "PARTITION_BYTES",
    "TOPIC_BYTES",
    "Assigned",
    "ClassicMetadata",
    "Member",
    "MemberState",
    "Partitions",
    "each_partition",
    "subscribed",
]  # fmt: skip

JOINING, LEFT, LEFT_STATIC = 0, -1, -2
"""Epochs of a heartbeat: it joins; it leaves; it leaves, and will come back under its instance
id."""

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic: a target assignment."""
Assigned = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic, each with the assignment epoch in which the member got it."""
NOTHING: dict[UUID, dict[int, int]] = {}

MEMBER_BYTES, PARTITION_BYTES, TOPIC_BYTES, PROTOCOL_BYTES = 3_000, 250, 150, 200
"""Memory of a member besides its strings, with its timers and its records' keys; of a partition
that it has, in all of its assignments; of a topic to which it subscribes; of a protocol that it
names in a JoinGroup.  Rounded up."""


class MemberState(IntEnum):
    """How far a member has got; the numbers are Kafka's."""

    STABLE = 0
    UNREVOKED = 1
    """It has partitions to give up before it gets to the next epoch."""
    UNRELEASED = 2
    """It waits for partitions that other members have to give up."""
    UNKNOWN = 127


class ClassicMetadata(NamedTuple):
    """The JoinGroup of a member of the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Member(NamedTuple):
    """A member at one moment."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """The names of topics to which it subscribes."""
    regex: str | None = ""
    """The pattern of topics to which it subscribes, also; "" or None: none."""
    assignor: str | None = None
    """The one that it prefers."""
    assigned: Assigned = NOTHING
    revoking: Assigned = NOTHING
    """Partitions that it has, and is to give up."""
    classic: ClassicMetadata | None = None

    @property
    def said_bytes(self) -> int:
        """Approximate memory of its words."""
        texts = (
            self.member_id, self.instance_id, self.rack_id, self.client_id, self.regex,
            self.assignor,
        )  # fmt: skip
        said = sum(map(text_bytes, texts))
        said += sum(TOPIC_BYTES + text_bytes(topic) for topic in self.topics)
        if self.classic is not None:
            protocols = self.classic.protocols
            said += sum(PROTOCOL_BYTES + text_bytes(name) + len(data) for name, data in protocols)
        return said

    @property
    def said(self) -> tuple[object, ...]:
        """Its words, and what else does not change when partitions do."""
        return (
            self.member_id, self.instance_id, self.rack_id, self.client_id, self.topics,
            self.regex, self.assignor, self.classic,
        )  # fmt: skip

    @property
    def kept_bytes(self) -> int:
        """Approximate memory of its partitions."""
        kept = sum(map(len, self.assigned.values())) + sum(map(len, self.revoking.values()))
        return PARTITION_BYTES * kept

    @property
    def bytes(self) -> int:
        """Approximate memory of it."""
        return MEMBER_BYTES + self.said_bytes + self.kept_bytes

    def reconciled(self, assignment_epoch: int) -> bool:
        """True if it has what the target assignment of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def moved(
        self, epoch: int, state: MemberState, assigned: Assigned, revoking: Assigned = NOTHING
    ) -> Member:
        """The member one step on."""
        return self._replace(
            epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned,
            revoking=revoking,
        )  # fmt: skip


def subscribed(member: Member, resolved: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The topics to which a member subscribes, by name or by pattern.  `resolved`: the topics of
    each pattern."""
    matched = resolved.get(member.regex) if member.regex else None
    return member.topics | matched if matched else member.topics


def each_partition(assigned: Mapping[UUID, Mapping[int, int]]) -> Iterator[tuple[UUID, int]]:
    """Every partition of an assignment."""
    return ((topic, number) for topic, numbers in assigned.items() for number in numbers)
