"""The records of __consumer_offsets that store streams groups: each is a part of a group's state.

Source: Kafka's StreamsCoordinatorRecordHelpers, StreamsGroupMember.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kafkalog.coordinator.consumer_groups.changes import Layout
from kafkalog.coordinator.consumer_groups.records import (
    CLASSIC,
    Fields,
    assignment_fields,
    group_fields,
    put_assignment,
    put_group,
)
from kafkalog.coordinator.streams_groups.member import (
    Endpoint,
    Given,
    Role,
    StreamsMember,
    StreamsState,
    Tasks,
    TasksOf,
)
from kafkalog.coordinator.streams_groups.state import StreamsGroup
from kafkalog.coordinator.streams_groups.topology import topology_fields, topology_in
from kafkalog.wire.records import OFFSETS
from kafkalog.wire.values import Struct

__all__ = [
    "ASSIGNMENT", "CURRENT", "GROUP", "KINDS", "LAYOUT", "SUBSCRIPTION", "TARGET", "TOPOLOGY",
    "endpoint_fields", "key_of", "put", "tags_in", "task_fields", "value_of",
]  # fmt: skip

GROUP, SUBSCRIPTION, ASSIGNMENT, TARGET, CURRENT, TOPOLOGY = 17, 19, 20, 21, 22, 23
KINDS = {
    GROUP: "StreamsGroupMetadata",
    SUBSCRIPTION: "StreamsGroupMemberMetadata",
    ASSIGNMENT: "StreamsGroupTargetAssignmentMetadata",
    TARGET: "StreamsGroupTargetAssignmentMember",
    CURRENT: "StreamsGroupCurrentMemberAssignment",
    TOPOLOGY: "StreamsGroupTopology",
}
_OF_MEMBERS = {SUBSCRIPTION, TARGET, CURRENT}
_LISTS = {
    Role.ACTIVE: "active_tasks", Role.STANDBY: "standby_tasks", Role.WARMUP: "warmup_tasks",
}  # fmt: skip


# ---- what is written -----------------------------------------------------------------------


def key_of(group_id: str, kind: int, name: str) -> bytes:
    """The key of a record; `name`: the member's id, if it is about one."""
    fields = {"group_id": group_id}
    if kind in _OF_MEMBERS:
        fields["member_id"] = name
    return OFFSETS.encode_key(KINDS[kind], fields)


def value_of(group: StreamsGroup, kind: int, name: str) -> bytes | None:
    """The value of a record as the group is now; None: a tombstone."""
    fields = _BUILD[kind](group, name)
    return None if fields is None else OFFSETS.encode_value(KINDS[kind], 0, fields)


def _group(group: StreamsGroup, name: str) -> Fields:
    stored, failed = group.descriptions
    return {
        **group_fields(group, name),
        "validated_topology_epoch": group.validated_epoch,
        "last_assignment_configs": [{"key": key, "value": text} for key, text in group.configs],
        "stored_description_topology_epoch": stored,
        "failed_description_topology_epoch": failed,
    }


def _subscription(group: StreamsGroup, name: str) -> Fields | None:
    member = group.members.get(name)
    if member is None:
        return None
    return {
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "topology_epoch": member.topology_epoch,
        "process_id": member.process_id,
        "user_endpoint": endpoint_fields(member.endpoint),
        "client_tags": [{"key": key, "value": text} for key, text in member.tags],
    }


def endpoint_fields(endpoint: Endpoint | None) -> Fields | None:
    """An endpoint as records and answers have it."""
    return None if endpoint is None else {"host": endpoint.host, "port": endpoint.port}


def task_fields(tasks: Mapping[TasksOf, Collection[int]]) -> dict[str, list[Fields]]:
    """Tasks by role, as records and answers have them."""
    found: dict[str, list[Fields]] = {name: [] for name in _LISTS.values()}
    for (role, subtopology), numbers in sorted(tasks.items()):
        row = {"subtopology_id": subtopology, "partitions": sorted(numbers)}
        found[_LISTS[role]].append(row)
    return found


def _target(group: StreamsGroup, name: str) -> Fields | None:
    target = group.target.get(name)
    return None if target is None else dict(task_fields(target))


def _current(group: StreamsGroup, name: str) -> Fields | None:
    member = group.members.get(name)
    if member is None:
        return None
    revoking = _with_epochs(member.revoking)
    return {
        "member_epoch": member.epoch,
        "previous_member_epoch": member.previous_epoch,
        "state": int(member.state),
        **_with_epochs(member.assigned),
        **{f"{name}_pending_revocation": rows for name, rows in revoking.items()},
    }


def _with_epochs(given: Given) -> dict[str, list[Fields]]:
    found = task_fields(given)
    for row in found[_LISTS[Role.ACTIVE]]:
        epochs = given[Role.ACTIVE, row["subtopology_id"]]
        row["assignment_epochs"] = [epochs[number] for number in row["partitions"]]
    return found


def _topology(group: StreamsGroup, _: str) -> Fields | None:
    return None if group.topology is None else topology_fields(group.topology)


_BUILD: dict[int, Any] = {
    CLASSIC: lambda _group, _name: None, GROUP: _group, SUBSCRIPTION: _subscription,
    ASSIGNMENT: assignment_fields, TARGET: _target, CURRENT: _current, TOPOLOGY: _topology,
}  # fmt: skip
LAYOUT = Layout(GROUP, SUBSCRIPTION, ASSIGNMENT, TARGET, CURRENT, key_of, value_of)


# ---- what is read --------------------------------------------------------------------------


def put(group: StreamsGroup, kind: int, key: Struct, value: Struct) -> None:
    """Take over a record of the journal."""
    if kind == GROUP:
        put_group(group, value)
        group.validated_epoch = value.validated_topology_epoch
        group.configs = tags_in(value.last_assignment_configs or ())
        group.descriptions = (
            value.stored_description_topology_epoch, value.failed_description_topology_epoch,
        )  # fmt: skip
    elif kind == ASSIGNMENT:
        put_assignment(group, value)
    elif kind == TARGET:
        group.put_target(key.member_id, _loaded_tasks(value))
    elif kind == TOPOLOGY:
        group.put_topology(topology_in(value))
    elif kind == SUBSCRIPTION:
        group.put_member(_with_subscription(_known(group, key.member_id), value))
    else:
        group.put_member(_with_current(_known(group, key.member_id), value))


def _known(group: StreamsGroup, member_id: str) -> StreamsMember:
    return group.members.get(member_id) or StreamsMember(member_id)


def tags_in(pairs: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    """Keys and values of a message, sorted; the last value of a key counts."""
    return tuple(sorted({one.key: one.value for one in pairs}.items()))


def _loaded_tasks(value: Struct) -> Tasks:
    return {
        (role, one.subtopology_id): frozenset(one.partitions)
        for role, name in _LISTS.items() for one in getattr(value, name)
    }  # fmt: skip


def _with_subscription(member: StreamsMember, value: Struct) -> StreamsMember:
    endpoint = value.user_endpoint
    return member._replace(
        instance_id=value.instance_id, rack_id=value.rack_id, client_id=value.client_id,
        client_host=value.client_host, rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch, process_id=value.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=tags_in(value.client_tags),
    )  # fmt: skip


def _with_current(member: StreamsMember, value: Struct) -> StreamsMember:
    known = value.state in StreamsState.__members__.values()
    return member._replace(
        epoch=value.member_epoch, previous_epoch=value.previous_member_epoch,
        state=StreamsState(value.state) if known else StreamsState.UNKNOWN,
        assigned=_loaded_given(value, ""), revoking=_loaded_given(value, "_pending_revocation"),
    )  # fmt: skip


def _loaded_given(value: Struct, suffix: str) -> Given:
    """A record may leave the epochs of active tasks out."""
    found: dict[TasksOf, dict[int, int]] = {}
    for role, name in _LISTS.items():
        for one in getattr(value, name + suffix):
            epochs = one.assignment_epochs
            if role is not Role.ACTIVE:
                epochs = [0] * len(one.partitions)
            elif epochs is None or len(epochs) != len(one.partitions):
                epochs = [value.member_epoch] * len(one.partitions)
            found[role, one.subtopology_id] = dict(zip(one.partitions, epochs, strict=True))
    return found
