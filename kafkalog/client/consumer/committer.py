"""Commits in the background: in the order of the calls, each for as long as it was given."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata, put_offsets
from kafkalog.client.consumer.membership import REJOIN
from kafkalog.client.consumer.subscription import logged
from kafkalog.client.link.background import Background
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.patience import Wait
from kafkalog.client.metrics import Tally
from kafkalog.types import TopicPartition

__all__ = [
    "CHORE_S",
    "Callback",
    "Committer",
    "Committing",
    "Offsets",
    "excuse",
    "tell_interceptors",
]

_logger = logging.getLogger(__name__)

CHORE_S = 5.0
"""The longest wait: a clock that is not the machine's is looked at so often."""
Offsets = Mapping[TopicPartition, CommittedOffset]
Callback = Callable[[Offsets, "errors.KafkalogError | None"], object]


def excuse(problem: errors.KafkalogError) -> None:
    """An automatic commit failed: what it held is read again by somebody."""
    level = logging.INFO if problem.code in REJOIN else logging.WARNING
    _logger.log(level, "an automatic commit failed: %s", problem)


def tell_interceptors(interceptors: Sequence[object], offsets: Offsets) -> None:
    """These were committed: `on_commit` of those that have it."""
    for interceptor in interceptors:
        tell: Any = getattr(interceptor, "on_commit", None)
        if tell is not None:
            with logged("on_commit"):
                tell(dict(offsets))


class Committing(NamedTuple):
    """Offsets that are committed in the background, and then how that went."""

    offsets: Offsets
    member: GroupMetadata
    callback: Callback | None
    until_s: float
    """By the clock: it is not tried for longer, however long those before it take."""
    problem: errors.KafkalogError | None = None

    def tell(self, before: BaseException | None) -> BaseException | None:
        """Call who wants to know how it went; what the first of several raised, `before` or this
        one: the others' are logged."""
        try:
            if self.callback is not None:
                self.callback(self.offsets, self.problem)
            elif self.problem is not None:
                excuse(self.problem)
        except BaseException as found:
            if before is None:
                return found
            _logger.error("a commit's callback failed", exc_info=found)
        return before


class Committer(Background):
    """The thread that commits, apart from the one that beats: a commit is tried again for up to
    default.api.timeout.ms, which is longer than a session."""

    def __init__(self, cluster: Cluster, nudge: Callable[[], None]) -> None:
        super().__init__(cluster, "kafkalog-commits", nudge)
        self._commits: deque[Committing] = deque()
        self._now: Committing | None = None
        self._done: deque[Committing] = deque()
        self.commit_ms = Tally()
        """How long each took that was answered by a yes, its owner's own, too."""

    # ---- for the owner -----------------------------------------------------------------

    def commit(self, committing: Committing) -> None:
        """Commit in the background, in the order of the calls; `finished` tells how it went.

        What waits and nobody asked about goes with the next: a commit a record is not kept.
        """
        with self._condition:
            last = self._commits[-1] if self._commits else committing
            quiet = last.callback is None and committing.callback is None
            if self._commits and quiet and last.member == committing.member:
                self._commits.pop()
                committing = committing._replace(offsets={**last.offsets, **committing.offsets})
            self._commits.append(committing)
            self._wake()

    def finished(self) -> Committing | None:
        """The oldest commit that has ended and was not told of; None: there is none."""
        if not self._done:
            return None
        with self._condition:
            return self._done.popleft()

    def drain(self, until_s: float) -> bool:
        """Wait until no commit is under way, by the clock; False: one is still."""
        with self._condition:
            while self._commits or self._now is not None:
                if self.clock.monotonic_s() >= until_s:
                    return False
                self.clock.wait_until(self._condition, until_s)
        return True

    def drain_within(
        self, wait: Wait | None, until_s: float, session_end_s: Callable[[], float]
    ) -> bool:
        """As `drain`, by time.monotonic, and while the session lasts; `wait`: ends with what else
        the thread waits for.  Raises: WakeUp."""
        while not self.drain(self.clock.monotonic_s()):
            left_s = until_s - time.monotonic()
            if wait is None:
                return self.drain(self.clock.monotonic_s() + left_s)
            left_s = min(left_s, session_end_s() - self.clock.monotonic_s())
            if left_s <= 0:
                return False
            wait([], min(left_s, CHORE_S))
        return True

    def give_up(self, problem: errors.KafkalogError) -> None:
        """Whatever has not ended has failed so; nothing is begun any more."""
        with self._condition:
            self._stopping = True
            self._failed(problem)

    # ---- the thread --------------------------------------------------------------------

    def _failed(self, problem: errors.KafkalogError) -> None:
        left = [*([] if self._now is None else [self._now]), *self._commits]
        self._now = None
        self._commits.clear()
        self._done += [one._replace(problem=problem) for one in left]
        self._condition.notify_all()

    def _due(self) -> Callable[[], None] | None:
        if not self._commits:
            return None
        self._now = self._commits.popleft()
        return self._commit

    def _commit(self) -> None:
        given = self._now
        if given is None:
            return
        problem: errors.KafkalogError | None = None
        try:
            with self.commit_ms.timed():
                self._put(given)
        except errors.KafkalogError as found:
            problem = found
        with self._condition:
            if self._now is given:
                self._now = None
                self._done.append(given._replace(problem=problem))
                self._condition.notify_all()
        self._nudge()

    def _put(self, given: Committing) -> None:
        """Raises: Timeout: those before it took all of its time; as `put_offsets`."""
        by, left_ms = given.member, round((given.until_s - self.clock.monotonic_s()) * 1000)
        if left_ms <= 0:
            patience_ms = self.cluster.options.api_timeout_ms
            raise errors.Timeout(
                f"group {by.group!r}: its turn to commit did not come in {patience_ms} ms"
            )
        put_offsets(
            self.cluster, by.group, given.offsets, by.generation, by.member_id, by.instance_id,
            left_ms,
        ).check()  # fmt: skip
