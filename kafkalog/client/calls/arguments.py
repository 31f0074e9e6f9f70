"""Converts plain tuples and numbers from callers to the types of the calls in this folder."""

from __future__ import annotations

from typing import Any

from kafkalog import arguments
from kafkalog.arguments import INT16_MAX, INT32_MAX, whole_number
from kafkalog.client.calls.configs import KINDS, OPERATIONS, ConfigChange, ConfigResource
from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.client.calls.nodes import ReplicaOf
from kafkalog.client.calls.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from kafkalog.client.calls.topics import NewTopic
from kafkalog.errors import ArgumentError

__all__ = [
    "change_of",
    "committed_of",
    "new_topic",
    "replica_of",
    "resource_of",
    "setting",
    "time_of",
]

TIMES = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "max_timestamp": MAX_TIMESTAMP,
    "earliest_local": EARLIEST_LOCAL,
    "latest_tiered": LATEST_TIERED,
}


def setting(name: str, value: Any) -> str:
    """A setting's value as Kafka writes it.  Raises: ArgumentError, naming it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return ",".join(setting(name, one) for one in value)
    return arguments.text(name, value)


def new_topic(name: str, value: Any) -> NewTopic:
    """A topic to create, from its name or a tuple.  Raises: ArgumentError, naming it."""
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, tuple) or not 1 <= len(value) <= 5:
        raise ArgumentError(f"{name}: found {value!r}, wanted a name or a NewTopic")
    one = NewTopic(*value)
    config = arguments.mapping("config", one.config)
    assignment = [
        [arguments.node("assignment", node) for node in arguments.things("assignment", some)]
        for some in arguments.things("assignment", one.assignment)
    ]
    return NewTopic(
        arguments.text("name", one.name),
        whole_number("partitions", one.partitions, -1, INT32_MAX),
        whole_number("replication_factor", one.replication_factor, -1, INT16_MAX),
        {arguments.text("config", key): setting("config", found) for key, found in config.items()},
        assignment,
    )


def resource_of(name: str, value: Any) -> ConfigResource:
    """A resource with settings, from a pair.  Raises: ArgumentError, naming it."""
    if not isinstance(value, tuple) or len(value) != 2:
        raise ArgumentError(f"{name}: found {value!r}, wanted (kind, name)")
    kind, of = value
    return ConfigResource(arguments.one_of(name, kind, KINDS), arguments.text(name, of))


def replica_of(name: str, value: Any) -> ReplicaOf:
    """A partition's replica on a node, from a triple.  Raises: ArgumentError, naming it."""
    if not isinstance(value, tuple) or len(value) != 3:
        raise ArgumentError(f"{name}: found {value!r}, wanted (topic, partition, node)")
    tp = arguments.partition(name, value[:2])
    return ReplicaOf(*tp, arguments.node(name, value[2]))


def change_of(name: str, value: Any) -> ConfigChange:
    """A change of a setting, from its new value, None or a pair.

    Raises: ArgumentError, naming it.
    """
    if value is None:
        return ConfigChange("delete", None)
    if isinstance(value, tuple) and len(value) == 2 and value[0] in OPERATIONS:
        what, operand = value
        return ConfigChange(what, None if what == "delete" else setting(name, operand))
    return ConfigChange("set", setting(name, value))


def committed_of(name: str, value: Any) -> CommittedOffset:
    """An offset to commit, from a number or CommittedOffset.  Raises: ArgumentError, naming it."""
    one = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(one) <= 3:
        raise ArgumentError(f"{name}: found {value!r}, wanted an offset or a CommittedOffset")
    found = CommittedOffset(*one)
    return CommittedOffset(
        whole_number(name, found.offset, 0),
        whole_number(name, found.leader_epoch, -1, INT32_MAX),
        None if found.metadata is None else arguments.text(name, found.metadata),
    )


def time_of(name: str, value: Any) -> int:
    """A time to look up, from a word or ms since 1970.  Raises: ArgumentError, naming it."""
    if isinstance(value, str):
        return TIMES[arguments.one_of(name, value, TIMES)]
    return whole_number(name, value, 0)
