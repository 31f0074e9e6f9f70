"""Carries out what a consumer's state decides: keeps its group, its partitions and its commits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from kafkalog.client.consumer import core
from kafkalog.client.consumer.committer import CHORE_S
from kafkalog.client.consumer.core import ConsumerState, Effect, Process
from kafkalog.client.consumer.fetch_positions import FetchPositions
from kafkalog.client.consumer.group_membership import GroupMembership
from kafkalog.client.consumer.membership import Membership
from kafkalog.client.consumer.metadata import ConsumerMetadata
from kafkalog.client.consumer.offset_commits import OffsetCommits
from kafkalog.client.consumer.subscription import Subscription
from kafkalog.client.link.cluster import Cluster
from kafkalog.types import TopicPartition

__all__ = ["ConsumerCoordinator"]

_logger = logging.getLogger(__name__)


class ConsumerCoordinator:
    """The work of one consumer between its fetches, with or without a group.  For the owner's
    thread only; `until_s` is in time.monotonic."""

    def __init__(
        self,
        cluster: Cluster,
        state: ConsumerState,
        metadata: ConsumerMetadata,
        positions: FetchPositions,
        commits: OffsetCommits,
        membership: Membership | GroupMembership | None,
    ) -> None:
        """`membership`: None without a group."""
        self._cluster = cluster
        self._state = state
        self._metadata = metadata
        self._positions = positions
        self._commits = commits
        self._membership = membership

    def _now_s(self) -> float:
        return self._cluster.clock.monotonic_s()

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe to other topics; the next `poll` begins with them."""
        state = self._state
        state.subscribe(subscription)
        if self._membership is not None:
            self._membership.do()
        else:  # at once: the next poll may get records before it knows the new topics
            self._positions.assign([tp for tp in state.assigned if subscription.wants(tp.topic)])

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, by hand; with automatic commits, earlier positions are committed."""
        if self._state.committing:  # no rebalance commits them
            self._commits.commit_positions(wait=False)
        self._state.manual = True
        self._positions.assign(partitions)

    def poll(self, until_s: float) -> None:
        """Do what is due before records are handed out, as far as it is answered by `until_s`; with
        something to read it does not wait."""
        state, metadata, positions = self._state, self._metadata, self._positions
        metadata.lookups.behind = False
        self._commits.report()
        if state.subscription:
            if self._membership is not None:
                self._run(state.stay(), until_s)
            else:
                self._assign_all(until_s)
        positions.read_again(metadata.find_missing(until_s))
        if positions.incomplete:
            metadata.look_up("positions", until_s, positions.find_all)
        if state.commit_due(self._now_s()):
            self._commits.commit_positions(wait=False)
        metadata.check()

    def until_chore_s(self) -> float:
        """Seconds until something is due."""
        due_s = self._metadata.due_s()
        if self._membership is not None:
            due_s.append(self._membership.heartbeats.session_end_s)
        if self._state.committing:
            due_s.append(self._state.next_commit_s)
        now_s = self._now_s()
        left_s = [max(at_s - now_s, 0.001) for at_s in due_s]
        return min([*left_s, *self._metadata.lookups.pauses_s(), CHORE_S])

    def _assign_all(self, until_s: float) -> None:
        """Without a group: read every partition of the topics, with new ones."""
        found, state = self._metadata.partitions(until_s), self._state
        if found is not None and set(found) != set(state.assigned):
            new = [tp for tp in found if tp not in state.assigned]
            self._positions.assign(found)
            state.subscription.tell("assigned", new)

    def leave(self, reason: str, commit: bool = True) -> None:
        """Read nothing, and leave the group, within the time of the call; `commit` False: without
        the automatic commit.  Raises: what a listener or callback raises; FencedInstanceId."""
        state = self._state
        if not commit:
            state.committing = False
        problem: Exception | None = None
        try:
            self._run(state.revoke_all(), self._cluster.patience.until_s)
        except Exception as found:  # most likely from user code: the other members need not wait
            problem = found
        self._positions.assign([])
        state.left()
        if state.subscription and self._membership is not None:
            self._membership.leave(reason)
        if problem is not None:
            raise problem

    def close(self, commit: bool) -> None:
        """As `leave`; a commit without an answer by then is reported, too."""
        try:
            self.leave("closed", commit)
        finally:
            self._commits.end()

    # ---- the effects of a process --------------------------------------------------------------

    def _run(self, process: Process[None], until_s: float) -> None:
        """Carry out the effects of a process.  Raises: what the process raises."""
        answer: Any = None
        while True:
            self._state.now_s = self._now_s()
            try:
                effect = process.send(answer)
            except StopIteration:
                return
            finally:
                if self._membership is not None:
                    self._membership.do()
            answer = self._done(effect, until_s)

    def _done(self, effect: Effect, until_s: float) -> Any:
        """Carry out an effect; returns its outcome."""
        state, metadata, membership = self._state, self._metadata, self._membership
        match effect:
            case core.Commit(wait):
                return _raised(lambda: self._commits.commit_positions(wait))
            case core.Drain():
                return self._commits.drain(until_s)
            case core.ReportCommits():
                return _raised(self._commits.report)
            case core.CallListener(what, partitions):
                return _raised(lambda: state.subscription.tell(what, partitions))
            case core.Replace(partitions):
                self._positions.assign(partitions)
            case core.Join(owned):
                assert membership is not None
                # With something to read it does not wait for the other members.
                until = min(until_s, time.monotonic()) if owned else until_s
                return membership.step(state.subscription.topics, owned, until)
            case core.Look():
                assert membership is not None
                metadata.note_changes(membership, until_s)
                return metadata.searching
            case core.Names(ids):
                return metadata.topic_names(ids, until_s)
            case core.Absent(topics):
                metadata.miss_topics(topics)
            case core.Say(text):
                _logger.info("%s", text)
        return None


def _raised(call: Callable[[], None]) -> BaseException | None:
    """The error that a call raises; None: nothing."""
    try:
        call()
    except BaseException as problem:
        return problem
    return None
