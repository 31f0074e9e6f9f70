"""A member's session with its coordinator: when it beats, what an answer means, when it is over.

It decides and does nothing else: no clock, no socket, no thread.  The Keeper does it.
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
"""While it joins: the others are waited for, or the next generation is on its way to it."""


class Tempo(NamedTuple):
    """What a member promises its group, in milliseconds."""

    heartbeat_ms: int
    session_ms: int
    poll_interval_ms: int


class Beat(NamedTuple):
    """A heartbeat is due."""

    member: GroupMetadata


class Goodbye(NamedTuple):
    """Nobody polls: the group is left.  A static member is silent, and `says` nothing."""

    member: GroupMetadata
    says: bool


class Heard(NamedTuple):
    """What the outcome of a heartbeat means."""

    moved: bool
    """The coordinator is another one, perhaps, and the generation may go on with it."""
    news: bool
    """The owner has to look."""


class Session:
    """What is known of the session of one member; what may change it comes from two threads, one
    at a time: the Keeper sees to that."""

    def __init__(self, tempo: Tempo, retry_s: float, now_s: float) -> None:
        """`retry_s`: how long at most until a heartbeat that failed for a time is tried again."""
        self.polled_s = now_s
        """When the owner polled last.  Without end: it is there, and waits."""
        self.member: GroupMetadata | None = None
        """For which it beats."""
        self.problem: errors.KafkalogError | None = None
        """What the coordinator said to the last heartbeat, if that was no yes."""
        self.left = False
        """Whether it has left the group, because nobody polled."""
        self._heartbeat_s = tempo.heartbeat_ms / 1000
        self._session_s = tempo.session_ms / 1000
        self._poll_interval_s = tempo.poll_interval_ms / 1000
        self._retry_s = min(self._heartbeat_s, retry_s)
        self._joining = False
        self._heard_s = 0.0
        self._next_beat_s = 0.0

    # ---- of the owner --------------------------------------------------------------------

    def begin(self, member: GroupMetadata, now_s: float, heard_s: float | None = None) -> None:
        """Beat for this member from now on; its owner is here, however long the join took.

        `heard_s`: when it sent what the coordinator answered last; None: that is not news of the
        session of one that beats already.
        """
        self.polled_s = now_s
        if self.member is None:
            self._heard_s = now_s if heard_s is None else heard_s
        elif heard_s is not None:  # a heartbeat answered since is later news
            self._heard_s = max(self._heard_s, heard_s)
        # Once it has left a generation, it is no longer a member of that one.
        self.left &= self.member == member
        self.member, self.problem, self._joining = member, None, False
        self._next_beat_s = now_s + self._heartbeat_s

    def joins(self, reads_on: bool) -> None:
        """Its owner has asked to join.  If it reads on, it has to know that the coordinator still
        counts it in: the heartbeats go on.  Else it has nothing to lose."""
        if reads_on and self.member is not None:
            self._joining = True
            if self.problem is not None and self.problem.code in _JOINED:
                self.problem = None
        else:
            self.rest()

    def rest(self) -> None:
        """Beat no more: it has left, or is no member."""
        self.member, self.problem = None, None
        self.left = self._joining = False

    @property
    def end_s(self) -> float:
        """When the session is over unless the coordinator is heard before."""
        return math.inf if self.member is None else self._heard_s + self._session_s

    def lapsed(self, now_s: float) -> bool:
        """Whether the session is over, as far as it can know: others may have its partitions."""
        return now_s >= self.end_s

    # ---- of its heartbeats ---------------------------------------------------------------

    def due(self, now_s: float) -> Beat | Goodbye | float | None:
        """What is due now; else when something will be; None: nothing, until it begins."""
        member = self.member
        if member is None or self.left:
            return None
        late_s = self.polled_s + self._poll_interval_s
        if now_s >= late_s:
            # Before the goodbye: while that is not answered others may have been given its share.
            self.left = True
            return Goodbye(member, says=member.instance_id is None)
        if now_s >= self._next_beat_s:
            return Beat(member)
        return min(late_s, self._next_beat_s)

    def beaten(
        self, beat: Beat, sent_s: float, problem: errors.KafkalogError | None, now_s: float
    ) -> Heard:
        """A heartbeat has ended; `problem`: None for a yes."""
        heard = problem is None or problem.code == ErrorCode.REBALANCE_IN_PROGRESS
        moved = problem is not None and (problem.code in COORDINATOR_MOVED or passing(problem))
        self._next_beat_s = now_s + (self._retry_s if moved else self._heartbeat_s)
        said = None if moved else problem
        if self.member == beat.member:  # else it was of a generation that has ended since
            if heard:
                self._heard_s = max(self._heard_s, sent_s)
            if self._joining and said is not None and said.code in _JOINED:
                said = None
            # Until the owner has looked: a later heartbeat may be answered by a yes.
            self.problem = said or self.problem
        else:
            said = None
        return Heard(moved, news=said is not None)
