"""Which partitions a consumer reads, from which offsets, and what is committed for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata, Ids, put_offsets
from kafkalog.client.consumer.commits import Callback, Committing, Offsets
from kafkalog.client.consumer.committer import (
    CHORE_S,
    Committer,
    excuse,
    tell_interceptors,
    tell_of,
)
from kafkalog.client.consumer.core import (
    Absent,
    Commit,
    Core,
    Drain,
    Effect,
    Join,
    Look,
    Process,
    Replace,
    Say,
    Tell,
    TellCommits,
)  # fmt: skip
from kafkalog.client.consumer.heartbeat import Keeper
from kafkalog.client.consumer.member import IN
from kafkalog.client.consumer.membership import Membership
from kafkalog.client.consumer.requests import Errands
from kafkalog.client.consumer.start import find_begins
from kafkalog.client.consumer.subscription import Subscription
from kafkalog.client.fetch.reading import Reading
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import few, passing
from kafkalog.client.link.metadata import known_in
from kafkalog.client.link.patience import NotYet
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Sharing"]

_logger = logging.getLogger(__name__)


class Sharing:
    """The partitions of one consumer: carries out what its core decides.  One thread, in addition
    to its Keeper's and its Committer's."""

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
        self.core = Core(
            None if membership is None else membership.member,
            config.enable_auto_commit,
            config.auto_commit_interval_ms / 1000,
            config.metadata_max_age_ms / 1000,
        )
        self.paused: set[TopicPartition] = set()
        self.stored: dict[TopicPartition, CommittedOffset] | None = (
            None if config.enable_auto_offset_store else {}
        )
        """Offsets to commit instead of positions."""
        self.stable_only = config.isolation_level == "read_committed"
        self._ids: dict[str, UUID] = {}
        """Ids of the topics that are read, from the last metadata."""
        self._interceptors = interceptors
        self._fresh = False
        self._trouble: errors.KafkalogError | None = None
        """Raised when everything else is done."""
        self.lookout = self.core.lookout
        self.errands = Errands(cluster)

    @property
    def subscription(self) -> Subscription:
        """The topics that it wants to read."""
        return self.core.subscription

    @property
    def manual(self) -> bool:
        """True if partitions were assigned by hand."""
        return self.core.manual

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions read now, sorted."""
        return sorted(self.core.assigned)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self.core.assigned

    @property
    def _missing(self) -> set[TopicPartition]:
        return self.lookout.missing

    @property
    def joining(self) -> bool:
        """As Core.joining."""
        return self.core.joining

    @property
    def parting(self) -> bool:
        """As Core.parting."""
        return self.core.parting

    @property
    def searching(self) -> bool:
        """True if the topics of a pattern are not known yet: there is nothing to join for."""
        topics = self.subscription
        return topics.pattern and not topics.topics and not self.lookout.next_look_s

    @property
    def holds(self) -> bool:
        """True if no other member has its partitions, as far as it can know."""
        return self.core.holds(self._now_s())

    def _now_s(self) -> float:
        return self.cluster.clock.monotonic_s()

    # ---- keeping up --------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe to other topics; the next `keep_up` begins with them."""
        self.core.subscribe(subscription)
        if self.membership is not None:
            self.membership.do()
        else:  # at once: the next poll may get records before it knows the new topics
            self.replace([tp for tp in self.core.assigned if subscription.wants(tp.topic)])

    def keep_up(self, until_s: float) -> None:
        """Do what is due before records are handed out, as far as it is answered by `until_s`
        (time.monotonic); with something to read it does not wait."""
        self.errands.behind = False
        self.tell_commits()
        if self.subscription:
            if self.membership is not None:
                self._run(self.core.stay(), until_s)
            else:
                self._read_all(until_s)
        self._mind_missing(until_s)
        if self._fresh:
            self._ask("positions", until_s, self.find_positions)
        if self.core.commit_due(self._now_s()):
            self._commit_by_itself(wait=False)
        if self._trouble is not None:
            problem, self._trouble = self._trouble, None
            raise problem

    def _run(self, process: Process[None], until_s: float) -> None:
        """Carry out the effects of a process by `until_s` (time.monotonic).  Raises: what the
        process raises."""
        answer: Any = None
        while True:
            self.core.now_s = self._now_s()
            try:
                effect = process.send(answer)
            except StopIteration:
                return
            finally:
                if self.membership is not None:
                    self.membership.do()
            answer = self._done(effect, until_s)

    def _done(self, effect: Effect, until_s: float) -> Any:
        """Carry out an effect; returns its outcome."""
        match effect:
            case Commit(wait):
                return _raised(lambda: self._commit_by_itself(wait))
            case Drain():
                return self._drained(until_s)
            case TellCommits():
                return _raised(self.tell_commits)
            case Tell(what, partitions):
                return _raised(lambda: self.subscription.tell(what, partitions))
            case Replace(partitions):
                self.replace(partitions)
            case Join(owned):
                # With something to read it does not wait for the other members.
                until = min(until_s, time.monotonic()) if owned else until_s
                member = self._in_group()
                return member.step(self.subscription.topics, owned, until)
            case Look():
                self._looked(until_s, self._look_for_others)
                return self.searching
            case Absent(topics):
                self._mind_absent(set(topics))
            case Say(text):
                _logger.info("%s", text)
        return None

    def _in_group(self) -> Membership:
        assert self.membership is not None
        return self.membership

    def _ask(self, name: str, until_s: float, ask: Callable[[], None]) -> bool:
        """As Errands.run; with something to read it does not wait."""
        if self.reading.fetcher.positions:
            until_s = time.monotonic()
        return self.errands.run(name, until_s, ask)

    def until_chore_s(self) -> float:
        """Seconds until something is due."""
        waits = self.errands.waits
        due_s = [self.lookout.next_look_s] if self.subscription and not waits("topics") else []
        if self.core.committing:
            due_s.append(self.core.next_commit_s)
        if self._missing and not waits("missing partitions"):
            due_s.append(self.lookout.ask_again_s)
        due_s.append(self.keeper.session_end_s)
        now_s = self._now_s()
        left_s = [max(at_s - now_s, 0.001) for at_s in due_s]
        return min([*left_s, *self.errands.pauses_s(), CHORE_S])

    def _looked(self, until_s: float, ask: Callable[[], None]) -> bool:
        """Look up the metadata, if that is due; returns whether it was done."""
        if not self.lookout.due(now_s := self._now_s()):
            return False
        before_s = self.lookout.looks(now_s)
        done = False
        try:
            done = self._ask("topics", until_s, ask)
        finally:
            if not done:
                self.lookout.next_look_s = before_s
        return done

    def _read_all(self, until_s: float) -> None:
        """Without a group: read every partition of the topics, with new ones."""
        wanted: list[TopicPartition] = []

        def ask() -> None:
            wanted[:] = self._all()

        if self._looked(until_s, ask) and set(wanted) != set(self.core.assigned):
            new = [tp for tp in wanted if tp not in self]
            self.replace(wanted)
            self.subscription.tell("assigned", new)

    def _all(self) -> list[TopicPartition]:
        """Every partition of the topics."""
        subscription, create = self.subscription, self.config.allow_auto_create_topics
        if not subscription.look(self.cluster, self.config.exclude_internal_topics):
            self.cluster.refresh(subscription.topics, create and not subscription.pattern)
        wanted: list[TopicPartition] = []
        absent: set[str] = set()
        for name in sorted(subscription.topics):
            try:
                if name not in self.lookout.absent:  # it may have just been created
                    self.cluster.topic(name)
                wanted += (TopicPartition(name, p) for p in self.cluster.topics[name].partitions)
            except errors.UnknownTopicOrPartition as problem:
                self._trouble = problem
                absent.add(name)
            except KeyError:
                absent.add(name)
        self.lookout.lack(absent, self._now_s())
        return wanted

    def _look_for_others(self) -> None:
        """Note whether topics or partitions have changed since the last assignment."""
        subscription, absent = self.subscription, set[str]()
        membership = self._in_group()
        member = membership.member
        if subscription.look(self.cluster, self.config.exclude_internal_topics):
            self.core.changed = True
        if self.config.allow_auto_create_topics and not subscription.pattern:
            self.cluster.refresh(subscription.topics, create=True)
            absent = subscription.topics - self.cluster.topics.keys()
        if member.state == IN and member.counts is not None:
            counts = membership.partition_counts(member.topics)
            absent |= member.topics - counts.keys()
            self.core.saw(counts)
        self._mind_absent(absent)

    def _mind_absent(self, topics: set[str]) -> None:
        """The cluster lacks these topics: log each once, and look for them again soon."""
        if new := self.lookout.lack(topics, self._now_s()):
            _logger.warning("the cluster has no topic %s: looking for it again", few(new))

    def give_up(self, reason: str, commit: bool = True) -> None:
        """Read nothing, and leave the group, within the time of the call."""
        if not commit:
            self.core.committing = False
        problem: Exception | None = None
        try:
            self._run(self.core.part(), self.cluster.patience.until_s)
        except Exception as found:  # most likely from user code: the other members need not wait
            problem = found
        self.replace([])
        self.core.parted()
        if self.subscription and self.membership is not None:
            self.membership.leave(reason)
        if problem is not None:
            raise problem

    def end(self, commit: bool) -> None:
        """Give up everything; a commit without an answer by then is reported, too."""
        try:
            self.give_up("closed", commit)
        finally:
            self.committer.give_up(
                errors.Timeout("the consumer was closed before its commit was answered")
            )
            self.tell_commits()

    # ---- partitions --------------------------------------------------------------------

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those already read continue."""
        for tp in self.core.replace(partitions):
            self.reading.forget(tp)
            self.paused.discard(tp)
            if self.stored is not None:
                self.stored.pop(tp, None)
        read = {tp.topic for tp in self.core.assigned}
        self._ids = {name: topic_id for name, topic_id in self._ids.items() if name in read}
        self.cluster.patience.forget("positions")  # others may have committed in the meantime
        self._fresh = True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, by hand; with automatic commits, earlier positions are committed."""
        if self.core.committing:  # no rebalance commits them
            self._commit_by_itself(wait=False)
        self.core.manual = True
        self.replace(partitions)

    def _mind_missing(self, until_s: float) -> None:
        """Note partitions that the fetcher has set aside, and continue with those found again."""
        self._miss(self.reading.fetcher.core.missing)
        now_s = self._now_s()
        names = self.lookout.asks(now_s)
        if not names or not self._ask(
            "missing partitions", until_s, lambda: self.cluster.refresh_once(names)
        ):
            return
        there = partial(known_in, self.cluster.topics)
        for tp in self.lookout.asked(there, now_s, bool(self.subscription)):
            self._fresh = True
            if tp not in self.paused:
                self.reading.go_on(tp)

    def _miss(self, partitions: Iterable[TopicPartition]) -> None:
        """The cluster lacks these partitions: logged once, or, if assigned by hand, raised."""
        gone = self.lookout.miss(partitions, self._now_s(), bool(self.subscription))
        if not gone:
            return
        names = few([f"{tp.topic}-{tp.partition}" for tp in gone])
        problem = errors.UnknownTopicOrPartition(f"the cluster has no {names}")
        if self.subscription:
            _logger.warning("%s: not read any more; other assigned partitions are", problem)
        else:
            self._trouble = problem

    def find_positions(self, only: Sequence[TopicPartition] | None = None) -> None:
        """Begin at the committed offsets, or by auto.offset.reset; `only`: with these.

        Raises: as `begin_at`.
        """
        some = self.core.assigned if only is None else only
        wanted = [tp for tp in some if self.reading.position(tp) is None]
        if only is None:
            self._fresh = bool(wanted)
        new, refused = self._there(wanted)
        all_there = not new or self.begin_at(new) == len(new)
        if refused is not None:
            raise refused
        if only is None:
            self._fresh = not all_there

    def begin_at(self, partitions: Sequence[TopicPartition]) -> int:
        """Continue at the committed offsets, or by auto.offset.reset; returns for how many of the
        partitions that is known.

        Raises: OffsetOutOfRange: neither gives an offset; the first failure of a partition, once
        all others continue.
        """
        group = None if self.membership is None else self.membership.member.metadata.group
        found = find_begins(
            self.cluster, group, partitions, self.config.auto_offset_reset, self.stable_only
        )
        self._ids_of(partitions)
        for tp, one in found.done.items():
            if isinstance(one, CommittedOffset):
                self.core.assigned[tp] = one.offset
            self.seek(tp, one.offset, one.leader_epoch)
        found.check()
        return len(found.done)

    def _there(
        self, partitions: list[TopicPartition]
    ) -> tuple[list[TopicPartition], errors.KafkalogError | None]:
        """Those partitions that the cluster has; the first failure of a topic."""
        asked = [tp for tp in partitions if tp not in self._missing]
        refused: dict[str, errors.KafkalogError] = {}
        for name in sorted({tp.topic for tp in asked if not known_in(self.cluster.topics, tp)}):
            self.cluster.forget(name)  # it may have grown
            try:
                self.cluster.topic(name)
            except errors.UnknownTopicOrPartition:
                continue
            except (NotYet, errors.WakeUp):
                raise
            except errors.KafkalogError as problem:
                refused[name] = problem
        there = [tp for tp in asked if known_in(self.cluster.topics, tp)]
        if not any(map(passing, refused.values())):  # else they are looked for together
            self._miss({tp for tp in asked if tp.topic not in refused} - set(there))
        return there, next(iter(refused.values()), None)

    def seek(self, tp: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Continue at an offset; `epoch`: as in Fetcher.seek."""
        self.reading.seek(tp, offset, tp not in self.paused, epoch)

    # ---- commits -----------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, CommittedOffset]:
        """Up to where records were handed out, for partitions that the cluster has."""
        return self.core.positions(self._reached)

    @property
    def _reached(self) -> Callable[[TopicPartition], CommittedOffset | None]:
        return self.reading.reached if self.stored is None else self.stored.get

    def identity(self) -> GroupMetadata:
        """As Core.identity."""
        return self.core.identity()

    def commit(self, offsets: Offsets) -> None:
        """Commit, and wait.  Raises: as Core.committer; Timeout: one in the background is not
        answered yet, and might be stored after this one; what the coordinator answers.
        """
        member = self.core.committer()
        until_s = self.cluster.patient_until_s()
        left_ms = round((until_s - self._now_s()) * 1000)
        drained = self.committer.drain(until_s)
        self.tell_commits()
        if not drained:
            raise errors.Timeout(
                f"group {member.group!r}: an earlier commit was not answered in {left_ms} ms"
            )
        left_ms = max(1, round((until_s - self._now_s()) * 1000))
        try:
            with self.committer.commit_ms.timed():
                put_offsets(
                    self.cluster, member.group, offsets, member.generation, member.member_id,
                    member.instance_id, left_ms, self._ids_of(offsets),
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
        # If this thread has reached the cluster, the other one may wait for it.
        self.committer.cluster.reached |= self.cluster.reached
        member, until_s = self.core.committer(), self.cluster.patient_until_s()
        ids = self._ids_of(offsets)
        self.committer.commit(Committing(offsets, member, callback, until_s, ids=ids))

    def _ids_of(self, partitions: Iterable[TopicPartition]) -> Ids:
        """The known topic ids of these partitions.  They outlive the metadata, which may have been
        forgotten because the topic was recreated."""
        for name in {tp.topic for tp in partitions}:
            if (info := self.cluster.topics.get(name)) is not None:
                self._ids[name] = info.topic_id
        return dict(self._ids)

    def _drained(self, until_s: float) -> bool:
        """Wait until no commit is in flight; returns whether that is so.  Raises: WakeUp."""
        with self.keeper.waited_for():
            wait = self.cluster.patience.wait
            return self.committer.drain_within(wait, until_s, lambda: self.keeper.session_end_s)

    def tell_commits(self) -> None:
        """Report commits that have ended, in order, even if a callback raises.

        Raises: the first exception of a callback, once all were called.
        """
        raised: BaseException | None = None
        while (done := self.committer.finished()) is not None:
            if done.problem is None:
                self._note(done.offsets)
            else:
                self._fenced(done.member, done.problem)
            raised = tell_of(done, raised)
        if raised is not None:
            raise raised

    def _note(self, offsets: Offsets) -> None:
        self.core.committed(offsets)
        tell_interceptors(self._interceptors, offsets)

    def _commit_by_itself(self, wait: bool) -> None:
        """Log a failure: the next reader reads the records again.  Raises: FencedInstanceId."""
        if not (fresh := self.core.fresh(self._reached, self._now_s())):
            return
        try:
            self.commit(fresh) if wait else self.commit_later(fresh, None)
        except errors.KafkalogError as problem:
            if problem.code == ErrorCode.FENCED_INSTANCE_ID:
                raise
            excuse(problem)


def _raised(call: Callable[[], None]) -> BaseException | None:
    """The exception that a call raises; None: none."""
    try:
        call()
    except BaseException as problem:
        return problem
    return None
