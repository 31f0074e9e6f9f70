"""Which leadership each partition is due, and how it comes about.

A partition is New (never led), Online (its leader holds it), or Offline; that is seen from what the
controller knows, and kept nowhere.  `due` says what follows; asked again it says: nothing.

A decision is a generator.  It yields what is to be written, all of which is tried; is sent what
became of each, in that order; and goes on from there.  Where another controller reigns, or the
outcome of a write is not known, it is dropped, and the controller reads the tree again.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import TypeVar

from kafkalog.cluster.controller.context import (
    NEVER_LED,
    Assignment,
    Change,
    Context,
    Folder,
    Removal,
    TopicPartition,
    Write,
    leadership,
)
from kafkalog.cluster.controller.leader_election import Leadership, elect_first, elect_for_offline
from kafkalog.cluster.controller.requests import Gathered
from kafkalog.metadata.image import NO_LEADER, Partition
from kafkalog.metadata.zookeeper.session import Committed

__all__ = [
    "Deciding",
    "believe",
    "due",
    "lead_on",
    "settle",
    "unled",
    "without_offline",
    "without_reborn",
    "write",
]

T = TypeVar("T")
Deciding = Generator[
    Sequence[Folder | Write | Assignment | Change | Removal], Sequence[Committed], T
]


def due(
    one: Partition, holding: Collection[int], electable: Collection[int], *, unclean: bool
) -> Leadership | None:
    """What a partition's leadership is to become; None: nothing else than it is.

    `holding`: live brokers with its disk; `electable`: those of them that may be elected.
    """
    if one.leader_epoch == NEVER_LED:
        return elect_first(one.replicas, electable)
    now = leadership(one)
    if now.leader not in holding:
        elected = elect_for_offline(now, one.replicas, electable, unclean=unclean)
        if elected is not None:
            return elected
    return without_offline(now, holding)


def without_offline(now: Leadership, holding: Collection[int]) -> Leadership | None:
    """A leadership without brokers that are gone; None: none is gone.

    Where all of the ISR are gone they stay in it, for each of them has all that was acknowledged.
    (Kafka's controller takes them out one by one and keeps the last.)
    """
    leader = now.leader if now.leader in holding else NO_LEADER
    isr = tuple(one for one in now.isr if one in holding) or now.isr
    if (leader, isr) == (now.leader, now.isr):
        return None
    return Leadership(leader, now.leader_epoch + 1, isr, now.recovering)


def without_reborn(
    now: Leadership, replicas: Sequence[int], live: Collection[int], reborn: Collection[int]
) -> Leadership | None:
    """A leadership after some of the ISR died and came back unseen; None: that changes nothing.

    They may have lost what was not on their disks, and what others have of it.  So they are treated
    like brokers that are seen to die: out of the ISR, if others are in it; where no other is left,
    the leader gets another epoch, for what comes next may differ from what it had there before.
    """
    believed = [one for one in now.isr if one in live and one not in reborn]
    among = believed or now.isr
    leader = now.leader
    if leader in reborn or leader not in among:
        leader = next((one for one in replicas if one in among and one in live), NO_LEADER)
    if leader == NO_LEADER or not {*now.isr} & {*reborn}:
        return None
    return now.led_by(leader, among)


def believe(context: Context, told: Gathered) -> Deciding[None]:
    """A broker that died and came back while there was no controller does not stay in ISRs."""
    wanted = {}
    for key, reborn in context.reborn.items():
        one, live = context.partitions[key], context.electable(key)
        new = without_reborn(leadership(one), one.replicas, live, reborn)
        if new is not None and key[0] not in context.deleted:
            wanted[key] = new
    context.reborn.clear()
    yield from write(context, told, wanted)


def unled(context: Context) -> list[TopicPartition]:
    """The partitions that are New or Offline."""
    return [key for key, one in context.partitions.items()
            if one.leader == NO_LEADER or one.leader not in context.holding(key)]  # fmt: skip


def settle(context: Context, told: Gathered, keys: Iterable[TopicPartition]) -> Deciding[None]:
    """Give partitions the leadership that they are due, and report it."""
    wanted = {}
    for key in keys:
        new = due(
            context.partitions[key], set(context.holding(key)), context.electable(key),
            unclean=context.unclean(key[0]),
        )  # fmt: skip
        if new is not None and key[0] not in context.deleted:
            wanted[key] = new
    yield from write(context, told, wanted)


def lead_on(context: Context, told: Gathered, keys: Iterable[TopicPartition]) -> Deciding[None]:
    """Leaders that may not know what the tree says of their partitions lead on in another epoch:
    Kafka's brokers take no news of the one that they know."""
    wanted = {}
    for key in keys:
        now = leadership(context.partitions[key])
        if now.leader != NO_LEADER and key[0] not in context.deleted:
            wanted[key] = now._replace(leader_epoch=now.leader_epoch + 1)
    yield from write(context, told, wanted)


def write(
    context: Context, told: Gathered, wanted: Mapping[TopicPartition, Leadership], *,
    to_holders: bool = True,
) -> Deciding[set[TopicPartition]]:  # fmt: skip
    """Put leaderships into the tree, then report them.

    `to_holders`: tell the replicas of a partition to lead or follow; not of an ISR that its leader
    asked for. Returns those that were written; the others are stale.
    """
    wanted = {key: new for key, new in wanted.items() if key not in context.stale}
    folders = context.folders(wanted)
    writes = [context.write(key, new) for key, new in wanted.items()]
    if not writes:
        return set()
    outcomes = yield [*folders, *writes]
    done = set()
    for one, outcome in zip(writes, outcomes[len(folders) :], strict=True):
        key = one.partition
        if not outcome.done:
            context.stale.add(key)
            continue
        first = context.partitions[key].leader_epoch == NEVER_LED
        context.written(one)
        holding = set(context.holding(key))
        if to_holders:
            told.lead((each for each in one.after.replicas if each in holding), key, new=first)
        done.add(key)
    if done:
        told.know(done)
    return done
