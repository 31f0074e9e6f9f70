"""Decides what follows when brokers come, go, or ask to shut down.

Decisions, as defined in kafkalog.controller.partitions; the rules are those of Kafka's
controller on ZooKeeper (3.9, KafkaController.scala).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from kafkalog.controller import leader_election
from kafkalog.controller.context import NEVER_LED, Context, leadership
from kafkalog.controller.deletion import delete_stray_replicas, delete_topics
from kafkalog.controller.leader_election import Leadership
from kafkalog.controller.partitions import (
    Deciding,
    demote_restarted,
    guarded,
    leaderless,
    update_leadership,
    write,
)
from kafkalog.controller.reassign import resume
from kafkalog.controller.records import TopicPartition
from kafkalog.controller.requests import RequestBatch
from kafkalog.metadata.image import Broker
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["begin", "brokers_changed", "log_dirs_failed", "shut_down"]

UNKNOWN_EPOCH = -1
"""Sent by a broker that does not say which of its lives it is in."""


def begin(context: Context, batch: RequestBatch) -> Deciding[None]:
    """A controller was elected: send all brokers everything it found, and do what is due."""
    batch.update_metadata_first()
    batch.update_metadata(context.partitions)
    for key, one in context.partitions.items():
        holding = set(context.holding(key))
        batch.leader_and_isr((each for each in one.replicas if each in holding), key)
    yield from demote_restarted(context, batch)
    yield from update_leadership(context, batch, list(context.partitions))
    yield from delete_stray_replicas(context, batch)
    yield from resume(context, batch)
    yield from delete_topics(context, batch)


def brokers_changed(
    context: Context, batch: RequestBatch, now: Mapping[int, Broker]
) -> Deciding[None]:
    """The registered brokers changed.

    One with another epoch died and came back: it leaves the ISR before it may return to it,
    because it may have lost what was not on its disk.
    """
    before = dict(context.brokers)
    same = {one for one in before if one in now and before[one].epoch == now[one].epoch}
    came, gone = now.keys() - same, before.keys() - same
    for one in gone:
        del context.brokers[one]
        context.shutting_down.discard(one)
        context.offline_log_dirs.pop(one, None)
    context.retrying = {one for one in context.retrying if one[1] is None or one[1][1] not in gone}
    for one in same:
        context.brokers[one] = now[one]
    if gone:
        touched = _on(context, gone)
        batch.update_metadata(
            touched
        )  # also partitions that keep their leader: their replicas are offline
        yield from update_leadership(context, batch, touched)
    context.brokers.update((one, now[one]) for one in came)
    if came:
        touched = _on(context, came)
        batch.update_metadata_first(context.partitions, to=sorted(came))
        batch.update_metadata_first(touched, to=sorted(same))
        for one in sorted(came):
            for key in context.on(one):
                batch.leader_and_isr([one], key)
        yield from update_leadership(context, batch, leaderless(context))
        yield from delete_stray_replicas(context, batch, came)
        yield from delete_topics(context, batch)
    elif any(before[one] != now[one] for one in same):
        batch.update_metadata()


def log_dirs_failed(
    context: Context, batch: RequestBatch, broker: int, lost: Iterable[TopicPartition]
) -> Deciding[None]:
    """A broker can no longer serve these partitions: their disk failed.

    A partition that the broker no longer keeps is ignored: the answer was in flight when a move
    ended, and if the broker gets a copy again, that one need not be on the failed disk.
    """
    partitions = context.partitions
    keys = {key for key in lost if key in partitions and broker in partitions[key].replicas}
    if not keys:
        return
    held = context.offline_log_dirs.get(broker, frozenset())
    context.offline_log_dirs[broker] = held | keys
    batch.update_metadata(keys)
    yield from update_leadership(context, batch, sorted(keys))


def shut_down(
    context: Context, batch: RequestBatch, broker: int, epoch: int
) -> Deciding[tuple[ErrorCode, list[TopicPartition]]]:
    """A broker asks to shut down (ControlledShutdown): other brokers take over what it leads, and
    it leaves the ISRs of what it follows.

    Returns the answer: an error, and the partitions that it still leads and others keep, too.
    """
    registered = context.brokers.get(broker)
    if registered is None:
        return ErrorCode.BROKER_NOT_AVAILABLE, []
    if epoch not in (UNKNOWN_EPOCH, registered.epoch):
        return ErrorCode.STALE_BROKER_EPOCH, []
    context.shutting_down.add(broker)
    wanted = {}
    for key in _shared(context, broker):
        new = guarded(context, key, None, partial(_without, context, batch, broker, key))
        if new is not None:
            wanted[key] = new
    yield from write(context, batch, wanted)
    partitions = context.partitions
    return ErrorCode.NONE, [
        key for key in _shared(context, broker) if partitions[key].leader == broker
    ]


def _without(
    context: Context, batch: RequestBatch, broker: int, key: TopicPartition
) -> Leadership | None:
    """The leadership of a partition without a broker that is shutting down; None: it stays."""
    one, live = context.partitions[key], set(context.holding(key))
    now = leadership(one)
    if now.leader == broker:
        new = leader_election.elect_for_controlled_shutdown(
            now, one.replicas, live, context.shutting_down
        )
    else:
        batch.stop_replica(broker, key, delete=False)
        new = leader_election.without_replica(now, broker)
    return None if new is None or (new.leader, new.isr) == (now.leader, now.isr) else new


def _shared(context: Context, broker: int) -> list[TopicPartition]:
    """A broker's partitions that others keep, too, except those never led or being deleted."""
    return [
        key
        for key in sorted(context.on(broker))
        if len(context.partitions[key].replicas) > 1
        and context.partitions[key].leader_epoch != NEVER_LED
        and key[0] not in context.deleted
    ]


def _on(context: Context, brokers: Iterable[int]) -> list[TopicPartition]:
    return sorted({key for one in brokers for key in context.on(one)})
