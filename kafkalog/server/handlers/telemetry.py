"""GetTelemetrySubscriptions and PushTelemetry (KIP-714), which need no permission."""

from typing import Any

from kafkalog.server.node import Node
from kafkalog.server.request import Request

__all__ = ["get_telemetry_subscriptions", "push_telemetry"]


def get_telemetry_subscriptions(node: Node, request: Request) -> dict[str, Any]:
    """The metrics that the client is asked for."""
    return node.telemetry.ask(request)


def push_telemetry(node: Node, request: Request) -> dict[str, Any]:
    """Metrics of the client."""
    return node.telemetry.push(request)
