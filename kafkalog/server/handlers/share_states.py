"""The states of share partitions: answered by their coordinator."""

from kafkalog.server.handlers.common import call_of
from kafkalog.server.node import Node
from kafkalog.server.request import Request

__all__ = ["to_coordinator"]


def to_coordinator(node: Node, request: Request) -> None:
    """Hand a request to the coordinator, which answers now or later."""
    node.share_states.submit(request.api, call_of(request), here=True)
