"""Replicas of the quorum: their keys, and the set of voters.

Source: KIP-853.  A replica is its node's id and its directory's id: a node whose disk was lost is
another replica.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

__all__ = [
    "NO_DIRECTORY",
    "ReplicaKey",
    "Voter",
    "Voters",
    "find",
    "is_voter",
    "majority",
    "voters_of",
    "with_voter",
    "without_voter",
]

NO_DIRECTORY = uuid.UUID(int=0)
"""The directory id of a voter with kraft.version 0: any directory of the node."""


class ReplicaKey(NamedTuple):
    """A replica: a node and its directory."""

    id: int
    directory_id: uuid.UUID = NO_DIRECTORY


class Voter(NamedTuple):
    """A voter, and how others reach it."""

    key: ReplicaKey
    endpoints: tuple[tuple[str, str, int], ...] = ()
    """Listener's name, host and port of each."""
    versions: tuple[int, int] = (0, 1)
    """The lowest and the highest kraft.version that it supports."""


Voters: TypeAlias = tuple[Voter, ...]
"""A set of voters in the order of their ids."""


def voters_of(voters: Iterable[Voter]) -> Voters:
    """The set of these voters."""
    return tuple(sorted(voters, key=lambda one: one.key.id))


def find(voters: Voters, node_id: int) -> Voter | None:
    """The voter on a node."""
    for one in voters:
        if one.key.id == node_id:
            return one
    return None


def is_voter(voters: Voters, key: ReplicaKey) -> bool:
    """True if a replica is a voter: a voter without a directory id stands for any directory."""
    one = find(voters, key.id)
    return one is not None and one.key.directory_id in (NO_DIRECTORY, key.directory_id)


def majority(voters: Voters) -> int:
    """How many voters make a majority."""
    return len(voters) // 2 + 1


def with_voter(voters: Voters, voter: Voter) -> Voters:
    """The set with a voter added, or replaced if its node has one."""
    return voters_of([*(one for one in voters if one.key.id != voter.key.id), voter])


def without_voter(voters: Voters, node_id: int) -> Voters:
    """The set without a node's voter."""
    return tuple(one for one in voters if one.key.id != node_id)
