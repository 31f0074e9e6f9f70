"""The thread that keeps a member in a group of KIP-848; `group_session` decides what it does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from kafkalog import errors
from kafkalog.client.consumer.group_session import Change, GroupBeat, GroupOptions, GroupSession
from kafkalog.client.consumer.member_thread import MemberThread
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import check_code
from kafkalog.wire import apis

__all__ = ["GroupHeartbeats"]

PATTERNS_SINCE = 1
"""From this version on, ConsumerGroupHeartbeat has a pattern."""


class GroupHeartbeats(MemberThread[GroupSession]):
    """Sends all heartbeats, one at a time, also the first and the last."""

    Session: ClassVar[type[GroupSession]] = GroupSession
    Api: ClassVar[Any] = apis.CONSUMER_GROUP_HEARTBEAT

    def __init__(self, cluster: Cluster, options: GroupOptions, nudge: Callable[[], None]) -> None:
        """As MemberThread."""
        super().__init__(cluster, nudge, partial(self.Session, options))
        self.session_end_s = math.inf
        """The coordinator alone knows how long a session lasts."""

    # ---- for the owner -----------------------------------------------------------------

    def tell(self, change: Change) -> None:
        """Change the session; the thread wakes up only if a heartbeat may be due earlier."""
        with self._condition:
            if change(self.session) or self._thread is None:
                self._wake()

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
        self._react(heard, self.session.options.group)

    def _asked(self, beat: GroupBeat) -> object:
        """Raises: what the coordinator answers."""
        api, group = self.Api, self.session.options.group
        connection = self._connected(group)
        version = connection.version_of(api)
        if beat.body.get("subscribed_topic_regex") and version < PATTERNS_SINCE:
            raise errors.UnsupportedVersion(
                f"{connection.address}: ConsumerGroupHeartbeat: version {version}, wanted "
                f"{PATTERNS_SINCE} for a pattern"
            )
        with self.beat_ms.timed():
            answer = connection.call(api, beat.body, version)
        check_code(answer.error_code, f"group {group!r}", answer.error_message, api=api)
        return answer
