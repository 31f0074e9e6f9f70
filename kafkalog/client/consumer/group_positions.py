"""Which partitions a consumer reads, from where on, and what is committed of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata, put_offsets
from kafkalog.client.consumer.committer import (
    CHORE_S,
    Callback,
    Committer,
    Committing,
    Offsets,
    excuse,
    tell_interceptors,
)
from kafkalog.client.consumer.heartbeat import Keeper
from kafkalog.client.consumer.membership import IN, Membership
from kafkalog.client.consumer.requests import Errands
from kafkalog.client.consumer.start import find_begins
from kafkalog.client.consumer.subscription import Subscription, few
from kafkalog.client.fetch.fetcher import known_in
from kafkalog.client.fetch.reading import Reading
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import failure_class
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Sharing"]

_logger = logging.getLogger(__name__)
ASK_AGAIN_S = 1.0
"""How often topics and partitions are looked for that the cluster does not have."""


class Sharing:
    """The partitions of one consumer.  One thread, besides its Keeper's and its Committer's."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        reading: Reading,
        keeper: Keeper,
        committer: Committer,
        membership: Membership | None,
        interceptors: Sequence[object] = (),
    ) -> None:
        """`membership`: None without a group."""
        self.cluster = cluster
        self.config = config
        self.reading = reading
        self.keeper = keeper
        self.committer = committer
        self.membership = membership
        self.subscription = Subscription()
        self.manual = False
        """Whether partitions were assigned by hand."""
        self.paused: set[TopicPartition] = set()
        self.committing = membership is not None and config.enable_auto_commit
        """Whether positions are committed by themselves."""
        self.stored: dict[TopicPartition, CommittedOffset] | None = (
            None if config.enable_auto_offset_store else {}
        )
        """Offsets to commit instead of positions."""
        self.stable_only = config.isolation_level == "read_committed"
        self._interceptors = interceptors
        self._assigned: dict[TopicPartition, int | None] = {}
        """What is read, and what was committed of it last."""
        self._fresh = False
        self._missing: set[TopicPartition] = set()
        """Of what is read: what the cluster does not have now.  The rest goes on."""
        self._absent: set[str] = set()
        """Topics of the subscription of which that was told."""
        self._ask_again_s = 0.0
        self._trouble: errors.KafkalogError | None = None
        """What is to be told when all else is done."""
        self._next_commit_s = 0.0
        self._next_look_s = 0.0
        self._changed = False
        """Whether what the group shares is other than when it was shared out."""
        self._unshared = False
        """Whether the member's share is still to be taken."""
        self.parting = False
        """Whether partitions are to be given up once the last commit of them is answered: nothing
        is handed out until then."""
        self._settling = False
        """Whether commits have to be answered before it joins again."""
        self.errands = Errands(cluster)

    @property
    def assignment(self) -> list[TopicPartition]:
        """What is read, sorted."""
        return sorted(self._assigned)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._assigned

    @property
    def joining(self) -> bool:
        """Whether it waits for the group."""
        return bool(self.subscription) and (
            self.membership is not None and self.membership.state != IN
        )

    @property
    def searching(self) -> bool:
        """Whether it is not known yet what a pattern finds: it does not join for nothing."""
        topics = self.subscription
        return topics.pattern and not topics.topics and not self._next_look_s

    @property
    def holds(self) -> bool:
        """Whether what it reads is nobody else's, as far as it can know."""
        member = self.membership if self.subscription else None
        return member is None or not self._assigned or member.ended() is None

    # ---- keeping up --------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Want other topics; the next `keep_up` begins."""
        self.subscription = subscription
        self.manual = False
        self._next_look_s = 0.0
        if self.membership is not None:
            self.membership.rejoin()

    def keep_up(self, until_s: float) -> None:
        """What is due before records are handed out, as far as it is answered by `until_s`
        (time.monotonic); with something to read nothing is waited for."""
        self.errands.behind = False
        self.tell_commits()
        if self.subscription:
            if self.membership is not None:
                self._stay(self.membership, until_s)
            else:
                self._read_all(until_s)
        self._mind_missing(until_s)
        if self._fresh:
            self._ask("positions", until_s, self.find_positions)
        if self.committing and self.cluster.clock.monotonic_s() >= self._next_commit_s:
            self._commit_by_itself(wait=False)
        if self._trouble is not None:
            problem, self._trouble = self._trouble, None
            raise problem

    def _ask(self, name: str, until_s: float, ask: Callable[[], None]) -> bool:
        """As Errands.run; with something to read it is not waited for."""
        if self.reading.fetcher.positions:
            until_s = time.monotonic()
        return self.errands.run(name, until_s, ask)

    def until_chore_s(self) -> float:
        """In how many seconds something is due."""
        waits = self.errands.waits
        due_s = [self._next_look_s] if self.subscription and not waits("topics") else []
        if self.committing:
            due_s.append(self._next_commit_s)
        if self._missing and not waits("missing"):
            due_s.append(self._ask_again_s)
        due_s.append(self.keeper.session_end_s)
        now_s = self.cluster.clock.monotonic_s()
        left_s = [max(at_s - now_s, 0.001) for at_s in due_s]
        return min([*left_s, *self.errands.pauses_s(), CHORE_S])

    def _looked(self, until_s: float, ask: Callable[[], None]) -> bool:
        """Look at the metadata, if it is time for that; whether it was done."""
        if self.cluster.clock.monotonic_s() < self._next_look_s:
            return False
        before_s, now_s = self._next_look_s, self.cluster.clock.monotonic_s()
        self._next_look_s = now_s + self.config.metadata_max_age_ms / 1000
        done = False
        try:
            done = self._ask("topics", until_s, ask)
        finally:
            if not done:
                self._next_look_s = before_s
        return done

    def _read_all(self, until_s: float) -> None:
        """Without a group: every partition of the topics, also of those that are new."""
        wanted: list[TopicPartition] = []

        def ask() -> None:
            wanted[:] = self._all()

        if self._looked(until_s, ask) and set(wanted) != set(self._assigned):
            new = [tp for tp in wanted if tp not in self._assigned]
            self.replace(wanted)
            self.subscription.assigned(new)

    def _all(self) -> list[TopicPartition]:
        """Every partition of the topics."""
        subscription, create = self.subscription, self.config.allow_auto_create_topics
        if not subscription.look(self.cluster, self.config.exclude_internal_topics):
            self.cluster.refresh(subscription.topics, create and not subscription.pattern)
        wanted: list[TopicPartition] = []
        absent: set[str] = set()
        for name in sorted(subscription.topics):
            try:
                if name not in self._absent:  # it may have been made a moment ago
                    self.cluster.topic(name)
                wanted += (TopicPartition(name, p) for p in self.cluster.topics[name].partitions)
            except errors.UnknownTopicOrPartition as problem:
                self._trouble = problem
                absent.add(name)
            except KeyError:
                absent.add(name)
        self._absent = absent
        if absent:
            self._next_look_s = self.cluster.clock.monotonic_s() + ASK_AGAIN_S
        return wanted

    def _stay(self, member: Membership, until_s: float) -> None:
        """Be a member, with a share."""
        if (problem := member.look()) is not None:
            _logger.info("%s", problem)
        if member.fenced is not None:
            self._give_back(member, until_s)
            raise member.fenced
        if self._unshared and member.state == IN:
            self._take_share(member, until_s)
        self._looked(until_s, lambda: self._look_for_others(member))
        if self._changed and member.state == IN and not self._unshared:
            self._changed = False
            member.rejoin()
        if self.searching and not self._assigned:
            return
        while member.state != IN:
            if not self._give_back(member, until_s):
                return
            owned = self.assignment
            # With something to read it does not wait for the others.
            until = min(until_s, time.monotonic()) if owned else until_s
            if member.step(self.subscription.topics, owned, until):
                self._take_share(member, until_s)
            elif not owned or member.metadata.generation >= 0:
                return

    def _look_for_others(self, member: Membership) -> None:
        """Note whether there are other topics, or partitions, than when they were shared out."""
        subscription, absent = self.subscription, set[str]()
        if subscription.look(self.cluster, self.config.exclude_internal_topics):
            self._changed = True
        if self.config.allow_auto_create_topics and not subscription.pattern:
            self.cluster.refresh(subscription.topics, create=True)
            absent = subscription.topics - self.cluster.topics.keys()
        if member.state == IN and member.counts is not None:
            counts = member.partition_counts(member.topics)
            absent |= member.topics - counts.keys()
            self._changed |= counts != member.counts
        self._mind_absent(absent)

    def _mind_absent(self, topics: set[str]) -> None:
        """The cluster does not have these: told once, in the log, and looked for again soon."""
        if new := sorted(topics - self._absent):
            _logger.warning("the cluster has no topic %s: it is looked for", few(new))
        self._absent = topics
        if topics:
            soon_s = self.cluster.clock.monotonic_s() + ASK_AGAIN_S
            self._next_look_s = min(self._next_look_s, soon_s)

    def _give_back(self, member: Membership, until_s: float) -> bool:
        """Before it joins: partitions are committed and given up, unless it keeps them; False: its
        commits are not answered yet."""
        self._changed = self._unshared = False
        if self._assigned and member.metadata.generation < 0:
            gone, self.parting = self.assignment, False
            self.replace([])
            self.subscription.lost(gone)
        if member.metadata.generation < 0:
            self._settling = False
            return True
        wanted = self.subscription.topics if member.cooperative else ()
        if gone := [tp for tp in self.assignment if tp.topic not in wanted]:
            if not self._committed_before(until_s):
                return False
            self._revoke(gone)
        else:
            self.parting = False  # what a share before wanted back the next one may leave here
        return self._settle_commits(until_s)

    def _committed_before(self, until_s: float) -> bool:
        """Commit what is to be given up; whether that is answered, or of no use any more."""
        if not self.parting:
            self.parting = True
            if self.committing:
                self._commit_by_itself(wait=False)
        if not self._drained(until_s) and self.holds:
            return False
        self.parting = False
        return True

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        """Tell, and read these no more."""
        try:
            try:
                self.tell_commits()
            finally:  # lost, where the commit took longer than the session
                told = self.subscription.revoked if self.holds else self.subscription.lost
                told(partitions)
        finally:
            self.replace([tp for tp in self._assigned if tp not in set(partitions)])
            self._settling = True

    def _take_share(self, member: Membership, until_s: float) -> None:
        """A new generation; what it is to give up it gives up once that is committed."""
        share = set(member.share)
        gone = [tp for tp in self.assignment if tp not in share]
        new = [tp for tp in member.share if tp not in self._assigned]
        problem: BaseException | None = None
        self._unshared = bool(gone)  # also after a WakeUp
        if gone and not self._committed_before(until_s):
            return
        self._unshared = False
        if gone:  # what the leader wants to give to others: they get it next time
            try:
                self._revoke(gone)
            except BaseException as found:  # raised once the share is taken: nobody else reads it
                problem = found
            member.rejoin()
        self.replace(member.share)
        if member.counts is not None:  # it leads: it looks for what any member wants
            self._mind_absent(member.topics - member.counts.keys())
        self._next_commit_s = (
            self.cluster.clock.monotonic_s() + self.config.auto_commit_interval_ms / 1000
        )
        try:
            self.subscription.assigned(new)
        finally:
            if problem is not None:
                raise problem

    def give_up(self, reason: str, commit: bool = True) -> None:
        """Read nothing, and leave the group, in the time of the call."""
        member = self.membership
        if not commit:
            self.committing = False
        problem: Exception | None = None
        try:
            if not self.subscription or member is None:
                if self.committing:
                    self._commit_by_itself(wait=True)
            elif gone := self.assignment:
                self._part_with(member, gone)
            self._settling = True
            self._settle_commits(self.cluster.patience.until_s)
        except Exception as found:  # of the user's, most likely: the others need not wait for it
            problem = found
        self.replace([])
        self.parting = self._settling = self._unshared = False
        if self.subscription and member is not None:
            member.leave(reason)
        if problem is not None:
            raise problem

    def end(self, commit: bool) -> None:
        """Give up all; a commit without an answer by then is told of, too."""
        try:
            self.give_up("closed", commit)
        finally:
            self.committer.give_up(
                errors.Timeout("the consumer was closed before its commit was answered")
            )
            self.tell_commits()

    def _part_with(self, member: Membership, gone: list[TopicPartition]) -> None:
        if (ended := member.ended()) is not None:
            member.lose(ended)
        if member.metadata.generation >= 0:
            try:
                if self.committing:
                    self._commit_by_itself(wait=True)
            finally:
                self._revoke(gone)
        else:
            self.subscription.lost(gone)

    # ---- partitions --------------------------------------------------------------------

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these; those that it has read go on."""
        wanted = dict.fromkeys(partitions)
        for tp in [tp for tp in self._assigned if tp not in wanted]:
            self.reading.forget(tp)
            self.paused.discard(tp)
            if self.stored is not None:
                self.stored.pop(tp, None)
        self._assigned = {tp: self._assigned.get(tp) for tp in wanted}
        self._missing &= self._assigned.keys()
        self.cluster.patience.forget("positions")  # others may have committed since
        self._fresh = True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, by hand; positions are committed before, if that is automatic."""
        if self.committing:  # no rebalance does it
            self._commit_by_itself(wait=False)
        self.manual = True
        self.replace(partitions)

    def _mind_missing(self, until_s: float) -> None:
        """Note what the fetcher has set aside, and go on with what the cluster has again."""
        self._miss(self.reading.fetcher.missing - self._missing)
        now_s = self.cluster.clock.monotonic_s()
        if not self._missing or now_s < self._ask_again_s:
            return
        names = sorted({tp.topic for tp in self._missing})
        if not self._ask("missing", until_s, lambda: self.cluster.refresh_once(names)):
            return
        self._ask_again_s = now_s + ASK_AGAIN_S
        for tp in sorted(self._missing):
            if known_in(self.cluster.topics, tp):
                self._missing.discard(tp)
                self._fresh = True
                if tp not in self.paused:
                    self.reading.go_on(tp)
        if self._missing and self.subscription:
            self._next_look_s = 0.0  # perhaps they are not wanted any more

    def _miss(self, partitions: Iterable[TopicPartition]) -> None:
        """The cluster does not have these: told once, in the log or (assigned by hand) raised."""
        gone = sorted(partitions)
        if not gone:
            return
        self._missing.update(gone)
        self._ask_again_s = self.cluster.clock.monotonic_s() + ASK_AGAIN_S
        names = few([f"{tp.topic}-{tp.partition}" for tp in gone])
        problem = errors.UnknownTopicOrPartition(f"the cluster has no {names}")
        if self.subscription:
            self._next_look_s = 0.0
            _logger.warning("%s: it is read no more; what else is assigned is", problem)
        else:
            self._trouble = problem

    def find_positions(self) -> None:
        """Begin where the group has left off, or as auto.offset.reset says.

        Raises: OffsetOutOfRange: neither tells.
        """
        new = self._there([tp for tp in self._assigned if self.reading.position(tp) is None])
        self._fresh = bool(new)
        if new:
            self._fresh = self.begin_at(new) < len(new)

    def begin_at(self, partitions: Sequence[TopicPartition]) -> int:
        """Go on where the group has left off, or as auto.offset.reset says; of how many of them
        that is known.

        Raises: OffsetOutOfRange: neither tells.
        """
        group = None if self.membership is None else self.membership.metadata.group
        found = find_begins(
            self.cluster, group, partitions, self.config.auto_offset_reset, self.stable_only
        )
        for tp, one in found.items():
            if isinstance(one, CommittedOffset):
                self._assigned[tp] = one.offset
            self.seek(tp, one.offset, one.leader_epoch)
        return len(found)

    def _there(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Those of them that the cluster has."""
        asked = [tp for tp in partitions if tp not in self._missing]
        for name in sorted({tp.topic for tp in asked if not known_in(self.cluster.topics, tp)}):
            self.cluster.forget(name)  # it may have grown
            with suppress(errors.UnknownTopicOrPartition):
                self.cluster.topic(name)
        there = [tp for tp in asked if known_in(self.cluster.topics, tp)]
        self._miss(set(asked) - set(there))
        return there

    def seek(self, tp: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Go on from an offset; `epoch`: as Fetcher.seek."""
        self.reading.seek(tp, offset, tp not in self.paused, epoch)

    # ---- commits -----------------------------------------------------------------------

    def positions(self, all_of_them: bool = True) -> dict[TopicPartition, CommittedOffset]:
        """Up to where records were handed out, as far as the cluster has the partitions;
        `all_of_them` False: what is not committed."""
        found = {}
        reached = self.reading.reached if self.stored is None else self.stored.get
        for tp, committed in self._assigned.items():
            at = None if tp in self._missing else reached(tp)
            if at is not None and (all_of_them or at.offset != committed):
                found[tp] = at
        return found

    def identity(self) -> GroupMetadata:
        """Which member it is, or was last.  Raises: ArgumentError without a group."""
        if self.membership is None:
            raise errors.ArgumentError("group: none was given, wanted one for its offsets")
        latest = self.membership.latest
        return GroupMetadata(latest.group) if self.manual else latest

    def member(self) -> GroupMetadata:
        """The member that commits. Raises: ArgumentError without a group; UnknownMemberId: it was
        one; FencedInstanceId."""
        if self.membership is None or not self.subscription:
            return GroupMetadata(self.identity().group)
        if self.membership.fenced is not None:
            raise self.membership.fenced
        found = self.membership.metadata
        if found.generation < 0:
            raise failure_class(ErrorCode.UNKNOWN_MEMBER_ID)(
                f"group {found.group!r}: this consumer is no member of it now: poll joins again"
            )
        return found

    def commit(self, offsets: Offsets) -> None:
        """Commit, and wait.  Raises: as `member`; Timeout: one in the background is not answered
        yet, and would land behind this one; what the coordinator answers.
        """
        member = self.member()
        until_s = self.cluster.patient_until_s()
        left_ms = round((until_s - self.cluster.clock.monotonic_s()) * 1000)
        drained = self.committer.drain(until_s)
        self.tell_commits()
        if not drained:
            raise errors.Timeout(
                f"group {member.group!r}: an earlier commit was not answered in {left_ms} ms"
            )
        left_ms = max(1, round((until_s - self.cluster.clock.monotonic_s()) * 1000))
        try:
            with self.committer.commit_ms.timed():
                put_offsets(
                    self.cluster, member.group, offsets, member.generation, member.member_id,
                    member.instance_id, left_ms,
                ).check()  # fmt: skip
        except errors.KafkalogError as problem:
            self._fenced(member, problem)
            raise
        self._note(offsets)

    def _fenced(self, committer: GroupMetadata, problem: errors.KafkalogError) -> None:
        if self.membership is not None:
            self.membership.mind_fencing(committer, problem)

    def commit_later(self, offsets: Offsets, callback: Callback | None) -> None:
        """Commit in the background; `callback` is called within a later poll, commit or close."""
        # What this thread has reached the other one may wait for.
        self.committer.cluster.reached |= self.cluster.reached
        self.committer.commit(
            Committing(offsets, self.member(), callback, self.cluster.patient_until_s())
        )

    def _drained(self, until_s: float) -> bool:
        """Wait until no commit is under way: whether that is so.  Raises: WakeUp."""
        with self.keeper.waited_for():
            wait = self.cluster.patience.wait
            return self.committer.drain_within(wait, until_s, lambda: self.keeper.session_end_s)

    def _settle_commits(self, until_s: float) -> bool:
        """Wait for what is committed in the background, before the generation in which it may be
        committed ends; whether it is answered."""
        member = self.membership
        if self._settling and member is not None and not self._drained(until_s):
            return member.ended() is not None
        self._settling = False
        self.tell_commits()
        return True

    def tell_commits(self) -> None:
        """Tell of the commits that have ended, in their order, whatever a callback does.

        Raises: what the first callback raised that did, once all were called.
        """
        raised: BaseException | None = None
        while (done := self.committer.finished()) is not None:
            if done.problem is None:
                self._note(done.offsets)
            else:
                self._fenced(done.member, done.problem)
            raised = done.tell(raised)
        if raised is not None:
            raise raised

    def _note(self, offsets: Offsets) -> None:
        for tp, one in offsets.items():
            if tp in self._assigned:
                self._assigned[tp] = one.offset
        tell_interceptors(self._interceptors, offsets)

    def _commit_by_itself(self, wait: bool) -> None:
        """What fails is read again by somebody.  Raises: FencedInstanceId."""
        now_s = self.cluster.clock.monotonic_s()
        self._next_commit_s = now_s + self.config.auto_commit_interval_ms / 1000
        if not (fresh := self.positions(all_of_them=False)):
            return
        try:
            self.commit(fresh) if wait else self.commit_later(fresh, None)
        except errors.KafkalogError as problem:
            if problem.code == ErrorCode.FENCED_INSTANCE_ID:
                raise
            excuse(problem)
