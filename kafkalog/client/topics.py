"""Topics and settings: what an administrator asks of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkalog import errors
from kafkalog.client.cluster import Cluster
from kafkalog.client.failures import check_code
from kafkalog.wire import apis

__all__ = [
    "BROKER",
    "SOURCES",
    "TOPIC",
    "ConfigEntry",
    "alter_configs",
    "create_partitions",
    "create_topic",
    "delete_topic",
    "describe_configs",
    "list_topics",
]

TOPIC: Final = 2
"""A resource type: a topic."""
BROKER: Final = 4
"""A resource type: a broker; the name is its node id, or empty for the default of all."""
SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "default of all brokers",
    4: "properties file",
    5: "default",
}
"""Where a setting's value comes from."""
SET, DELETE = 0, 1


class ConfigEntry(NamedTuple):
    """One setting of a resource."""

    name: str
    value: str | None
    """None: not told, because it is a secret."""
    source: int
    """See SOURCES; others are Kafka's newer ones."""
    read_only: bool
    sensitive: bool
    documentation: str | None


def list_topics(cluster: Cluster, internal: bool = False) -> list[str]:
    """The names of all topics, sorted; `internal`: those of Kafka's own, too."""
    cluster.refresh(None)
    return sorted(name for name, info in cluster.topics.items() if internal or not info.internal)


def _one(answer: Iterable[Any], api: str, name: str) -> Any:
    """The only result of an answer."""
    results = list(answer)
    if len(results) != 1:
        raise errors.BadAnswer(f"{api} of {name!r}: found {len(results)} results, wanted 1")
    return results[0]


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    config: Mapping[str, str] | None = None,
    assignment: Sequence[Sequence[int]] = (),
) -> None:
    """Make a topic; -1: as many as the broker's default.

    `assignment`: the nodes of each partition, in place of the two numbers.

    Raises: TopicExists, InvalidTopic, InvalidSetting; what the broker answers.
    """
    topic = {
        "name": name,
        "num_partitions": -1 if assignment else partitions,
        "replication_factor": -1 if assignment else replication_factor,
        "assignments": [
            {"partition_index": i, "broker_ids": list(nodes)} for i, nodes in enumerate(assignment)
        ],
        "configs": [{"name": k, "value": v} for k, v in (config or {}).items()],
    }

    def step() -> None:
        connection = cluster.controller()
        version = connection.version_of(apis.CREATE_TOPICS)
        if version < 4 and -1 in (topic["num_partitions"], topic["replication_factor"]):
            # Before version 4 a broker has no default for these.
            topic.update(
                {k: 1 for k in ("num_partitions", "replication_factor") if topic[k] == -1}
                if not assignment
                else {}
            )
        answer = connection.call(
            apis.CREATE_TOPICS,
            {"topics": [topic], "timeout_ms": cluster.options.request_timeout_ms},
            version,
        )
        result = _one(answer.topics, "CreateTopics", name)
        check_code(result.error_code, f"topic {name!r}", result.error_message)

    cluster.retrying(step)
    cluster.forget(name)


def delete_topic(cluster: Cluster, name: str) -> None:
    """Remove a topic and its records.

    Raises: UnknownTopicOrPartition; what the broker answers.
    """

    def step() -> None:
        connection = cluster.controller()
        version = connection.version_of(apis.DELETE_TOPICS)
        answer = connection.call(
            apis.DELETE_TOPICS,
            {
                "topics": [{"name": name}],
                "topic_names": [name],
                "timeout_ms": cluster.options.request_timeout_ms,
            },
            version,
        )
        result = _one(answer.responses, "DeleteTopics", name)
        detail = result.error_message if version >= 5 else None
        check_code(result.error_code, f"topic {name!r}", detail)

    cluster.retrying(step)
    cluster.forget(name)


def create_partitions(cluster: Cluster, name: str, count: int) -> None:
    """Let a topic have `count` partitions, more than it has.

    Raises: UnknownTopicOrPartition; what the broker answers.
    """

    def step() -> None:
        answer = cluster.controller().call(
            apis.CREATE_PARTITIONS,
            {
                "topics": [{"name": name, "count": count, "assignments": None}],
                "timeout_ms": cluster.options.request_timeout_ms,
                "validate_only": False,
            },
        )
        result = _one(answer.results, "CreatePartitions", name)
        check_code(result.error_code, f"topic {name!r}", result.error_message)

    cluster.retrying(step)
    cluster.forget(name)


def _config_node(cluster: Cluster, kind: int, name: str) -> Any:
    """The settings of a broker are asked of that broker, all others of any."""
    if kind == TOPIC:
        cluster.topic(name)  # one that was made a moment ago is waited for
    if kind != BROKER or not name:
        return cluster.controller()
    cluster.refresh([])
    if not name.isdigit() or int(name) not in cluster.nodes:
        known = ", ".join(map(str, sorted(cluster.nodes)))
        raise errors.ArgumentError(f"broker {name!r}: the cluster has {known}")
    return cluster.connect(int(name))


def describe_configs(
    cluster: Cluster, kind: int, name: str, documentation: bool = False
) -> list[ConfigEntry]:
    """The settings of a topic or broker, sorted by name.

    Raises: UnknownTopicOrPartition, ArgumentError (no such broker); what the broker answers.
    """

    def step() -> list[ConfigEntry]:
        connection = _config_node(cluster, kind, name)
        answer = connection.call(
            apis.DESCRIBE_CONFIGS,
            {
                "resources": [
                    {"resource_type": kind, "resource_name": name, "configuration_keys": None}
                ],
                "include_synonyms": False,
                "include_documentation": documentation,
            },
        )
        result = _one(answer.results, "DescribeConfigs", name)
        check_code(result.error_code, f"settings of {name!r}", result.error_message)
        return sorted(
            ConfigEntry(
                c.name, c.value, c.config_source, c.read_only, c.is_sensitive, c.documentation
            )
            for c in result.configs
        )

    return cluster.retrying(step)


def alter_configs(
    cluster: Cluster,
    kind: int,
    name: str,
    changes: Mapping[str, str | None],
    validate_only: bool = False,
) -> None:
    """Give settings of a topic or broker new values; None: back to the default.

    Raises: UnknownTopicOrPartition, InvalidSetting, ArgumentError (no such broker),
    UnsupportedVersion for a broker before 2.3.
    """
    rows = [
        {
            "name": key,
            "config_operation": DELETE if value is None else SET,
            "value": value,
        }
        for key, value in changes.items()
    ]

    def step() -> None:
        connection = _config_node(cluster, kind, name)
        answer = connection.call(
            apis.INCREMENTAL_ALTER_CONFIGS,
            {
                "resources": [{"resource_type": kind, "resource_name": name, "configs": rows}],
                "validate_only": validate_only,
            },
        )
        result = _one(answer.responses, "IncrementalAlterConfigs", name)
        check_code(result.error_code, f"settings of {name!r}", result.error_message)

    cluster.retrying(step)
