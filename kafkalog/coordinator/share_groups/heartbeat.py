"""ShareGroupHeartbeat: what a member says, and what becomes of its group.

Partitions are shared, so a member waits for no other: it gets its part of the target assignment
with its next heartbeat.  Source: KIP-932, Kafka's GroupMetadataManager.shareGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from kafkalog.coordinator.consumer_groups.epochs import (
    FENCED,
    Found,
    Now,
    check_room,
    given,
    invalid,
    look_at_topics,
    members_left,
    new_assignment,
    not_empty,
    unknown_member,
)
from kafkalog.coordinator.consumer_groups.member import JOINING, LEFT, Member, MemberState
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.share_groups.assignor import ShareSpec, simple
from kafkalog.coordinator.share_groups.changes import ShareChanges
from kafkalog.coordinator.share_groups.records import GIVEN
from kafkalog.coordinator.share_groups.states import (
    assignable,
    initializing,
    requests,
    to_assign,
    to_initialize,
)
from kafkalog.coordinator.share_state.persister import InitializeState
from kafkalog.coordinator.step import Body
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Said", "check", "fence", "heartbeat", "initialize", "leave", "said_in"]

ID_CHARACTERS_MAX = 36
"""Longest id of a member: a UUID."""


class Said(NamedTuple):
    """A member's heartbeat."""

    member_id: str
    epoch: int
    rack_id: str | None
    """None: as before, like the topics."""
    topics: Collection[str] | None
    client_id: str
    client_host: str


def check(body: Any) -> None:
    """Check a request.  Raises: Refusal."""
    if not 0 < len(body.member_id) <= ID_CHARACTERS_MAX:
        raise invalid("Invalid member id in the request.")
    not_empty(body.member_id, "MemberId")
    not_empty(body.group_id, "GroupId")
    not_empty(body.rack_id, "RackId")
    if body.member_epoch == JOINING and not body.subscribed_topic_names:
        raise invalid("SubscribedTopicNames must be set in first request.")
    if body.member_epoch < LEFT:
        raise invalid("MemberEpoch is invalid.")


def said_in(body: Any, client_id: str, client_host: str) -> Said:
    """The content of a request."""
    return Said(
        body.member_id, body.member_epoch, body.rack_id, body.subscribed_topic_names, client_id,
        client_host,
    )  # fmt: skip


# ---- a heartbeat ---------------------------------------------------------------------------


def heartbeat(changes: ShareChanges, said: Said, now: Now) -> Body:
    """Change the group as a heartbeat requires; returns the answer.  Raises: Refusal."""
    group = changes.group
    if said.member_id not in group.members:
        check_room(changes, "share", now.limits)
    before = _member(changes, said)
    member = before._replace(
        rack_id=before.rack_id if said.rack_id is None else said.rack_id,
        topics=before.topics if said.topics is None else frozenset(said.topics),
        client_id=said.client_id, client_host=said.client_host,
    )  # fmt: skip
    if member != before or member.member_id not in group.members:
        changes.subscription(member)
    bump = member.topics != before.topics
    if group.assignment_epoch >= group.epoch:
        bump = bump or to_assign(group)
    epoch = group.epoch
    if bump or group.stale(now.now_ms):
        look_at_topics(changes, now, bump)
    new_assignment(changes, now, lambda: _assignment(changes, now.topics))
    moved = _reconciled(changes, member, now.topics, group.epoch != epoch)
    answer: Body = {
        "member_id": moved.member_id,
        "member_epoch": moved.epoch,
        "heartbeat_interval_ms": now.limits.heartbeat_ms,
    }
    if said.epoch == JOINING or said.topics is not None or moved.assigned != before.assigned:
        answer["assignment"] = given(moved)
    return answer


def _member(changes: ShareChanges, said: Said) -> Member:
    """The member that sent a heartbeat, as it was."""
    member = changes.group.members.get(said.member_id)
    if member is None:
        if said.epoch != JOINING:
            raise unknown_member(changes, said.member_id)
        return Member(said.member_id)
    if said.epoch in (JOINING, member.epoch):
        return member
    if said.epoch > member.epoch:
        which, more = "greater", ""
    elif said.epoch == member.previous_epoch:
        return member  # it missed the answer with its epoch
    else:
        which, more = (
            "smaller",
            (f", and it does not match the previous member epoch ({member.previous_epoch})"),
        )
    raise Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {which} member epoch ({said.epoch}) than the one known by "
        f"the group coordinator ({member.epoch}){more}. {FENCED}",
    )


def _assignment(changes: ShareChanges, topics: Topics) -> Found:
    group = changes.group
    ids = {name: found.id for name in group.topics if (found := topics.topic(name)) is not None}
    members = {
        member_id: [ids[name] for name in member.topics if name in ids]
        for member_id, member in sorted(group.members.items())
    }
    kept = assignable(group.states)
    partitions = {topic: kept[topic] for topic in ids.values() if topic in kept}
    return simple(ShareSpec(members, partitions, group.target, group.homogeneous))


def _reconciled(changes: ShareChanges, member: Member, topics: Topics, bumped: bool) -> Member:
    """Give a member its part of the target assignment; returns it as it is then."""
    group = changes.group
    if not bumped and member.reconciled(group.assignment_epoch):
        return member
    moved = member
    if member.epoch != group.assignment_epoch or bumped:
        ids = {found.id for name in member.topics if (found := topics.topic(name)) is not None}
        target = group.target.get(member.member_id, {})
        part = {t: dict.fromkeys(some, GIVEN) for t, some in target.items() if t in ids}
        moved = member._replace(assigned=part)
    if member.epoch != group.assignment_epoch:
        moved = moved.moved(group.assignment_epoch, MemberState.STABLE, moved.assigned)
    if moved != member:
        changes.current(moved)
    return moved


# ---- the state of its partitions -----------------------------------------------------------


def initialize(changes: ShareChanges, now: Now, retry_ms: int) -> list[InitializeState]:
    """Record which share partitions the share coordinator is to keep; returns what to ask of it."""
    group = changes.group
    new = to_initialize(group, now.topics, now.wall_ms, retry_ms)
    if not new:
        return []
    asked = requests(group.states, new, group.epoch)
    changes.states(initializing(group.states, new, now.wall_ms))
    return asked


# ---- leaving -------------------------------------------------------------------------------


def leave(changes: ShareChanges, said: Said, topics: Topics) -> Body:
    """A member leaves; returns the answer.  Raises: Refusal."""
    member = changes.group.members.get(said.member_id)
    if member is None:
        raise unknown_member(changes, said.member_id)
    fence(changes, member, topics)
    return {"member_id": said.member_id, "member_epoch": said.epoch}


def fence(changes: ShareChanges, member: Member, topics: Topics) -> None:
    """Remove a member: others read its partitions."""
    changes.remove(member.member_id)
    members_left(changes, topics)
