"""Topics: list, describe, create and delete them, and add partitions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog import errors
from kafkalog.client.calls.results import ANY, Results, broker_ms, each, only
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import failure, outcome
from kafkalog.client.link.metadata import TopicInfo
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "CreatedTopic",
    "NewTopic",
    "create_partitions",
    "create_topic",
    "create_topics",
    "delete_topic",
    "delete_topics",
    "describe_topics",
    "list_topics",
]

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
DEFAULT_SINCE = 4
"""Before this version of CreateTopics the two numbers have no defaults."""


class NewTopic(NamedTuple):
    """A topic to create; -1: the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    config: Mapping[str, str] = {}
    assignment: Sequence[Sequence[int]] = ()
    """The nodes of each partition, instead of the two numbers."""


class CreatedTopic(NamedTuple):
    """A topic that was created, or would be."""

    name: str
    topic_id: UUID
    """All zero if not reported."""
    partitions: int
    """-1: not reported."""
    replication_factor: int
    """-1: not reported."""
    config: dict[str, str | None]
    """Every setting of the topic; empty if not reported."""


def list_topics(cluster: Cluster, internal: bool = False) -> list[str]:
    """The names of all topics, sorted; `internal`: Kafka's own topics, too."""
    cluster.refresh(None)
    return sorted(name for name, info in cluster.topics.items() if internal or not info.internal)


def describe_topics(
    cluster: Cluster, names: Iterable[str] | None, timeout_ms: int | None = None
) -> Results[str, TopicInfo]:
    """Topics and their partitions, as they are now; None: all, internal ones included.  Waits a
    moment for an unknown topic.

    Raises: as `each`.
    """
    if names is None:
        cluster.refresh(None)
        return Results(cluster.topics, cluster.refused)
    wanted = list(names)

    def place(name: str) -> int:
        cluster.topic(name)
        return ANY

    def ask(
        connection: Connection, some: list[str], wait_ms: int
    ) -> Iterable[tuple[str, TopicInfo]]:
        return [(name, cluster.topic(name)) for name in some]

    cluster.forget()
    with contextlib.suppress(errors.KafkalogError):  # one invalid name fails the whole request
        cluster.refresh(wanted)
    return each(cluster, wanted, place, ask, timeout_ms)


# ---- changes -------------------------------------------------------------------------------


def create_topics(
    cluster: Cluster,
    wanted: Iterable[NewTopic],
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> Results[str, CreatedTopic]:
    """Create topics; `validate_only`: only check whether they could be created.

    Failures: TopicExists, also if an earlier attempt of this call created it and its answer was
    lost, as the message then says; InvalidTopic, InvalidSetting; what the broker answers.
    Raises: as `each`.
    """
    rows = {topic.name: topic for topic in wanted}
    lost: set[str] = set()  # those with an attempt whose outcome is unknown

    def ask(
        connection: Connection, names: list[str], wait_ms: int
    ) -> Iterable[tuple[str, CreatedTopic | errors.KafkalogError]]:
        version = connection.version_of(apis.CREATE_TOPICS)
        body = {
            "topics": [_row(rows[name], version) for name in names],
            "timeout_ms": broker_ms(wait_ms),
            "validate_only": validate_only,
        }
        earlier = set(lost)
        lost.update(() if validate_only else names)
        answer = connection.call(apis.CREATE_TOPICS, body, version, wait_ms)
        timed_out = {row.name for row in answer.topics if row.error_code == TIMED_OUT}
        lost.difference_update(set(names) - timed_out - earlier)
        return [(row.name, _created(row, version, row.name in earlier)) for row in answer.topics]

    found = each(cluster, rows, lambda name: cluster.controller_node(), ask, timeout_ms)
    for name in rows:
        cluster.forget(name)
    return found


def _row(topic: NewTopic, version: int) -> dict[str, Any]:
    default = -1 if version >= DEFAULT_SINCE or topic.assignment else 1
    numbers = (-1, -1) if topic.assignment else (topic.partitions, topic.replication_factor)
    partitions, replication = (default if number == -1 else number for number in numbers)
    return {
        "name": topic.name,
        "num_partitions": partitions,
        "replication_factor": replication,
        "assignments": [
            {"partition_index": i, "broker_ids": list(nodes)}
            for i, nodes in enumerate(topic.assignment)
        ],
        "configs": [{"name": k, "value": v} for k, v in topic.config.items()],
    }


def _created(topic: Any, version: int, tried: bool) -> CreatedTopic | errors.KafkalogError:
    """`tried`: an earlier attempt may have created it."""
    if topic.error_code:
        why = topic.error_message
        if tried and topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            why = f"{why or ''} (an attempt before, without an answer, may have created it)".strip()
        return failure(topic.error_code, f"topic {topic.name!r}", why)
    known = version >= 5
    return CreatedTopic(
        topic.name,
        topic.topic_id if version >= 7 else UUID(int=0),
        topic.num_partitions if known else -1,
        topic.replication_factor if known else -1,
        {c.name: c.value for c in topic.configs or ()} if known else {},
    )


def delete_topics(
    cluster: Cluster, topics: Iterable[str | UUID], timeout_ms: int | None = None
) -> Results[str | UUID, None]:
    """Delete topics, by name or by id, with their records.

    Failures: UnknownTopicOrPartition, UnknownTopicId; UnsupportedVersion for ids and a broker
    before 2.8; what the broker answers.
    Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[str | UUID], wait_ms: int
    ) -> Iterable[tuple[str | UUID, errors.KafkalogError | None]]:
        version = connection.version_of(apis.DELETE_TOPICS)
        names = [one for one in some if isinstance(one, str)]
        if version < 6 and len(names) < len(some):
            problem = f"DeleteTopics: version {version}, wanted 6 for topic ids"
            old = errors.UnsupportedVersion(f"{connection.address}: {problem}")
            ids = [(one, old) for one in some if not isinstance(one, str)]
            return [*ids, *(ask(connection, [*names], wait_ms) if names else ())]
        rows = [
            {"name": one} if isinstance(one, str) else {"name": None, "topic_id": one}
            for one in some
        ]
        body = {"topics": rows, "topic_names": names, "timeout_ms": broker_ms(wait_ms)}
        answer = connection.call(apis.DELETE_TOPICS, body, version, wait_ms)
        by_id = {one for one in some if not isinstance(one, str)}
        found: list[tuple[str | UUID, errors.KafkalogError | None]] = []
        for row in answer.responses:
            thing = row.topic_id if version >= 6 and row.topic_id in by_id else row.name
            detail = row.error_message if version >= 5 else None
            found.append((thing, outcome(row.error_code, f"topic {str(thing)!r}", detail)))
        return found

    wanted = list(topics)
    results = each(cluster, wanted, lambda topic: cluster.controller_node(), ask, timeout_ms)
    cluster.forget()
    return results


def create_partitions(
    cluster: Cluster,
    counts: Mapping[str, int],
    assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> Results[str, None]:
    """Increase topics to this many partitions.

    `assignments`: by topic, the nodes of each new partition.

    Failures: UnknownTopicOrPartition, InvalidPartitions; what the broker answers.
    Raises: as `each`.
    """

    def ask(
        connection: Connection, names: list[str], wait_ms: int
    ) -> Iterable[tuple[str, errors.KafkalogError | None]]:
        rows = []
        for name in names:
            places = (assignments or {}).get(name)
            given = None if places is None else [{"broker_ids": list(nodes)} for nodes in places]
            rows.append({"name": name, "count": counts[name], "assignments": given})
        body = {"topics": rows, "timeout_ms": broker_ms(wait_ms), "validate_only": validate_only}
        answer = connection.call(apis.CREATE_PARTITIONS, body, timeout_ms=wait_ms)
        return [
            (row.name, outcome(row.error_code, f"topic {row.name!r}", row.error_message))
            for row in answer.results
        ]

    found = each(cluster, counts, lambda name: cluster.controller_node(), ask, timeout_ms)
    for name in counts:
        cluster.forget(name)
    return found


# ---- one topic -----------------------------------------------------------------------------


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    config: Mapping[str, str] | None = None,
    assignment: Sequence[Sequence[int]] = (),
) -> CreatedTopic:
    """`create_topics` of one.  Raises: its failure."""
    topic = NewTopic(name, partitions, replication_factor, config or {}, assignment)
    return only(create_topics(cluster, [topic]))


def delete_topic(cluster: Cluster, name: str) -> None:
    """`delete_topics` of one.  Raises: its failure."""
    only(delete_topics(cluster, [name]))
