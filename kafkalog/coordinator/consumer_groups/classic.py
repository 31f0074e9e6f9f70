"""JoinGroup, SyncGroup and Heartbeat of members of the classic protocol in a consumer group.

The coordinator assigns, so such a group has no leader: a member joins with the partitions that it
still has, and SyncGroup tells it those that it may have.  A heartbeat tells it to rejoin when its
part has changed.  Its generation is its member epoch.  Source: KIP-848, Kafka's
GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from struct import unpack_from
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.coordinator.consumer_groups.changes import Changes
from kafkalog.coordinator.consumer_groups.epochs import Now, unknown_member
from kafkalog.coordinator.consumer_groups.heartbeat import (
    assign,
    check_member,
    known_static,
    look_again,
    reconcile,
    static_member,
    take_over,
)
from kafkalog.coordinator.consumer_groups.member import (
    ClassicMetadata,
    Member,
    MemberState,
    Partitions,
)
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup
from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.step import Body
from kafkalog.errors import KafkalogError
from kafkalog.wire.api import REQUEST_NAMES_MAX
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL

__all__ = [
    "CONSUMER", "Joined", "Joining", "encoded", "join", "keep_up", "must_rejoin", "sender",
    "subscription", "synced", "with_ids",
]  # fmt: skip

CONSUMER = "consumer"
"""The protocol type of consumers."""
NEWEST_ASSIGNMENT = 3


class Joining(NamedTuple):
    """A JoinGroup."""

    member_id: str
    named: bool
    """False: it came without an id, and got this one."""
    instance_id: str | None
    protocol_type: str
    classic: ClassicMetadata
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    must_have_id: bool = False
    """It has to come again with the id that it got."""


class Joined(NamedTuple):
    """A member that has joined."""

    member: Member
    behind: bool
    """It has not got its part of the last group epoch: the group leaves the rest to others."""


# ---- subscriptions and assignments ---------------------------------------------------------


def subscription(metadata: bytes) -> Any:
    """A consumer's subscription.  Raises: KafkalogError."""
    return CONSUMER_PROTOCOL.decode_subscription(metadata, REQUEST_NAMES_MAX)[1]


def with_ids(parts: Iterable[Any], topics: Topics) -> dict[UUID, set[int]]:
    """Partitions by the ids of their topics, as far as these exist."""
    found: dict[UUID, set[int]] = {}
    for one in parts:
        topic = topics.topic(one.topic)
        if topic is not None:
            found.setdefault(topic.id, set()).update(one.partitions)
    return found


def encoded(
    partitions: Mapping[UUID, Collection[int]], metadata: bytes, topics: Topics
) -> bytes:  # fmt: skip
    """An assignment in the version of a member's subscription.  Raises: KafkalogError."""
    version = unpack_from(">h", metadata)[0] if len(metadata) > 1 else 0
    named = ((topics.name_of(topic), numbers) for topic, numbers in partitions.items())
    parts = [
        {"topic": name, "partitions": sorted(numbers)}
        for name, numbers in sorted((n, p) for n, p in named if n is not None)
    ]
    newest = min(max(version, 0), NEWEST_ASSIGNMENT)
    return CONSUMER_PROTOCOL.encode_assignment(newest, {"assigned_partitions": parts})


# ---- JoinGroup -----------------------------------------------------------------------------


def join(changes: Changes, said: Joining, now: Now, replaces_last: bool) -> Joined:
    """Change the group as a JoinGroup requires.  `replaces_last`: the group is to become a classic
    one, so that it gets no new assignment.  Raises: Refusal."""
    _check(changes, said, now)
    before = _member(changes, said)
    try:
        heard = subscription(said.classic.protocols[0][1])
    except KafkalogError as error:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None
    timeout_ms = said.rebalance_timeout_ms
    member = before._replace(
        instance_id=before.instance_id if said.instance_id is None else said.instance_id,
        rack_id=heard.rack_id or before.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=frozenset(heard.topics), regex="", client_id=said.client_id,
        client_host=said.client_host, classic=said.classic,
    )  # fmt: skip
    changed = take_over(changes, before, member, now)
    group = changes.group
    if not replaces_last:
        assign(changes, now)
    elif group.assignment_epoch < group.epoch:
        return Joined(member, True)
    owned = with_ids(heard.owned_partitions, now.topics)
    return Joined(reconcile(changes, member, owned, now, changed), False)


def _check(changes: Changes, said: Joining, now: Now) -> None:
    check_member(changes, said.member_id, said.instance_id, now.limits)
    names = [name for name, _ in said.classic.protocols]
    if said.protocol_type != CONSUMER or not changes.group.supports(names):
        why = f"Member {said.member_id} supports no protocol of group {changes.group_id}."
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why)
    if said.must_have_id:
        raise Refusal(ErrorCode.MEMBER_ID_REQUIRED)


def _member(changes: Changes, said: Joining) -> Member:
    """The member that sent a JoinGroup, as it was."""
    group = changes.group
    if said.instance_id is None:
        return group.members.get(said.member_id) or Member(said.member_id)
    found = group.static_member(said.instance_id)
    if said.named:
        return known_static(said.member_id, said.instance_id, found)
    return static_member(changes, said.member_id, found)


# ---- SyncGroup and Heartbeat ---------------------------------------------------------------


def sender(changes: Changes, body: Any) -> Member:
    """The member of the classic protocol that sent a request with a generation.
    Raises: Refusal."""
    group, instance_id = changes.group, body.group_instance_id
    if instance_id is None:
        member = group.members.get(body.member_id)
    else:
        member = known_static(body.member_id, instance_id, group.static_member(instance_id))
    if member is None or member.classic is None:
        raise unknown_member(changes, body.member_id)
    if member.epoch != body.generation_id:
        raise Refusal(ErrorCode.ILLEGAL_GENERATION)
    return member


def keep_up(changes: Changes, now: Now) -> None:
    """In a group without members that heartbeat, nobody else sees that topics have changed, or that
    the partitions of a member that is gone are free.  (In Kafka 4.4.0 they are left alone until a
    member joins.)"""
    group = changes.group
    if group.classic_count == len(group.members):
        look_again(changes, now)
        assign(changes, now)


def must_rejoin(group: ConsumerGroup, member: Member) -> bool:
    """True if a member of the classic protocol has to join to get on: it is behind, or has to give
    partitions up, or those that it waits for are free."""
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED:
        return True
    return member.state is MemberState.UNRELEASED and not group.waits_for_others(member)


def synced(group: ConsumerGroup, member: Member, body: Any, topics: Topics) -> Body:
    """The answer to a SyncGroup.  Raises: Refusal."""
    assert member.classic is not None, member.member_id
    name, metadata = member.classic.protocols[0]
    if body.protocol_type not in (None, CONSUMER) or body.protocol_name not in (None, name):
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED:
        raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS)
    parts: Partitions = {topic: frozenset(numbers) for topic, numbers in member.assigned.items()}
    return {
        "protocol_type": body.protocol_type,
        "protocol_name": body.protocol_name,
        "assignment": encoded(parts, metadata, topics),
    }
