"""ElectLeaders and reassignments: true answers of a single node."""

from typing import Any

from kafkalog.metadata import translation
from kafkalog.server.node import Node
from kafkalog.server.request import Request

__all__ = ["alter_reassignments", "elect_leaders", "list_reassignments"]


def elect_leaders(node: Node, request: Request) -> dict[str, Any]:
    """Every partition is already led by its only replica."""
    elections = translation.elections(request.body)
    return {"replica_election_results": node.alone().elect_leaders(elections)}


def alter_reassignments(node: Node, request: Request) -> dict[str, Any]:
    """Replicas cannot move anywhere else."""
    body = request.body
    return {
        "allow_replication_factor_change": body.allow_replication_factor_change,
        "responses": node.alone().alter_partition_reassignments(translation.moves(body)),
    }


def list_reassignments(node: Node, request: Request) -> dict[str, Any]:
    """No reassignment is ever in progress."""
    return {"topics": []}
