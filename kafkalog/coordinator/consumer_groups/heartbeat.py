"""ConsumerGroupHeartbeat: what a member says, and what becomes of its group.

Source: KIP-848, Kafka's GroupMetadataManager.consumerGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kafkalog.coordinator.consumer_groups.assignors import ASSIGNORS, Spec, Subscriber
from kafkalog.coordinator.consumer_groups.base import AnyMember
from kafkalog.coordinator.consumer_groups.changes import Changes
from kafkalog.coordinator.consumer_groups.epochs import (
    FENCED,
    Found,
    Limits,
    Now,
    check_epoch,
    check_room,
    given,
    invalid,
    look_at_topics,
    members_left,
    new_assignment,
    not_empty,
    unknown_member,
)
from kafkalog.coordinator.consumer_groups.member import (
    JOINING,
    LEFT,
    LEFT_STATIC,
    Member,
    subscribed,
)
from kafkalog.coordinator.consumer_groups.patterns import checked_pattern
from kafkalog.coordinator.consumer_groups.reconcile import MustRejoin, Owned, Target, next_step
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup
from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.step import Body
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Said", "assign", "check", "check_member", "fence", "heartbeat", "known_static", "leave",
    "look_again", "reconcile", "said_in", "says_nothing", "static_member", "take_over",
]  # fmt: skip

NOTHING_NEW = (None,) * 5
M = TypeVar("M", bound=AnyMember)


class Said(NamedTuple):
    """A member's heartbeat."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    """-1: as before, like None below."""
    topics: Collection[str] | None
    regex: str | None
    assignor: str | None
    owned: Mapping[UUID, Collection[int]] | None
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """True if it repeats everything, after an error."""
        subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and subscription and self.owned is not None


# ---- what is refused whatever the group ----------------------------------------------------


def check(body: Any, version: int, assignors: Collection[str]) -> None:
    """Check a request.  Raises: Refusal."""
    epoch = body.member_epoch
    if version >= 1 or epoch > 0 or epoch == LEFT:
        not_empty(body.member_id, "MemberId")
    not_empty(body.group_id, "GroupId")
    not_empty(body.instance_id, "InstanceId")
    not_empty(body.rack_id, "RackId")
    if epoch == JOINING:
        if body.rebalance_timeout_ms == -1:
            raise invalid("RebalanceTimeoutMs must be provided in first request.")
        if body.topic_partitions is None or body.topic_partitions:
            raise invalid("TopicPartitions must be empty when (re-)joining.")
        if body.subscribed_topic_names is None and _regex_in(body) is None:
            raise invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
                           "when (re-)joining.")  # fmt: skip
    elif epoch == LEFT_STATIC and body.instance_id is None:
        raise invalid("InstanceId can't be null.")
    elif epoch < LEFT_STATIC:
        raise invalid("MemberEpoch is invalid.")
    if body.server_assignor is not None and body.server_assignor not in assignors:
        raise Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {body.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )


def _regex_in(body: Any) -> str | None:
    found: str | None = getattr(body, "subscribed_topic_regex", None)  # since version 1
    return found


def said_in(body: Any, member_id: str, client_id: str, client_host: str) -> Said:
    """The content of a request; `member_id`: of the member, if it names none."""
    owned = body.topic_partitions
    if owned is not None:
        given: dict[UUID, set[int]] = {}
        for one in owned:
            given.setdefault(one.topic_id, set()).update(one.partitions)
        owned = given
    return Said(
        member_id, body.member_epoch, body.instance_id, body.rack_id, body.rebalance_timeout_ms,
        body.subscribed_topic_names, _regex_in(body),
        body.server_assignor, owned, client_id, client_host,
    )  # fmt: skip


# ---- a heartbeat ---------------------------------------------------------------------------


def heartbeat(changes: Changes, said: Said, now: Now) -> Body:
    """Change the group as a heartbeat requires; returns the answer.  Raises: Refusal."""
    joins = said.epoch == JOINING
    check_member(changes, said.member_id, said.instance_id, now.limits)
    before = _member(changes, said, joins)
    member = _with_what_it_says(before, said)
    changed = take_over(changes, before, member, now)
    assign(changes, now)
    reconciled = reconcile(changes, member, said.owned, now, changed)
    answer: Body = {
        "member_id": reconciled.member_id,
        "member_epoch": reconciled.epoch,
        "heartbeat_interval_ms": now.limits.heartbeat_ms,
    }
    if joins or said.is_full or reconciled.assigned != before.assigned:
        answer["assignment"] = given(reconciled)
    return answer


def says_nothing(group: ConsumerGroup, member: Member, body: Any) -> bool:
    """True for a heartbeat of a member that says nothing new."""
    says = (
        body.subscribed_topic_names, _regex_in(body), body.server_assignor, body.topic_partitions,
        body.rack_id,
    )  # fmt: skip
    if says != NOTHING_NEW or body.rebalance_timeout_ms != -1 or member.classic is not None:
        return False
    return body.instance_id is None or group.static.get(body.instance_id) == member.member_id


def take_over(changes: Changes, before: Member, member: Member, now: Now) -> bool:
    """A member as it is now, and the group epoch that follows; returns whether the topics to
    which it subscribes are others.  Raises: Refusal."""
    group, assignor = changes.group, _assignor(changes, now.limits)
    if member != before or member.member_id not in group.members:
        changes.subscription(member)
    patterns = _changed_pattern(changes, before, member)
    topics_changed = member.topics != before.topics
    bump = topics_changed or patterns == RESOLVED or assignor != _assignor(changes, now.limits)
    look_again(changes, now, bump)
    return topics_changed or patterns != UNCHANGED


def check_member(
    changes: Changes, member_id: str, instance_id: str | None, limits: Limits
) -> None:  # fmt: skip
    """Check that the group may have this member.  Raises: Refusal."""
    group = changes.group
    if instance_id in group.static or member_id in group.members:
        return
    check_room(changes, "consumer", limits)


def _member(changes: Changes, said: Said, joins: bool) -> Member:
    """The member that sent a heartbeat, as it was."""
    group = changes.group
    if said.instance_id is None:
        member = group.members.get(said.member_id)
        if member is None and not joins:
            raise unknown_member(changes, said.member_id)
        member = member or Member(said.member_id)
    else:
        found = group.static_member(said.instance_id)
        if joins:
            if found is not None and found.epoch != LEFT_STATIC and found.classic is None:
                raise _unreleased(said, found)
            return static_member(changes, said.member_id, found)
        member = known_static(said.member_id, said.instance_id, found)
    check_epoch("consumer", member, said.epoch, said.owned)
    return member


def known_static(member_id: str, instance_id: str | None, found: M | None) -> M:
    """The static member that sent a request, unless another has taken its place.  `found`: the
    group's member with the instance id.  Raises: Refusal."""
    if found is None:
        why = f"Instance id {instance_id} is unknown."
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, why)
    if found.member_id != member_id:
        raise Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by "
            f"member {found.member_id}.",
        )
    return found


def _unreleased(said: Said, found: Member) -> Refusal:
    return Refusal(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {said.member_id} with instance id {said.instance_id} cannot join the "
        f"group because the instance id is owned by {found.member_id} member.",
    )


def static_member(changes: Changes, member_id: str, found: Member | None) -> Member:
    """A static member joins: it takes the place of the one with its instance id, if any."""
    if found is None:
        return changes.group.members.get(member_id) or Member(member_id)
    target = changes.group.target.get(found.member_id, {})
    changes.remove(found.member_id)
    member = found._replace(member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
    changes.subscription(member)
    changes.target(member.member_id, target)
    changes.current(member)
    return member


def _with_what_it_says(member: Member, said: Said) -> Member:
    timeout_ms = said.rebalance_timeout_ms
    return member._replace(
        instance_id=member.instance_id if said.instance_id is None else said.instance_id,
        rack_id=member.rack_id if said.rack_id is None else said.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if said.assignor is None else said.assignor,
        topics=member.topics if said.topics is None else frozenset(said.topics),
        regex=member.regex if said.regex is None else said.regex,
        client_id=said.client_id, client_host=said.client_host, classic=None,
    )  # fmt: skip


# ---- patterns ------------------------------------------------------------------------------

UNCHANGED, UPDATED, RESOLVED = range(3)
"""A member's pattern: as before; another, whose topics are not known yet; another, or none."""


def _changed_pattern(changes: Changes, before: Member, member: Member) -> int:
    """Look at a member's pattern after it was put; returns how it changed.  Raises: Refusal."""
    if before.regex == member.regex:
        return UNCHANGED
    group, found = changes.group, UPDATED
    if before.regex and not group.patterns[before.regex]:
        changes.regex(before.regex, None)
    if member.regex:
        if group.patterns[member.regex] == 1:
            checked_pattern(member.regex, len(group.patterns))
        elif member.regex in group.regexes:
            found = RESOLVED
    elif before.regex:
        found = RESOLVED
    return found


# ---- the target assignment -----------------------------------------------------------------


def _assignor(changes: Changes, limits: Limits) -> str:
    found = changes.group.preferred_assignor()
    if found is None or found not in ASSIGNORS:  # another broker may know more
        return limits.assignor
    return found


def look_again(changes: Changes, now: Now, bump: bool = False) -> None:
    """A new group epoch, if the subscriptions (`bump`) or their topics have changed."""
    if not bump and not changes.group.stale(now.now_ms):
        return
    look_at_topics(changes, now, bump)
    if changes.group.old_metadata:
        changes.no_old_metadata()


def assign(changes: Changes, now: Now) -> None:
    """A new target assignment for a new group epoch, unless the last one is too young."""

    def assign() -> Found:
        return ASSIGNORS[_assignor(changes, now.limits)](_spec(changes, now.topics))

    new_assignment(changes, now, assign)


def _spec(changes: Changes, topics: Topics) -> Spec:
    group = changes.group
    resolved = group.resolved
    known = {name: found for name in group.topics if (found := topics.topic(name)) is not None}
    members = {
        member.member_id: Subscriber(
            member.instance_id,
            [known[name].id for name in subscribed(member, resolved) if name in known],
        )
        for member in group.members.values()
    }
    counts = {one.id: one.partition_count for one in known.values()}
    return Spec(members, counts, group.target, group.homogeneous)


def reconcile(
    changes: Changes, member: Member, owned: Owned, now: Now, changed: bool
) -> Member:  # fmt: skip
    """Take a member one step further; returns it as it is then.  `changed`: it subscribes to other
    topics.  Raises: Refusal."""
    group = changes.group
    if not changed and member.reconciled(group.assignment_epoch):
        return member
    names = subscribed(member, group.resolved)
    ids = {found.id for name in names if (found := now.topics.topic(name)) is not None}
    target = Target(group.assignment_epoch, group.target_of(member), ids, group.epoch_of)
    try:
        moved = next_step(member, target, owned, changed)
    except MustRejoin:
        raise Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member is in a unknown state. {FENCED}",
        ) from None
    if moved != member:
        changes.current(moved)
    return moved


# ---- leaving -------------------------------------------------------------------------------


def leave(changes: Changes, said: Said) -> Member | None:
    """A member leaves: returns it if it is to be removed, None if it will be back.
    Raises: Refusal."""
    group = changes.group
    if said.instance_id is None:
        member = group.members.get(said.member_id)
        if member is None:
            raise unknown_member(changes, said.member_id)
    else:
        found = group.static_member(said.instance_id)
        member = known_static(said.member_id, said.instance_id, found)
        if said.epoch == LEFT_STATIC:
            reset = {t: dict.fromkeys(numbers, 0) for t, numbers in member.assigned.items()}
            changes.current(member._replace(epoch=LEFT_STATIC, revoking={}, assigned=reset))
            return None
    return member


def fence(changes: Changes, members: Collection[Member], topics: Topics) -> None:
    """Remove members: what they had goes to others."""
    group = changes.group
    if not members:
        return
    for member in members:
        changes.remove(member.member_id)
    for regex in {member.regex for member in members if member.regex}:
        if not group.patterns[regex]:
            changes.regex(regex, None)
    members_left(changes, topics)
