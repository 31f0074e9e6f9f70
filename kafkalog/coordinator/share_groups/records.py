"""The records of __consumer_offsets that store share groups: each is a part of a group's state.

Source: Kafka's GroupCoordinatorRecordHelpers, ShareGroupMember.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from kafkalog.coordinator.consumer_groups.changes import Layout
from kafkalog.coordinator.consumer_groups.member import Member
from kafkalog.coordinator.consumer_groups.records import (
    Fields,
    assignment_fields,
    group_fields,
    known_member,
    loaded_partitions,
    loaded_state,
    partition_fields,
    put_assignment,
    put_group,
    target_fields,
)
from kafkalog.coordinator.share_groups.state import Kept, ShareGroup, States
from kafkalog.wire.records import OFFSETS
from kafkalog.wire.values import Struct

__all__ = [
    "ASSIGNMENT", "CURRENT", "GROUP", "KINDS", "LAYOUT", "STATES", "SUBSCRIPTION", "TARGET",
    "key_of", "put", "value_of",
]  # fmt: skip

SUBSCRIPTION, GROUP, ASSIGNMENT, TARGET, CURRENT, STATES = 10, 11, 12, 13, 14, 15
KINDS = {
    SUBSCRIPTION: "ShareGroupMemberMetadata",
    GROUP: "ShareGroupMetadata",
    ASSIGNMENT: "ShareGroupTargetAssignmentMetadata",
    TARGET: "ShareGroupTargetAssignmentMember",
    CURRENT: "ShareGroupCurrentMemberAssignment",
    STATES: "ShareGroupStatePartitionMetadata",
}
_OF_MEMBERS = {SUBSCRIPTION, TARGET, CURRENT}
GIVEN = 0
"""Partitions of a share group have no epochs of their own."""


# ---- what is written -----------------------------------------------------------------------


def key_of(group_id: str, kind: int, name: str) -> bytes:
    """The key of a record; `name`: the member's id, if it is about one."""
    fields = {"group_id": group_id}
    if kind in _OF_MEMBERS:
        fields["member_id"] = name
    return OFFSETS.encode_key(KINDS[kind], fields)


def value_of(group: ShareGroup, kind: int, name: str) -> bytes | None:
    """The value of a record as the group is now; None: a tombstone."""
    fields = _BUILD[kind](group, name)
    return None if fields is None else OFFSETS.encode_value(KINDS[kind], 0, fields)


def _subscription(group: ShareGroup, name: str) -> Fields | None:
    member = group.members.get(name)
    if member is None:
        return None
    return {
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
    }


def _current(group: ShareGroup, name: str) -> Fields | None:
    member = group.members.get(name)
    if member is None:
        return None
    return {
        "member_epoch": member.epoch,
        "previous_member_epoch": member.previous_epoch,
        "state": int(member.state),
        "assigned_partitions": partition_fields(member.assigned),
    }


def _states(group: ShareGroup, _: str) -> Fields | None:
    states = group.states
    if states is None:
        return None
    return {
        "initializing_topics": _kept_fields(states.initializing),
        "initialized_topics": _kept_fields(states.initialized),
        "deleting_topics": [
            {"topic_id": topic, "topic_name": name}
            for topic, name in sorted(states.deleting.items())
        ],
    }


def _kept_fields(topics: Mapping[UUID, Kept]) -> list[Fields]:
    return [
        {"topic_id": topic, "topic_name": kept.name, "partitions": sorted(kept.partitions)}
        for topic, kept in sorted(topics.items())
    ]


_BUILD: dict[int, Any] = {
    SUBSCRIPTION: _subscription, GROUP: group_fields, ASSIGNMENT: assignment_fields,
    TARGET: target_fields, CURRENT: _current, STATES: _states,
}  # fmt: skip
LAYOUT = Layout(GROUP, SUBSCRIPTION, ASSIGNMENT, TARGET, CURRENT, key_of, value_of)


# ---- what is read --------------------------------------------------------------------------


def put(group: ShareGroup, kind: int, key: Struct, value: Struct, wall_ms: int) -> None:
    """Take over a record of the journal; `wall_ms`: now, since 1970."""
    if kind == GROUP:
        put_group(group, value)
    elif kind == ASSIGNMENT:
        put_assignment(group, value)
    elif kind == TARGET:
        group.put_target(key.member_id, loaded_partitions(value.topic_partitions))
    elif kind == STATES:
        group.put_states(_loaded_states(value, wall_ms))
    elif kind == SUBSCRIPTION:
        group.put_member(_with_subscription(known_member(group, key.member_id), value))
    else:
        group.put_member(_with_current(known_member(group, key.member_id), value))


def _with_subscription(member: Member, value: Struct) -> Member:
    return member._replace(
        rack_id=value.rack_id, client_id=value.client_id, client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
    )  # fmt: skip


def _with_current(member: Member, value: Struct) -> Member:
    return member._replace(
        epoch=value.member_epoch, previous_epoch=value.previous_member_epoch,
        state=loaded_state(value.state),
        assigned={
            one.topic_id: dict.fromkeys(one.partitions, GIVEN)
            for one in value.assigned_partitions
        },
    )  # fmt: skip


def _loaded_states(value: Struct, wall_ms: int) -> States:
    return States(
        _loaded_kept(value.initializing_topics), _loaded_kept(value.initialized_topics),
        {one.topic_id: one.topic_name for one in value.deleting_topics}, wall_ms,
    )  # fmt: skip


def _loaded_kept(topics: Iterable[Struct]) -> dict[UUID, Kept]:
    return {one.topic_id: Kept(one.topic_name, frozenset(one.partitions)) for one in topics}
