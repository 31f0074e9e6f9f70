"""A controller's steps when it begins, when brokers answer, and when something is due again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog.controller import brokers, deletion, reassign
from kafkalog.controller.active import Active, Steps
from kafkalog.controller.partitions import raise_leader_epochs, update_leadership
from kafkalog.controller.records import UNREADABLE, PartitionStates, TopicPartition
from kafkalog.controller.requests import Send
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import LEADER_AND_ISR, STOP_REPLICA

__all__ = [
    "answered", "behind", "failed_again", "first", "moves_again", "read_states", "stale_again",
]  # fmt: skip


def first(active: Active) -> Steps[None]:
    """Send all brokers everything that was found in the store, and do what is due."""
    yield from brokers.begin(active.context, active.batch)


# ---- what differs from what was known ------------------------------------------------------------


def read_states(active: Active, keys: Iterable[TopicPartition]) -> Steps[None]:
    """Read partitions' states from the store."""
    context = active.context
    found = yield PartitionStates(tuple(keys))
    for key, state in found.items():
        if key not in context.partitions:
            continue
        if state is UNREADABLE:
            context.stale.add(key)
            context.unreadable.add(key)
        else:
            context.read(key, state)


def stale_again(active: Active) -> Steps[None]:
    """Read again what was found to differ from what was known, send it, and decide again.

    A leader may have been refused an ISR because of it, and does not ask again before it leads in
    another epoch.
    """
    context, batch = active.context, active.batch
    keys = sorted(key for key in context.stale if key in context.partitions)
    before = {key: context.partitions[key].partition_epoch for key in keys}
    yield from read_states(active, keys)
    known = {key: context.partitions[key] for key in keys if key not in context.stale}
    if known:
        batch.update_metadata(known)
    yield from update_leadership(context, batch, known)
    yield from raise_leader_epochs(context, batch, [
        key for key, one in known.items()
        if context.partitions[key] == one and one.partition_epoch != before[key]
    ])  # fmt: skip
    context.unreadable |= context.stale & known.keys()  # these wait for the retry clock


def moves_again(active: Active) -> Steps[None]:
    """End the moves that may end now: an election, too, may have left only new replicas in sync."""
    keys, active.context.moves_to_check = sorted(active.context.moves_to_check), set()
    yield from reassign.resume(active.context, active.batch, keys)


# ---- what brokers answer -------------------------------------------------------------------------


def answered(active: Active, send: Send, response: Any) -> Steps[None]:
    """A broker answered: a disk of it may have failed, or it may have dropped a copy."""
    context = active.context
    known = context.brokers.get(send.broker)
    if known is None or known.epoch != send.body["broker_epoch"]:
        return  # for an earlier life
    if send.api.key == LEADER_AND_ISR.key and not response.error_code:
        yield from _led(active, send, response)
    elif send.api.key == STOP_REPLICA.key:
        deleted = {(topic["topic_name"], row["partition_index"])
                   for topic in send.body["topic_states"] for row in topic["partition_states"]
                   if row["delete_partition"]}  # fmt: skip
        failed = {(row.topic_name, row.partition_index): ErrorCode(row.error_code)
                  for row in response.partition_errors if row.error_code}  # fmt: skip
        all_of_it = ErrorCode(response.error_code)
        dropped = {key: failed.get(key, all_of_it) for key in sorted(deleted)}
        yield from deletion.replicas_dropped(context, active.batch, send.broker, dropped)


def failed_again(active: Active) -> Steps[None]:
    """Retry what brokers could not drop, what the store refused, and what could not be read."""
    yield from deletion.delete_again(active.context, active.batch)
    if active.context.unreadable:
        yield from stale_again(active)


def _led(active: Active, send: Send, response: Any) -> Steps[None]:
    context = active.context
    names = {topic_id: name for name, topic_id in context.ids.items()}
    rows = {(names[topic.topic_id], row.partition_index): row.error_code
            for topic in response.topics if topic.topic_id in names
            for row in topic.partition_errors}  # fmt: skip
    lost = {key for key, code in rows.items() if code == ErrorCode.KAFKA_STORAGE_ERROR}
    held = context.offline_log_dirs.get(send.broker, frozenset())
    back = sorted(key for key in held if rows.get(key) == ErrorCode.NONE)
    context.offline_log_dirs[send.broker] = held.difference(back)
    new = [key for key in lost if key not in held]
    if new:
        yield from brokers.log_dirs_failed(context, active.batch, send.broker, sorted(new))
    if back:
        active.batch.update_metadata(back)
        yield from update_leadership(context, active.batch, back)
        if context.deleted & {topic for topic, _ in back}:
            yield from deletion.delete_topics(context, active.batch)


def behind(active: Active, broker: int) -> Steps[None]:
    """Send a broker everything again."""
    context, batch = active.context, active.batch
    if broker in context.brokers:
        batch.update_metadata_first(to=[broker])
        batch.update_metadata(context.partitions, to=[broker])
        for key in context.on(broker):
            batch.leader_and_isr([broker], key)
        yield from deletion.delete_stray_replicas(context, batch, [broker])
        yield from deletion.delete_topics(context, batch)
