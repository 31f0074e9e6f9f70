"""Leaders ask for another ISR (AlterPartition): which changes the controller accepts.

The rules and their order are those of Kafka's controller on ZooKeeper (3.9).  In addition, as
Kafka's later controllers require, only the leader may ask, for an ISR that includes it, each
member with the broker epoch that the leader knew (KIP-903).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from kafkalog.controller.context import Context, leadership
from kafkalog.controller.leader_election import Leadership
from kafkalog.controller.partitions import Deciding, guarded, raise_leader_epochs, write
from kafkalog.controller.reassign import resume
from kafkalog.controller.records import TopicPartition
from kafkalog.controller.requests import RequestBatch
from kafkalog.metadata.image import Partition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Wanted", "alter_partition", "judged"]

UNKNOWN_EPOCH = -1


class Wanted(NamedTuple):
    """The partition state that a leader asks for."""

    leader: int
    leader_epoch: int
    isr: tuple[tuple[int, int], ...]
    """Brokers and the epochs of their registrations; -1: not given."""
    recovering: bool
    partition_epoch: int

    @property
    def brokers(self) -> tuple[int, ...]:
        """The ISR without epochs."""
        return tuple(broker for broker, _ in self.isr)


def judged(context: Context, key: TopicPartition, wanted: Wanted) -> ErrorCode | None:
    """Why it is refused; NONE: it is already so; None: it must be written."""
    one = context.partitions.get(key)
    if one is None or one.leader_epoch < 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if wanted.partition_epoch > one.partition_epoch or wanted.leader_epoch > one.leader_epoch:
        return ErrorCode.NOT_CONTROLLER  # the leader knows a later controller than this one
    if wanted.leader_epoch < one.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    recovering = bool(one.leader_recovery_state)
    if (wanted.leader, wanted.brokers, wanted.recovering) == (one.leader, one.isr, recovering):
        return ErrorCode.NONE  # asked again, because the answer was lost
    if wanted.partition_epoch < one.partition_epoch or key in context.stale:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not _well_formed(one, wanted):
        return ErrorCode.INVALID_REQUEST
    electable = context.electable(key)
    for broker, epoch in wanted.isr:
        if broker not in electable or epoch not in (UNKNOWN_EPOCH, context.brokers[broker].epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return None


def _well_formed(one: Partition, wanted: Wanted) -> bool:
    isr = wanted.brokers
    if wanted.leader != one.leader or wanted.leader not in isr:
        return False
    if len({*isr}) < len(isr) or not {*isr} <= {*one.replicas}:
        return False
    return not wanted.recovering or (bool(one.leader_recovery_state) and len(isr) == 1)


def alter_partition(
    context: Context, batch: RequestBatch, request: Any, version: int
) -> Deciding[dict[str, Any]]:
    """Handle a request; returns the fields of its response."""
    sender = context.brokers.get(request.broker_id)
    if sender is None or sender.epoch != request.broker_epoch:
        return {"error_code": ErrorCode.STALE_BROKER_EPOCH, "topics": []}
    names = {topic_id: name for name, topic_id in context.ids.items()}
    verdicts: dict[TopicPartition, ErrorCode | None] = {}
    passed: dict[TopicPartition, Leadership] = {}
    for topic in request.topics:
        name = names.get(topic.topic_id)
        if name is None:
            continue
        for asked in topic.partitions:
            key, wanted = (name, asked.partition_index), _wanted(request, asked, version)
            verdicts[key] = guarded(
                context, key, ErrorCode.UNKNOWN_SERVER_ERROR,
                partial(judged, context, key, wanted),
            )  # fmt: skip
            if verdicts[key] is None:
                passed[key] = leadership(context.partitions[key])._replace(
                    isr=wanted.brokers, recovering=wanted.recovering
                )
    behind = [key for key, found in verdicts.items() if found == ErrorCode.INVALID_UPDATE_VERSION]
    done = yield from write(context, batch, passed, to_holders=False)
    for key in passed:
        verdicts[key] = ErrorCode.NONE if key in done else ErrorCode.INVALID_UPDATE_VERSION
    topics = []
    for topic in request.topics:
        name = names.get(topic.topic_id)
        rows = []
        for asked in topic.partitions:
            number, error = asked.partition_index, ErrorCode.UNKNOWN_TOPIC_ID
            if name is not None:
                error = verdicts[name, number] or ErrorCode.NONE
            rows.append(_answer(context, (name or "", number), error))
        topics.append({"topic_id": topic.topic_id, "partitions": rows})
    yield from raise_leader_epochs(
        context, batch, behind
    )  # their leaders do not ask again before that
    yield from resume(context, batch, done)
    return {"error_code": ErrorCode.NONE, "topics": topics}


def _wanted(request: Any, asked: Any, version: int) -> Wanted:
    if version >= 3:
        isr = tuple((each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs)
    else:
        isr = tuple((broker, UNKNOWN_EPOCH) for broker in asked.new_isr)
    return Wanted(
        request.broker_id, asked.leader_epoch, isr, bool(asked.leader_recovery_state),
        asked.partition_epoch,
    )  # fmt: skip


def _answer(context: Context, key: TopicPartition, error: ErrorCode) -> dict[str, Any]:
    row: dict[str, Any] = {"partition_index": key[1], "error_code": error}
    if error == ErrorCode.NONE:
        one = context.partitions[key]
        row |= {
            "leader_id": one.leader,
            "leader_epoch": one.leader_epoch,
            "isr": list(one.isr),
            "leader_recovery_state": one.leader_recovery_state,
            "partition_epoch": one.partition_epoch,
        }
    return row
