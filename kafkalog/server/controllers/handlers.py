"""The requests that a controller answers in another way than a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.logs.limit import limited
from kafkalog.server.controllers.envelope import Unopened, opened
from kafkalog.server.failures import answer_failure
from kafkalog.server.handlers.api_versions import answer_versions
from kafkalog.server.handlers.cluster import CONTROLLERS, mismatch
from kafkalog.server.handlers.common import cluster_operations
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.server.controllers.node import ControllerNode
    from kafkalog.server.request import Request

__all__ = ["alter_acls", "api_versions", "describe_cluster", "open_envelope"]

_logger = limited(__name__)


def api_versions(node: ControllerNode, request: Request) -> None:
    """The APIs that a controller's listener serves, and the levels of features."""
    answer_versions(node, request, node.announced)


def describe_cluster(node: ControllerNode, request: Request) -> Mapping[str, Any]:
    """The registered controllers, as clients of this listener reach them (KIP-919)."""
    refused = mismatch(request, CONTROLLERS)
    if refused is not None:
        return refused
    listener = node.listeners[request.peer.listener].name
    found = [
        {"broker_id": number, "host": one.host, "port": one.port, "rack": None}
        for number, registered in sorted(node.image.controllers.items())
        for one in registered.end_points
        if one.name == listener
    ]
    return {
        "cluster_id": node.image.cluster_id,
        "controller_id": node.metadata.controller,
        "brokers": found,
        "endpoint_type": CONTROLLERS,
        "cluster_authorized_operations": cluster_operations(node, request),
    }


def alter_acls(node: ControllerNode, request: Request) -> Mapping[str, Any] | None:
    """CreateAcls and DeleteAcls, if ACLs are enforced."""
    if not node.admission.authorizes:
        message = "No Authorizer is configured."
        answer_failure(request, ErrorCode.SECURITY_DISABLED, message)
        return None
    return node.controller_apis.handle(request)


def open_envelope(node: ControllerNode, request: Request) -> Mapping[str, Any] | None:
    """Serve the request in an envelope, with the rights of the client that it names."""
    try:
        inner = opened(request, node.admission)
    except Unopened as problem:
        _logger.warning("%r: it cannot be opened: %s", request, problem)
        return {"response_data": None, "error_code": problem.code}
    node.serve(inner)
    return None
