"""The rules that simulated nodes follow: the product's own, one by one, so that a mistake can be
planted in each (kafkalog.simulate.mutants)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kafkalog.cluster.node import state
from kafkalog.replication import following, isr
from kafkalog.replication.follower_log import FollowerLog

__all__ = ["Rules"]


class Rules(NamedTuple):
    """The rules of a run."""

    fetched: Callable[[Any], Any] = following.fetched
    do: Callable[[FollowerLog, Any, int], Any] = FollowerLog.do
    shrink: Callable[..., isr.Isr] = isr.shrink
    expand: Callable[..., isr.Isr] = isr.expand
    released: Callable[..., isr.Isr] = isr.released
    answered: Callable[[isr.Isr, isr.Isr, Any], isr.Isr] = isr.answered
    told: Callable[[isr.Isr | None, isr.Isr], isr.Isr | None] = isr.told
    followers: Callable[..., list[Any]] = isr.followers
    leader_and_isr: Callable[..., Any] = state.leader_and_isr
    operations: Callable[[Sequence[Any]], Sequence[Any]] = lambda operations: operations
    """The writes of a controller: a multi, as ZooKeeper gets it."""
    controls: Callable[[Any, dict[str, Any]], dict[str, Any]] = lambda _, body: body
    """The requests of a controller to a broker."""
    fences: bool = True
    """A fetch of another leader epoch is refused."""
    diverges: bool = True
    """A leader compares where the follower's last epoch ended."""
    asks_again: bool = True
    """An answer to an earlier request is ignored."""
    waits: bool = True
    """acks=all is answered once the record is shown."""
    follower_syncs: bool = True
    """With durability=fsync a follower asks for more only once everything is on its disk."""
    found_syncs: bool = True
    """That includes what it finds when it begins to follow."""
    leader_syncs: bool = True
    """A new leader has everything that it shows on disk."""
    leaves: bool = True
    """A follower takes no producer's records."""
    begins: bool = True
    """A follower that joins the ISR has everything from before the leadership."""
    cuts_first: bool = False
    """A follower truncates to its high watermark on each command to follow, as before KIP-101."""
    refuses: bool = True
    """A leader that shuts down refuses acks=1 where another node may lead next."""
    catches_up: bool = True
    """Then it waits until its followers in sync have everything."""
    drops: bool = True
    """The files of a replica that is deleted are gone, and what is left has its topic's id."""
    epoch_said: bool = True
    """A follower sends its node's broker epoch."""
