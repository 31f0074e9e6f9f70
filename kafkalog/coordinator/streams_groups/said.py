"""The words of a member of a streams group, in a heartbeat, and whether they make sense."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from kafkalog.coordinator.consumer_groups.epochs import invalid, not_empty
from kafkalog.coordinator.consumer_groups.member import JOINING, LEFT_STATIC
from kafkalog.coordinator.streams_groups.configured import Part
from kafkalog.coordinator.streams_groups.member import Endpoint, Role, StreamsMember, TasksOf
from kafkalog.coordinator.streams_groups.records import tags_in
from kafkalog.coordinator.streams_groups.state import StreamsGroup
from kafkalog.coordinator.streams_groups.topology import Topology, check_topology, topology_in

__all__ = ["Said", "check", "check_tasks", "said_in", "says_nothing"]

OFFSETS_MAX = 100_000
"""Offsets of tasks in one heartbeat."""
_NOTHING_NEW = (None,) * 10
_OWNED = {
    Role.ACTIVE: "active_tasks", Role.STANDBY: "standby_tasks", Role.WARMUP: "warmup_tasks",
}  # fmt: skip


class Said(NamedTuple):
    """A member's heartbeat."""

    member_id: str
    epoch: int
    version: int
    """The request's."""
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    """-1: as before, like None below."""
    topology: Topology | None
    owned: Mapping[TasksOf, Collection[int]] | None
    process_id: str | None
    endpoint: Endpoint | None
    tags: tuple[tuple[str, str], ...] | None
    offsets: Mapping[tuple[str, int], int] | None
    end_offsets: Mapping[tuple[str, int], int] | None
    shutdown: bool
    """The whole application shall end."""
    endpoint_epoch: int
    """The epoch of others' endpoints that it knows."""
    client_id: str
    client_host: str


def check(body: Any) -> None:
    """Check a request.  Raises: Refusal."""
    topology = body.topology
    if topology is not None and any(one.source_topic_regex for one in topology.subtopologies):
        raise invalid("Regular expressions for source topics are not supported yet.")
    not_empty(body.member_id, "MemberId")
    not_empty(body.group_id, "GroupId")
    not_empty(body.instance_id, "InstanceId")
    not_empty(body.rack_id, "RackId")
    owned = {name: getattr(body, name) for name in _OWNED.values()}
    if body.member_epoch == JOINING:
        if body.rebalance_timeout_ms == -1:
            raise invalid("RebalanceTimeoutMs must be provided in first request.")
        for name, tasks in owned.items():
            if tasks:
                field = name.title().replace("_", "")
                raise invalid(f"{field} must be empty when (re-)joining.")
        if topology is None:
            raise invalid("Topology must be non-null when (re-)joining.")
    elif body.member_epoch == LEFT_STATIC and body.instance_id is None:
        raise invalid("InstanceId can't be null.")
    elif body.member_epoch < LEFT_STATIC:
        raise invalid(
            f"MemberEpoch is {body.member_epoch}, but must be greater than or equal to "
            f"{LEFT_STATIC}."
        )
    given = [tasks is not None for tasks in owned.values()]
    if any(given) and not all(given):
        raise invalid("If one task-type is non-null, all must be non-null.")
    if body.member_epoch != JOINING and topology is not None:
        raise invalid("Topology can only be provided when (re-)joining.")


def said_in(body: Any, version: int, client_id: str, client_host: str) -> Said:
    """The content of a request.  Raises: Refusal."""
    topology = None if body.topology is None else topology_in(body.topology)
    if topology is not None:
        check_topology(topology)
    endpoint = body.user_endpoint
    return Said(
        body.member_id, body.member_epoch, version, body.instance_id, body.rack_id,
        body.rebalance_timeout_ms, topology, _owned(body), body.process_id,
        None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        None if body.client_tags is None else tags_in(body.client_tags),
        _offsets(body.task_offsets), _offsets(body.task_end_offsets),
        body.shutdown_application, body.endpoint_information_epoch, client_id, client_host,
    )  # fmt: skip


def says_nothing(group: StreamsGroup, member: StreamsMember, body: Any) -> bool:
    """True for a heartbeat of a member that says nothing new, and knows all endpoints."""
    says = (
        body.topology, body.active_tasks, body.standby_tasks, body.warmup_tasks, body.process_id,
        body.user_endpoint, body.client_tags, body.task_offsets, body.task_end_offsets,
        body.rack_id,
    )  # fmt: skip
    if says != _NOTHING_NEW or body.rebalance_timeout_ms != -1 or body.shutdown_application:
        return False
    if body.instance_id is not None and group.static.get(body.instance_id) != member.member_id:
        return False
    return bool(body.endpoint_information_epoch == group.endpoint_epoch)


def _owned(body: Any) -> Mapping[TasksOf, Collection[int]] | None:
    if body.active_tasks is None:
        return None
    found: dict[TasksOf, set[int]] = {}
    for role, name in _OWNED.items():
        for one in getattr(body, name):
            found.setdefault((role, one.subtopology_id), set()).update(one.partitions)
    return found


def _offsets(rows: Collection[Any] | None) -> Mapping[tuple[str, int], int] | None:
    if rows is None:
        return None
    if len(rows) > OFFSETS_MAX:
        raise invalid(f"Task offsets: found {len(rows)}, wanted at most {OFFSETS_MAX}.")
    found: dict[tuple[str, int], int] = {}
    for one in rows:
        task = one.subtopology_id, one.partition
        if task in found:
            raise invalid(
                f"Task offsets contain a duplicate entry for subtopology {one.subtopology_id} and "
                f"partition {one.partition}."
            )
        found[task] = one.offset
    return found


def check_tasks(
    owned: Mapping[TasksOf, Iterable[int]] | None, parts: Mapping[str, Part]
) -> None:  # fmt: skip
    """Check that the tasks that a member says it has can exist.  Raises: Refusal."""
    for (_, subtopology), numbers in (owned or {}).items():
        part = parts.get(subtopology)
        if part is None:
            raise invalid(f"Subtopology {subtopology} does not exist in the topology.")
        for number in numbers:
            if not 0 <= number < part.tasks:
                raise invalid(
                    f"Task {number} for subtopology {subtopology} is invalid. Number of tasks for "
                    f"this subtopology: {part.tasks}"
                )
