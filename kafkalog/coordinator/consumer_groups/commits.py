"""Which offsets a member of a consumer group may commit and fetch, by its epoch.

A member that is behind may commit for partitions that it had in the epoch that it names and still
has: a commit in flight is not lost when the epoch rises.  Source: Kafka's ConsumerGroup,
OffsetMetadataManager; KIP-1251.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from kafkalog.coordinator.consumer_groups.member import Member
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "MEMBERS_SINCE", "NEVER", "Committer", "check_commit", "check_fetch", "no_member_commits",
]  # fmt: skip

MEMBERS_SINCE = 9
"""From this version of OffsetCommit on, members that heartbeat may commit."""


class Committer(NamedTuple):
    """The sender of a commit."""

    member_id: str
    epoch: int
    instance_id: str | None
    version: int
    """The request's."""
    transactional: bool = False


def check_commit(
    group: ConsumerGroup, sender: Committer, partitions: Iterable[tuple[UUID, int]]
) -> ErrorCode:
    """Check that the sender may commit for these partitions."""
    if no_member_commits(sender, empty=not group.members):
        return ErrorCode.NONE
    member = group.members.get(sender.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not sender.transactional and member.classic is None and sender.version < MEMBERS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    late = sender.epoch < member.epoch and not all(
        _given_by(member, topic, number) <= sender.epoch for topic, number in partitions
    )
    return _stale(member) if late or sender.epoch > member.epoch else ErrorCode.NONE


def no_member_commits(sender: Committer, *, empty: bool) -> bool:
    """True if a commit is allowed without a member.  `empty`: the group has none."""
    if sender.epoch < 0 and empty:
        return True  # an administrator
    named = bool(sender.member_id) or sender.instance_id is not None
    # A producer from before KIP-447.
    return sender.transactional and sender.epoch == -1 and not named


NEVER = 1 << 31
"""Later than every epoch."""


def _given_by(member: Member, topic: UUID, partition: int) -> int:
    """The epoch in which a member got a partition; NEVER: it does not have it."""
    revoking = member.revoking.get(topic, {})
    return member.assigned.get(topic, {}).get(partition, revoking.get(partition, NEVER))


def _stale(member: Member) -> ErrorCode:
    classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Check that a member may fetch offsets; None without an epoch: it is no member that asks."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member.epoch == epoch else _stale(member)
