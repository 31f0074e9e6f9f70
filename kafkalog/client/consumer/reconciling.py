"""Which partitions a member of a group of KIP-848 reads: from one assignment to the next.

It only decides, as `core` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.consumer.core import (
    CallListener,
    ConsumerState,
    Join,
    Look,
    Names,
    Process,
    Replace,
    Say,
)
from kafkalog.client.consumer.group_member import GroupMember
from kafkalog.client.consumer.group_session import Assigned
from kafkalog.client.consumer.member import IN
from kafkalog.types import TopicPartition

__all__ = ["GroupState"]


class GroupState(ConsumerState):
    """The wishes of a member, and the partitions that it reads.  For the owner's thread only."""

    def __init__(
        self, member: GroupMember, commits: bool, interval_s: float, look_s: float
    ) -> None:
        """As ConsumerState."""
        super().__init__(member, commits, interval_s, look_s)
        self._me = member
        self._owned: dict[TopicPartition, UUID] = {}

    def stay(self) -> Process[None]:
        """Stay a member, with its assignment."""
        member, subscription = self._me, self.subscription
        if (problem := member.ended(self.now_s)) is not None:
            member.lose(problem)
            yield from self._give_up()
            if not member.comes_back(problem):
                raise problem
            yield Say(str(problem))
        yield Look()
        if (refusal := member.refusal()) is not None:
            raise refusal
        member.subscribe(subscription.topics, subscription.expression)
        if member.state != IN and member.new_target() is None:
            yield Join(sorted(self.assigned))
        yield from self._reconcile(member)

    def _give_up(self) -> Process[None]:
        gone, self.revoking = sorted(self.assigned), False
        self._owned.clear()
        if gone:
            yield Replace([])
            if (raised := (yield CallListener("lost", gone))) is not None:
                raise raised

    def _reconcile(self, member: GroupMember) -> Process[None]:
        """Give up what others get, take what is new, and say so."""
        found = member.new_target()
        if found is None:
            return
        joins, target = found
        names: dict[UUID, str] = yield Names(frozenset(target))
        wanted = self._wanted(target, names)
        gone = [tp for tp, topic_id in self._owned.items() if wanted.get(tp) != topic_id]
        new = [tp for tp, topic_id in wanted.items() if self._owned.get(tp) != topic_id]
        if not (gone or new) and target.keys() - set(wanted.values()):
            return  # the names of its topics are not known yet
        raised: BaseException | None = None
        if gone:
            if not (yield from self._committed_before()):
                return
            raised = yield from self._revoke(sorted(gone))
            self.draining = False
            for tp in gone:
                self._owned.pop(tp, None)
        self.revoking = False
        if member.session.joins == joins and member.ended(self.now_s) is None:
            self._owned = wanted
            yield Replace(sorted(wanted))
            self._note(target, wanted)
            member.applied(joins, target, _by_topic(wanted))
            self.next_commit_s = self.now_s + self._interval_s
            given = yield CallListener("assigned", sorted(new))
            raised = raised or given
        if raised is not None:
            raise raised

    def _wanted(self, target: Assigned, names: Mapping[UUID, str]) -> dict[TopicPartition, UUID]:
        """The partitions of an assignment whose topics are known."""
        known = {topic_id: tp.topic for tp, topic_id in self._owned.items()} | dict(names)
        return {
            TopicPartition(known[topic_id], number): topic_id
            for topic_id, some in target.items()
            if topic_id in known
            for number in some
        }

    def _note(self, target: Assigned, wanted: Mapping[TopicPartition, UUID]) -> None:
        if self.subscription.pattern:
            self.subscription.topics = {tp.topic for tp in wanted}
        for tp, topic_id in wanted.items():
            self.topic_ids[tp.topic] = topic_id

    def offsets_of(self) -> GroupMetadata | None:
        """The member that asks for committed offsets: the coordinator refuses one that it has
        removed."""
        found = self._me.metadata
        return found if self.subscription and found.generation > 0 else None

    def _is_latest(self, found: GroupMetadata) -> bool:
        return True  # a rising epoch takes no partition away

    def left(self) -> None:
        """Everything that was read is given up."""
        super().left()
        self._owned.clear()


def _by_topic(some: Mapping[TopicPartition, UUID]) -> Assigned:
    found: dict[UUID, set[int]] = {}
    for tp, topic_id in some.items():
        found.setdefault(topic_id, set()).add(tp.partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}
