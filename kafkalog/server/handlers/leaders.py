"""Leaders of partitions that this node refuses, and their addresses: the hints of KIP-951."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkalog.server.handlers.common import node_entries, node_entry
from kafkalog.server.network.listeners import INSIDE
from kafkalog.server.node import Node

if TYPE_CHECKING:
    from kafkalog.metadata.image import Change

__all__ = ["current_leader", "endpoints", "follow_addresses"]


def current_leader(node: Node, topic: str, partition: int) -> dict[str, Any] | None:
    """A partition's leader as responses name it; None if none is known."""
    state = node.partitions.state(topic, partition)
    if state is None or state.leader < 0:
        return None
    return {"leader_id": state.leader, "leader_epoch": state.leader_epoch}


def endpoints(node: Node, listener: int, leaders: Iterable[int]) -> list[dict[str, Any]]:
    """Where clients of a listener reach these nodes; nodes that they cannot reach are left out."""
    found = [node_entry(node, listener, leader) for leader in sorted(set(leaders))]
    return [one for one in found if one is not None]


def follow_addresses(node: Node) -> None:
    """Tell the data plane the nodes' addresses, now and whenever the metadata changes them."""

    def tell() -> None:
        for listener in (*range(len(node.advertised)), INSIDE):
            node.reactor.set_endpoints(listener, node_entries(node, listener))

    def changed(change: "Change") -> None:
        if change.old.brokers != change.new.brokers:
            tell()

    node.metadata.listen(changed)
    tell()
