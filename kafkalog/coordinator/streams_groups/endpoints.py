"""Where the state of each partition of a streams group can be queried.  Pure.

Source: KIP-1071, Kafka's EndpointToPartitionsManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.step import Body
from kafkalog.coordinator.streams_groups.configured import Configured, Part
from kafkalog.coordinator.streams_groups.member import Role, StreamsMember

__all__ = ["by_endpoint"]


def by_endpoint(
    members: Iterable[StreamsMember], configured: Configured | None, topics: Topics
) -> list[Body]:
    """The partitions of the members that answer queries, for a heartbeat's answer."""
    parts = {} if configured is None else configured.parts or {}
    return [
        {
            "user_endpoint": {"host": one.endpoint.host, "port": one.endpoint.port},
            "active_partitions": _partitions(_tasks(one, Role.ACTIVE), parts, topics),
            "standby_partitions": _partitions(
                _tasks(one, Role.STANDBY, Role.WARMUP), parts, topics
            ),
        }
        for one in members if one.endpoint is not None
    ]  # fmt: skip


def _tasks(member: StreamsMember, *roles: Role) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for (role, subtopology), numbers in member.assigned.items():
        if role in roles:
            found.setdefault(subtopology, set()).update(numbers)
    return found


def _partitions(
    tasks: Mapping[str, set[int]], parts: Mapping[str, Part], topics: Topics
) -> list[Body]:
    rows = []
    for subtopology, numbers in sorted(tasks.items()):
        part = parts.get(subtopology)
        for name in () if part is None else part.inputs:
            topic = topics.topic(name)
            count = 0 if topic is None else topic.partition_count
            if inside := sorted(number for number in numbers if number < count):
                rows.append({"topic": name, "partitions": inside})
    return rows
