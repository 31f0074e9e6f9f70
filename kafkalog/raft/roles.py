"""The roles of a replica, and which votes each grants.

A replica that is no voter is an observer: it is Unattached or a Follower, and never times out.
Source: KIP-595, KIP-996 (pre-vote).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from kafkalog.raft.log import OffsetAndEpoch
from kafkalog.raft.replicas import NO_DIRECTORY, ReplicaKey

__all__ = [
    "Candidate",
    "Follower",
    "Leader",
    "PendingChange",
    "Progress",
    "Prospective",
    "Resigned",
    "Role",
    "Unattached",
    "grants",
    "leader_of",
    "same_replica",
    "vote_of",
]


class Unattached(NamedTuple):
    """It follows nobody: it knows no leader, or has only heard of it.  With a vote it is what
    KIP-595 calls Voted."""

    election_at_ms: float
    leader_id: int | None = None
    voted: ReplicaKey | None = None


class Prospective(NamedTuple):
    """It asks if it would be elected, before it raises the epoch."""

    election_at_ms: float
    leader_id: int | None = None
    voted: ReplicaKey | None = None
    granted: frozenset[int] = frozenset()
    rejected: frozenset[int] = frozenset()


class Candidate(NamedTuple):
    """It asks for votes in its epoch, in which it has its own."""

    election_at_ms: float
    granted: frozenset[int] = frozenset()
    rejected: frozenset[int] = frozenset()


class Follower(NamedTuple):
    """It fetches from a leader."""

    leader_id: int
    fetch_at_ms: float
    """Without a successful fetch until then it stands for election."""
    voted: ReplicaKey | None = None
    has_fetched: bool = False
    """True once the leader has answered a fetch, until it resigns or is silent for too long."""
    snapshot: OffsetAndEpoch | None = None
    """The snapshot that is being fetched."""
    position: int = 0
    loading: bool = False
    """The snapshot is complete, and the driver has not loaded it yet."""
    leader_shows: int = -1
    """The leader's high watermark, as it last answered a fetch."""
    join_at_ms: float = 0
    """When it next asks to become a voter, or reports its endpoints."""


class Progress(NamedTuple):
    """A replica as its leader knows it."""

    end: int = -1
    """Everything below it is on the replica's disk; -1: it has not fetched in this epoch."""
    fetched_at_ms: float | None = None
    caught_up_at_ms: float | None = None
    """When it last had everything that the leader had at its fetch before."""
    leader_end: int = 0
    """The leader's log end at its last fetch."""


class PendingChange(NamedTuple):
    """A change of the voters that is not committed yet."""

    token: Any
    offset: int
    expires_at_ms: float


class Leader(NamedTuple):
    """It leads its epoch."""

    epoch_start: int
    """The offset of the epoch's first record."""
    quorum_at_ms: float
    """Without fetches of a majority until then it resigns."""
    begin_at_ms: float
    """When it next reminds voters that do not fetch."""
    progress: Mapping[ReplicaKey, Progress]
    fetched: frozenset[int] = frozenset()
    """Voters that have fetched since the majority was last complete."""
    unaware: frozenset[int] = frozenset()
    """Voters that have to be reminded."""
    change: PendingChange | None = None


class Resigned(NamedTuple):
    """It led the epoch, which another may not lead; it follows and elects nobody in it."""

    election_at_ms: float
    candidates: tuple[ReplicaKey, ...] = ()
    """Its preferred successors, best first."""
    unaware: frozenset[int] = frozenset()
    """Voters that do not know yet."""


Role: TypeAlias = "Unattached | Prospective | Candidate | Follower | Leader | Resigned"


def leader_of(role: Role, me: ReplicaKey) -> int | None:
    """The leader of the epoch, as far as it is known."""
    if isinstance(role, Leader | Resigned):
        return me.id
    return None if isinstance(role, Candidate) else role.leader_id


def vote_of(role: Role, me: ReplicaKey) -> ReplicaKey | None:
    """The replica that has this replica's vote in the epoch."""
    if isinstance(role, Candidate | Leader | Resigned):
        return me
    return role.voted


def same_replica(one: ReplicaKey, other: ReplicaKey) -> bool:
    """True if two keys stand for one replica; without a directory id for any of the node's."""
    if one.id != other.id:
        return False
    any_one = NO_DIRECTORY in (one.directory_id, other.directory_id)
    return any_one or one.directory_id == other.directory_id


def grants(role: Role, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
    """True if a replica in this role votes for a candidate of its epoch.

    `up_to_date`: the candidate's log ends where this replica's does, or later.
    """
    if isinstance(role, Leader):
        return False
    if pre_vote:
        return up_to_date and not (isinstance(role, Follower) and role.has_fetched)
    if isinstance(role, Candidate | Follower | Resigned):
        return False
    if role.voted is not None:
        return same_replica(role.voted, candidate)
    return role.leader_id is None and up_to_date
