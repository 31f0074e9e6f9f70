"""Followers of a partition, as the data plane gets and reports them."""

from typing import NamedTuple

__all__ = ["CaughtUp", "Follower", "FollowerState"]


class Follower(NamedTuple):
    """Another node's replica of a partition that is led here."""

    id: int
    in_sync: bool
    """True if it is in the committed ISR."""
    maximal: bool
    """True if it is in the ISR, or may be: its joining is proposed."""
    broker_epoch: int = -1
    """The epoch of its node's registration; fetches of an earlier one are refused."""


class FollowerState(NamedTuple):
    """How far a follower is."""

    follower: Follower
    log_end: int
    """Its log end offset; -1: it has not fetched yet."""
    log_start: int
    behind_ms: int
    """How long ago it had everything; -1: it never had."""


class CaughtUp(NamedTuple):
    """A follower outside the maximal ISR has all committed records."""

    tag: int
    """The partition's number from put_partition."""
    id: int
    broker_epoch: int
    """Its broker epoch as it reported it; -1: it did not."""
    leader_epoch: int
    """The leader epoch in which it fetched."""
