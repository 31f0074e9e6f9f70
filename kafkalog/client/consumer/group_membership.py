"""Carries out what a GroupMember decides, with the surface of Membership."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from kafkalog import errors
from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.consumer.committer import CHORE_S
from kafkalog.client.consumer.group_heartbeats import GroupHeartbeats
from kafkalog.client.consumer.group_member import GroupMember
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.wakeup import Waker
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["GroupMembership"]


class GroupMembership:
    """One member.  One thread, in addition to its heartbeats'."""

    def __init__(self, cluster: Cluster, heartbeats: GroupHeartbeats, waker: Waker) -> None:
        """Nothing is sent yet."""
        self.cluster = cluster
        self.heartbeats = heartbeats
        self.member = GroupMember(heartbeats.session)
        self.connection: Connection | None = None
        """No answer is due to the owner: heartbeats nudge it."""
        self._waker = waker

    def do(self) -> None:
        """Carry out the effects of its member."""
        effects, self.member.effects = self.member.effects, []
        for one in effects:
            self.heartbeats.tell(one)

    def step(self, topics: Iterable[str], owned: Sequence[TopicPartition], until_s: float) -> bool:
        """Wait until the coordinator says something new, at most until `until_s`
        (time.monotonic); True: there is an assignment.  Raises: WakeUp."""
        with self.heartbeats.waited_for():
            if self.member.new_target() is None and self.heartbeats.session.lost is None:
                self._waker.wait([], min(max(until_s - time.monotonic(), 0), CHORE_S))
        return self.member.new_target() is not None

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """As Membership.partition_counts."""
        topics = set(topics)
        self.cluster.refresh(topics)
        known = self.cluster.topics
        return {name: len(known[name].partitions) for name in sorted(topics) if name in known}

    def mind_fencing(self, committer: GroupMetadata, problem: errors.KafkalogError) -> None:
        """A commit failed; if another member has its instance id, it is out for good."""
        if problem.code == ErrorCode.FENCED_INSTANCE_ID:
            self.member.lose(problem)
            self.do()

    def current(self, earlier: GroupMetadata) -> GroupMetadata | None:
        """As GroupSession.current."""
        return self.heartbeats.session.current(earlier)

    def leave(self, reason: str) -> None:
        """Leave the group.  A coordinator that cannot be reached notices by itself."""
        self.heartbeats.leave(self.cluster.patience.until_s)
