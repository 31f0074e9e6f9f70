"""What the nodes of a simulation go by: the product's own rules, one by one, so that a mistake can
be planted in each (kafkalog.simulate.mutants)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kafkalog.cluster.node import state
from kafkalog.replication import following, isr
from kafkalog.replication.copies import Copy

__all__ = ["Rules"]


class Rules(NamedTuple):
    """Of a run."""

    fetched: Callable[[Any], Any] = following.fetched
    do: Callable[[Copy, Any, int], Any] = Copy.do
    shrink: Callable[..., isr.Isr] = isr.shrink
    expand: Callable[..., isr.Isr] = isr.expand
    released: Callable[..., isr.Isr] = isr.released
    answered: Callable[[isr.Isr, isr.Isr, Any], isr.Isr] = isr.answered
    told: Callable[[isr.Isr | None, isr.Isr], isr.Isr | None] = isr.told
    followers: Callable[..., list[Any]] = isr.followers
    leader_and_isr: Callable[..., Any] = state.leader_and_isr
    operations: Callable[[Sequence[Any]], Sequence[Any]] = lambda operations: operations
    """What a controller has written: a multi, as ZooKeeper is given it."""
    controls: Callable[[Any, dict[str, Any]], dict[str, Any]] = lambda _, body: body
    """What a controller sends to a broker."""
    fences: bool = True
    """A fetch of another leader epoch is refused."""
    diverges: bool = True
    """A leader compares where the follower's last epoch ended."""
    asks_again: bool = True
    """An answer to what was not asked last is not taken."""
    waits: bool = True
    """acks=all is answered once the record is shown."""
    follower_syncs: bool = True
    """With durability=fsync a follower asks for more only once all is on its disk."""
    found_syncs: bool = True
    """What it finds when it begins to follow, too."""
    leader_syncs: bool = True
    """A new leader has everything that it shows on disk."""
    leaves: bool = True
    """A follower takes no producer's records."""
    begins: bool = True
    """A follower that joins the ISR has everything from before the leadership."""
    cuts_first: bool = False
    """A follower cuts to its high watermark whenever it is told to follow, as before KIP-101."""
    epoch_said: bool = True
    """A follower says which life of its node it is in."""
