"""UnregisterBroker, UnregisterController: the metadata decides."""

from typing import Any

from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["unregister_broker", "unregister_controller"]

OF_ZOOKEEPER = {
    "error_code": ErrorCode.UNSUPPORTED_VERSION,
    "error_message": "A broker of a cluster on ZooKeeper is registered as long as its session.",
}


def unregister_broker(node: Node, request: Request) -> dict[str, Any]:
    """Remove the registration of a broker that is gone for good."""
    if node.clustered:
        return OF_ZOOKEEPER
    return node.alone().unregister_broker(request.body.broker_id)


def unregister_controller(node: Node, request: Request) -> dict[str, Any]:
    """Remove the registration of a controller that is gone for good."""
    if node.clustered:
        return OF_ZOOKEEPER
    return node.alone().unregister_controller(request.body.controller_id)
