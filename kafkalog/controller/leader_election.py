"""Elects the next leader of a partition.

Pure.  The rules are those of Kafka's controller on ZooKeeper (3.9, Election.scala).
tests/kafka/cluster/test_elect.py compares the two.

`live` are the brokers that may be elected: registered, with the partition's disk, and not shutting
down.  Each election returns the partition's next leadership, or None if no broker may lead.  Each
raises the leader epoch, even if the same broker leads on: its followers must ask again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafkalog.metadata.image import NO_LEADER

__all__ = [
    "Leadership", "elect_first", "elect_for_controlled_shutdown", "elect_for_offline",
    "elect_for_reassignment", "elect_preferred", "without_replica",
]  # fmt: skip


class Leadership(NamedTuple):
    """A partition's leader, and the replicas that have everything that it acknowledged."""

    leader: int
    """NO_LEADER: none."""
    leader_epoch: int
    isr: tuple[int, ...]
    """Never empty: the last member stays in it when it dies."""
    recovering: bool = False
    """The leader was not in sync: records that only others had are lost."""

    def led_by(self, leader: int, isr: Collection[int] | None = None) -> Leadership:
        """The next leadership, under a leader: with the same ISR, or its members that are in `isr`,
        in the same order."""
        kept = self.isr if isr is None else tuple(one for one in self.isr if one in isr)
        return Leadership(leader, self.leader_epoch + 1, kept, self.recovering)


def _first(replicas: Sequence[int], *among: Collection[int]) -> int | None:
    return next((one for one in replicas if all(one in each for each in among)), None)


def elect_first(replicas: Sequence[int], live: Collection[int]) -> Leadership | None:
    """For a new partition: all live replicas are in sync, since there are no records."""
    isr = tuple(one for one in replicas if one in live)
    return Leadership(isr[0], 0, isr) if isr else None


def elect_for_offline(
    now: Leadership, replicas: Sequence[int], live: Collection[int], *, unclean: bool
) -> Leadership | None:
    """For a partition whose leader died: the first replica that is live and in sync.

    `unclean`: otherwise the first live one; records that it never had are lost, and the result
    says so with `recovering`.
    """
    leader = _first(replicas, live, now.isr)
    if leader is not None:
        return now.led_by(leader, live)
    leader = _first(replicas, live) if unclean else None
    if leader is None:
        return None
    return Leadership(leader, now.leader_epoch + 1, (leader,), recovering=True)


def elect_for_reassignment(
    now: Leadership, target: Sequence[int], live: Collection[int]
) -> Leadership | None:
    """For a partition that is moved: the first of its new replicas that is live and in sync."""
    leader = _first(target, live, now.isr)
    return None if leader is None else now.led_by(leader)


def elect_preferred(
    now: Leadership, replicas: Sequence[int], live: Collection[int]
) -> Leadership | None:
    """Back to the first replica, if it is live and in sync."""
    leader = _first(replicas[:1], live, now.isr)
    return None if leader is None else now.led_by(leader)


def elect_for_controlled_shutdown(
    now: Leadership, replicas: Sequence[int], live: Collection[int], ending: Collection[int]
) -> Leadership | None:
    """Away from brokers that are shutting down: `ending`, which are among `live` here."""
    staying = frozenset(one for one in now.isr if one not in ending)
    leader = _first(replicas, live, staying)
    return None if leader is None else now.led_by(leader, staying)


def without_replica(now: Leadership, broker: int) -> Leadership | None:
    """After a broker died or stopped following; None: nothing changes.

    The last member stays in the ISR, so that no replica with fewer records leads.
    """
    if broker not in now.isr:
        return None
    leader = NO_LEADER if now.leader == broker else now.leader
    isr = now.isr if len(now.isr) == 1 else tuple(one for one in now.isr if one != broker)
    return Leadership(leader, now.leader_epoch + 1, isr, now.recovering)
