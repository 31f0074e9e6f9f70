"""AlterPartition, AssignReplicasToDirs: leaders report ISRs, and brokers the places of replicas.

Steps, as defined in kafkalog.controller.active.  The rules and their order are those of Apache
Kafka's ReplicationControlManager (KIP-497, KIP-858, KIP-903).
"""

from __future__ import annotations

from typing import Any

from kafkalog.controller.active import Active, Steps
from kafkalog.metadata.image import MetadataImage, Partition, Topic
from kafkalog.quorum.deciding import Deciding, level_of
from kafkalog.quorum.partition_changes import DIRECTORIES_SINCE, wanted
from kafkalog.quorum.sessions import Committed, State, state_of
from kafkalog.quorum.writing import MetadataRecord, MetadataRecords
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["alter_partition", "assign_directories"]

Body = dict[str, Any]
RECOVERING = 1
UNKNOWN_EPOCH = -1
EPOCHS_SINCE = 3
"""Versions of AlterPartition from this one on have the brokers' epochs."""


# ---- AlterPartition ----------------------------------------------------------------------------


def alter_partition(store: Committed, active: Active, request: Any, version: int) -> Steps[Body]:
    """AlterPartition: only the leader may ask, for brokers that may be in sync."""
    image = store.image
    sender = image.brokers.get(request.broker_id)
    if sender is None or sender.epoch != request.broker_epoch:
        return {"error_code": ErrorCode.STALE_BROKER_EPOCH, "topics": []}
    deciding = Deciding(image, active.options.config)
    records: list[MetadataRecord] = []
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic, asked in _partitions(image, request):
        number = asked.partition_index
        one = topic.partitions.get(number)
        isr = _isr(asked, version)
        error = _problem(image, request.broker_id, one, asked, isr)
        if error is None and (topic.name, number) not in errors:
            assert one is not None
            to = wanted(one, deciding.election(topic))._replace(
                isr=tuple(isr), recovering=asked.leader_recovery_state
            )
            records += (made := deciding.record((topic, one), to))
            error = _outcome(made, request.broker_id)
        errors.setdefault((topic.name, number), error or ErrorCode.NONE)
    yield MetadataRecords(records, atomic=False)
    topics = []
    for row in request.topics:
        name = image.names.get(row.topic_id)
        partitions = [_answer(store.image, errors, name, one) for one in row.partitions]
        topics.append({"topic_id": row.topic_id, "partitions": partitions})
    return {"error_code": ErrorCode.NONE, "topics": topics}


def _partitions(image: MetadataImage, request: Any) -> list[tuple[Topic, Any]]:
    return [(topic, asked) for row in request.topics
            if (topic := image.topic(row.topic_id)) is not None
            for asked in row.partitions]  # fmt: skip


def _isr(asked: Any, version: int) -> dict[int, int]:
    """The brokers of an ISR, and their epochs."""
    if version >= EPOCHS_SINCE:
        return {one.broker_id: one.broker_epoch for one in asked.new_isr_with_epochs}
    return dict.fromkeys(asked.new_isr, UNKNOWN_EPOCH)


def _problem(
    image: MetadataImage, leader: int, one: Partition | None, asked: Any, isr: dict[int, int]
) -> ErrorCode | None:
    """Why an ISR is refused; None: it is not."""
    if one is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if asked.leader_epoch > one.leader_epoch or asked.partition_epoch > one.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # the leader knows a later controller than this one
    if asked.leader_epoch < one.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != one.leader:
        return ErrorCode.INVALID_REQUEST
    if asked.partition_epoch < one.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    count = len(asked.new_isr_with_epochs or asked.new_isr)
    if len(isr) < count or not {*isr} <= {*one.replicas} or leader not in isr:
        return ErrorCode.INVALID_REQUEST
    state = asked.leader_recovery_state
    if state not in (0, RECOVERING) or (state and (count > 1 or not one.leader_recovery_state)):
        return ErrorCode.INVALID_REQUEST
    for number, epoch in isr.items():
        broker = image.brokers.get(number)
        if broker is None or state_of(broker) is not State.UNFENCED:
            return ErrorCode.INELIGIBLE_REPLICA
        if epoch not in (UNKNOWN_EPOCH, broker.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return None


def _outcome(made: list[MetadataRecord], leader: int) -> ErrorCode:
    """An error that is written all the same: the end of a move gave the partition to another."""
    elected = [fields["leader"] for _, fields in made]
    other = any(one not in (leader, -2) for one in elected)
    return ErrorCode.NEW_LEADER_ELECTED if other else ErrorCode.NONE


def _answer(
    image: MetadataImage, errors: dict[tuple[str, int], ErrorCode], name: str | None, asked: Any
) -> Body:
    number = asked.partition_index
    if name is None:
        return {"partition_index": number, "error_code": ErrorCode.UNKNOWN_TOPIC_ID}
    row: Body = {"partition_index": number, "error_code": errors[name, number]}
    one = image.partition(name, number)
    if row["error_code"] == ErrorCode.NONE and one is not None:
        row |= {
            "leader_id": one.leader, "leader_epoch": one.leader_epoch, "isr": list(one.isr),
            "leader_recovery_state": one.leader_recovery_state,
            "partition_epoch": one.partition_epoch,
        }  # fmt: skip
    return row


# ---- AssignReplicasToDirs ----------------------------------------------------------------------


def assign_directories(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """AssignReplicasToDirs: a broker put replicas into these directories."""
    image = store.image
    broker = image.brokers.get(request.broker_id)
    if level_of(image) < DIRECTORIES_SINCE:
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "directories": []}
    if broker is None or broker.epoch != request.broker_epoch:
        return {"error_code": ErrorCode.STALE_BROKER_EPOCH, "directories": []}
    deciding = Deciding(image, active.options.config)
    records: list[MetadataRecord] = []
    offline: dict[tuple[str, int], tuple[Topic, Partition]] = {}
    directories = []
    for place in request.directories:
        topics = []
        for row in place.topics:
            topic, rows = image.topic(row.topic_id), []
            for asked in row.partitions:
                number = asked.partition_index
                one = None if topic is None else topic.partitions.get(number)
                error = ErrorCode.NONE
                if topic is None:
                    error = ErrorCode.UNKNOWN_TOPIC_ID
                elif one is None:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif broker.id not in one.replicas:
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    to = wanted(one)._replace(directories={broker.id: place.id})
                    records += deciding.record((topic, one), to)
                    if broker.directories and place.id not in broker.directories:
                        offline[topic.name, number] = topic, one
                rows.append({"partition_index": number, "error_code": error})
            topics.append({"topic_id": row.topic_id, "partitions": rows})
        directories.append({"id": place.id, "topics": topics})
    away = Deciding(image, active.options.config, down=(broker.id,))
    records += away.without(offline.values(), gone=(broker.id,))
    yield MetadataRecords(records, atomic=False)
    return {"error_code": ErrorCode.NONE, "directories": directories}
