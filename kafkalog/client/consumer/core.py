"""Which partitions a consumer reads, and what must happen before another member gets them.

It only decides: no clock, no socket, no thread.  Anything with several steps is a process: a
generator that yields an effect, is sent its outcome, and continues from there at the time `now_s`,
which its driver sets.  ConsumerCoordinator drives it; a simulation does the same
(tests/unit/client/consumer/simulation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata
from kafkalog.client.consumer.commits import Offsets
from kafkalog.client.consumer.group_member import GroupMember
from kafkalog.client.consumer.member import IN, Member
from kafkalog.client.consumer.missing_topics import MissingTopics
from kafkalog.client.consumer.subscription import Subscription
from kafkalog.client.link.failures import failure_class
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Absent", "CallListener", "Commit", "ConsumerState", "Drain", "Effect", "Join", "Look",
    "Names", "Process", "Reached", "Replace", "ReportCommits", "Say",
]  # fmt: skip

Reached = Callable[[TopicPartition], CommittedOffset | None]
"""The offset up to which records were handed out."""

# ---- effects, and their outcomes ---------------------------------------------------------------


class Commit(NamedTuple):
    """Commit positions, in the background or (`wait`) at once; returns its exception, or None."""

    wait: bool


class Drain(NamedTuple):
    """Wait for commits in the background, while the session lasts; returns whether all ended."""


class ReportCommits(NamedTuple):
    """Report commits that have ended; returns the first exception of a callback, or None."""


class CallListener(NamedTuple):
    """Call a listener of the subscription; returns its exception, or None."""

    what: str
    """assigned, revoked, lost."""
    partitions: list[TopicPartition]


class Replace(NamedTuple):
    """Read exactly these partitions."""

    partitions: list[TopicPartition]


class Join(NamedTuple):
    """Continue the join, as a member that keeps these; returns whether it has a new assignment."""

    owned: list[TopicPartition]


class Look(NamedTuple):
    """Look up the topics, if that is due; returns whether the topics of a pattern are not known
    yet."""


class Absent(NamedTuple):
    """The cluster does not have these topics."""

    topics: Collection[str]


class Names(NamedTuple):
    """Look up the names of topics; returns those that are known, by id."""

    topics: frozenset[UUID]


class Say(NamedTuple):
    """A line for the log."""

    text: str


Effect = (
    Commit | Drain | ReportCommits | CallListener | Replace | Join | Look | Absent | Names | Say
)
T = TypeVar("T")
Process = Generator[Effect, Any, T]


class ConsumerState:
    """The wishes of one consumer, and the partitions that it reads.  For the owner's thread
    only."""

    def __init__(
        self, member: Member | GroupMember | None, commits: bool, interval_s: float, look_s: float
    ) -> None:
        """`member`: None without a group.  `commits`: automatic, every `interval_s`.  `look_s`: as
        in MissingTopics."""
        self.member = member
        self.missing = MissingTopics(look_s)
        self.subscription = Subscription()
        self.manual = False
        """True if partitions were assigned by hand."""
        self.paused: set[TopicPartition] = set()
        self.stored: dict[TopicPartition, CommittedOffset] | None = None
        """Offsets to commit instead of positions, if those are stored by hand."""
        self.topic_ids: dict[str, UUID] = {}
        """The partitions of the topics that are read, from the last metadata."""
        self.assigned: dict[TopicPartition, int | None] = {}
        """The partitions that are read, with the last committed offset."""
        self.committing = commits and member is not None
        """True if commits are automatic."""
        self.next_commit_s = 0.0
        self.changed = False
        """True if the group's topics or partitions have changed since the last assignment."""
        self.revoking = False
        """True if partitions will be given up once their last commit is answered: until then no
        records are handed out."""
        self.draining = False
        """True if commits must be answered before it joins again."""
        self.now_s = 0.0
        self._unapplied = False
        """True if the member's new assignment is still to be applied."""
        self._interval_s = interval_s

    @property
    def joining(self) -> bool:
        """True if it waits for the group."""
        return bool(self.subscription) and self.member is not None and self.member.state != IN

    def holds(self, now_s: float) -> bool:
        """True if no other member has its partitions, as far as it can know."""
        member = self.member if self.subscription else None
        return member is None or not self.assigned or member.ended(now_s) is None

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe to other topics."""
        self.subscription = subscription
        self.manual = False
        self.missing.next_lookup_s = 0.0
        if self.member is not None:
            self.member.rejoin()

    def replace(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Read exactly these; returns those that are no longer read, with nothing kept of them."""
        wanted = dict.fromkeys(partitions)
        gone = [tp for tp in self.assigned if tp not in wanted]
        self.assigned = {tp: self.assigned.get(tp) for tp in wanted}
        self.missing.retain(wanted)
        self.paused.intersection_update(wanted)
        if self.stored is not None:
            self.stored = {tp: at for tp, at in self.stored.items() if tp in wanted}
        topics = {tp.topic for tp in wanted}
        self.topic_ids = {name: one for name, one in self.topic_ids.items() if name in topics}
        return gone

    # ---- membership and assignment -----------------------------------------------------------

    def stay(self) -> Process[None]:
        """Stay a member, with an assignment."""
        member = self._in_group()
        if (problem := member.look(self.now_s)) is not None:
            yield Say(str(problem))
        if member.fenced is not None:
            yield from self._prepare_join(member)
            raise member.fenced
        if self._unapplied and member.state == IN:
            yield from self._apply_assignment(member)
        searching = yield Look()
        if self.changed and member.state == IN and not self._unapplied:
            self.changed = False
            member.rejoin()
        if searching and not self.assigned:
            return
        while member.state != IN:
            if not (yield from self._prepare_join(member)):
                return
            owned = sorted(self.assigned)
            if (yield Join(owned)):
                yield from self._apply_assignment(member)
            elif not owned or member.metadata.generation >= 0:
                return

    def saw(self, counts: Mapping[str, int]) -> None:
        """Note the current number of partitions of all members' topics, as the leader."""
        if self.member is not None and self.member.state == IN and self.member.counts is not None:
            self.changed |= counts != self.member.counts

    def _in_group(self) -> Member:
        assert isinstance(self.member, Member)
        return self.member

    def _prepare_join(self, member: Member) -> Process[bool]:
        """Before a join: commit and give up partitions, unless it keeps them; False: its commits
        are not answered yet."""
        self.changed = self._unapplied = False
        if self.assigned and member.metadata.generation < 0:
            gone, self.revoking = sorted(self.assigned), False
            yield Replace([])
            yield from _call_listener("lost", gone)
        if member.metadata.generation < 0:
            self.draining = False
            return True
        wanted = self.subscription.topics if member.cooperative else ()
        if gone := [tp for tp in sorted(self.assigned) if tp.topic not in wanted]:
            if not (yield from self._committed_before()):
                return False
            if (raised := (yield from self._revoke(gone))) is not None:
                raise raised
        else:
            self.revoking = False  # the next assignment may leave what this one revoked
        return (yield from self._drain_commits(member))

    def _committed_before(self) -> Process[bool]:
        """Commit positions to be given up; whether that is answered, or no longer useful."""
        if not self.revoking:
            self.revoking = True
            if self.committing and (problem := (yield Commit(wait=False))) is not None:
                raise problem
        if not (yield Drain()) and self.holds(self.now_s):
            return False
        self.revoking = False
        return True

    def _revoke(self, partitions: list[TopicPartition]) -> Process[BaseException | None]:
        """Report it, and stop reading these; returns the exception of a callback or listener."""
        before: BaseException | None = yield ReportCommits()
        # Lost if the commit took longer than the session.
        raised: BaseException | None = yield CallListener(
            "revoked" if self.holds(self.now_s) else "lost", partitions
        )
        yield Replace([tp for tp in self.assigned if tp not in set(partitions)])
        self.draining = True
        return raised or before

    def _drain_commits(self, member: Member | GroupMember | None) -> Process[bool]:
        """Wait for commits in the background before the generation that they belong to ends;
        returns whether they are answered."""
        if self.draining and member is not None and not (yield Drain()):
            return member.ended(self.now_s) is not None
        self.draining = False
        if (raised := (yield ReportCommits())) is not None:
            raise raised
        return True

    def _apply_assignment(self, member: Member) -> Process[None]:
        """Apply a new assignment; partitions to be given up are committed first."""
        assignment = set(member.assignment)
        gone = [tp for tp in sorted(self.assigned) if tp not in assignment]
        new = [tp for tp in member.assignment if tp not in self.assigned]
        raised: BaseException | None = None
        self._unapplied = bool(gone)  # also after a WakeUp
        if gone and not (yield from self._committed_before()):
            return
        self._unapplied = False
        if gone:  # the leader wants to give these to others, who get them next time
            # Raised once the assignment is applied, as no other member reads it.
            raised = yield from self._revoke(gone)
            member.rejoin()
        yield Replace(member.assignment)
        if member.counts is not None:  # the leader looks up the topics of all members
            yield Absent(member.topics - member.counts.keys())
        self.next_commit_s = self.now_s + self._interval_s
        found = yield CallListener("assigned", new)
        if (raised := raised or found) is not None:
            raise raised

    def revoke_all(self) -> Process[None]:
        """Commit what is due, and report that nothing is read any more."""
        member = self.member if self.subscription else None
        if member is None:
            if self.committing and (problem := (yield Commit(wait=True))) is not None:
                raise problem
        elif self.assigned:
            yield from self._revoke_for_good(member, sorted(self.assigned))
        self.draining = True
        yield from self._drain_commits(self.member)

    def _revoke_for_good(
        self, member: Member | GroupMember, gone: list[TopicPartition]
    ) -> Process[None]:
        if (ended := member.ended(self.now_s)) is not None:
            member.lose(ended)
        if member.metadata.generation < 0:
            yield from _call_listener("lost", gone)
            return
        problem = (yield Commit(wait=True)) if self.committing else None
        raised = yield from self._revoke(gone)
        if (raised := raised or problem) is not None:
            raise raised

    def left(self) -> None:
        """Everything that was read is given up."""
        self.revoking = self.draining = self._unapplied = False

    # ---- commits -------------------------------------------------------------------------------

    def commit_due(self, now_s: float) -> bool:
        """True if an automatic commit is due."""
        return self.committing and now_s >= self.next_commit_s

    def fresh(self, reached: Reached, now_s: float) -> dict[TopicPartition, CommittedOffset]:
        """The next automatic commit: positions that are not committed."""
        self.next_commit_s = now_s + self._interval_s
        found = self.positions(reached)
        return {tp: at for tp, at in found.items() if at.offset != self.assigned[tp]}

    def positions(self, reached: Reached) -> dict[TopicPartition, CommittedOffset]:
        """The offsets to commit: up to where records were handed out, or those stored by hand.
        Partitions that the cluster lacks are left out."""
        reached = reached if self.stored is None else self.stored.get
        found = {tp: reached(tp) for tp in self.assigned if tp not in self.missing.partitions}
        return {tp: at for tp, at in found.items() if at is not None}

    def committed(self, offsets: Offsets) -> None:
        """Note committed offsets."""
        for tp, one in offsets.items():
            if tp in self.assigned:
                self.assigned[tp] = one.offset

    def identity(self) -> GroupMetadata:
        """The current or last member.  Raises: ArgumentError without a group."""
        if self.member is None:
            raise errors.ArgumentError("the consumer has no group: offsets belong to a group")
        latest = self.member.latest
        return GroupMetadata(latest.group) if self.manual else latest

    def offsets_of(self) -> GroupMetadata | None:
        """The member that asks for committed offsets; None: any client may."""
        return None

    def _is_latest(self, found: GroupMetadata) -> bool:
        return self.member is not None and found == self.member.latest

    def committer(self) -> GroupMetadata:
        """The member that commits.  Raises: ArgumentError without a group; UnknownMemberId: it is
        no longer a member; RebalanceInProgress: its next generation is known, and its assignment in
        that is not; FencedInstanceId."""
        if self.member is None or not self.subscription:
            return GroupMetadata(self.identity().group)
        if self.member.fenced is not None:
            raise self.member.fenced
        found = self.member.metadata
        if found.generation < 0:
            raise failure_class(ErrorCode.UNKNOWN_MEMBER_ID)(
                f"group {found.group!r}: this consumer is not a member now: poll joins again"
            )
        if not self._is_latest(found):
            # With that generation it could overwrite a commit of the partition's new owner.
            raise failure_class(ErrorCode.REBALANCE_IN_PROGRESS)(
                f"group {found.group!r}: this consumer is joining generation {found.generation}: "
                "poll gets its assignment"
            )
        return found


def _call_listener(what: str, partitions: list[TopicPartition]) -> Process[None]:
    """Raises: the listener's exception."""
    raised = yield CallListener(what, partitions)
    if raised is not None:
        raise raised
