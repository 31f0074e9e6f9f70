"""ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from kafkalog.coordinator.consumer_groups.member import Member
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup
from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.step import Body
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["assignment_of", "described", "not_described"]

BY_CLASSIC, BY_HEARTBEAT = 0, 1
"""By which protocol a member speaks."""


def described(group_id: str, group: ConsumerGroup, assignor: str, topics: Topics) -> Body:
    """A group of the answer; `assignor`: the one that it would use if no member prefers one."""
    return {
        "error_code": ErrorCode.NONE,
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.preferred_assignor() or assignor,
        "members": [_member(group, member, topics) for member in group.members.values()],
    }


def _member(group: ConsumerGroup, member: Member, topics: Topics) -> Body:
    has: dict[UUID, set[int]] = {}
    for assigned in (member.assigned, member.revoking):
        for topic, numbers in assigned.items():
            has.setdefault(topic, set()).update(numbers)
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
        "subscribed_topic_regex": member.regex,
        "assignment": assignment_of(has, topics),
        "target_assignment": assignment_of(group.target.get(member.member_id, {}), topics),
        "member_type": BY_HEARTBEAT if member.classic is None else BY_CLASSIC,
    }


def assignment_of(partitions: Mapping[UUID, Collection[int]], topics: Topics) -> Body:
    """Partitions of the topics that still exist."""
    named = [(topics.name_of(topic), topic) for topic in sorted(partitions)]
    return {
        "topic_partitions": [
            {"topic_id": topic, "topic_name": name, "partitions": sorted(partitions[topic])}
            for name, topic in named if name is not None
        ]
    }  # fmt: skip


def not_described(group_id: str, error: ErrorCode, message: str | None = None) -> Body:
    """A group that cannot be described."""
    return {"group_id": group_id, "error_code": error, "error_message": message}
