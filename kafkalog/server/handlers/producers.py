"""InitProducerId and DescribeProducers: idempotent producers."""

from typing import Any

from kafkalog.errors import for_clients
from kafkalog.server.handlers.common import code_of
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["describe_producers", "init_producer_id"]


def init_producer_id(node: Node, request: Request) -> dict[str, Any]:
    """A producer id that nobody else has or had, with epoch 0."""
    body = request.body
    if body.transactional_id is not None:
        # Transactions are not there yet; no other code ends a client's retries as clearly.
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "producer_epoch": -1}
    if (body.producer_id == -1) != (body.producer_epoch == -1):
        return {"error_code": ErrorCode.INVALID_REQUEST, "producer_epoch": -1}
    try:
        producer_id = node.producer_ids.next()
    except Exception as problem:
        return {"error_code": code_of(problem), "producer_epoch": -1}
    return {"producer_id": producer_id, "producer_epoch": 0}


def describe_producers(node: Node, request: Request) -> dict[str, Any]:
    """Who is remembered of the idempotent producers of each partition."""
    topics = []
    for topic in request.body.topics:
        found = [_producers(node, topic.name, index) for index in topic.partition_indexes]
        topics.append({"name": topic.name, "partitions": found})
    return {"topics": topics}


def _producers(node: Node, topic: str, partition: int) -> dict[str, Any]:
    try:
        log = node.partitions.look(topic, partition)
        producers = log.producers if log is not None else ()
    except Exception as problem:
        return {
            "partition_index": partition,
            "error_code": code_of(problem),
            "error_message": for_clients(problem),
        }
    active = [
        {
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "last_sequence": one.last_sequence,
            "last_timestamp": one.last_timestamp_ms,
            "coordinator_epoch": one.coordinator_epoch,
            "current_txn_start_offset": one.txn_start_offset,
        }
        for one in producers
    ]
    return {"partition_index": partition, "active_producers": active}
