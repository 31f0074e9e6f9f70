"""Reads the parts of the tree that `load` needs, with as few requests as possible.

Walking the whole tree takes four requests per partition: two znodes, each asked for its data and
its children.  A topic's znode names the states of its partitions, which then take one request each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import BadZnode
from kafkalog.zookeeper import entities, tree
from kafkalog.zookeeper.loading import Loaded, Znode, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.zookeeper.session import Session

__all__ = ["CLIENTS", "read_tree", "watched_children"]

TOPIC_CONFIGS = f"{entities.CONFIG}/topics"
CLIENTS = tuple(f"{entities.CONFIG}/{kind}" for kind in entities.QUOTAS)
"""The folders of users, clients and addresses."""
SMALL = (
    tree.CLUSTER_ID, tree.CONTROLLER, tree.CONTROLLER_EPOCH, tree.PRODUCER_IDS, tree.BROKERS,
    tree.DELETE_TOPICS,
    f"{entities.CONFIG}/brokers", *CLIENTS,
)  # fmt: skip
"""The parts whose size does not grow with topics."""


def read_tree(session: Session, node_id: int) -> Loaded:
    """As `load` of the whole tree, for the broker `node_id`.

    Znodes that change in the process may be missing: callers that need more watch and read again.

    Raises: ZooKeeperAway.
    """
    znodes = session.tree(*SMALL)
    for place in (TOPIC_CONFIGS, tree.OWN_TOPICS):
        znodes |= _data(session, _below(session, place))
    topics = _data(session, _below(session, tree.TOPICS))
    states = [path for place, znode in topics.items() for path in _states(place, znode)]
    return load(znodes | topics | _data(session, states), node_id)


def _below(session: Session, place: str) -> list[str]:
    return [f"{place}/{name}" for name in session.children(place) or ()]


def _data(session: Session, paths: Sequence[str]) -> dict[str, Znode]:
    """The paths that exist."""
    found = session.look([(path, False, False) for path in paths])
    pairs = zip(paths, found, strict=True)
    return {path: znode for path, znode in pairs if isinstance(znode, Znode)}


def _states(place: str, znode: Znode) -> list[str]:
    """The path of the states of a topic's partitions."""
    topic = place.rpartition("/")[2]
    try:
        numbers = tree.read_topic(topic, znode.data).replicas
    except BadZnode:
        return []  # `load` reports it
    return [tree.partition_path(topic, number) for number in numbers]


def watched_children(session: Session, path: str) -> list[str]:
    """The names below a znode, watched, as is a znode that does not exist.

    Raises: ZooKeeperAway, BadZnode: it may not be listed.
    """
    found = session.children(path, watch=True)
    if found is None and session.read(path, watch=True) is not None:
        found = session.children(path, watch=True)  # it was created in between
    return found or []
