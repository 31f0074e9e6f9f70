"""The other copies of a partition, as the data plane gets and reports them."""

from typing import NamedTuple

__all__ = ["CaughtUp", "Follower", "FollowerState"]


class Follower(NamedTuple):
    """Another node's copy of a partition that is led here."""

    id: int
    in_sync: bool
    """It is in the ISR, as that was agreed upon last."""
    maximal: bool
    """It is in the ISR, or may be: its joining is under way."""
    broker_epoch: int = -1
    """Of the life of its node that counts: what an earlier one fetches is refused."""


class FollowerState(NamedTuple):
    """How far a follower is."""

    follower: Follower
    log_end: int
    """All below is on its copy; -1: it did not fetch yet."""
    log_start: int
    behind_ms: int
    """Since it had all that is here; -1: it never had."""


class CaughtUp(NamedTuple):
    """A follower outside of the maximal ISR has all that is committed."""

    tag: int
    """The partition, as put_partition numbered it."""
    id: int
    broker_epoch: int
    """As it reported; -1: it did not."""
    leader_epoch: int
    """In which it fetched."""
