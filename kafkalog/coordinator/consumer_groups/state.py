"""A consumer group: its members, its epochs, its target assignment, and what follows from them.

State and its bookkeeping, no protocol.  `changes` changes it.  Source: KIP-848, Kafka's ModernGroup
and ConsumerGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from kafkalog.coordinator.consumer_groups.base import (
    FIRST_EPOCH,
    NO_DEADLINE,
    NewerGroup,
    Subscription,
)
from kafkalog.coordinator.consumer_groups.member import (
    Member,
    MemberState,
    Partitions,
    each_partition,
)
from kafkalog.coordinator.weight import Weight

__all__ = ["NO_DEADLINE", "ConsumerGroup", "ConsumerState", "Resolved", "Subscription"]

MATCHED_BYTES = 100
"""Memory of a topic that matches a pattern, and of the pattern itself.  Rounded up."""


class ConsumerState(Enum):
    """A consumer group's state; the values are Kafka's names on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class Resolved(NamedTuple):
    """The topics that match a pattern."""

    topics: frozenset[str]
    version: int
    """The offset of the metadata at which they were looked for."""
    at_ms: int
    """When, since 1970."""


def _matched_bytes(found: Resolved | None) -> int:
    return 0 if found is None else MATCHED_BYTES * (1 + len(found.topics))


class ConsumerGroup(NewerGroup[Member, UUID]):
    """One group.  Only for the coordinator's thread."""

    def __init__(self, within: Weight | None = None) -> None:
        """`within`: the sum to which its weight is added."""
        super().__init__(within)
        self.static: dict[str, str] = {}
        """Instance ids and their member ids."""
        self.regexes: dict[str, Resolved] = {}
        self.patterns: Counter[str] = Counter()
        """How many members subscribe by each pattern."""
        self.assignors: Counter[str] = Counter()
        self.classic_count = 0
        """Members of the classic protocol."""
        self.classic_protocols: Counter[str] = Counter()
        """How many of them support each of their protocols."""
        self.owners: dict[UUID, dict[int, int]] = {}
        """The epoch of the member that has a partition."""
        self.old_metadata = False
        """True if the journal has a record of topics as older versions of Kafka wrote it."""
        self.looking = False
        """The topics of its patterns are being looked up."""
        self.look_up_ms = NO_DEADLINE
        """When they may be looked up after a failure, on the monotonic clock."""

    # ---- what it is ------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerState:
        """Its state."""
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        reconciled = all(one.reconciled(self.assignment_epoch) for one in self.members.values())
        return ConsumerState.STABLE if reconciled else ConsumerState.RECONCILING

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member with an instance id."""
        found = None if instance_id is None else self.static.get(instance_id)
        return None if found is None else self.members[found]

    def target_of(self, member: Member) -> Partitions:
        """The target of a member, or of the one that it replaces."""
        owner = member.member_id
        if member.instance_id is not None:
            owner = self.static.get(member.instance_id, "")
        return self.target.get(owner, {})

    def waits_for_others(self, member: Member) -> bool:
        """True if others still have partitions that the target assignment gives a member."""
        if member.state is not MemberState.UNRELEASED:
            return False
        return any(
            number not in member.assigned.get(topic, {}) and self.epoch_of(topic, number) != -1
            for topic, numbers in self.target.get(member.member_id, {}).items()
            for number in numbers
        )

    def supports(self, protocols: Iterable[str]) -> bool:
        """True if a member of the classic protocol with these protocols may join."""
        return any(self.classic_protocols[name] == self.classic_count for name in protocols)

    def epoch_of(self, topic: UUID, partition: int) -> int:
        """The epoch of the member that has a partition; -1: nobody has it."""
        return self.owners.get(topic, {}).get(partition, -1)

    @property
    def resolved(self) -> dict[str, frozenset[str]]:
        """The topics of each pattern."""
        return {regex: found.topics for regex, found in self.regexes.items()}

    # ---- how it changes --------------------------------------------------------------------

    def put_member(self, member: Member) -> None:
        """Add or replace a member."""
        before = self.members.get(member.member_id)
        if before is None or before.said != member.said:
            super().put_member(member)
            return
        # Only its partitions: of most changes the rest would be forgotten to be remembered.
        self.members[member.member_id] = member
        self.weight.add(member.kept_bytes - before.kept_bytes)
        self._disown(before)
        self._own(member)

    def _remember(self, member: Member) -> None:
        super()._remember(member)
        if member.regex:
            self.patterns[member.regex] += 1
        if member.assignor is not None:
            self.assignors[member.assignor] += 1
        if member.classic is not None:
            self.classic_count += 1
            self.classic_protocols.update({name for name, _ in member.classic.protocols})
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self._own(member)

    def _own(self, member: Member) -> None:
        for assigned in (member.assigned, member.revoking):
            for topic, partition in each_partition(assigned):
                self.owners.setdefault(topic, {})[partition] = member.epoch

    def _forget(self, member: Member) -> None:
        super()._forget(member)
        for counter, said in ((self.patterns, member.regex), (self.assignors, member.assignor)):
            if said:
                counter[said] -= 1
                if not counter[said]:
                    del counter[said]
        if member.classic is not None:
            self.classic_count -= 1
            for name in {name for name, _ in member.classic.protocols}:
                self.classic_protocols[name] -= 1
                if not self.classic_protocols[name]:
                    del self.classic_protocols[name]
        if self.static.get(member.instance_id or "") == member.member_id:
            del self.static[member.instance_id or ""]
        self._disown(member)

    def _disown(self, member: Member) -> None:
        for assigned in (member.assigned, member.revoking):
            for topic, partition in each_partition(assigned):
                owners = self.owners.get(topic, {})
                if owners.get(partition) == member.epoch:
                    del owners[partition]
                    if not owners:
                        del self.owners[topic]

    def put_regex(self, regex: str, found: Resolved | None) -> None:
        """Set the topics of a pattern; None: nobody subscribes by it."""
        before = self.regexes.pop(regex, None)
        for topic in before.topics if before is not None else ():
            self._count(topic, 0, -1)
        if found is not None:
            self.regexes[regex] = found
            for topic in found.topics:
                self._count(topic, 0, 1)
        self.weight.add(_matched_bytes(found) - _matched_bytes(before))

    def clear(self) -> None:
        """Begin again, as a group without records."""
        for member_id in list(self.members):
            self.drop_member(member_id)
        for member_id in list(self.target):
            self.put_target(member_id, None)
        for regex in list(self.regexes):
            self.put_regex(regex, None)
        self.epoch, self.metadata_hash = FIRST_EPOCH, 0
        self.assignment_epoch = self.assignment_ms = self.pace_ms = 0
        self.old_metadata = False
        self.looked(NO_DEADLINE, 0)

    # ---- what a change would make of it ----------------------------------------------------

    def preferred_assignor(self) -> str | None:
        """The assignor that most members prefer."""
        return max(self.assignors, key=self.assignors.__getitem__, default=None)

    @property
    def homogeneous(self) -> bool:
        """True if all members subscribe to the same topics."""
        if not self.patterns:
            return super().homogeneous
        if next(iter(self.patterns.values())) != len(self.members):
            return False
        return all(one.by_regex == 1 and one.by_name <= 0 for one in self.topics.values())

    @property
    def last_resolved(self) -> Resolved | None:
        """When patterns were last looked for; all are together."""
        return next(iter(self.regexes.values()), None)
