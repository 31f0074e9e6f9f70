"""The current state of a cluster: its nodes, and the replicas of all partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.cli.common import UsageError, hint
from kafkalog.cli.remote import picked, spread
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.client.calls.nodes import LogDir
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.client.link.metadata import PartitionInfo

__all__ = ["Look", "chosen", "look", "sizes"]


class Look(NamedTuple):
    """A cluster as its metadata describes it."""

    cluster_id: str
    controller: int
    """The controller's node; -1 if unknown."""
    nodes: dict[int, str]
    """host:port of each live node."""
    racks: dict[int, str | None]
    partitions: dict[TopicPartition, PartitionInfo]
    """All nodes that hold replicas or live, sorted."""

    @property
    def layout(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The replicas of each partition."""
        return {tp: info.replicas for tp, info in self.partitions.items()}


def look(cluster: Cluster) -> Look:
    """Ask for all topics, including internal ones.  Raises: as `Cluster.refresh`."""
    cluster.refresh(None)
    partitions = {
        TopicPartition(topic.name, number): info
        for topic in cluster.topics.values()
        for number, info in topic.partitions.items()
    }
    return Look(
        cluster.cluster_id or "",
        cluster.controller_id if cluster.controller_id in cluster.nodes else -1,
        {node: str(at) for node, at in sorted(cluster.nodes.items())},
        dict(sorted(cluster.racks.items())),
        dict(sorted(partitions.items())),
    )


def chosen(found: Look, words: Iterable[str]) -> list[TopicPartition]:
    """The partitions named by words such as `orders` or `orders:0,2-5`; all if there are none.

    Raises: UsageError.
    """
    some = spread(words)
    if not some:
        return list(found.partitions)

    def known(topic: str) -> list[TopicPartition]:
        of_it = [tp for tp in found.partitions if tp.topic == topic]
        if not of_it:
            names = sorted({tp.topic for tp in found.partitions})
            why = hint(topic, names, f"it has {', '.join(names[:10])}")
            raise UsageError(f"the cluster has no topic {topic!r}; {why}")
        return of_it

    return sorted({tp for text in some for tp in picked(known, text)})


def sizes(
    cluster: Cluster, found: Look, patience_ms: int | None = None
) -> dict[int, dict[TopicPartition, int]]:
    """How many bytes each node has of its replicas; a node that does not say is left out."""
    from kafkalog.client.calls.nodes import describe_log_dirs

    results = describe_log_dirs(
        cluster, found.nodes, patience_ms or cluster.options.request_timeout_ms
    )
    return {node: _sizes(dirs) for node, dirs in results.done.items()}


def _sizes(dirs: Iterable[LogDir]) -> dict[TopicPartition, int]:
    sizes: dict[TopicPartition, int] = {}
    for one in dirs:
        for tp, replica in one.replicas.items():
            if not replica.future:
                sizes[tp] = sizes.get(tp, 0) + replica.size_bytes
    return sizes
