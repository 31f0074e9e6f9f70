"""Settings of a cluster's resources: topics, brokers, groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.results import ANY, Results, each
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, failure, outcome
from kafkalog.wire import apis

__all__ = [
    "KINDS",
    "OPERATIONS",
    "Changes",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "alter_configs",
    "describe_configs",
    "list_config_resources",
]

KINDS: Final = {
    "topic": 2,
    "broker": 4,
    "broker_logger": 8,
    "client_metrics": 16,
    "group": 32,
}
"""Kinds of resources with settings, and Kafka's number for each."""
_KIND_OF = {number: kind for kind, number in KINDS.items()}
SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "default of all brokers",
    4: "properties file",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
OPERATIONS: Final = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
"""The operations on a setting; the last two only on a list."""


class ConfigResource(NamedTuple):
    """A resource with settings; any equal tuple works, too."""

    kind: str
    """topic, broker, broker_logger, client_metrics or group."""
    name: str
    """A broker's is its node id; empty for the default of all brokers."""


class ConfigEntry(NamedTuple):
    """One setting of a resource."""

    name: str
    value: str | None
    """None: not reported, because it is a secret."""
    source: str
    """Where the value comes from: topic, broker, default of all brokers, properties file, default,
    group, ...; a number for one that newer brokers have added."""
    read_only: bool
    sensitive: bool
    documentation: str | None
    """None: not requested, or not reported."""


class ConfigChange(NamedTuple):
    """A change of a setting."""

    operation: str
    """set, delete, append or subtract."""
    value: str | None


Changes = Mapping[str, ConfigChange]


def _place(cluster: Cluster, resource: ConfigResource) -> int:
    """The node to ask: a broker for its own settings, any for all others."""
    kind, name = resource
    if kind == "topic":
        cluster.topic(name)  # waits for a topic that was just created
    if kind not in ("broker", "broker_logger") or not name:
        return ANY
    cluster.refresh([])
    if not name.isdigit() or int(name) not in cluster.nodes:
        known = ", ".join(map(str, sorted(cluster.nodes)))
        raise errors.ArgumentError(f"broker {name!r}: the cluster has {known}")
    return int(name)


def _what(resource: ConfigResource) -> str:
    return f"settings of {resource.kind} {resource.name!r}"


def describe_configs(
    cluster: Cluster,
    resources: Iterable[ConfigResource],
    names: Collection[str] | None = None,
    documentation: bool = False,
    timeout_ms: int | None = None,
) -> Results[ConfigResource, dict[str, ConfigEntry]]:
    """The settings of each resource, sorted by name; `names`: only these.

    Failures: UnknownTopicOrPartition, ArgumentError (no such broker); what the broker answers.
    Raises: as `each`.
    """
    keys = None if names is None else list(names)

    def ask(
        connection: Connection, some: list[ConfigResource], wait_ms: int
    ) -> Iterable[tuple[ConfigResource, dict[str, ConfigEntry] | errors.KafkalogError]]:
        rows = [
            {"resource_type": KINDS[kind], "resource_name": name, "configuration_keys": keys}
            for kind, name in some
        ]
        body = {"resources": rows, "include_documentation": documentation}
        answer = connection.call(apis.DESCRIBE_CONFIGS, body, timeout_ms=wait_ms)
        return [(_resource(row), _entries(row)) for row in answer.results]

    return each(cluster, resources, lambda one: _place(cluster, one), ask, timeout_ms)


def _resource(row: Any) -> ConfigResource:
    kind = _KIND_OF.get(row.resource_type, str(row.resource_type))
    return ConfigResource(kind, row.resource_name)


def _entries(row: Any) -> dict[str, ConfigEntry] | errors.KafkalogError:
    if row.error_code:
        return failure(row.error_code, _what(_resource(row)), row.error_message)
    return {
        c.name: ConfigEntry(
            c.name, c.value, SOURCES.get(c.config_source, str(c.config_source)), c.read_only,
            c.is_sensitive, c.documentation,
        )
        for c in sorted(row.configs, key=lambda c: c.name)
    }  # fmt: skip


def alter_configs(
    cluster: Cluster,
    changes: Mapping[ConfigResource, Changes],
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> Results[ConfigResource, None]:
    """Change some settings of each resource; per resource all changes are made, or none.

    Failures: UnknownTopicOrPartition, InvalidSetting, ArgumentError (no such broker),
    UnsupportedVersion for a broker before 2.3; what the broker answers.
    Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[ConfigResource], wait_ms: int
    ) -> Iterable[tuple[ConfigResource, errors.KafkalogError | None]]:
        rows = [
            {
                "resource_type": KINDS[resource.kind],
                "resource_name": resource.name,
                "configs": [
                    {
                        "name": name,
                        "config_operation": OPERATIONS[change.operation],
                        "value": change.value,
                    }
                    for name, change in changes[resource].items()
                ],
            }
            for resource in some
        ]
        body = {"resources": rows, "validate_only": validate_only}
        answer = connection.call(apis.INCREMENTAL_ALTER_CONFIGS, body, timeout_ms=wait_ms)
        return [
            (one, outcome(row.error_code, _what(one), row.error_message))
            for row in answer.responses
            for one in (_resource(row),)
        ]

    return each(cluster, changes, lambda one: _place(cluster, one), ask, timeout_ms)


def list_config_resources(cluster: Cluster, kinds: Collection[str] = ()) -> list[ConfigResource]:
    """The resources with settings, sorted; `kinds`: only these; empty: all.

    Raises: UnsupportedVersion for a broker before 4.1, which only lists client_metrics; what the
    broker answers.
    """

    def step() -> list[ConfigResource]:
        connection = cluster.any()
        version = connection.version_of(apis.LIST_CONFIG_RESOURCES)
        if version < 1 and set(kinds) != {"client_metrics"}:
            raise errors.UnsupportedVersion(
                f"{connection.address}: ListConfigResources: version {version}, wanted 1 for "
                "other kinds than client_metrics"
            )
        body = {"resource_types": [KINDS[kind] for kind in kinds]} if version else {}
        answer = connection.call(apis.LIST_CONFIG_RESOURCES, body, version)
        check_code(answer.error_code, "resources that have settings")
        rows = answer.config_resources
        if version < 1:
            return sorted(ConfigResource("client_metrics", row.resource_name) for row in rows)
        return sorted(map(_resource, rows))

    return cluster.retrying(step)
