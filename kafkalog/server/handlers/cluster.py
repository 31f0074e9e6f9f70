"""DescribeCluster, DescribeQuorum: a cluster of one."""

from collections.abc import Mapping
from typing import Any

from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.server.handlers.common import cluster_operations, node_entries
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

__all__ = ["CONTROLLERS", "describe_cluster", "describe_quorum", "mismatch"]

BROKERS, CONTROLLERS = 1, 2
"""Kinds of endpoints."""
_KINDS = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}
KINDS_SINCE = 1
"""Earlier versions of DescribeCluster do not know them: they are for brokers."""


def mismatch(request: Request, kind: int) -> dict[str, Any] | None:
    """The answer to a DescribeCluster that wants another kind of endpoint than this one."""
    wanted = request.body.endpoint_type if request.version >= KINDS_SINCE else BROKERS
    if wanted == kind:
        return None
    if request.version < KINDS_SINCE:
        code = ErrorCode.INVALID_REQUEST
    elif wanted in _KINDS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    message = f"Unsupported endpoint type {wanted}"
    if wanted in _KINDS:
        message = (f"The request was sent to an endpoint of type {_KINDS[kind]}, but we wanted an "
                   f"endpoint of type {_KINDS[wanted]}")  # fmt: skip
    return {"error_code": code, "error_message": message, "endpoint_type": BROKERS}


def describe_cluster(node: Node, request: Request) -> dict[str, Any]:
    """This broker, which clients also see as the controller."""
    body = request.body
    refused = mismatch(request, BROKERS)
    if refused is not None:
        return refused
    living = node.image.living
    entries = node_entries(node, request.peer.listener, body.include_fenced_brokers)
    return {
        "cluster_id": node.image.cluster_id,
        "controller_id": node.metadata.controller,
        "brokers": [
            {
                "is_fenced": node.clustered and one["node_id"] not in living,
                "broker_id": one.pop("node_id"),
                **one,
            }
            for one in entries
        ],
        "cluster_authorized_operations": cluster_operations(node, request),
    }


def describe_quorum(node: Node, request: Request) -> Mapping[str, Any] | None:
    """The metadata log: a single node is its only voter; in a cluster the leader answers."""
    if node.clustered:
        return node.controller_apis.handle(request)
    topics = [
        {"topic_name": topic.topic_name,
         "partitions": [_quorum(node, topic.topic_name, one.partition_index)
                        for one in topic.partitions]}
        for topic in request.body.topics
    ]  # fmt: skip
    led = any(not one["error_code"] for topic in topics for one in topic["partitions"])
    address = node.address_for(request.peer.listener)
    # The address where this listener's clients reach the node: it has none for controllers.
    place = {"name": address.name, "host": address.host, "port": address.port}
    return {
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "topics": topics,
        "nodes": [{"node_id": node.node_id, "listeners": [place]}] if led else [],
    }


def _quorum(node: Node, topic: str, partition: int) -> dict[str, Any]:
    if (topic, partition) != (METADATA_TOPIC, 0):
        return {"partition_index": partition,
                "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "error_message": "This server does not host this topic-partition."}  # fmt: skip
    quorum, now_ms = node.controller_apis.quorum(), node.clock.now_ms()
    voter = {
        "replica_id": node.node_id,
        "replica_directory_id": quorum.directory_id or ZERO_UUID,
        "log_end_offset": quorum.end_offset,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    return {
        "partition_index": partition,
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "leader_id": node.node_id,
        "leader_epoch": quorum.epoch,
        "high_watermark": quorum.end_offset,
        "current_voters": [voter],
    }
