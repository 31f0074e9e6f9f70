"""A member's session: when a heartbeat is due, what its answer means, when the session ends.

It only decides: no clock, no socket, no thread.  The HeartbeatThread carries it out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kafkalog import errors
from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.link.failures import passing
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["COORDINATOR_MOVED", "Beat", "Goodbye", "Heard", "Session", "Tempo"]

COORDINATOR_MOVED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_JOINED = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
"""Expected while it joins: other members are waited for, or the next generation has begun."""


class Tempo(NamedTuple):
    """The intervals that a member promises its group, in milliseconds."""

    heartbeat_ms: int
    session_ms: int
    poll_interval_ms: int


class Beat(NamedTuple):
    """A heartbeat is due."""

    member: GroupMetadata


class Goodbye(NamedTuple):
    """The owner does not poll: leave the group.  A static member sends nothing (`says` False)."""

    member: GroupMetadata
    says: bool


class Heard(NamedTuple):
    """The meaning of a heartbeat's outcome."""

    moved: bool
    """The coordinator may have moved; the generation may continue there."""
    news: bool
    """The owner must look at the session."""


class Session:
    """The state of one member's session.  Two threads change it, one at a time: HeartbeatThread
    locks it."""

    def __init__(self, tempo: Tempo, retry_s: float, now_s: float) -> None:
        """`retry_s`: the longest time until a heartbeat is retried after a transient failure."""
        self.polled_s = now_s
        """When the owner polled last; infinite: it is waiting for the group."""
        self.member: GroupMetadata | None = None
        """The member that heartbeats are sent for."""
        self.problem: errors.KafkalogError | None = None
        """The coordinator's answer to the last heartbeat, unless it was a success."""
        self.left = False
        """True if it has left the group because the owner did not poll."""
        self._heartbeat_s = tempo.heartbeat_ms / 1000
        self._session_s = tempo.session_ms / 1000
        self._poll_interval_s = tempo.poll_interval_ms / 1000
        self._retry_s = min(self._heartbeat_s, retry_s)
        self._joining = False
        self._heard_s = 0.0
        self._next_beat_s = 0.0

    # ---- for the owner -------------------------------------------------------------------

    def begin(self, member: GroupMetadata, now_s: float, heard_s: float | None = None) -> None:
        """Send heartbeats for this member from now on; its owner counts as having polled.

        `heard_s`: when the request that the coordinator answered last was sent; None: the answer
        says nothing new about a session that has begun.
        """
        self.polled_s = now_s
        if self.member is None:
            self._heard_s = now_s if heard_s is None else heard_s
        elif heard_s is not None:  # a heartbeat may have been answered later
            self._heard_s = max(self._heard_s, heard_s)
        # After it has left a generation, it is no longer a member of that one.
        self.left &= self.member == member
        self.member, self.problem, self._joining = member, None, False
        self._next_beat_s = now_s + self._heartbeat_s

    def joins(self, reads_on: bool) -> None:
        """Its owner has asked to join.  If it keeps reading, heartbeats continue: it must know that
        the coordinator still counts it as a member.  Otherwise it has nothing to lose."""
        if reads_on and self.member is not None:
            self._joining = True
            if self.problem is not None and self.problem.code in _JOINED:
                self.problem = None
        else:
            self.rest()

    def rest(self) -> None:
        """Stop heartbeats: it has left, or is not a member."""
        self.member, self.problem = None, None
        self.left = self._joining = False

    @property
    def end_s(self) -> float:
        """When the session ends unless the coordinator answers before."""
        return math.inf if self.member is None else self._heard_s + self._session_s

    def lapsed(self, now_s: float) -> bool:
        """True if the session has ended, as far as it can know: others may have its partitions."""
        return now_s >= self.end_s

    # ---- heartbeats ----------------------------------------------------------------------

    def due(self, now_s: float) -> Beat | Goodbye | float | None:
        """The request that is due, or the time of the next; None: nothing until `begin`."""
        member = self.member
        if member is None or self.left:
            return None
        late_s = self.polled_s + self._poll_interval_s
        if now_s >= late_s:
            # Before LeaveGroup: others may get its partitions before that is answered.
            self.left = True
            return Goodbye(member, says=member.instance_id is None)
        if now_s >= self._next_beat_s:
            return Beat(member)
        return min(late_s, self._next_beat_s)

    def beaten(
        self, beat: Beat, sent_s: float, problem: errors.KafkalogError | None, now_s: float
    ) -> Heard:
        """A heartbeat has ended; `problem`: None: it succeeded."""
        heard = problem is None or problem.code == ErrorCode.REBALANCE_IN_PROGRESS
        moved = problem is not None and (problem.code in COORDINATOR_MOVED or passing(problem))
        self._next_beat_s = now_s + (self._retry_s if moved else self._heartbeat_s)
        said = None if moved else problem
        if self.member == beat.member:  # else it was of a generation that has ended
            if heard:
                self._heard_s = max(self._heard_s, sent_s)
            if self._joining and said is not None and said.code in _JOINED:
                said = None
            # Kept until the owner has looked: a later heartbeat may succeed.
            self.problem = said or self.problem
        else:
            said = None
        return Heard(moved, news=said is not None)
