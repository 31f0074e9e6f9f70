"""The nodes of a cluster: their addresses and log directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.results import Results, each
from kafkalog.client.link.chunks import by_topic, topic_rows
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, outcome
from kafkalog.client.link.metadata import endpoint_type
from kafkalog.types import TopicPartition
from kafkalog.wire import apis

__all__ = [
    "ClusterInfo",
    "LogDir",
    "NodeInfo",
    "ReplicaInfo",
    "ReplicaOf",
    "describe_cluster",
    "describe_log_dirs",
    "move_replicas",
    "unregister_broker",
]


class NodeInfo(NamedTuple):
    """A broker."""

    node: int
    host: str
    port: int
    rack: str | None
    fenced: bool
    """Registered but not serving; only if fenced brokers were requested."""


class ClusterInfo(NamedTuple):
    """A cluster."""

    cluster_id: str
    controller: int
    """A node; -1: unknown."""
    nodes: tuple[NodeInfo, ...]
    """Sorted by number."""


class ReplicaInfo(NamedTuple):
    """A replica in a log directory."""

    size_bytes: int
    lag: int
    """Offsets behind the high watermark; of a future replica, behind the one that it replaces."""
    future: bool
    """It is being moved here from another directory of the node."""


class LogDir(NamedTuple):
    """A log directory of a node."""

    path: str
    failed: errors.KafkalogError | None
    """Why it cannot be used; None: it can."""
    replicas: dict[TopicPartition, ReplicaInfo]
    total_bytes: int
    """Size of its disk; -1: not reported."""
    usable_bytes: int
    """Free bytes there; -1: not reported."""


class ReplicaOf(NamedTuple):
    """A partition's replica on a node; any equal tuple works, too."""

    topic: str
    partition: int
    node: int


def describe_cluster(cluster: Cluster, fenced: bool = False) -> ClusterInfo:
    """The cluster's id, controller and nodes; `fenced`: also brokers that do not serve.  A client
    of controllers gets those.

    Raises: UnsupportedVersion: `fenced` for a broker before 4.0; what a broker answers.
    """

    def step() -> ClusterInfo:
        connection = cluster.any()
        of_controllers = cluster.options.controllers
        if not fenced and not of_controllers and not connection.knows(apis.DESCRIBE_CLUSTER):
            return _from_metadata(cluster)
        version = connection.version_of(apis.DESCRIBE_CLUSTER)
        if fenced and version < 2:
            raise errors.UnsupportedVersion(
                f"{connection.address}: DescribeCluster: version {version}, wanted 2 for fenced "
                "brokers"
            )
        body = {"include_fenced_brokers": fenced, "endpoint_type": endpoint_type(of_controllers)}
        answer = connection.call(apis.DESCRIBE_CLUSTER, body, version)
        check_code(answer.error_code, "cluster", answer.error_message)
        nodes = (
            NodeInfo(b.broker_id, b.host, b.port, b.rack, version >= 2 and b.is_fenced)
            for b in answer.brokers
        )
        return ClusterInfo(answer.cluster_id, answer.controller_id, tuple(sorted(nodes)))

    return cluster.retrying(step)


def _from_metadata(cluster: Cluster) -> ClusterInfo:
    """From Metadata, for a broker before 2.8."""
    cluster.refresh([])
    nodes = (
        NodeInfo(node, at.host, at.port, cluster.racks.get(node), False)
        for node, at in sorted(cluster.nodes.items())
    )
    return ClusterInfo(cluster.cluster_id or "", cluster.controller_id, tuple(nodes))


def describe_log_dirs(
    cluster: Cluster, nodes: Iterable[int] | None = None, timeout_ms: int | None = None,
    *, partitions: Iterable[TopicPartition] | None = None,
) -> Results[int, tuple[LogDir, ...]]:  # fmt: skip
    """The log directories of each node, sorted by path; None: of all nodes.  `partitions`: only
    replicas of these.

    Failures: PeerGone (no such node); what a broker answers.  Raises: as `each`.
    """
    if nodes is None:
        cluster.refresh([])
        nodes = sorted(cluster.nodes)
    wanted = None if partitions is None else [
        {"topic": name, "partitions": sorted(numbers)}
        for name, numbers in by_topic(sorted(set(partitions))).items()
    ]  # fmt: skip
    body = {"topics": wanted}

    def ask(
        connection: Connection, some: list[int], wait_ms: int
    ) -> Iterable[tuple[int, tuple[LogDir, ...]]]:
        answer = connection.call(apis.DESCRIBE_LOG_DIRS, body, timeout_ms=wait_ms)
        check_code(answer.error_code, f"log directories of node {some[0]}")
        found = tuple(sorted((_log_dir(row) for row in answer.results), key=lambda one: one.path))
        return [(node, found) for node in some]

    return each(cluster, nodes, lambda node: _known(cluster, node), ask, timeout_ms)


def _known(cluster: Cluster, node: int) -> int:
    """A node that is in the cluster.  Raises: ArgumentError."""
    if node not in cluster.nodes:
        cluster.refresh([])
    if node not in cluster.nodes:
        known = ", ".join(map(str, sorted(cluster.nodes)))
        raise errors.ArgumentError(f"node {node}: the cluster has {known}")
    return node


def _log_dir(row: Any) -> LogDir:
    return LogDir(
        row.log_dir,
        outcome(row.error_code, f"log directory {row.log_dir!r}"),
        {
            TopicPartition(topic.name, p.partition_index): ReplicaInfo(
                p.partition_size, p.offset_lag, p.is_future_key
            )
            for topic in row.topics
            for p in topic.partitions
        },
        row.total_bytes,
        row.usable_bytes,
    )


def move_replicas(
    cluster: Cluster, places: Mapping[ReplicaOf, str], timeout_ms: int | None = None
) -> Results[ReplicaOf, None]:
    """Move replicas to other log directories of their nodes, given by path.

    Failures: LogDirNotFound, UnknownTopicOrPartition; what a broker answers.  Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[ReplicaOf], wait_ms: int
    ) -> Iterable[tuple[ReplicaOf, errors.KafkalogError | None]]:
        dirs: dict[str, list[tuple[str, int]]] = {}
        for one in some:
            dirs.setdefault(places[one], []).append((one.topic, one.partition))
        rows = [{"path": path, "topics": topic_rows(there)} for path, there in dirs.items()]
        answer = connection.call(apis.ALTER_REPLICA_LOG_DIRS, {"dirs": rows}, timeout_ms=wait_ms)
        return [
            (
                ReplicaOf(topic.topic_name, p.partition_index, some[0].node),
                outcome(p.error_code, f"replica of {topic.topic_name}-{p.partition_index}"),
            )
            for topic in answer.results
            for p in topic.partitions
        ]

    return each(cluster, places, lambda one: _known(cluster, one.node), ask, timeout_ms)


def unregister_broker(cluster: Cluster, node: int) -> None:
    """Remove a broker that is gone for good from the cluster.

    Raises: BrokerIdNotRegistered; UnsupportedVersion for a cluster without KRaft; what a broker
    answers.
    """

    def step() -> None:
        connection = cluster.controller()
        version = connection.version_of(apis.UNREGISTER_BROKER)
        answer = connection.call(apis.UNREGISTER_BROKER, {"broker_id": node}, version)
        check_code(answer.error_code, f"broker {node}", answer.error_message)

    cluster.retrying(step)
