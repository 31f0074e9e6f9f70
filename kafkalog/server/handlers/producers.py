"""DescribeProducers: the producers that a partition remembers."""

from typing import Any

from kafkalog.errors import for_clients
from kafkalog.server.failures import code_of
from kafkalog.server.node import Node
from kafkalog.server.request import Request

__all__ = ["describe_producers"]


def describe_producers(node: Node, request: Request) -> dict[str, Any]:
    """The idempotent producers that each partition remembers.

    Each partition once: it may have 100,000, and a few bytes could ask for them repeatedly.
    """
    requested: dict[str, dict[int, None]] = {}
    for topic in request.body.topics:
        requested.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = [
        {"name": name, "partitions": [_producers(node, name, index) for index in indexes]}
        for name, indexes in requested.items()
    ]
    return {"topics": topics}


def _producers(node: Node, topic: str, partition: int) -> dict[str, Any]:
    try:
        log = node.partitions.existing_log(topic, partition)
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
