"""DescribeCluster: a cluster of one."""

from typing import Any

from kafkalog.server.handlers.common import CLUSTER_OPERATIONS, NO_OPERATIONS, Handler, node_entry
from kafkalog.server.node import Node
from kafkalog.server.threads.requests import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["HANDLERS"]

BROKERS, CONTROLLERS = 1, 2
"""Kinds of endpoints."""


def describe_cluster(node: Node, request: Request) -> dict[str, Any]:
    """This broker, which also is the controller as far as clients see."""
    body = request.body
    if request.version >= 1 and body.endpoint_type != BROKERS:
        known = body.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"endpoint type: found {body.endpoint_type}, wanted {BROKERS} (brokers)"
        return {"error_code": code, "error_message": message, "endpoint_type": BROKERS}
    asked = body.include_cluster_authorized_operations
    broker = node_entry(node, request.peer.listener)
    return {
        "cluster_id": node.image.cluster_id,
        "controller_id": node.node_id,
        "brokers": [{"broker_id": broker.pop("node_id"), **broker}],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asked else NO_OPERATIONS,
    }


HANDLERS: dict[int, Handler] = {apis.DESCRIBE_CLUSTER.key: describe_cluster}
