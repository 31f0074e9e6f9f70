"""The commits of a consumer: at once, in the background, or automatic, and who hears of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from kafkalog import errors
from kafkalog.client.callbacks import logged
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata
from kafkalog.client.consumer.commits import Callback, Committing, Offsets
from kafkalog.client.consumer.committer import Committer
from kafkalog.client.consumer.core import ConsumerState
from kafkalog.client.consumer.group_membership import GroupMembership
from kafkalog.client.consumer.member import REJOIN
from kafkalog.client.consumer.membership import Membership
from kafkalog.client.consumer.metadata import ConsumerMetadata
from kafkalog.client.link.cluster import Cluster
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["OffsetCommits"]

_logger = logging.getLogger(__name__)


class OffsetCommits:
    """Commits what the state allows.  For the owner's thread only; `committer` has its own."""

    def __init__(
        self,
        cluster: Cluster,
        state: ConsumerState,
        metadata: ConsumerMetadata,
        committer: Committer,
        membership: Membership | GroupMembership | None,
        reached: Callable[[TopicPartition], CommittedOffset | None],
        interceptors: Sequence[object],
    ) -> None:
        """`reached`: as in ConsumerState.positions."""
        self._cluster = cluster
        self._state = state
        self._metadata = metadata
        self._committer = committer
        self._membership = membership
        self._reached = reached
        self._interceptors = interceptors

    def _now_s(self) -> float:
        return self._cluster.clock.monotonic_s()

    def positions(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that a commit without offsets commits."""
        return self._state.positions(self._reached)

    def commit(self, offsets: Offsets) -> None:
        """Commit, and wait.  Raises: as ConsumerState.committer; Timeout: one in the background is
        not answered yet, and might be stored after this one; what the coordinator answers.
        """
        member = self._state.committer()
        until_s = self._cluster.patient_until_s()
        left_ms = round((until_s - self._now_s()) * 1000)
        drained = self._committer.drain(until_s)
        self.report()
        if not drained:
            raise errors.Timeout(
                f"group {member.group!r}: an earlier commit was not answered in {left_ms} ms"
            )
        left_ms = max(1, round((until_s - self._now_s()) * 1000))
        ids = self._metadata.topic_ids(offsets)
        try:
            with self._committer.commit_ms.timed():
                self._committer.put(self._cluster, offsets, member, left_ms, ids)
        except errors.KafkalogError as problem:
            self._failed(member, problem)
            raise
        self._succeeded(offsets)

    def commit_later(self, offsets: Offsets, callback: Callback | None) -> None:
        """Commit in the background; `callback` is called within a later poll, commit or close."""
        # If this thread has reached the cluster, the other one may wait for it.
        self._committer.cluster.reached |= self._cluster.reached
        member, until_s = self._state.committer(), self._cluster.patient_until_s()
        ids = self._metadata.topic_ids(offsets)
        self._committer.commit(Committing(offsets, member, callback, until_s, ids=ids))

    def commit_positions(self, wait: bool) -> None:
        """The automatic commit.  A failure is logged: the next reader reads the records again.

        Raises: FencedInstanceId.
        """
        if not (fresh := self._state.fresh(self._reached, self._now_s())):
            return
        try:
            self.commit(fresh) if wait else self.commit_later(fresh, None)
        except errors.KafkalogError as problem:
            if problem.code == ErrorCode.FENCED_INSTANCE_ID:
                raise
            _log_failure(problem)

    def drain(self, until_s: float) -> bool:
        """As a member, wait until no commit is in flight, at most until `until_s` (time.monotonic),
        and while the session lasts; False: one still is.  Raises: WakeUp."""
        assert self._membership is not None
        heartbeats = self._membership.heartbeats
        with heartbeats.waited_for():
            return self._committer.drain_within(
                self._cluster.patience.wait, until_s, lambda: heartbeats.session_end_s
            )

    def report(self) -> None:
        """Report the background commits that have ended, in order, even if a callback raises.

        Raises: the first exception of a callback, once all were called; the others are logged.
        """
        raised: BaseException | None = None
        while (done := self._committer.finished()) is not None:
            if done.problem is None:
                self._succeeded(done.offsets)
            else:
                self._failed(done.member, done.problem)
            try:
                if done.callback is not None:
                    done.callback(done.offsets, done.problem)
                elif done.problem is not None:
                    _log_failure(done.problem)
            except BaseException as found:
                if raised is None:
                    raised = found
                else:
                    _logger.error("a commit's callback failed", exc_info=found)
        if raised is not None:
            raise raised

    def end(self) -> None:
        """Fail the commits that are not answered yet, and report them.  Raises: as `report`."""
        self._committer.give_up(
            errors.Timeout("the consumer was closed before its commit was answered")
        )
        self.report()

    def _succeeded(self, offsets: Offsets) -> None:
        self._state.committed(offsets)
        for interceptor in self._interceptors:
            on_commit: Any = getattr(interceptor, "on_commit", None)
            if on_commit is not None:
                with logged("on_commit"):
                    on_commit(dict(offsets))

    def _failed(self, member: GroupMetadata, problem: errors.KafkalogError) -> None:
        if self._membership is not None:
            self._membership.mind_fencing(member, problem)


def _log_failure(problem: errors.KafkalogError) -> None:
    level = logging.INFO if problem.code in REJOIN else logging.WARNING
    _logger.log(level, "an automatic commit failed: %s", problem)
