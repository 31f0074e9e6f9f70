"""The replicas of partitions, their moves and their leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.results import Results, broker_ms, each
from kafkalog.client.link.chunks import topic_rows
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, outcome
from kafkalog.types import TopicPartition
from kafkalog.wire import apis

__all__ = [
    "ELECTIONS",
    "Reassignment",
    "elect_leaders",
    "list_reassignments",
    "reassign_partitions",
]

ELECTIONS: Final = {"preferred": 0, "unclean": 1}
"""Kinds of elections: of the first replica; of any live one, which may lack records."""


class Reassignment(NamedTuple):
    """A partition whose replicas are moving."""

    replicas: tuple[int, ...]
    """Nodes: all replicas now, in order of preference."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def elect_leaders(
    cluster: Cluster,
    kind: str,
    partitions: Iterable[TopicPartition],
    timeout_ms: int | None = None,
) -> Results[TopicPartition, None]:
    """Elect leaders of partitions: see ELECTIONS.

    Failures: ElectionNotNeeded: the right one leads; UnknownTopicOrPartition; what a broker
    answers.  Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[TopicPartition], wait_ms: int
    ) -> Iterable[tuple[TopicPartition, errors.KafkalogError | None]]:
        version = connection.version_of(apis.ELECT_LEADERS)
        if version < 1 and ELECTIONS[kind]:
            raise errors.UnsupportedVersion(
                f"{connection.address}: ElectLeaders: version 0, wanted 1 for unclean elections"
            )
        body = {
            "election_type": ELECTIONS[kind],
            "topic_partitions": topic_rows(some, "topic"),
            "timeout_ms": broker_ms(wait_ms),
        }
        answer = connection.call(apis.ELECT_LEADERS, body, version, wait_ms)
        if version:
            check_code(answer.error_code, "elections", api=apis.ELECT_LEADERS)
        return [
            (TopicPartition(topic.topic, row.partition_id),
             outcome(row.error_code, f"election of {topic.topic}-{row.partition_id}",
                     row.error_message, apis.ELECT_LEADERS))
            for topic in answer.replica_election_results
            for row in topic.partition_result
        ]  # fmt: skip

    return each(cluster, partitions, lambda tp: cluster.controller_node(), ask, timeout_ms)


def reassign_partitions(
    cluster: Cluster,
    places: Mapping[TopicPartition, Sequence[int] | None],
    timeout_ms: int | None = None,
) -> Results[TopicPartition, None]:
    """Start moving partitions to nodes, the first of which will lead; None: cancel a move.

    Failures: InvalidReplicaAssignment, NoReassignmentInProgress, UnknownTopicOrPartition; what a
    broker answers.  Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[TopicPartition], wait_ms: int
    ) -> Iterable[tuple[TopicPartition, errors.KafkalogError | None]]:
        rows = (
            (tp.topic, {"partition_index": tp.partition, "replicas": nodes and [*nodes]})
            for tp in some
            for nodes in (places[tp],)
        )
        body = {"timeout_ms": broker_ms(wait_ms), "topics": topic_rows(rows)}
        answer = connection.call(apis.ALTER_PARTITION_REASSIGNMENTS, body, timeout_ms=wait_ms)
        check_code(answer.error_code, "reassignments", answer.error_message)
        return [
            (TopicPartition(topic.name, row.partition_index),
             outcome(row.error_code, f"reassignment of {topic.name}-{row.partition_index}",
                     row.error_message))
            for topic in answer.responses
            for row in topic.partitions
        ]  # fmt: skip

    return each(cluster, places, lambda tp: cluster.controller_node(), ask, timeout_ms)


def list_reassignments(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """The partitions that are being moved, sorted; `partitions`: only these.

    Raises: UnsupportedVersion for a broker before 2.4; what a broker answers.
    """
    rows = None if partitions is None else topic_rows(partitions, rows="partition_indexes")

    def step() -> dict[TopicPartition, Reassignment]:
        body = {"timeout_ms": cluster.options.request_timeout_ms, "topics": rows}
        answer = cluster.controller().call(apis.LIST_PARTITION_REASSIGNMENTS, body)
        check_code(answer.error_code, "reassignments", answer.error_message)
        found = {
            TopicPartition(topic.name, row.partition_index): Reassignment(
                tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
            )
            for topic in answer.topics
            for row in topic.partitions
        }
        return dict(sorted(found.items()))

    return cluster.retrying(step)
