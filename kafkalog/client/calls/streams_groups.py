"""Streams groups from outside: their members, their tasks and their topology."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.results import Results, each
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import failure
from kafkalog.wire import apis

__all__ = [
    "StreamsGroupInfo", "StreamsMemberInfo", "StreamsTask", "SubtopologyInfo",
    "describe_streams_groups",
]  # fmt: skip


class StreamsTask(NamedTuple):
    """A task: one partition of each topic that a subtopology reads."""

    subtopology: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


class StreamsMemberInfo(NamedTuple):
    """A member of a streams group: one thread of an instance of the application."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    host: str
    process_id: str
    """The instance: its members share the state on its disk."""
    endpoint: tuple[str, int] | None
    """Where the instance answers queries about its state."""
    tags: dict[str, str]
    active: tuple[StreamsTask, ...]
    standby: tuple[StreamsTask, ...]
    """Tasks of whose state it keeps a copy."""
    warmup: tuple[StreamsTask, ...]


class SubtopologyInfo(NamedTuple):
    """A part of an application's topology."""

    subtopology: str
    source_topics: tuple[str, ...]
    repartition_topics: tuple[str, ...]
    """Internal topics from which it reads."""
    sink_topics: tuple[str, ...]
    """Internal topics to which it writes."""
    changelog_topics: tuple[str, ...]


class StreamsGroupInfo(NamedTuple):
    """A streams group (KIP-1071)."""

    group: str
    state: str
    """Empty, NotReady (topics are not as they must be), Assigning, Reconciling or Stable."""
    epoch: int
    assignment_epoch: int
    topology_epoch: int
    subtopologies: tuple[SubtopologyInfo, ...]
    members: tuple[StreamsMemberInfo, ...]
    coordinator: int
    """A node."""

    @property
    def input_topics(self) -> tuple[str, ...]:
        """The topics that the application reads, without its internal ones."""
        internal = {name for one in self.subtopologies for name in one.sink_topics}
        found = {name for one in self.subtopologies for name in one.source_topics}
        return tuple(sorted(found - internal))

    @property
    def internal_topics(self) -> tuple[str, ...]:
        """The topics that were created for the application."""
        found = {
            name for one in self.subtopologies
            for name in (*one.repartition_topics, *one.sink_topics, *one.changelog_topics)
        }  # fmt: skip
        return tuple(sorted(found))


def describe_streams_groups(
    cluster: Cluster, groups: Iterable[str], timeout_ms: int | None = None
) -> Results[str, StreamsGroupInfo]:
    """Streams groups, their topologies and their members.

    Failures: there is none, or it is of another type; what the broker answers.
    Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[str], wait_ms: int
    ) -> Iterable[tuple[str, StreamsGroupInfo | errors.KafkalogError]]:
        body = {"group_ids": some, "include_authorized_operations": False}
        answer = connection.call(apis.STREAMS_GROUP_DESCRIBE, body, timeout_ms=wait_ms)
        return [(row.group_id, _group(cluster, row)) for row in answer.groups]

    return each(cluster, groups, cluster.coordinator, ask, timeout_ms)


def _group(cluster: Cluster, found: Any) -> StreamsGroupInfo | errors.KafkalogError:
    name = found.group_id
    if found.error_code:
        return failure(found.error_code, f"group {name!r}", found.error_message)
    topology = found.topology
    parts = () if topology is None else topology.subtopologies or ()
    return StreamsGroupInfo(
        name, found.group_state, found.group_epoch, found.assignment_epoch,
        -1 if topology is None else topology.epoch, tuple(map(_part, parts)),
        tuple(sorted(map(_member, found.members))), cluster.coordinator(name),
    )  # fmt: skip


def _part(found: Any) -> SubtopologyInfo:
    return SubtopologyInfo(
        found.subtopology_id, tuple(found.source_topics),
        tuple(one.name for one in found.repartition_source_topics),
        tuple(found.repartition_sink_topics),
        tuple(one.name for one in found.state_changelog_topics),
    )  # fmt: skip


def _member(found: Any) -> StreamsMemberInfo:
    at = found.user_endpoint
    has = found.assignment
    return StreamsMemberInfo(
        found.member_id, found.member_epoch, found.instance_id, found.rack_id, found.client_id,
        found.client_host, found.process_id, None if at is None else (at.host, at.port),
        {one.key: one.value for one in found.client_tags},
        _tasks(has.active_tasks), _tasks(has.standby_tasks), _tasks(has.warmup_tasks),
    )  # fmt: skip


def _tasks(rows: Iterable[Any]) -> tuple[StreamsTask, ...]:
    found = (StreamsTask(row.subtopology_id, n) for row in rows for n in row.partitions)
    return tuple(sorted(found))
