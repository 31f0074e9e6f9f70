"""Which offsets a member of a streams group may commit and fetch, by its epoch.

Source: Kafka's StreamsGroup.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog.coordinator.consumer_groups.commits import (
    MEMBERS_SINCE,
    NEVER,
    Committer,
    no_member_commits,
)
from kafkalog.coordinator.streams_groups.member import Role, StreamsMember
from kafkalog.coordinator.streams_groups.state import StreamsGroup
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["check_streams_commit", "check_streams_fetch"]


def check_streams_commit(
    group: StreamsGroup, sender: Committer, partitions: Iterable[tuple[str, int]]
) -> ErrorCode:
    """Check that the sender may commit for these partitions, by the names of their topics."""
    if no_member_commits(sender, empty=not group.members):
        return ErrorCode.NONE
    member = group.members.get(sender.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not sender.transactional and sender.version < MEMBERS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    late = sender.epoch < member.epoch and not all(
        _given_by(group, member, topic, number) <= sender.epoch for topic, number in partitions
    )
    wrong = late or sender.epoch > member.epoch
    return ErrorCode.STALE_MEMBER_EPOCH if wrong else ErrorCode.NONE


def _given_by(group: StreamsGroup, member: StreamsMember, topic: str, partition: int) -> int:
    """The epoch in which a member got the task that reads a partition; NEVER: it has not."""
    reader = group.readers.get(topic)
    if reader is None:
        return NEVER
    key = Role.ACTIVE, reader
    revoking = member.revoking.get(key, {})
    return member.assigned.get(key, {}).get(partition, revoking.get(partition, NEVER))


def check_streams_fetch(group: StreamsGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Check that a member may fetch offsets; None without an epoch: it is no member that asks."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member.epoch == epoch else ErrorCode.STALE_MEMBER_EPOCH
