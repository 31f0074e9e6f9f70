"""Commits in the background: in the order of the calls, each with its own time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from kafkalog import errors
from kafkalog.client.calls.groups import GroupMetadata, Ids, put_offsets
from kafkalog.client.consumer.commits import Commits, Committing, Offsets
from kafkalog.client.link.background import Background
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.patience import Wait
from kafkalog.client.metrics import Tally
from kafkalog.client.telemetry.reporter import Reporter
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["CHORE_S", "Committer"]


CHORE_S = 5.0
"""The longest wait: a clock other than the machine's is checked this often."""


class Committer(Background):
    """The thread that commits, separate from heartbeats: a commit is retried for up to
    default.api.timeout.ms, which is longer than a session."""

    def __init__(
        self,
        cluster: Cluster,
        nudge: Callable[[], None],
        current: Callable[[GroupMetadata], GroupMetadata | None] = lambda member: None,
    ) -> None:
        """`current`: a member whose epoch may have risen as it is now; None: it has lost its
        partitions since, or epochs do not rise."""
        super().__init__(cluster, "kafkalog-commits", nudge)
        self._current = current
        self._commits = Commits()
        self.commit_ms = Tally()
        """The latency of each successful commit, including the owner's own."""
        self._reporter: Reporter | None = None

    # ---- for the owner -----------------------------------------------------------------

    def commit(self, committing: Committing) -> None:
        """As Commits.add; `finished` returns the outcome."""
        with self._condition:
            self._commits.add(committing)
            self._wake()

    def finished(self) -> Committing | None:
        """As Commits.finished."""
        with self._condition:
            return self._commits.finished()

    def drain(self, until_s: float) -> bool:
        """Wait until no commit is in flight, by the clock; False: one still is."""
        with self._condition:
            while not self._commits.quiet:
                if self.clock.monotonic_s() >= until_s:
                    return False
                self.clock.wait_until(self._condition, until_s)
        return True

    def drain_within(
        self, wait: Wait | None, until_s: float, session_end_s: Callable[[], float]
    ) -> bool:
        """As `drain`, by time.monotonic, and while the session lasts; `wait`: a wait that also
        ends for the thread's other events.  Raises: WakeUp."""
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
        """End every unfinished commit with this failure, and start no more."""
        with self._condition:
            self._stopping = True
            self._failed(problem)

    def report(self, reporter: Reporter) -> None:
        """Send the consumer's metrics from now on, between commits."""
        with self._condition:
            self._reporter = reporter
            self._wake()

    # ---- the thread --------------------------------------------------------------------

    def _failed(self, problem: errors.KafkalogError) -> None:
        self._commits.give_up(problem)
        self._condition.notify_all()

    def _due(self) -> Callable[[], None] | float | None:
        given = self._commits.next()
        if given is not None:
            return partial(self._commit, given)
        if self._reporter is None or self._reporter.due_s > self.clock.monotonic_s():
            return None if self._reporter is None else self._reporter.due_s
        return partial(self._reporter.run, self.cluster)

    def _commit(self, given: Committing) -> None:
        problem: errors.KafkalogError | None = None
        try:
            with self.commit_ms.timed():
                self._put(given)
        except errors.KafkalogError as found:
            problem = found
        with self._condition:
            self._commits.ended(given, problem)
            self._condition.notify_all()
        self._nudge()

    def _put(self, given: Committing) -> None:
        """Raises: Timeout: earlier commits took all of its time; as `put_offsets`."""
        patience_ms = self.cluster.options.api_timeout_ms
        by, left_ms = given.member, given.left_ms(self.clock.monotonic_s(), patience_ms)
        self.put(self.cluster, given.offsets, by, left_ms, given.ids)

    def put(
        self, cluster: Cluster, offsets: Offsets, by: GroupMetadata, left_ms: int, ids: Ids
    ) -> None:
        """Commit with the member's epoch, and again if that has risen.  From any thread.

        Raises: as `put_offsets`.
        """
        backoff = cluster.backoff(left_ms)
        while True:
            try:
                put_offsets(
                    cluster, by.group, offsets, by.generation, by.member_id, by.instance_id,
                    max(1, backoff.left_ms()), ids,
                ).check()  # fmt: skip
                return
            except errors.KafkalogError as problem:
                found = self._current(by)
                if problem.code != ErrorCode.STALE_MEMBER_EPOCH or found is None or backoff.over():
                    raise
                backoff.wait()
                by = self._current(by) or found
