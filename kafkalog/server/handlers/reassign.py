"""ElectLeaders and reassignments: the honest answers of a cluster of one."""

from typing import Any

from kafkalog.metadata import plan as controller
from kafkalog.server import translation
from kafkalog.server.node import Node
from kafkalog.server.request import Request

__all__ = ["alter_reassignments", "elect_leaders", "list_reassignments"]


def elect_leaders(node: Node, request: Request) -> dict[str, Any]:
    """Every partition has its only replica as leader already."""
    elections = translation.elections(request.body)
    return {"replica_election_results": controller.elect_leaders(node.image, elections)}


def alter_reassignments(node: Node, request: Request) -> dict[str, Any]:
    """Replicas can only be where they are."""
    body = request.body
    return {
        "allow_replication_factor_change": body.allow_replication_factor_change,
        "responses": controller.alter_partition_reassignments(node.image, translation.moves(body)),
    }


def list_reassignments(node: Node, request: Request) -> dict[str, Any]:
    """None is ever in progress."""
    return {"topics": controller.list_partition_reassignments()}
