"""The calls of `kafkalog.Admin` about nodes, the metadata quorum and features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from kafkalog import arguments
from kafkalog.arguments import INT16_MAX, whole_number
from kafkalog.client.calls import features, nodes
from kafkalog.client.calls import quorum as quorum_
from kafkalog.client.calls.arguments import replica_of
from kafkalog.client.calls.results import Results
from kafkalog.client.link.locked_cluster import Locked
from kafkalog.errors import ArgumentError

__all__ = ["AdminNodes"]

Replica = TypeVar("Replica", bound=tuple[str, int, int])
Endpoint = quorum_.RaftVoterEndpoint | tuple[str, str, int]
PORT_MAX = 65_535
UPDATES = {"upgrade": 1, "safe_downgrade": 2, "unsafe_downgrade": 3}
"""The kinds of feature updates, and Kafka's number for each."""


class AdminNodes(Locked):
    """A part of Admin."""

    def describe_cluster(
        self, *, fenced: bool = False, timeout_ms: int | None = None
    ) -> nodes.ClusterInfo:
        """The cluster's id, controller and nodes; `fenced`: also brokers that do not serve.

        Raises: UnsupportedVersion: `fenced` for a broker before 4.0; what a broker answers.
        """
        some = arguments.flag("fenced", fenced)
        return self._ask(nodes.describe_cluster, some, timeout_ms=timeout_ms)

    def unregister_broker(self, node: int, timeout_ms: int | None = None) -> None:
        """Remove a broker that is gone for good from the cluster.

        Raises: BrokerIdNotRegistered, UnsupportedVersion for a cluster without KRaft; ...
        """
        self._ask(nodes.unregister_broker, arguments.node("node", node), timeout_ms=timeout_ms)

    def unregister_controller(self, node: int, timeout_ms: int | None = None) -> None:
        """Remove the registration of a controller that is gone for good.

        Raises: ControllerIdNotRegistered, UnsupportedVersion for a cluster without KRaft; ...
        """
        one = arguments.node("node", node)
        self._ask(quorum_.unregister_controller, one, timeout_ms=timeout_ms)

    def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        timeout_ms: int | None = None,
        *,
        partitions: Iterable[tuple[str, int]] | None = None,
    ) -> Results[int, tuple[nodes.LogDir, ...]]:
        """The log directories of each node, sorted by path; None: of all nodes.  `partitions`:
        only replicas of these.

        Failures: ArgumentError (no such node), ...
        """
        some = None if brokers is None else arguments.nodes("brokers", brokers)
        only = None if partitions is None else arguments.partitions("partitions", partitions)
        return self._ask(nodes.describe_log_dirs, some, partitions=only, timeout_ms=timeout_ms)

    def move_replicas(
        self, places: Mapping[Replica, str], timeout_ms: int | None = None
    ) -> Results[nodes.ReplicaOf, None]:
        """Move replicas (topic, partition, node) to other log directories of their nodes.

        Failures: LogDirNotFound, UnknownTopicOrPartition, ...
        """
        wanted = {
            replica_of("places", one): arguments.text("places", path)
            for one, path in arguments.mapping("places", places).items()
        }
        return self._ask(nodes.move_replicas, wanted, timeout_ms=timeout_ms)

    # ---- the metadata quorum -------------------------------------------------------------

    def describe_quorum(self, timeout_ms: int | None = None) -> quorum_.QuorumInfo:
        """The quorum of the metadata log.  Raises: UnsupportedVersion: a cluster without KRaft."""
        return self._ask(quorum_.describe_quorum, timeout_ms=timeout_ms)

    def add_raft_voter(
        self,
        node: int,
        directory_id: UUID,
        endpoints: Iterable[Endpoint],
        *,
        cluster_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Add a controller that runs and has caught up to the voters of the metadata quorum.

        `endpoints`: its listeners, RaftVoterEndpoint(listener, host, port).  `cluster_id`: refuse
        to change another cluster.

        Raises: UnsupportedVersion (the voters cannot change), DuplicateVoter, ...
        """
        some = [_endpoint("endpoints", one) for one in arguments.things("endpoints", endpoints)]
        self._ask(
            quorum_.add_raft_voter, arguments.node("node", node),
            _directory("directory_id", directory_id), some, _cluster("cluster_id", cluster_id),
            timeout_ms=timeout_ms,
        )  # fmt: skip

    def remove_raft_voter(
        self,
        node: int,
        directory_id: UUID,
        *,
        cluster_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Remove a controller from the voters of the metadata quorum; it may run or be gone.

        Raises: UnsupportedVersion (the voters cannot change), VoterNotFound, ...
        """
        self._ask(
            quorum_.remove_raft_voter, arguments.node("node", node),
            _directory("directory_id", directory_id), _cluster("cluster_id", cluster_id),
            timeout_ms=timeout_ms,
        )  # fmt: skip

    # ---- features ------------------------------------------------------------------------

    def describe_features(self, timeout_ms: int | None = None) -> features.Features:
        """The levels that features have, and the supported ones."""
        return self._ask(features.describe_features, timeout_ms=timeout_ms)

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        how: str = "upgrade",
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Change the levels of features, 0: disable; `how`: upgrade, safe_downgrade,
        unsafe_downgrade.

        Failures: InvalidUpdateVersion.  Raises: what the broker answers for all.
        """
        wanted = {
            arguments.text("levels", name): whole_number("levels", level, 0, INT16_MAX)
            for name, level in arguments.mapping("levels", levels).items()
        }
        kind = UPDATES[arguments.one_of("how", how, UPDATES)]
        only_look = arguments.flag("validate_only", validate_only)
        given = wanted, kind, only_look
        return self._ask(features.update_features, *given, timeout_ms=timeout_ms)


def _endpoint(name: str, value: Any) -> quorum_.RaftVoterEndpoint:
    """A listener from a plain tuple.  Raises: ArgumentError."""
    if not isinstance(value, tuple) or len(value) != 3:
        raise ArgumentError(f"{name}: found {value!r}, wanted (listener, host, port)")
    listener, host, port = value
    return quorum_.RaftVoterEndpoint(
        arguments.text(name, listener), arguments.text(name, host),
        whole_number(name, port, 0, PORT_MAX),
    )  # fmt: skip


def _directory(name: str, value: Any) -> UUID:
    if not isinstance(value, UUID):
        raise ArgumentError(f"{name}: found {value!r}, wanted a UUID, as describe_quorum has it")
    return value


def _cluster(name: str, value: Any) -> str | None:
    return None if value is None else arguments.text(name, value)
