"""The quorum of the metadata log (KRaft): its replicas, and changes of its voters (KIP-853)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog import errors
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import check_code
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

__all__ = [
    "QuorumInfo",
    "QuorumReplica",
    "RaftVoterEndpoint",
    "add_raft_voter",
    "describe_quorum",
    "remove_raft_voter",
    "unregister_controller",
]

METADATA_TOPIC = "__cluster_metadata"


class RaftVoterEndpoint(NamedTuple):
    """Where a controller listens; any equal tuple works, too."""

    listener: str
    """The listener's name."""
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class QuorumReplica(NamedTuple):
    """A replica of the metadata log."""

    node: int
    end_offset: int
    fetched_ms: int
    """When it last fetched, in ms since 1970; -1: not reported."""
    caught_up_ms: int
    """When it was last caught up with the leader, in ms since 1970; -1: not reported."""
    directory_id: UUID = ZERO_UUID
    """The id of its directory; all zero: not reported."""
    endpoints: tuple[RaftVoterEndpoint, ...] = ()
    """Where a voter listens, as far as reported."""


class QuorumInfo(NamedTuple):
    """The quorum of the metadata log."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


def describe_quorum(cluster: Cluster) -> QuorumInfo:
    """The quorum of the metadata log.

    Raises: UnsupportedVersion for a cluster without KRaft; what a broker answers.
    """
    topics = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]

    def step() -> QuorumInfo:
        connection = cluster.controller()
        version = connection.version_of(apis.DESCRIBE_QUORUM)
        answer = connection.call(apis.DESCRIBE_QUORUM, {"topics": topics}, version)
        check_code(answer.error_code, "quorum", answer.error_message)
        rows = [row for topic in answer.topics for row in topic.partitions]
        if len(rows) != 1:
            raise errors.BadAnswer(f"DescribeQuorum: found {len(rows)} partitions, wanted 1")
        (one,) = rows
        check_code(one.error_code, "quorum", one.error_message)
        places = {
            node.node_id: tuple(RaftVoterEndpoint(*end) for end in _ends(node.listeners))
            for node in (answer.nodes if version >= 2 else ())
        }
        voters, observers = (
            tuple(_replica(row, version, places) for row in some)
            for some in (one.current_voters, one.observers)
        )
        return QuorumInfo(one.leader_id, one.leader_epoch, one.high_watermark, voters, observers)

    return cluster.retrying(step)


def _ends(listeners: Any) -> Iterable[tuple[str, str, int]]:
    return ((one.name, one.host, one.port) for one in listeners)


def _replica(
    row: Any, version: int, places: dict[int, tuple[RaftVoterEndpoint, ...]]
) -> QuorumReplica:
    return QuorumReplica(
        row.replica_id, row.log_end_offset, row.last_fetch_timestamp, row.last_caught_up_timestamp,
        row.replica_directory_id if version >= 2 else ZERO_UUID, places.get(row.replica_id, ()),
    )  # fmt: skip


def add_raft_voter(
    cluster: Cluster,
    node: int,
    directory_id: UUID,
    endpoints: Iterable[RaftVoterEndpoint],
    cluster_id: str | None = None,
) -> None:
    """Add a controller, which runs and has caught up, to the voters.

    Raises: UnsupportedVersion, DuplicateVoter, ...; what a controller answers.
    """
    listeners = [{"name": one.listener, "host": one.host, "port": one.port} for one in endpoints]
    body = {
        "cluster_id": cluster_id, "timeout_ms": cluster.options.request_timeout_ms,
        "voter_id": node, "voter_directory_id": directory_id, "listeners": listeners,
    }  # fmt: skip
    _change(
        cluster, apis.ADD_RAFT_VOTER, body, f"controller {node}", ErrorCode.DUPLICATE_VOTER,
        lambda: any(
            (one.node, one.directory_id) == (node, directory_id)
            for one in describe_quorum(cluster).voters
        ),
    )  # fmt: skip


def remove_raft_voter(
    cluster: Cluster, node: int, directory_id: UUID, cluster_id: str | None = None
) -> None:
    """Remove a controller from the voters.

    Raises: UnsupportedVersion, VoterNotFound, ...; what a controller answers.
    """
    body = {"cluster_id": cluster_id, "voter_id": node, "voter_directory_id": directory_id}
    _change(
        cluster, apis.REMOVE_RAFT_VOTER, body, f"controller {node}", ErrorCode.VOTER_NOT_FOUND,
        lambda: True,
    )  # fmt: skip


def unregister_controller(cluster: Cluster, node: int) -> None:
    """Remove the registration of a controller that is gone for good.

    Raises: ControllerIdNotRegistered; what a controller answers.
    """
    _change(
        cluster, apis.UNREGISTER_CONTROLLER, {"controller_id": node}, f"controller {node}",
        ErrorCode.CONTROLLER_ID_NOT_REGISTERED, lambda: True,
    )  # fmt: skip


def _change(
    cluster: Cluster, api: Api, body: dict[str, Any], what: str, already: ErrorCode,
    done: Callable[[], bool],
) -> None:  # fmt: skip
    """Send a change until it is answered.

    `already`: the error if it has been done; an earlier attempt without an answer may have done it,
    if `done()` says so.
    """
    tried = False

    def step() -> None:
        nonlocal tried
        connection = cluster.controller()
        again, tried = tried, True
        answer = connection.call(api, body, connection.version_of(api))
        if again and answer.error_code == already and done():
            return
        check_code(answer.error_code, what, answer.error_message)

    cluster.retrying(step)
