"""ShareGroupDescribe."""

from __future__ import annotations

from kafkalog.coordinator.consumer_groups.describe import assignment_of
from kafkalog.coordinator.consumer_groups.member import Member
from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.share_groups.assignor import NAME
from kafkalog.coordinator.share_groups.state import ShareGroup
from kafkalog.coordinator.step import Body
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["described"]


def described(group_id: str, group: ShareGroup, topics: Topics) -> Body:
    """A group of the answer."""
    return {
        "error_code": ErrorCode.NONE,
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": NAME,
        "members": [_member(member, topics) for member in group.members.values()],
    }


def _member(member: Member, topics: Topics) -> Body:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
        "assignment": assignment_of(member.assigned, topics),
    }
