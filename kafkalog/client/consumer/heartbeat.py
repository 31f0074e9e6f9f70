"""The background work of a group member: heartbeats, noticing that the coordinator does not answer,
and leaving if the owner does not poll.

It has a thread of its own: a heartbeat waits for nothing but the answer to the previous one.
`session` decides what it does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kafkalog import errors
from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.consumer.member_thread import MemberThread
from kafkalog.client.consumer.session import Beat, Goodbye, Session, Tempo
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code
from kafkalog.client.link.transport import Address
from kafkalog.wire import apis

__all__ = ["HeartbeatThread", "leave_group"]


def leave_group(cluster: Cluster, member: GroupMetadata, reason: str) -> None:
    """Leave the group, so that the others need not wait for the session to end.

    Raises: what the coordinator answers; there are no retries.
    """
    one = {"member_id": member.member_id, "group_instance_id": None, "reason": reason}
    connection = cluster.connect(cluster.coordinator(member.group))
    body = {"group_id": member.group, "member_id": member.member_id, "members": [one]}
    answer = connection.call(apis.LEAVE_GROUP, body)
    check_code(answer.error_code, f"group {member.group!r}", api=apis.LEAVE_GROUP)


class HeartbeatThread(MemberThread[Session]):
    """The thread that keeps a member in its group; it starts with the first join."""

    def __init__(self, cluster: Cluster, tempo: Tempo, nudge: Callable[[], None]) -> None:
        """As MemberThread."""
        retry_s = cluster.options.retry_backoff_max_ms / 1000
        super().__init__(cluster, nudge, partial(Session, tempo, retry_s))
        self._place: Address | None = None

    # ---- for the owner -----------------------------------------------------------------

    def beat_as(
        self, member: GroupMetadata, heard_s: float | None = None, place: Address | None = None
    ) -> None:
        """As Session.begin; `place`: the coordinator's address."""
        with self._condition:
            self.session.begin(member, self.clock.monotonic_s(), heard_s)
            self._place = place
            self._wake()

    def joins(self, reads_on: bool) -> None:
        """As Session.joins."""
        with self._condition:
            self.session.joins(reads_on)

    def rest(self) -> None:
        """As Session.rest."""
        with self._condition:
            self.session.rest()

    @property
    def session_end_s(self) -> float:
        """When the session ends unless the coordinator answers before, by the clock."""
        return self.session.end_s

    # ---- the thread --------------------------------------------------------------------

    def _failed(self, problem: errors.KafkalogError) -> None:
        self.session.problem = problem

    def _due(self) -> Callable[[], None] | float | None:
        match self.session.due(self.clock.monotonic_s()):
            case Beat() as beat:
                return partial(self._beat, beat)
            case Goodbye() as goodbye:
                return partial(self._leave, goodbye)
            case later:
                return later

    def _beat(self, beat: Beat) -> None:
        member, sent_s = beat.member, self.clock.monotonic_s()
        problem: errors.KafkalogError | None = None
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
            check_code(answer.error_code, f"group {member.group!r}", api=apis.HEARTBEAT)
        except errors.KafkalogError as found:
            problem = found
        with self._condition:
            heard = self.session.beaten(beat, sent_s, problem, self.clock.monotonic_s())
        self._react(heard, member.group)

    def _opened(self, group: str) -> Connection:
        """The first one goes where its owner has joined, without a lookup."""
        place, self._place = self._place, None
        return super()._opened(group) if place is None else self.cluster.openings.connect(place)

    def _drop_connection(self) -> None:
        super()._drop_connection()
        self._place = None

    def _leave(self, goodbye: Goodbye) -> None:
        """Give up the partitions: a dynamic member leaves, a static one just stops."""
        if goodbye.says:
            member = goodbye.member
            try:
                leave_group(self.cluster, member, "poll was not called in max.poll.interval.ms")
            except errors.KafkalogError:
                self.cluster.forget_coordinator(member.group)  # the session ends by itself
        self._nudge()
