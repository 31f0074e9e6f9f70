"""Which partitions a consumer reads, and what has to happen before they are another's.

It decides and does nothing else: no clock, no socket, no thread.  What takes several steps is a
process: a generator that yields what is to be done, is sent what came of it, and goes on from there
at the time `now_s`, which whoever drives it sets.  Sharing does that; a simulation does the same
(tests/unit/client/consumer/simulation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata
from kafkalog.client.consumer.commits import Offsets
from kafkalog.client.consumer.lookout import Lookout
from kafkalog.client.consumer.member import IN, Member
from kafkalog.client.consumer.subscription import Subscription
from kafkalog.client.link.failures import failure_class
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Absent", "Commit", "Core", "Drain", "Effect", "Join", "Look", "Process", "Replace", "Say",
    "Tell", "TellCommits",
]  # fmt: skip

Reached = Callable[[TopicPartition], CommittedOffset | None]
"""Up to where records were handed out."""

# ---- effects, and what is sent back ------------------------------------------------------------


class Commit(NamedTuple):
    """Commit positions, in the background or (`wait`) at once: what it raised, or None."""

    wait: bool


class Drain(NamedTuple):
    """Wait for the commits in the background, while the session lasts: whether all have ended."""


class TellCommits(NamedTuple):
    """Tell of the commits that have ended: what the first callback raised, or None."""


class Tell(NamedTuple):
    """Call a listener of the subscription: what it raised, or None."""

    what: str
    """assigned, revoked, lost."""
    partitions: list[TopicPartition]


class Replace(NamedTuple):
    """Read exactly these."""

    partitions: list[TopicPartition]


class Join(NamedTuple):
    """Go on with joining, as a member that keeps these: whether it is in, with a new share."""

    owned: list[TopicPartition]


class Look(NamedTuple):
    """Look at the topics, if it is time for that: whether it is not known yet what a pattern
    finds."""


class Absent(NamedTuple):
    """The cluster does not have these topics."""

    topics: Collection[str]


class Say(NamedTuple):
    """For the log."""

    text: str


Effect = Commit | Drain | TellCommits | Tell | Replace | Join | Look | Absent | Say
T = TypeVar("T")
Process = Generator[Effect, Any, T]


class Core:
    """The partitions of one consumer.  The owner's thread only."""

    def __init__(
        self, member: Member | None, commits: bool, interval_s: float, look_s: float
    ) -> None:
        """`member`: None without a group.  `commits`: by itself, every `interval_s`.  `look_s`: as
        Lookout's."""
        self.member = member
        self.lookout = Lookout(look_s)
        self.subscription = Subscription()
        self.manual = False
        """Whether partitions were assigned by hand."""
        self.assigned: dict[TopicPartition, int | None] = {}
        """What is read, and what was committed of it last."""
        self.committing = commits and member is not None
        """Whether positions are committed by themselves."""
        self.next_commit_s = 0.0
        self.changed = False
        """Whether what the group shares is other than when it was shared out."""
        self.parting = False
        """Whether partitions are to be given up once the last commit of them is answered: nothing
        is handed out until then."""
        self.settling = False
        """Whether commits have to be answered before it joins again."""
        self.now_s = 0.0
        self._unshared = False
        """Whether the member's share is still to be taken."""
        self._interval_s = interval_s

    @property
    def joining(self) -> bool:
        """Whether it waits for the group."""
        return bool(self.subscription) and self.member is not None and self.member.state != IN

    def holds(self, now_s: float) -> bool:
        """Whether what it reads is nobody else's, as far as it can know."""
        member = self.member if self.subscription else None
        return member is None or not self.assigned or member.ended(now_s) is None

    def subscribe(self, subscription: Subscription) -> None:
        """Want other topics."""
        self.subscription = subscription
        self.manual = False
        self.lookout.next_look_s = 0.0
        if self.member is not None:
            self.member.rejoin()

    def replace(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Read exactly these: those that are read no more."""
        wanted = dict.fromkeys(partitions)
        gone = [tp for tp in self.assigned if tp not in wanted]
        self.assigned = {tp: self.assigned.get(tp) for tp in wanted}
        self.lookout.reads(wanted)
        return gone

    # ---- a member, with a share --------------------------------------------------------------

    def stay(self) -> Process[None]:
        """Be a member, with a share."""
        member = self._in_group()
        if (problem := member.look(self.now_s)) is not None:
            yield Say(str(problem))
        if member.fenced is not None:
            yield from self._give_back(member)
            raise member.fenced
        if self._unshared and member.state == IN:
            yield from self._take_share(member)
        searching = yield Look()
        if self.changed and member.state == IN and not self._unshared:
            self.changed = False
            member.rejoin()
        if searching and not self.assigned:
            return
        while member.state != IN:
            if not (yield from self._give_back(member)):
                return
            owned = sorted(self.assigned)
            if (yield Join(owned)):
                yield from self._take_share(member)
            elif not owned or member.metadata.generation >= 0:
                return

    def saw(self, counts: Mapping[str, int]) -> None:
        """How many partitions the topics of all members have now: it leads."""
        if self.member is not None and self.member.state == IN and self.member.counts is not None:
            self.changed |= counts != self.member.counts

    def _in_group(self) -> Member:
        assert self.member is not None
        return self.member

    def _give_back(self, member: Member) -> Process[bool]:
        """Before it joins: partitions are committed and given up, unless it keeps them; False: its
        commits are not answered yet."""
        self.changed = self._unshared = False
        if self.assigned and member.metadata.generation < 0:
            gone, self.parting = sorted(self.assigned), False
            yield Replace([])
            yield from _told("lost", gone)
        if member.metadata.generation < 0:
            self.settling = False
            return True
        wanted = self.subscription.topics if member.cooperative else ()
        if gone := [tp for tp in sorted(self.assigned) if tp.topic not in wanted]:
            if not (yield from self._committed_before()):
                return False
            if (raised := (yield from self._revoke(gone))) is not None:
                raise raised
        else:
            self.parting = False  # what a share before wanted back the next one may leave here
        return (yield from self._settle_commits(member))

    def _committed_before(self) -> Process[bool]:
        """Commit what is to be given up; whether that is answered, or of no use any more."""
        if not self.parting:
            self.parting = True
            if self.committing and (problem := (yield Commit(wait=False))) is not None:
                raise problem
        if not (yield Drain()) and self.holds(self.now_s):
            return False
        self.parting = False
        return True

    def _revoke(self, partitions: list[TopicPartition]) -> Process[BaseException | None]:
        """Tell, and read these no more; what a callback or a listener raised."""
        before: BaseException | None = yield TellCommits()
        # Lost, where the commit took longer than the session.
        raised: BaseException | None = yield Tell(
            "revoked" if self.holds(self.now_s) else "lost", partitions
        )
        yield Replace([tp for tp in self.assigned if tp not in set(partitions)])
        self.settling = True
        return raised or before

    def _settle_commits(self, member: Member | None) -> Process[bool]:
        """Wait for what is committed in the background, before the generation in which it may be
        committed ends; whether it is answered."""
        if self.settling and member is not None and not (yield Drain()):
            return member.ended(self.now_s) is not None
        self.settling = False
        if (raised := (yield TellCommits())) is not None:
            raise raised
        return True

    def _take_share(self, member: Member) -> Process[None]:
        """A new generation; what it is to give up it gives up once that is committed."""
        share = set(member.share)
        gone = [tp for tp in sorted(self.assigned) if tp not in share]
        new = [tp for tp in member.share if tp not in self.assigned]
        raised: BaseException | None = None
        self._unshared = bool(gone)  # also after a WakeUp
        if gone and not (yield from self._committed_before()):
            return
        self._unshared = False
        if gone:  # what the leader wants to give to others: they get it next time
            # Raised once the share is taken: nobody else reads it.
            raised = yield from self._revoke(gone)
            member.rejoin()
        yield Replace(member.share)
        if member.counts is not None:  # it leads: it looks for what any member wants
            yield Absent(member.topics - member.counts.keys())
        self.next_commit_s = self.now_s + self._interval_s
        found = yield Tell("assigned", new)
        if (raised := raised or found) is not None:
            raise raised

    def part(self) -> Process[None]:
        """Commit what is to be committed, and tell that nothing is read any more."""
        member = self.member if self.subscription else None
        if member is None:
            if self.committing and (problem := (yield Commit(wait=True))) is not None:
                raise problem
        elif self.assigned:
            yield from self._part_with(member, sorted(self.assigned))
        self.settling = True
        yield from self._settle_commits(self.member)

    def _part_with(self, member: Member, gone: list[TopicPartition]) -> Process[None]:
        if (ended := member.ended(self.now_s)) is not None:
            member.lose(ended)
        if member.metadata.generation < 0:
            yield from _told("lost", gone)
            return
        problem = (yield Commit(wait=True)) if self.committing else None
        raised = yield from self._revoke(gone)
        if (raised := raised or problem) is not None:
            raise raised

    def parted(self) -> None:
        """It is over with what was read."""
        self.parting = self.settling = self._unshared = False

    # ---- commits -------------------------------------------------------------------------------

    def commit_due(self, now_s: float) -> bool:
        """Whether positions are to be committed by themselves now."""
        return self.committing and now_s >= self.next_commit_s

    def fresh(self, reached: Reached, now_s: float) -> dict[TopicPartition, CommittedOffset]:
        """What is to be committed by itself now: positions that are not committed."""
        self.next_commit_s = now_s + self._interval_s
        found = self.positions(reached)
        return {tp: at for tp, at in found.items() if at.offset != self.assigned[tp]}

    def positions(self, reached: Reached) -> dict[TopicPartition, CommittedOffset]:
        """Up to where records were handed out, but of what the cluster does not have."""
        found = {tp: None if tp in self.lookout.missing else reached(tp) for tp in self.assigned}
        return {tp: at for tp, at in found.items() if at is not None}

    def committed(self, offsets: Offsets) -> None:
        """These were committed."""
        for tp, one in offsets.items():
            if tp in self.assigned:
                self.assigned[tp] = one.offset

    def identity(self) -> GroupMetadata:
        """Which member it is, or was last.  Raises: ArgumentError without a group."""
        if self.member is None:
            raise errors.ArgumentError("group: none was given, wanted one for its offsets")
        latest = self.member.latest
        return GroupMetadata(latest.group) if self.manual else latest

    def committer(self) -> GroupMetadata:
        """The member that commits.  Raises: ArgumentError without a group; UnknownMemberId: it was
        one; RebalanceInProgress: its next generation is known, and its share of that is not;
        FencedInstanceId."""
        if self.member is None or not self.subscription:
            return GroupMetadata(self.identity().group)
        if self.member.fenced is not None:
            raise self.member.fenced
        found = self.member.metadata
        if found.generation < 0:
            raise failure_class(ErrorCode.UNKNOWN_MEMBER_ID)(
                f"group {found.group!r}: this consumer is no member of it now: poll joins again"
            )
        if found != self.member.latest:
            # In the name of that generation it would commit what another member has in it.
            raise failure_class(ErrorCode.REBALANCE_IN_PROGRESS)(
                f"group {found.group!r}: this consumer joins generation {found.generation}: poll "
                "takes its share"
            )
        return found


def _told(what: str, partitions: list[TopicPartition]) -> Process[None]:
    """Raises: what the listener does."""
    raised = yield Tell(what, partitions)
    if raised is not None:
        raise raised
