"""A member of a consumer group: joins, assigns partitions if it is the leader, and stays.

It carries out what `member` decides, and waits no longer than it may: a join that other members
delay continues at the next step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from kafkalog import errors
from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.consumer.heartbeat import HeartbeatThread, leave_group
from kafkalog.client.consumer.member import (
    ASSIGNING,
    IN,
    JOINING,
    OUT,
    REJOIN,
    SYNCING,
    Asks,
    BeatAs,
    Doubt,
    DoubtTopics,
    Member,
    MemberOptions,
    Rest,
    Unwanted,
)
from kafkalog.client.consumer.session import COORDINATOR_MOVED
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.handling import Troubles
from kafkalog.client.link.patience import NotYet
from kafkalog.client.link.wakeup import Waker
from kafkalog.types import TopicPartition
from kafkalog.wire import apis

__all__ = ["Membership"]

_logger = logging.getLogger(__name__)
GRACE_MS = 5_000


class Membership:
    """One member and its connection.  One thread, in addition to its HeartbeatThread's."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        options: MemberOptions,
        heartbeats: HeartbeatThread,
        waker: Waker,
    ) -> None:
        """Nothing is sent yet."""
        self.cluster = cluster
        retry = cluster.options
        pauses_s = retry.retry_backoff_ms / 1000, retry.retry_backoff_max_ms / 1000
        self.member = Member(group, options, heartbeats.session, pauses_s)
        self.heartbeats = heartbeats
        self._waker = waker
        self._connection: Connection | None = None
        self._answer: Any = None
        self._due_s = 0.0
        self._sent_s = 0.0
        self._rest_until_s = 0.0
        self._troubles = Troubles[str]()

    @property
    def connection(self) -> Connection | None:
        """The connection where an awaited answer is due."""
        return self._connection if self.member.awaits else None

    def ended(self) -> errors.KafkalogError | None:
        """As Member.ended, now."""
        return self.member.ended(self._now_s())

    def _now_s(self) -> float:
        return self.heartbeats.clock.monotonic_s()

    def do(self) -> None:
        """Carry out the effects of its member."""
        effects, self.member.effects = self.member.effects, []
        for one in effects:
            match one:
                case BeatAs(member, heard_s):
                    assert self._connection is not None
                    self.heartbeats.beat_as(member, heard_s, self._connection.address)
                case Asks(reads_on):
                    self.heartbeats.joins(reads_on)
                case Rest():
                    self.heartbeats.rest()
                case Unwanted():
                    if self._connection is not None:
                        self._connection.close()
                case Doubt():
                    self._drop_connection()
                case DoubtTopics():
                    self.cluster.forget()

    # ---- joining -----------------------------------------------------------------------

    def step(self, topics: Iterable[str], owned: Sequence[TopicPartition], until_s: float) -> bool:
        """Continue a join until `until_s` (time.monotonic); True: it has a new assignment.

        `owned`: the partitions that it reads now, and keeps.  A nudge of the waker also ends a
        step.  Transient failures are retried without end, by later steps, too.

        Raises: a permanent error of the coordinator; why no broker was ever reached; WakeUp.
        """
        member = self.member
        while True:
            self._lost_membership()
            if owned and member.metadata.generation < 0:
                return False  # others have its partitions now: its owner must know first
            if (rest_s := self._rest_until_s - time.monotonic()) > 0:
                self._waker.wait([], min(rest_s, until_s - time.monotonic()))
                if time.monotonic() < self._rest_until_s:
                    return False
            try:
                if self._stepped(topics, owned, until_s):
                    self._troubles.ended("join")
                    return True
            except NotYet:
                return False
            except errors.KafkalogError as problem:
                if isinstance(problem, errors.WakeUp):
                    raise
                try:
                    member.failed(problem, self.cluster.reached)
                finally:
                    self.do()
                    self._rest_until_s = time.monotonic() + member.pause_s
                if problem.code not in REJOIN and self._troubles.failed(
                    "join", problem, self._now_s()
                ):
                    _logger.warning("not joined yet, trying again: %s", problem)

    def _lost_membership(self) -> bool:
        found = self.member.lost_membership(self._now_s())
        self.do()
        return found

    def _stepped(
        self, topics: Iterable[str], owned: Sequence[TopicPartition], until_s: float
    ) -> bool:
        """One step; returns whether the join is complete.  Raises: NotYet; a failure."""
        member = self.member
        if member.state == OUT:
            self._send(apis.JOIN_GROUP, member.join(topics, owned), until_s)
            member.join_sent(reads_on=bool(owned))
            self.do()
        if member.state != ASSIGNING:
            self._await_answer(until_s)
        if self._lost_membership():
            return False
        if member.state == JOINING:
            member.joined(self._answer)
        elif member.state == SYNCING:
            member.synced(self._answer, self._sent_s)
        self.do()
        if member.state == ASSIGNING:
            self._send_assignments(until_s)
        return member.state == IN

    def _send_assignments(self, until_s: float) -> None:
        """Raises: NotYet; a failure."""
        topics, counts = self.member.topics_to_assign(), None
        if topics is not None:
            with self.cluster.patience.errand_of("assignment", until_s):
                counts = self.partition_counts(topics)
        self._send(apis.SYNC_GROUP, self.member.sync(counts), until_s)
        self.member.sync_sent()

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of partitions that topics have now; missing topics are left out."""
        topics = set(topics)
        self.cluster.refresh(topics)
        known = self.cluster.topics
        return {name: len(known[name].partitions) for name in sorted(topics) if name in known}

    def _send(self, api: Any, body: dict[str, Any], until_s: float) -> None:
        if self._connection is None or not self._connection.usable():
            with self.cluster.patience.errand_of("coordinator", until_s):
                node = self.cluster.coordinator(self.member.metadata.group)
                # Its own connection: a join waits long.
                self._connection = self.cluster.another(node)
        self._sent_s = self._now_s()
        self._connection.post(api, body, self._connection.version_of(api))
        wait_ms = self.member.options.rebalance_timeout_ms + GRACE_MS
        self._due_s = time.monotonic() + wait_ms / 1000

    def _await_answer(self, until_s: float) -> None:
        """Raises: NotYet: there is no answer by then."""
        assert self._connection is not None
        what = f"group {self.member.metadata.group!r}: no answer to {self.member.state}"
        wait_s = min(until_s, self._due_s) - time.monotonic()
        with self.heartbeats.waited_for():
            there = self._waker.wait([self._connection], wait_s)
        if not there:
            if time.monotonic() < self._due_s:
                raise NotYet(f"{what} yet")
            raise errors.Timeout(what)
        with self.cluster.patience.within(max(until_s - time.monotonic(), 0.0)):
            self._answer = self._connection.receive()

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.give_up()
            self._connection = None
        self.cluster.forget_coordinator(self.member.metadata.group)

    # ---- leave -------------------------------------------------------------------------

    def mind_fencing(self, committer: GroupMetadata, problem: errors.KafkalogError) -> None:
        """As Member.mind_fencing."""
        self.member.mind_fencing(committer, problem)
        self.do()

    def leave(self, reason: str) -> None:
        """Leave the group.  A coordinator that cannot be reached notices by itself."""
        member = self.member
        self.heartbeats.rest()
        if member.says_goodbye:
            try:
                leave_group(self.cluster, member.metadata, reason)
            except errors.KafkalogError as problem:
                if problem.code in COORDINATOR_MOVED:
                    self.cluster.forget_coordinator(member.metadata.group)
        member.lose(None)
        self.do()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
