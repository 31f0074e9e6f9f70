"""The state that all groups whose members heartbeat have: members, epochs, the target assignment,
and the work that waits for a write.

Source: KIP-848 and KIP-932, Kafka's ModernGroup.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kafkalog.coordinator.consumer_groups.member import PARTITION_BYTES
from kafkalog.coordinator.step import Repeated
from kafkalog.coordinator.weight import Weight

__all__ = ["FIRST_EPOCH", "NO_DEADLINE", "AnyMember", "NewerGroup", "Subscription"]

NO_DEADLINE = 0
FIRST_EPOCH = 1
"""The group epoch and the assignment epoch of a group without records."""


class Subscription(NamedTuple):
    """How many members subscribe to a topic by name, and how many patterns match it."""

    by_name: int
    by_regex: int


class AnyMember(Protocol):
    """A member, of any type of groups."""

    @property
    def member_id(self) -> str:
        """Its id."""

    @property
    def epoch(self) -> int:
        """Its epoch."""

    @property
    def topics(self) -> Collection[str]:
        """The topics to which it subscribes by name."""

    @property
    def said_bytes(self) -> int:
        """Approximate memory of its words."""

    @property
    def bytes(self) -> int:
        """Approximate memory of it."""


REPEAT_BYTES = 450
"""Memory of a repeated answer, once it has ended, too, as it says when the member was heard; its
bytes are its connection's.  Rounded up."""

M = TypeVar("M", bound=AnyMember)
K = TypeVar("K")
"""The key of assigned partitions: a topic's id, say."""


class NewerGroup(Generic[M, K]):
    """One group whose members heartbeat.  Only for the coordinator's thread."""

    def __init__(self, within: Weight | None = None) -> None:
        """`within`: the sum to which its weight is added."""
        self.weight = Weight(within)
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        """The hash of the topics to which members subscribe; unsigned."""
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_ms = 0
        """When the target assignment was made, since 1970; 0: the next may be made at once."""
        self.pace_ms = 0
        """How long the group waits after it, if it has no interval of its own; not stored."""
        self.members: dict[str, M] = {}
        self.target: dict[str, Mapping[K, frozenset[int]]] = {}
        self.topics: dict[str, Subscription] = {}
        """The topics to which members subscribe."""
        self.refresh_ms = NO_DEADLINE
        """When the topics are looked at again, on the monotonic clock; not stored."""
        self.refresh_epoch = 0
        """The group epoch to which `refresh_ms` belongs."""
        self.waiting: deque[Any] = deque()
        """Work on the group that waits for the write in progress."""
        self.writing = self.stuck = False
        """A write is in progress; it takes so long that its waiters got an error."""
        self.repeated: dict[str, Repeated] = {}
        """Members whose heartbeats are answered without the coordinator as long as they say the
        same, and those of which that was true."""
        self._repeating = False
        """It may be true of some."""
        self.unsure: dict[bytes, tuple[int, str]] = {}
        """Keys of records whose writes failed, with kind and name: the journal may have them."""

    # ---- what it is ------------------------------------------------------------------------

    @property
    @abstractmethod
    def state(self) -> Enum:
        """Its state; the value is Kafka's name of it."""

    @property
    def homogeneous(self) -> bool:
        """True if all members subscribe to the same topics."""
        count = len(self.members)
        return all(one.by_name == count for one in self.topics.values())

    def settled(self, now_ms: int) -> bool:
        """True if no write is in progress or to be restated, and the target assignment is that of
        the topics and members of now."""
        busy = self.writing or self.stuck or self.waiting or self.unsure
        return not busy and self.assignment_epoch >= self.epoch and not self.stale(now_ms)

    def said_bytes(self, member_id: str) -> int:
        """Approximate memory of a member's words; 0: there is none."""
        member = self.members.get(member_id)
        return 0 if member is None else member.said_bytes

    def stale(self, now_ms: int) -> bool:
        """True if the topics are to be looked at again."""
        return now_ms >= self.refresh_ms or self.epoch < self.refresh_epoch

    def looked(self, until_ms: int, epoch: int) -> None:
        """The topics were looked at, for this group epoch."""
        self.refresh_ms, self.refresh_epoch = until_ms, epoch

    # ---- how it changes --------------------------------------------------------------------

    def put_member(self, member: M) -> None:
        """Add or replace a member."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._forget(before)
        self.members[member.member_id] = member
        self._remember(member)

    def drop_member(self, member_id: str) -> None:
        """Remove a member."""
        self.repeats(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget(member)

    def repeats(self, member_id: str, repeated: Repeated | None) -> None:
        """The answer to a member's heartbeats is repeated from now on; None: not any more."""
        before = self.repeated.pop(member_id, None)
        if before is not None:
            before.end()
        if repeated is not None:
            self.repeated[member_id] = repeated
            self._repeating = True
        self.weight.add(REPEAT_BYTES * ((repeated is not None) - (before is not None)))

    def end_repeats(self) -> None:
        """The group may change: all its members' heartbeats come to the coordinator again."""
        for one in self.repeated.values() if self._repeating else ():
            one.end()
        self._repeating = False

    def silence_ms(self, member_id: str) -> int | None:
        """How long ago a member's heartbeat was last answered without the coordinator, in ms; None:
        never."""
        one = self.repeated.get(member_id)
        return None if one is None else one.silence_ms

    def _remember(self, member: M) -> None:
        self.weight.add(member.bytes)
        for name in member.topics:
            self._count(name, 1, 0)

    def _forget(self, member: M) -> None:
        self.weight.add(-member.bytes)
        for name in member.topics:
            self._count(name, -1, 0)

    def _count(self, topic: str, by_name: int, by_regex: int) -> None:
        before = self.topics.get(topic, Subscription(0, 0))
        now = Subscription(before.by_name + by_name, before.by_regex + by_regex)
        if now == (0, 0):
            del self.topics[topic]
        else:
            self.topics[topic] = now

    def put_target(
        self, member_id: str, partitions: Mapping[K, frozenset[int]] | None
    ) -> None:  # fmt: skip
        """Set what the target assignment gives a member; None: it is not in it."""
        before = self.target.pop(member_id, {})
        if partitions is not None:
            self.target[member_id] = partitions
        count = sum(map(len, (partitions or {}).values())) - sum(map(len, before.values()))
        self.weight.add(PARTITION_BYTES * count)
