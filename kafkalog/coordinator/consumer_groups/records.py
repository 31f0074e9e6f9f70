"""The records of __consumer_offsets that store consumer groups: each is a part of a group's state.

Source: Kafka's GroupCoordinatorRecordHelpers, ConsumerGroupMember.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from kafkalog.coordinator.consumer_groups.base import NewerGroup
from kafkalog.coordinator.consumer_groups.member import (
    Assigned,
    ClassicMetadata,
    Member,
    MemberState,
    Partitions,
)
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup, Resolved
from kafkalog.coordinator.step import JournalRecord
from kafkalog.wire.records import OFFSETS
from kafkalog.wire.values import Struct

__all__ = [
    "ASSIGNMENT", "CLASSIC", "CURRENT", "GROUP", "KINDS", "OLD_METADATA", "REGEX", "SUBSCRIPTION",
    "TARGET", "Fields", "assignment_fields", "group_fields", "key_of", "known_member",
    "loaded_partitions", "loaded_state", "name_in", "partition_fields", "put", "put_assignment",
    "put_group", "target_fields", "value_of",
]  # fmt: skip

CLASSIC = 2
"""The kind of a classic group's record: a consumer group has none."""
GROUP, OLD_METADATA, SUBSCRIPTION, ASSIGNMENT, TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16
KINDS = {
    GROUP: "ConsumerGroupMetadata",
    OLD_METADATA: "ConsumerGroupPartitionMetadata",
    SUBSCRIPTION: "ConsumerGroupMemberMetadata",
    ASSIGNMENT: "ConsumerGroupTargetAssignmentMetadata",
    TARGET: "ConsumerGroupTargetAssignmentMember",
    CURRENT: "ConsumerGroupCurrentMemberAssignment",
    REGEX: "ConsumerGroupRegularExpression",
}
_NAMED = {
    SUBSCRIPTION: "member_id", TARGET: "member_id", CURRENT: "member_id",
    REGEX: "regular_expression",
}  # fmt: skip
SIGN = 1 << 63


# ---- what is written -----------------------------------------------------------------------


def key_of(group_id: str, kind: int, name: str) -> bytes:
    """The key of a record; `name`: the member's id or the pattern, if it has one."""
    fields = {"group_id": group_id}
    if (field := _NAMED.get(kind)) is not None:
        fields[field] = name
    return OFFSETS.encode_key(KINDS[kind], fields)


def name_in(kind: int, key: Struct) -> str:
    """The member's id or the pattern in a key, if it has one."""
    field = _NAMED.get(kind)
    return getattr(key, field) if field is not None else ""


def value_of(group: ConsumerGroup, kind: int, name: str) -> bytes | None:
    """The value of a record as the group is now; None: a tombstone."""
    fields = _BUILD[kind](group, name)
    return None if fields is None else OFFSETS.encode_value(KINDS[kind], 0, fields)


Fields = dict[str, Any]


def group_fields(group: NewerGroup[Any, Any], _: str) -> Fields:
    """The epoch of a group, of any type."""
    signed = group.metadata_hash - (group.metadata_hash & SIGN) * 2
    return {"epoch": group.epoch, "metadata_hash": signed}


def assignment_fields(group: NewerGroup[Any, Any], _: str) -> Fields:
    """The epoch of a group's target assignment."""
    return {
        "assignment_epoch": group.assignment_epoch,
        "assignment_timestamp": group.assignment_ms,
    }


def _subscription(group: ConsumerGroup, name: str) -> Fields | None:
    member = group.members.get(name)
    if member is None:
        return None
    classic = None
    if member.classic is not None:
        protocols = [{"name": name, "metadata": data} for name, data in member.classic.protocols]
        timeout_ms = member.classic.session_timeout_ms
        classic = {"session_timeout_ms": timeout_ms, "supported_protocols": protocols}
    return {
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
        "subscribed_topic_regex": member.regex,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "server_assignor": member.assignor,
        "classic_member_metadata": classic,
    }


def target_fields(group: NewerGroup[Any, UUID], name: str) -> Fields | None:
    """The part of a member in the target assignment; None: it is not in it."""
    target = group.target.get(name)
    return None if target is None else {"topic_partitions": partition_fields(target)}


def partition_fields(partitions: Mapping[UUID, Collection[int]]) -> list[Fields]:
    """Partitions by topic."""
    return [
        {"topic_id": topic, "partitions": sorted(numbers)}
        for topic, numbers in sorted(partitions.items())
    ]


def _current(group: ConsumerGroup, name: str) -> Fields | None:
    member = group.members.get(name)
    if member is None:
        return None
    return {
        "member_epoch": member.epoch,
        "previous_member_epoch": member.previous_epoch,
        "state": int(member.state),
        "assigned_partitions": _with_epochs(member.assigned),
        "partitions_pending_revocation": _with_epochs(member.revoking),
    }


def _with_epochs(assigned: Assigned) -> list[Fields]:
    found = []
    for topic, epochs in sorted(assigned.items()):
        numbers = sorted(epochs)
        found.append(
            {"topic_id": topic, "partitions": numbers,
             "assignment_epochs": [epochs[number] for number in numbers]}
        )  # fmt: skip
    return found


def _regex(group: ConsumerGroup, name: str) -> Fields | None:
    found = group.regexes.get(name)
    if found is None:
        return None
    return {"topics": sorted(found.topics), "version": found.version, "timestamp": found.at_ms}


_BUILD: dict[int, Any] = {
    CLASSIC: lambda _group, _name: None, GROUP: group_fields,
    OLD_METADATA: lambda _group, _name: None, SUBSCRIPTION: _subscription,
    ASSIGNMENT: assignment_fields, TARGET: target_fields, CURRENT: _current, REGEX: _regex,
}  # fmt: skip


# ---- what is read --------------------------------------------------------------------------


def put(group: ConsumerGroup, kind: int, key: Struct, value: Struct) -> None:
    """Take over a record of the journal."""
    if kind == GROUP:
        put_group(group, value)
    elif kind == OLD_METADATA:
        group.old_metadata = True
    elif kind == ASSIGNMENT:
        put_assignment(group, value)
    elif kind == TARGET:
        group.put_target(key.member_id, loaded_partitions(value.topic_partitions))
    elif kind == REGEX:
        found = Resolved(frozenset(value.topics), value.version, value.timestamp)
        group.put_regex(key.regular_expression, found)
    elif kind == SUBSCRIPTION:
        group.put_member(_with_subscription(known_member(group, key.member_id), value))
    else:
        group.put_member(_with_current(known_member(group, key.member_id), value))


def put_group(group: NewerGroup[Any, Any], value: Struct) -> None:
    """Take over the record of a group, of any type."""
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash % (SIGN * 2)


def put_assignment(group: NewerGroup[Any, Any], value: Struct) -> None:
    """Take over the record of a group's target assignment."""
    group.assignment_epoch = value.assignment_epoch
    group.assignment_ms = value.assignment_timestamp


def known_member(group: NewerGroup[Member, UUID], member_id: str) -> Member:
    """The member as other records have it so far."""
    return group.members.get(member_id) or Member(member_id)


def loaded_partitions(topics: Iterable[Struct]) -> Partitions:
    """Partitions by topic."""
    return {one.topic_id: frozenset(one.partitions) for one in topics}


def _with_subscription(member: Member, value: Struct) -> Member:
    classic = value.classic_member_metadata
    if classic is not None:
        protocols = tuple((one.name, one.metadata) for one in classic.supported_protocols)
        classic = ClassicMetadata(classic.session_timeout_ms, protocols)
    return member._replace(
        instance_id=value.instance_id, rack_id=value.rack_id, client_id=value.client_id,
        client_host=value.client_host, topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex, rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor, classic=classic,
    )  # fmt: skip


def _with_current(member: Member, value: Struct) -> Member:
    return member._replace(
        epoch=value.member_epoch, previous_epoch=value.previous_member_epoch,
        state=loaded_state(value.state),
        assigned=_loaded_epochs(value.assigned_partitions, value.member_epoch),
        revoking=_loaded_epochs(value.partitions_pending_revocation, value.member_epoch),
    )  # fmt: skip


def loaded_state(number: int) -> MemberState:
    """The state of a member; UNKNOWN if a newer version wrote it."""
    known = number in MemberState.__members__.values()
    return MemberState(number) if known else MemberState.UNKNOWN


def _loaded_epochs(topics: Iterable[Struct], member_epoch: int) -> Assigned:
    """Older versions of Kafka wrote no epochs of partitions."""
    found: dict[UUID, dict[int, int]] = {}
    for one in topics:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = [max(member_epoch, 0)] * len(one.partitions)
        found[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return found


def restated(group_id: str, group: ConsumerGroup, kind: int, name: str) -> JournalRecord:
    """A record of the group as it is now."""
    return key_of(group_id, kind, name), value_of(group, kind, name)
