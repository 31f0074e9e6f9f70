"""A share group: its members, its epochs, and the partitions whose state is kept for it.

State and its bookkeeping, no protocol.  `changes` changes it.  Source: KIP-932, Kafka's ShareGroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from kafkalog.coordinator.consumer_groups.base import NewerGroup
from kafkalog.coordinator.consumer_groups.member import PARTITION_BYTES, TOPIC_BYTES, Member
from kafkalog.coordinator.weight import text_bytes

__all__ = ["NO_STATES", "Kept", "ShareGroup", "ShareState", "States"]


class ShareState(Enum):
    """A share group's state; the values are Kafka's names on the wire."""

    EMPTY = "Empty"
    STABLE = "Stable"


class Kept(NamedTuple):
    """Share partitions of a topic."""

    name: str
    partitions: frozenset[int]


class States(NamedTuple):
    """The share partitions of a group, by topic, and how far the share coordinator has got."""

    initializing: Mapping[UUID, Kept]
    """It was asked to begin to keep their state."""
    initialized: Mapping[UUID, Kept]
    """It keeps their state: they can be assigned."""
    deleting: Mapping[UUID, str]
    """Topics whose state it was asked to forget, with their names."""
    at_ms: int = 0
    """When this was recorded, since 1970; not stored."""


NO_STATES = States({}, {}, {})


def _states_bytes(states: States | None) -> int:
    if states is None:
        return 0
    names = [one.name for some in states[:2] for one in some.values()]
    names += states.deleting.values()
    count = sum(len(one.partitions) for some in states[:2] for one in some.values())
    return sum(TOPIC_BYTES + text_bytes(name) for name in names) + PARTITION_BYTES * count


class ShareGroup(NewerGroup[Member, UUID]):
    """One group.  Only for the coordinator's thread."""

    states: States | None = None
    """None: there is no record of them."""
    complete = False
    """True once all partitions of the topics were seen to be kept and assigned; until something of
    it changes, nobody looks again."""

    @property
    def state(self) -> ShareState:
        """Its state."""
        return ShareState.STABLE if self.members else ShareState.EMPTY

    def put_states(self, states: States | None) -> None:
        """Set the share partitions of the group."""
        self.weight.add(_states_bytes(states) - _states_bytes(self.states))
        self.states, self.complete = states, False

    def put_target(
        self, member_id: str, partitions: Mapping[UUID, frozenset[int]] | None
    ) -> None:  # fmt: skip
        """As of any group."""
        self.complete = False
        super().put_target(member_id, partitions)

    def looked(self, until_ms: int, epoch: int) -> None:
        """As of any group: the topics, or their sizes, may be others."""
        self.complete = False
        super().looked(until_ms, epoch)

    def _count(self, topic: str, by_name: int, by_regex: int) -> None:
        self.complete = False
        super()._count(topic, by_name, by_regex)
