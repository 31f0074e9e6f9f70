"""Helpers of several handlers: error codes, and partitions with their leader epoch checked."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.coordinator.step import Call
from kafkalog.errors import for_clients
from kafkalog.logs.limit import limited
from kafkalog.security.permissions import CLUSTER_NAME, Kind, Operation, everything
from kafkalog.server.failures import code_of
from kafkalog.server.node import Node, Serving
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.metadata.image import Partition

__all__ = [
    "NO_OPERATIONS",
    "Handler",
    "call_of",
    "cluster_operations",
    "failed",
    "leader_error",
    "node_entries",
    "node_entry",
    "operations",
]

Handler = Callable[[Node, Request], Mapping[str, Any] | None]
"""Takes a request with its decoded body; returns the response's fields, or None if it has
answered or will answer later."""

_logger = limited(__name__)

NO_OPERATIONS = -(2**31)
"""The value for authorized operations when the client did not ask for them."""


def call_of(request: Request) -> Call:
    """A request as coordinators take it.  It leaves the request, which may wait for long."""
    peer, size = request.peer, request.size
    body = request.hand_over()
    return Call(
        body, request.version, peer.client_id or "", peer.host, request.answer, size=size,
        rows=request.rows,
    )  # fmt: skip


def failed(problem: BaseException) -> dict[str, Any]:
    """The two error fields that most responses have."""
    return {"error_code": code_of(problem), "error_message": for_clients(problem)}


def operations(node: Serving, request: Request, kind: Kind, name: str) -> int:
    """The operations that the caller may do to a resource, one bit each."""
    if not node.admission.guards(request.peer):
        return everything(kind)
    return node.admission.operations(request.peer, kind, name)


def cluster_operations(node: Serving, request: Request) -> int:
    """The cluster's authorized operations, if the client asked for them."""
    if not request.body.include_cluster_authorized_operations:
        return NO_OPERATIONS
    found = operations(node, request, Kind.CLUSTER, CLUSTER_NAME)
    return found if found & 1 << Operation.DESCRIBE else 0


def leader_error(
    node: Node, partition: "Partition | None", current_leader_epoch: int = -1
) -> ErrorCode:
    """Check that this node leads a partition, and that the client's leader epoch is ours
    (KIP-320); -1: none given."""
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if node.clustered and partition.leader != node.node_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if current_leader_epoch in (-1, partition.leader_epoch):
        return ErrorCode.NONE
    if current_leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def node_entry(node: Node, listener: int, broker: int | None = None) -> dict[str, Any] | None:
    """A broker, by default this one, as clients of a listener reach it; None if they cannot reach
    it."""
    here = node.address_for(listener)
    if broker in (None, node.node_id):
        return {"node_id": node.node_id, "host": here.host, "port": here.port, "rack": node.rack}
    found = node.image.brokers.get(broker)
    if found is not None:
        for name, host, port, _ in found.endpoints:
            if name == here.name:
                return {"node_id": broker, "host": host, "port": port, "rack": found.rack}
    return None


def node_entries(node: Node, listener: int, fenced: bool = False) -> list[dict[str, Any]]:
    """All live brokers, as clients of a listener reach them; `fenced`: also those that are."""
    known = node.image.brokers if fenced else node.image.living
    others = known if node.clustered else ()
    found = [node_entry(node, listener, one) for one in sorted({*others, node.node_id})]
    return [one for one in found if one is not None]
