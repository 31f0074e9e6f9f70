"""A controller's answers to nodes and clients: the bodies of responses.

Steps, as defined in kafkalog.controller.active.  A request is answered once its change is
written and all brokers concerned have been sent it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalog.controller import (
    admin,
    brokers,
    isr,
    reassign,
    requested_elections,
    settings,
)
from kafkalog.controller.active import Active, Answer, Steps
from kafkalog.controller.records import (
    PRODUCER_ID_BLOCK,
    LastProducerId,
    TopicPartition,
    next_producer_ids,
)
from kafkalog.logs.limit import limited
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import CONTROLLED_SHUTDOWN
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION

__all__ = ["ANSWERS", "rebalanced"]

_logger = limited(__name__)

TRIES_MAX = 10
"""Writes of a block that may be refused, each after the last id was read again: other requests
wait."""
PREFERRED = 0
"""The only kind of election that ElectLeaders version 0 knows; 1: unclean."""
Body = dict[str, Any]


def alter_partition(active: Active, request: Any, version: int) -> Steps[Body]:
    """AlterPartition: leaders ask for other ISRs."""
    return (yield from isr.alter_partition(active.context, active.batch, request, version))


def controlled_shutdown(active: Active, request: Any, version: int) -> Steps[Body]:
    """ControlledShutdown: a broker wants to stop."""
    error, left = yield from brokers.shut_down(
        active.context, active.batch, request.broker_id, request.broker_epoch
    )
    rows = [{"topic_name": topic, "partition_index": number} for topic, number in left]
    return {"error_code": error, "remaining_partitions": rows}


def allocate_producer_ids(active: Active, request: Any, version: int) -> Steps[Body]:
    """AllocateProducerIds: a block that no broker gets twice, whichever node is the controller."""
    none = {"producer_id_start": 0, "producer_id_len": 0}
    sender = active.context.brokers.get(request.broker_id)
    if sender is None:
        return {"error_code": ErrorCode.BROKER_ID_NOT_REGISTERED, **none}
    if sender.epoch != request.broker_epoch:
        return {"error_code": ErrorCode.STALE_BROKER_EPOCH, **none}
    for _ in range(TRIES_MAX):
        last = yield LastProducerId()
        block = None if last is None else next_producer_ids(request.broker_id, last)
        if block is None:
            return {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR, **none}
        (outcome,) = yield [block]
        if outcome.done:
            return {"error_code": ErrorCode.NONE, "producer_id_start": block.first,
                    "producer_id_len": PRODUCER_ID_BLOCK}  # fmt: skip
    _logger.error("no block of producer ids can be written: %s", outcome.why)
    return {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR, **none}


def elect_leaders(active: Active, request: Any, version: int) -> Steps[Body]:
    """ElectLeaders; a request for all partitions returns only those with something to report."""
    asked = request.topic_partitions
    context = active.context
    if asked is None:
        keys = [key for key in context.partitions if key[0] not in context.deleted]
    else:
        keys = [(one.topic, number) for one in asked for number in one.partitions]
    unclean = version > 0 and request.election_type != PREFERRED
    codes = yield from requested_elections.elect_leaders(
        context, active.batch, keys, unclean=unclean
    )
    if asked is None:
        codes = {k: code for k, code in codes.items() if code != ErrorCode.ELECTION_NOT_NEEDED}
    topics: dict[str, list[Body]] = {}
    for (topic, number), code in codes.items():
        row = {"partition_id": number, "error_code": code, "error_message": _why(code)}
        topics.setdefault(topic, []).append(row)
    results = [{"topic": topic, "partition_result": rows} for topic, rows in topics.items()]
    return {"error_code": ErrorCode.NONE, "replica_election_results": results}


def alter_reassignments(active: Active, request: Any, version: int) -> Steps[Body]:
    """AlterPartitionReassignments: move partitions to other brokers."""
    return (yield from reassign.alter_reassignments(active.context, active.batch, request))


def list_reassignments(active: Active, request: Any, version: int) -> Steps[Body]:
    """ListPartitionReassignments: the moves under way."""
    yield ()
    return reassign.list_reassignments(active.context, request)


def _why(code: ErrorCode) -> str | None:
    said = {
        ErrorCode.NONE: None,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The partition does not exist.",
        ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is being deleted.",
        ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is offline or not in sync.",
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica of the partition is able to lead.",
    }
    return said.get(code, "The partition has changed since; try again.")


def rebalanced(active: Active) -> Steps[None]:
    """Move leaderships back to the preferred leaders (auto.leader.rebalance.enable)."""
    keys: list[TopicPartition] = requested_elections.unbalanced(
        active.context, active.options.imbalance_percentage
    )
    yield from requested_elections.elect_leaders(active.context, active.batch, keys, unclean=False)


ANSWERS: Mapping[int, Answer] = {
    ALTER_PARTITION.key: alter_partition,
    CONTROLLED_SHUTDOWN.key: controlled_shutdown,
    ALLOCATE_PRODUCER_IDS.key: allocate_producer_ids,
    apis.CREATE_TOPICS.key: admin.answer_create_topics,
    apis.DELETE_TOPICS.key: admin.answer_delete_topics,
    apis.CREATE_PARTITIONS.key: admin.answer_create_partitions,
    apis.ALTER_CONFIGS.key: settings.alter_configs,
    apis.INCREMENTAL_ALTER_CONFIGS.key: settings.incremental_alter_configs,
    apis.UPDATE_FEATURES.key: settings.update_features,
    apis.ELECT_LEADERS.key: elect_leaders,
    apis.ALTER_PARTITION_REASSIGNMENTS.key: alter_reassignments,
    apis.LIST_PARTITION_REASSIGNMENTS.key: list_reassignments,
}
"""The handlers, by API key."""
