"""The leadership that each partition is due, and how it is written.

A partition is New (never led), Online (its leader holds it), or Offline.  That follows from what
the controller knows, and is stored nowhere.  `due` returns the next leadership; once it is
written, there is none.

A decision is a generator.  It yields records, all of which are tried; is sent the outcome of each,
in that order; and continues from there.  If another controller is active, or the outcome of a write
is unknown, the decision is dropped, and the controller reads its store again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from kafkalog.controller.context import NEVER_LED, Context, leadership
from kafkalog.controller.leader_election import Leadership, elect_first, elect_for_offline
from kafkalog.controller.records import Outcome, Record, TopicPartition
from kafkalog.controller.requests import RequestBatch
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import NO_LEADER, Partition

__all__ = [
    "Deciding",
    "demote_restarted",
    "due",
    "guarded",
    "leaderless",
    "raise_leader_epochs",
    "update_leadership",
    "without_offline",
    "without_restarted",
    "write",
]

_logger = limited(__name__)
T = TypeVar("T")
U = TypeVar("U")
Deciding = Generator[Sequence[Record], Sequence[Outcome], T]


def guarded(context: Context, key: TopicPartition, otherwise: U, decide: Callable[[], T]) -> T | U:
    """The result of `decide`, which is about one partition; `otherwise`: if it raises.

    So an exception harms only its partition.  It is logged once.
    """
    try:
        return decide()
    except Exception as problem:
        if context.undecidable.get(key) != (said := repr(problem)):
            context.undecidable[key] = said
            _logger.exception("%s-%d: the controller cannot decide about it", *key)
        return otherwise


def due(
    one: Partition, holding: Collection[int], electable: Collection[int], *, unclean: bool
) -> Leadership | None:
    """The new leadership of a partition; None: it stays as it is.

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
    """The leadership without brokers that are offline; None: none of them is.

    If the whole ISR is offline it stays, because each member has everything that was acknowledged.
    (Kafka's controller removes them one by one and keeps the last.)
    """
    leader = now.leader if now.leader in holding else NO_LEADER
    isr = tuple(one for one in now.isr if one in holding) or now.isr
    if (leader, isr) == (now.leader, now.isr):
        return None
    return Leadership(leader, now.leader_epoch + 1, isr, now.recovering)


def without_restarted(
    now: Leadership, replicas: Sequence[int], live: Collection[int], restarted: Collection[int]
) -> Leadership | None:
    """The leadership after some of the ISR died and came back unseen; None: nothing changes.

    They may have lost records that were not on their disks and that others still have.  So they
    are treated like brokers that are seen to die: they leave the ISR, if others are in it.  If no
    other is left, the leader gets another epoch, because its next records may differ from the ones
    it had before.
    """
    believed = [one for one in now.isr if one in live and one not in restarted]
    among = believed or now.isr
    leader = now.leader
    if leader in restarted or leader not in among:
        leader = next((one for one in replicas if one in among and one in live), NO_LEADER)
    if leader == NO_LEADER or not {*now.isr} & {*restarted}:
        return None
    return now.led_by(leader, among)


def demote_restarted(context: Context, batch: RequestBatch) -> Deciding[None]:
    """A broker that died and came back while there was no controller does not stay in ISRs."""
    wanted = {}
    for key, restarted in context.restarted.items():
        new = guarded(context, key, None, partial(_without_restarted, context, key, restarted))
        if new is not None and key[0] not in context.deleted:
            wanted[key] = new
    context.restarted.clear()
    yield from write(context, batch, wanted)


def _without_restarted(
    context: Context, key: TopicPartition, restarted: Collection[int]
) -> Leadership | None:
    one = context.partitions[key]
    return without_restarted(leadership(one), one.replicas, context.electable(key), restarted)


def leaderless(context: Context) -> list[TopicPartition]:
    """The partitions that are New or Offline."""
    return [key for key, one in context.partitions.items()
            if one.leader == NO_LEADER or one.leader not in context.holding(key)]  # fmt: skip


def update_leadership(
    context: Context, batch: RequestBatch, keys: Iterable[TopicPartition]
) -> Deciding[None]:
    """Give partitions the leadership that they are due, and send it."""
    wanted = {}
    for key in keys:
        new = guarded(context, key, None, partial(_due, context, key))
        if new is not None and key[0] not in context.deleted:
            wanted[key] = new
    yield from write(context, batch, wanted)


def _due(context: Context, key: TopicPartition) -> Leadership | None:
    return due(
        context.partitions[key], set(context.holding(key)), context.electable(key),
        unclean=context.unclean(key[0]),
    )  # fmt: skip


def raise_leader_epochs(
    context: Context, batch: RequestBatch, keys: Iterable[TopicPartition]
) -> Deciding[None]:
    """Give leaders that may not know the stored state of their partitions another epoch: Kafka's
    brokers accept no news of the epoch that they know."""
    wanted = {}
    for key in keys:
        now = leadership(context.partitions[key])
        if now.leader != NO_LEADER and key[0] not in context.deleted:
            wanted[key] = now._replace(leader_epoch=now.leader_epoch + 1)
    yield from write(context, batch, wanted)


def write(
    context: Context, batch: RequestBatch, wanted: Mapping[TopicPartition, Leadership], *,
    to_holders: bool = True,
) -> Deciding[set[TopicPartition]]:  # fmt: skip
    """Write leaderships to the store, then send them.

    `to_holders`: have the replicas of a partition lead or follow; not for an ISR that its leader
    asked for.  Returns those that were written; the others are stale.
    """
    tried = {
        key: guarded(context, key, None, partial(context.change, key, new))
        for key, new in wanted.items()
        if key not in context.stale
    }
    changes = {key: one for key, one in tried.items() if one is not None}
    if not changes:
        return set()
    outcomes = yield [*changes.values()]
    done = set()
    for (key, one), outcome in zip(changes.items(), outcomes, strict=True):
        context.stale |= outcome.stale
        if not outcome.done:
            continue
        first = context.partitions[key].leader_epoch == NEVER_LED
        context.written(one)
        holding = set(context.holding(key))
        if to_holders:
            replicas = context.partitions[key].replicas
            batch.leader_and_isr((each for each in replicas if each in holding), key, new=first)
        done.add(key)
    if done:
        batch.update_metadata(done)
    return done
