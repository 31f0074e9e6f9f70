"""What a member of a group does while its owner works: it beats, notices that nobody answers, and
leaves when nobody polls.

A thread of its own: a heartbeat waits for nothing but the coordinator's answer to the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kafkalog import errors
from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.link.background import Background
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, passing
from kafkalog.client.link.transport import Address
from kafkalog.client.metrics import Tally
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["COORDINATOR_MOVED", "Keeper", "Tempo", "leave_group"]

COORDINATOR_MOVED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_JOINED = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
"""While it joins: the others are waited for, or the next generation is on its way to it."""


class Tempo(NamedTuple):
    """What a member promises its group, in milliseconds."""

    heartbeat_ms: int
    session_ms: int
    poll_interval_ms: int


def leave_group(cluster: Cluster, member: GroupMetadata, reason: str) -> None:
    """Say goodbye, so that the others need not wait for the session to end.

    Raises: what the coordinator answers; not tried again.
    """
    one = {"member_id": member.member_id, "group_instance_id": None, "reason": reason}
    connection = cluster.connect(cluster.coordinator(member.group))
    body = {"group_id": member.group, "member_id": member.member_id, "members": [one]}
    answer = connection.call(apis.LEAVE_GROUP, body)
    check_code(answer.error_code, f"group {member.group!r}")


class Keeper(Background):
    """The thread that keeps a member in; it begins with the first join."""

    def __init__(self, cluster: Cluster, tempo: Tempo, nudge: Callable[[], None]) -> None:
        """`cluster`: its own, as patient as a heartbeat may be; it closes it."""
        super().__init__(cluster, "kafkalog-member", nudge)
        self.polled_s = self.clock.monotonic_s()
        """When the owner polled last; it sets this.  Without end: it is there, and waits."""
        self._heartbeat_s = tempo.heartbeat_ms / 1000
        self._session_s = tempo.session_ms / 1000
        self._poll_interval_s = tempo.poll_interval_ms / 1000
        self._connection: Connection | None = None
        self._place: Address | None = None
        self._member: GroupMetadata | None = None
        self._joining = False
        self._heard_s = 0.0
        self._next_beat_s = 0.0
        self.beat_ms = Tally()
        """How long each heartbeat was on its way that was answered."""
        self._problem: errors.KafkalogError | None = None
        self._left = False

    # ---- for the owner -----------------------------------------------------------------

    def beat_as(
        self, member: GroupMetadata, heard_s: float | None = None, place: Address | None = None
    ) -> None:
        """Beat for this member from now on; its owner is here, however long the join took.

        `heard_s`: when it sent what the coordinator answered last; None: that is not news of the
        session of one that beats already.  `place`: where the coordinator is.
        """
        with self._condition:
            self.polled_s = now_s = self.clock.monotonic_s()
            if self._member is None:
                self._heard_s = now_s if heard_s is None else heard_s
            elif heard_s is not None:  # a heartbeat answered since is later news
                self._heard_s = max(self._heard_s, heard_s)
            # Once it has left a generation, it is no longer a member of that one.
            self._left &= self._member == member
            self._member, self._problem, self._joining = member, None, False
            self._next_beat_s = now_s + self._heartbeat_s
            self._place = place
            self._wake()

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """The owner waits for the group within: that is no pause between polls."""
        self.polled_s = math.inf
        try:
            yield
        finally:
            self.polled_s = self.clock.monotonic_s()

    def joins(self, reads_on: bool) -> None:
        """Its owner has asked to join.  If it reads on, it has to know that the coordinator still
        counts it in: the heartbeats go on.  Else it has nothing to lose."""
        with self._condition:
            if reads_on and self._member is not None:
                self._joining = True
                if self._problem is not None and self._problem.code in _JOINED:
                    self._problem = None
            else:
                self._rest()

    def rest(self) -> None:
        """Beat no more: it has left, or is no member."""
        with self._condition:
            self._rest()

    def _rest(self) -> None:
        self._member, self._problem = None, None
        self._left = self._joining = False

    def problem(self) -> errors.KafkalogError | None:
        """What the coordinator said to the last heartbeat, if that was no yes."""
        return self._problem

    @property
    def left(self) -> bool:
        """Whether it has left the group, because nobody polled."""
        return self._left

    @property
    def session_end_s(self) -> float:
        """When the session is over unless the coordinator is heard before, by the clock."""
        return math.inf if self._member is None else self._heard_s + self._session_s

    @property
    def lapsed(self) -> bool:
        """Whether the session is over, as far as it can know: others may have its partitions."""
        return self.clock.monotonic_s() >= self.session_end_s

    # ---- the thread --------------------------------------------------------------------

    def _failed(self, problem: errors.KafkalogError) -> None:
        self._problem = problem

    def _due(self) -> Callable[[], None] | float | None:
        if self._member is None or self._left:
            return None
        now_s, late_s = self.clock.monotonic_s(), self.polled_s + self._poll_interval_s
        if now_s >= late_s:
            return self._leave
        if now_s >= self._next_beat_s:
            return self._beat
        return min(late_s, self._next_beat_s)

    def _beat(self) -> None:
        member, problem = self._member, None
        if member is None:
            return
        pause_s, sent_s, heard = self._heartbeat_s, self.clock.monotonic_s(), True
        try:
            body = {
                "group_id": member.group,
                "generation_id": member.generation,
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
            }
            connection = self._connected(member.group)
            with self.beat_ms.timed():
                answer = connection.call(apis.HEARTBEAT, body)
            check_code(answer.error_code, f"group {member.group!r}")
        except errors.KafkalogError as found:
            heard = found.code == ErrorCode.REBALANCE_IN_PROGRESS
            if found.code in COORDINATOR_MOVED or passing(found):
                # The same generation may go on with the new coordinator.
                self.cluster.forget_coordinator(member.group)
                self._drop_connection()
                pause_s = min(pause_s, self.cluster.options.retry_backoff_max_ms / 1000)
            else:
                problem = found
        with self._condition:
            self._next_beat_s = self.clock.monotonic_s() + pause_s
            if self._member != member:
                return  # of a generation that has ended since
            if heard:
                self._heard_s = max(self._heard_s, sent_s)
            if self._joining and problem is not None and problem.code in _JOINED:
                problem = None
            # Until the owner has looked: a later heartbeat may be answered by a yes.
            self._problem = problem or self._problem
        if problem is not None:
            self._nudge()

    def _connected(self, group: str) -> Connection:
        """The connection to the coordinator, on which nothing but heartbeats is sent.

        The first is to where its owner has joined: nobody has to be asked for the way.
        """
        if self._connection is None or not self._connection.usable():
            place, self._place = self._place, None
            if place is not None:
                self._connection = self.cluster.openings.connect(place)
            else:
                self._connection = self.cluster.another(self.cluster.coordinator(group))
        return self._connection

    def _hang_up(self) -> None:
        self._drop_connection()
        super()._hang_up()

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._place = None

    def _leave(self) -> None:
        """Give the partitions up: a static member by its silence, another one by saying so."""
        with self._condition:
            member = self._member
            # Before the goodbye: while that is not answered others may have been given them.
            self._left = member is not None
        if member is not None and member.instance_id is None:
            try:
                leave_group(self.cluster, member, "poll was not called in max.poll.interval.ms")
            except errors.KafkalogError:
                self.cluster.forget_coordinator(member.group)  # its session ends by itself
        self._nudge()
