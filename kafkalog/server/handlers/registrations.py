"""UnregisterBroker, UnregisterController: the metadata decides."""

from typing import Any

from kafkalog.server.node import Node
from kafkalog.server.request import Request

__all__ = ["unregister_broker", "unregister_controller"]


def unregister_broker(node: Node, request: Request) -> dict[str, Any]:
    """Remove the registration of a broker that is gone for good."""
    return node.alone().unregister_broker(request.body.broker_id)


def unregister_controller(node: Node, request: Request) -> dict[str, Any]:
    """Remove the registration of a controller that is gone for good."""
    return node.alone().unregister_controller(request.body.controller_id)
