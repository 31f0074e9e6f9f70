"""A controller's steps when it begins, when brokers answer, and when something is due again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog.controller import brokers, deletion, reassign
from kafkalog.controller.active import Active, Steps
from kafkalog.controller.partitions import lead_on, settle
from kafkalog.controller.records import UNREADABLE, PartitionStates, TopicPartition
from kafkalog.controller.requests import Send
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import LEADER_AND_ISR, STOP_REPLICA

__all__ = [
    "answered", "behind", "failed_again", "first", "moves_again", "read_states", "stale_again",
]  # fmt: skip


def first(office: Active) -> Steps[None]:
    """Send all brokers everything that was found in the store, and do what is due."""
    yield from brokers.begin(office.context, office.told)


# ---- what differs from what was known ------------------------------------------------------------


def read_states(office: Active, keys: Iterable[TopicPartition]) -> Steps[None]:
    """Read partitions' states from the store."""
    context = office.context
    found = yield PartitionStates(tuple(keys))
    for key, state in found.items():
        if key not in context.partitions:
            continue
        if state is UNREADABLE:
            context.stale.add(key)
            context.unread.add(key)
        else:
            context.read(key, state)


def stale_again(office: Active) -> Steps[None]:
    """Read again what was found to differ from what was known, send it, and decide again.

    A leader may have been refused an ISR because of it, and does not ask again before it leads in
    another epoch.
    """
    context, told = office.context, office.told
    keys = sorted(key for key in context.stale if key in context.partitions)
    before = {key: context.partitions[key].partition_epoch for key in keys}
    yield from read_states(office, keys)
    known = {key: context.partitions[key] for key in keys if key not in context.stale}
    if known:
        told.know(known)
    yield from settle(context, told, known)
    yield from lead_on(context, told, [
        key for key, one in known.items()
        if context.partitions[key] == one and one.partition_epoch != before[key]
    ])  # fmt: skip
    context.unread |= context.stale & known.keys()  # these wait for the retry clock


def moves_again(office: Active) -> Steps[None]:
    """End the moves that may end now: an election, too, may have left only new replicas in sync."""
    keys, office.context.shifted = sorted(office.context.shifted), set()
    yield from reassign.resume(office.context, office.told, keys)


# ---- what brokers answer -------------------------------------------------------------------------


def answered(office: Active, send: Send, response: Any) -> Steps[None]:
    """A broker answered: a disk of it may have failed, or it may have dropped a copy."""
    context = office.context
    known = context.brokers.get(send.broker)
    if known is None or known.epoch != send.body["broker_epoch"]:
        return  # for an earlier life
    if send.api.key == LEADER_AND_ISR.key and not response.error_code:
        yield from _led(office, send, response)
    elif send.api.key == STOP_REPLICA.key:
        deleted = {(topic["topic_name"], row["partition_index"])
                   for topic in send.body["topic_states"] for row in topic["partition_states"]
                   if row["delete_partition"]}  # fmt: skip
        failed = {(row.topic_name, row.partition_index): ErrorCode(row.error_code)
                  for row in response.partition_errors if row.error_code}  # fmt: skip
        all_of_it = ErrorCode(response.error_code)
        dropped = {key: failed.get(key, all_of_it) for key in sorted(deleted)}
        yield from deletion.replicas_dropped(context, office.told, send.broker, dropped)


def failed_again(office: Active) -> Steps[None]:
    """Retry what brokers could not drop, what the store refused, and what could not be read."""
    yield from deletion.delete_again(office.context, office.told)
    if office.context.unread:
        yield from stale_again(office)


def _led(office: Active, send: Send, response: Any) -> Steps[None]:
    context = office.context
    names = {topic_id: name for name, topic_id in context.ids.items()}
    rows = {(names[topic.topic_id], row.partition_index): row.error_code
            for topic in response.topics if topic.topic_id in names
            for row in topic.partition_errors}  # fmt: skip
    lost = {key for key, code in rows.items() if code == ErrorCode.KAFKA_STORAGE_ERROR}
    held = context.lost_directories.get(send.broker, frozenset())
    back = sorted(key for key in held if rows.get(key) == ErrorCode.NONE)
    context.lost_directories[send.broker] = held.difference(back)
    new = [key for key in lost if key not in held]
    if new:
        yield from brokers.directories_lost(context, office.told, send.broker, sorted(new))
    if back:
        office.told.know(back)
        yield from settle(context, office.told, back)
        if context.deleted & {topic for topic, _ in back}:
            yield from deletion.delete_topics(context, office.told)


def behind(office: Active, broker: int) -> Steps[None]:
    """Send a broker everything again."""
    context, told = office.context, office.told
    if broker in context.brokers:
        told.announce(to=[broker])
        told.know(context.partitions, to=[broker])
        for key in context.on(broker):
            told.lead([broker], key)
        yield from deletion.drop_strays(context, told, [broker])
        yield from deletion.delete_topics(context, told)
