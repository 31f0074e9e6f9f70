"""Reads of the tree what `load` looks at, with as few questions as can be.

To walk the whole tree is four questions a partition: two znodes, each asked for its data and its
children.  What a topic's znode says is where its partitions' states lie: one question each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import BadZnode
from kafkalog.metadata.zookeeper import entities, tree
from kafkalog.metadata.zookeeper.loading import Loaded, Znode, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.metadata.zookeeper.session import Session

__all__ = ["read_tree"]

TOPIC_CONFIGS = f"{entities.CONFIG}/topics"
SMALL = (
    tree.CLUSTER_ID, tree.CONTROLLER, tree.CONTROLLER_EPOCH, tree.PRODUCER_IDS, tree.BROKERS,
    tree.DELETE_TOPICS,
    *(f"{entities.CONFIG}/{kind}" for kind in entities.KINDS if kind != "topics"),
)  # fmt: skip
"""What does not grow with topics."""


def read_tree(session: Session, node_id: int) -> Loaded:
    """As `load` says it of the whole tree, for the broker `node_id`.

    What goes or comes while this reads may be missing: callers that need more watch and read again.

    Raises: ZooKeeperAway.
    """
    znodes = session.tree(*SMALL)
    znodes |= _data(session, _below(session, TOPIC_CONFIGS))
    topics = _data(session, _below(session, tree.TOPICS))
    states = [path for place, znode in topics.items() for path in _states(place, znode)]
    return load(znodes | topics | _data(session, states), node_id)


def _below(session: Session, place: str) -> list[str]:
    return [f"{place}/{name}" for name in session.children(place) or ()]


def _data(session: Session, paths: Sequence[str]) -> dict[str, Znode]:
    """Those of them that exist."""
    found = session.look([(path, False, False) for path in paths])
    pairs = zip(paths, found, strict=True)
    return {path: znode for path, znode in pairs if isinstance(znode, Znode)}


def _states(place: str, znode: Znode) -> list[str]:
    """The path of the leaders of a topic's partitions."""
    topic = place.rpartition("/")[2]
    try:
        numbers = tree.read_topic(topic, znode.data).replicas
    except BadZnode:
        return []  # `load` tells it
    return [tree.partition_path(topic, number) for number in numbers]
