"""Says what a node lacks to serve its clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.metadata.levels import SHARE_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kafkalog.coordinator.core import CoordinatorState
    from kafkalog.server.node import Node, Serving

__all__ = ["missing_of_broker", "missing_of_controller"]

NO_CONTROLLER = -1


def missing_of_controller(node: Serving) -> Iterator[str]:
    """Sentences: the reasons why a controller cannot serve its clients now."""
    if node.metadata.controller == NO_CONTROLLER:
        yield "no active controller is known"


def missing_of_broker(node: Node) -> Iterator[str]:
    """The same of a broker."""
    if node.reactor.stopped:
        yield "the broker ends"
    if node.clustered:
        yield from missing_of_controller(node)
        mine = node.image.brokers.get(node.node_id)
        if mine is None:
            yield f"broker {node.node_id} is not registered"
        elif mine.fenced:
            yield f"broker {node.node_id} is fenced"
    journals: list[tuple[str, CoordinatorState[Any]]] = [
        ("__consumer_offsets", node.coordinator.core),
        ("__transaction_state", node.transactions.core),
    ]
    if node.image.features.get(SHARE_VERSION, 0):
        journals.append(("__share_group_state", node.share_states.core))
    for topic, core in journals:
        if count := len(core.loading):
            yield f"{count} partitions of {topic} are being read"
        if count := len(core.unread):
            yield f"{count} partitions of {topic} cannot be read"
