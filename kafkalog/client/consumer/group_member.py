"""A member of a group of KIP-848 as its owner sees it: the same questions as of `Member`.

It only decides.  Changes of the session are left in `effects`, which GroupMembership carries out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from kafkalog import errors
from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.consumer.group_session import FENCED, Assigned, Change, GroupSession
from kafkalog.client.consumer.member import IN, JOINING, OUT
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["GroupMember"]


class GroupMember:
    """One member.  For the owner's thread only."""

    cooperative = True
    finds_topics = False
    """The coordinator resolves patterns."""

    def __init__(self, session: GroupSession) -> None:
        self.session = session
        self.effects: list[Change] = []
        self.fenced: errors.KafkalogError | None = None
        """Another member has its instance id: it does not join again."""
        self.counts: Mapping[str, int] = {}
        self.topics: set[str] = set()
        """The names it subscribes to."""
        self.rebalances = 0
        """How often it got another assignment."""
        self._applied: tuple[int, Assigned | None] = (0, None)

    @property
    def state(self) -> str:
        """As Member.state."""
        if self.session.epoch < 0:
            return OUT
        return JOINING if self.session.target is None else IN

    @property
    def metadata(self) -> GroupMetadata:
        """Its id and epoch."""
        return self.session.identity(self.session.epoch)

    @property
    def latest(self) -> GroupMetadata:
        """Its id and the last epoch that it was in."""
        return self.session.identity(self.session.latest_epoch)

    def ended(self, now_s: float) -> errors.KafkalogError | None:
        """Why other members may have its partitions; None: they cannot."""
        return self.fenced or self.session.lost

    def rejoin(self) -> None:
        """The next `subscribe` tells the coordinator."""

    def lose(self, problem: errors.KafkalogError | None) -> None:
        """Its partitions are given up."""
        if problem is not None and problem.code == ErrorCode.FENCED_INSTANCE_ID:
            self.fenced = problem
        self.effects.append(GroupSession.gave_up)

    def comes_back(self, problem: errors.KafkalogError) -> bool:
        """True if a member that was lost for this reason joins again by itself."""
        return problem.code in FENCED or isinstance(problem, errors.Timeout)

    def subscribe(self, topics: Iterable[str], pattern: str | None) -> None:
        """As GroupSession.subscribe."""
        self.topics = set() if pattern is not None else set(topics)
        names = sorted(self.topics)
        self.effects.append(lambda session: session.subscribe(names, pattern))

    def refusal(self) -> errors.KafkalogError | None:
        """A refusal that leaves it a member, once."""
        found, self.session.refused = self.session.refused, None
        return found

    # ---- assignments -----------------------------------------------------------------------

    def new_target(self) -> tuple[int, Assigned] | None:
        """The number of its membership, and an assignment that is still to be applied."""
        found = self.session.joins, self.session.target
        return None if found[1] is None or found == self._applied else (found[0], found[1])

    def applied(self, joins: int, target: Assigned, owned: Assigned) -> None:
        """It now has `owned` of an assignment."""
        if owned == target:
            self._applied = joins, target
            self.rebalances += 1
        self.effects.append(partial(_acknowledge, joins, owned))


def _acknowledge(joins: int, owned: Assigned, session: GroupSession) -> bool:
    return session.acknowledge(joins, owned)
