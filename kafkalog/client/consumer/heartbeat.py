"""The background work of a group member: heartbeats, noticing that the coordinator does not answer,
and leaving if the owner does not poll.

It has a thread of its own: a heartbeat waits for nothing but the answer to the previous one.
`session` decides what it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from kafkalog import errors
from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.consumer.session import Beat, Goodbye, Session, Tempo
from kafkalog.client.link.background import Background
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code
from kafkalog.client.link.transport import Address
from kafkalog.client.metrics import Tally
from kafkalog.wire import apis

__all__ = ["Keeper", "leave_group"]


def leave_group(cluster: Cluster, member: GroupMetadata, reason: str) -> None:
    """Leave the group, so that the others need not wait for the session to end.

    Raises: what the coordinator answers; there are no retries.
    """
    one = {"member_id": member.member_id, "group_instance_id": None, "reason": reason}
    connection = cluster.connect(cluster.coordinator(member.group))
    body = {"group_id": member.group, "member_id": member.member_id, "members": [one]}
    answer = connection.call(apis.LEAVE_GROUP, body)
    check_code(answer.error_code, f"group {member.group!r}", api=apis.LEAVE_GROUP)


class Keeper(Background):
    """The thread that keeps a member in its group; it starts with the first join."""

    def __init__(self, cluster: Cluster, tempo: Tempo, nudge: Callable[[], None]) -> None:
        """`cluster`: its own, with the timeouts of a heartbeat; it closes it."""
        super().__init__(cluster, "kafkalog-member", nudge)
        retry_s = cluster.options.retry_backoff_max_ms / 1000
        self.session = Session(tempo, retry_s, self.clock.monotonic_s())
        """Changed with the condition held; it may be read without."""
        self._connection: Connection | None = None
        self._place: Address | None = None
        self.beat_ms = Tally()
        """The latency of each heartbeat that was answered."""

    # ---- for the owner -----------------------------------------------------------------

    def beat_as(
        self, member: GroupMetadata, heard_s: float | None = None, place: Address | None = None
    ) -> None:
        """As Session.begin; `place`: the coordinator's address."""
        with self._condition:
            self.session.begin(member, self.clock.monotonic_s(), heard_s)
            self._place = place
            self._wake()

    def polled(self) -> None:
        """The owner has polled."""
        self.session.polled_s = self.clock.monotonic_s()

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Within, the owner waits for the group: this does not count as a pause between polls."""
        self.session.polled_s = math.inf
        try:
            yield
        finally:
            self.polled()

    def joins(self, reads_on: bool) -> None:
        """As Session.joins."""
        with self._condition:
            self.session.joins(reads_on)

    def rest(self) -> None:
        """As Session.rest."""
        with self._condition:
            self.session.rest()

    @property
    def _member(self) -> GroupMetadata | None:
        return self.session.member

    def problem(self) -> errors.KafkalogError | None:
        """The coordinator's answer to the last heartbeat, unless it was a success."""
        return self.session.problem

    @property
    def left(self) -> bool:
        """True if it has left the group because the owner did not poll."""
        return self.session.left

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
        if heard.moved:
            self.cluster.forget_coordinator(member.group)
            self._drop_connection()
        if heard.news:
            self._nudge()

    def _connected(self, group: str) -> Connection:
        """The connection to the coordinator, only for heartbeats.

        The first one goes where its owner has joined, without a lookup.
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

    def _leave(self, goodbye: Goodbye) -> None:
        """Give up the partitions: a dynamic member leaves, a static one just stops."""
        if goodbye.says:
            member = goodbye.member
            try:
                leave_group(self.cluster, member, "poll was not called in max.poll.interval.ms")
            except errors.KafkalogError:
                self.cluster.forget_coordinator(member.group)  # the session ends by itself
        self._nudge()
