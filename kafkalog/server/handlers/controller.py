"""Requests about the whole cluster, and those between a cluster's controller and its brokers."""

from collections.abc import Mapping
from typing import Any

from kafkalog.server.node import Node, Serving
from kafkalog.server.request import Request

__all__ = ["as_controller", "command", "to_controller"]


def to_controller(node: Serving, request: Request) -> Mapping[str, Any] | None:
    """A client's request, which the cluster's controller answers."""
    return node.controller_apis.handle(request)


def command(node: Node, request: Request) -> Mapping[str, Any]:
    """The command of a cluster's controller to this broker."""
    return node.controller_apis.handle_command(request)


def as_controller(node: Serving, request: Request) -> None:
    """A broker's request to the controller."""
    node.controller_apis.handle_as_controller(request)
