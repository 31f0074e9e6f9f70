"""The thread that keeps a member in a group of KIP-848; `group_session` decides what it does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from kafkalog import errors
from kafkalog.client.consumer.group_session import GroupBeat, GroupOptions, GroupSession
from kafkalog.client.link.background import Background
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code
from kafkalog.client.metrics import Tally
from kafkalog.wire import apis

__all__ = ["GroupHeartbeats"]

PATTERNS_SINCE = 1
"""From this version on, ConsumerGroupHeartbeat has a pattern."""


class GroupHeartbeats(Background):
    """Sends all heartbeats, one at a time, also the first and the last."""

    def __init__(self, cluster: Cluster, options: GroupOptions, nudge: Callable[[], None]) -> None:
        """`cluster`: its own, with the timeouts of a heartbeat; it closes it."""
        super().__init__(cluster, "kafkalog-member", nudge)
        self.session = GroupSession(options, self.clock.monotonic_s())
        """Changed with the condition held; it may be read without."""
        self.session_end_s = math.inf
        """The coordinator alone knows how long a session lasts."""
        self._connection: Connection | None = None
        self.beat_ms = Tally()
        """The latency of each heartbeat that was answered."""

    # ---- for the owner -----------------------------------------------------------------

    def tell(self, change: Callable[[GroupSession], None]) -> None:
        """Change the session."""
        with self._condition:
            change(self.session)
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

    def leave(self, until_s: float) -> None:
        """Leave the group, and wait until that is answered, at most until `until_s`
        (time.monotonic)."""
        self.tell(GroupSession.leave)
        with self._condition:
            self._condition.wait_for(
                lambda: not self.session.leaving, max(until_s - time.monotonic(), 0)
            )

    # ---- the thread --------------------------------------------------------------------

    def _failed(self, problem: errors.KafkalogError) -> None:
        self.session.lost, self.session.leaving = problem, False
        self.session.epoch = -1

    def _due(self) -> Callable[[], None] | float | None:
        due = self.session.due(self.clock.monotonic_s())
        return partial(self._beat, due) if isinstance(due, GroupBeat) else due

    def _beat(self, beat: GroupBeat) -> None:
        group = self.session.options.group
        try:
            answer = self._asked(beat)
        except errors.KafkalogError as problem:
            with self._condition:
                heard = self.session.failed(beat, problem, self.clock.monotonic_s())
                self._condition.notify_all()
        else:
            with self._condition:
                heard = self.session.answered(beat, answer, self.clock.monotonic_s())
                self._condition.notify_all()
        if heard.moved:
            self.cluster.forget_coordinator(group)
            self._drop_connection()
        if heard.news:
            self._nudge()

    def _asked(self, beat: GroupBeat) -> object:
        """Raises: what the coordinator answers."""
        api, group = apis.CONSUMER_GROUP_HEARTBEAT, self.session.options.group
        if self._connection is None or not self._connection.usable():
            self._connection = self.cluster.another(self.cluster.coordinator(group))
        version = self._connection.version_of(api)
        if beat.body["subscribed_topic_regex"] and version < PATTERNS_SINCE:
            raise errors.UnsupportedVersion(
                f"{self._connection.address}: ConsumerGroupHeartbeat: version {version}, wanted "
                f"{PATTERNS_SINCE} for a pattern"
            )
        with self.beat_ms.timed():
            answer = self._connection.call(api, beat.body, version)
        check_code(answer.error_code, f"group {group!r}", answer.error_message, api=api)
        return answer

    def _hang_up(self) -> None:
        self._drop_connection()
        super()._hang_up()

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
