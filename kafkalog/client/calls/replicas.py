"""The replicas of partitions, their moves and their leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.results import Results, broker_ms, each
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, failure
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


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


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
            "topic_partitions": [
                {"topic": name, "partitions": found} for name, found in _by_topic(some).items()
            ],
            "timeout_ms": broker_ms(wait_ms),
        }
        answer = connection.call(apis.ELECT_LEADERS, body, version, wait_ms)
        if version:
            check_code(answer.error_code, "elections", api=apis.ELECT_LEADERS)
        return [
            (TopicPartition(topic.topic, row.partition_id),
             failure(row.error_code, f"election of {topic.topic}-{row.partition_id}",
                     row.error_message, apis.ELECT_LEADERS) if row.error_code else None)
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
        topics: dict[str, list[dict[str, Any]]] = {}
        for tp in some:
            nodes = places[tp]
            row = {
                "partition_index": tp.partition,
                "replicas": nodes if nodes is None else [*nodes],
            }
            topics.setdefault(tp.topic, []).append(row)
        rows = [{"name": name, "partitions": found} for name, found in topics.items()]
        body = {"timeout_ms": broker_ms(wait_ms), "topics": rows}
        answer = connection.call(apis.ALTER_PARTITION_REASSIGNMENTS, body, timeout_ms=wait_ms)
        check_code(answer.error_code, "reassignments", answer.error_message)
        return [
            (TopicPartition(topic.name, row.partition_index),
             failure(row.error_code, f"reassignment of {topic.name}-{row.partition_index}",
                     row.error_message) if row.error_code else None)
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
    rows = None if partitions is None else [
        {"name": name, "partition_indexes": found} for name, found in _by_topic(partitions).items()
    ]  # fmt: skip

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
