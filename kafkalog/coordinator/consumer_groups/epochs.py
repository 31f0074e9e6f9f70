"""The part of a heartbeat that all types of groups have: group epochs, target assignments, and
members that are removed.

Source: KIP-848, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from kafkalog.coordinator.consumer_groups.changes import GroupChanges
from kafkalog.coordinator.consumer_groups.member import JOINING, Member
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.topics import Topics, group_hash
from kafkalog.coordinator.step import Body
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "FENCED", "Found", "Limits", "Now", "check_epoch", "check_room", "given", "invalid",
    "look_at_topics", "members_left", "new_assignment", "not_empty", "unknown_member",
]  # fmt: skip

MEMBER_US, PARTITION_US = 200, 10
"""The cost of an assignment for each member, most of it for the heartbeat that takes its part over
and for the record of that, and for each partition.  Measured, and rounded up."""
PACE = 2
"""A group's assignments take one part in so many of a processor's time."""
SMALL_MS = 10
REFRESH_MS = (1 << 31) - 1
"""How long what a group knows about its topics holds, unless they change."""
FENCED = "The member must abandon all its partitions and rejoin."
Found = Mapping[str, Mapping[Any, Collection[int]]]
"""An assignment: partitions by member and topic, or what else is assigned."""


class Limits(NamedTuple):
    """Settings in effect for a group."""

    members_max: int
    heartbeat_ms: int
    session_ms: int
    assignment_ms: int
    """Time between two target assignments, at least."""
    assignor: str
    """The default one."""
    pace_max_ms: int = 0
    """How long a large group waits between two assignments at most, see `pace_ms`; 0: no longer
    than any other."""


class Now(NamedTuple):
    """The moment of a heartbeat."""

    now_ms: int
    wall_ms: int
    topics: Topics
    limits: Limits


# ---- what is refused -----------------------------------------------------------------------


def invalid(why: str) -> Refusal:
    """The refusal of a request that makes no sense."""
    return Refusal(ErrorCode.INVALID_REQUEST, why)


def not_empty(value: str | None, field: str) -> None:
    """Check that a text of a request says something, if it is there.  Raises: Refusal."""
    if value is not None and not value.strip():
        raise invalid(f"{field} can't be empty.")


class _Epochs(Protocol):
    """A member, of a consumer group or a streams group."""

    @property
    def epoch(self) -> int: ...
    @property
    def previous_epoch(self) -> int: ...
    @property
    def assigned(self) -> Mapping[Any, Mapping[int, Any]]: ...


def check_epoch(
    kind: str, member: _Epochs, epoch: int, owned: Mapping[Any, Collection[int]] | None
) -> None:
    """Check the epoch of a heartbeat.  A member that comes with its previous epoch, and says that
    it has nothing beyond what it was given, may have missed the answer with this one.

    kind: "consumer", say.  Raises: Refusal.
    """
    if epoch in (JOINING, member.epoch):
        return
    if epoch == member.previous_epoch < member.epoch and owned is not None:
        has = member.assigned
        if all(one in has and set(numbers) <= has[one].keys() for one, numbers in owned.items()):
            return
    which = "greater" if epoch > member.epoch else "smaller"
    raise Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {which} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). {FENCED}",
    )


def unknown_member(changes: GroupChanges[Any], member_id: str) -> Refusal:
    """The refusal of a member that the group does not have."""
    why = f"Member {member_id} is not a member of group {changes.group_id}."
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, why)


def check_room(changes: GroupChanges[Any], kind: str, limits: Limits) -> None:
    """Check that the group may have one more member; `kind`: "consumer", say.  Raises:
    Refusal."""
    if len(changes.group.members) >= limits.members_max:
        raise Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The {kind} group has reached its maximum capacity of {limits.members_max} members.",
        )


# ---- epochs --------------------------------------------------------------------------------


def look_at_topics(changes: GroupChanges[Any], now: Now, bump: bool) -> None:
    """A new group epoch, if the subscriptions or their topics have changed."""
    group = changes.group
    found = group_hash(group.topics, now.topics)
    if bump or found != group.metadata_hash:
        changes.epoch(found)
    group.looked(now.now_ms + REFRESH_MS, group.epoch)


def pace_ms(members: int, partitions: int) -> int:
    """How long a group waits after an assignment of so many partitions to so many members, if it
    has no interval of its own: so long that its assignments take a share of one processor; 0 for
    a small group, whose members would wait for their next heartbeats."""
    found = PACE * (MEMBER_US * members + PARTITION_US * partitions) // 1_000
    return found if found > SMALL_MS else 0


def new_assignment(changes: GroupChanges[Any], now: Now, assign: Callable[[], Found]) -> None:
    """A new target assignment for a new group epoch, unless the last one is too young."""
    group, limits = changes.group, now.limits
    if group.assignment_epoch >= group.epoch:
        return
    wait_ms = max(limits.assignment_ms, min(group.pace_ms, limits.pace_max_ms))
    if group.assignment_ms and 0 <= now.wall_ms - group.assignment_ms < wait_ms:
        return
    found = assign()
    partitions = 0
    for member_id in group.members:
        target = {what: frozenset(numbers) for what, numbers in found.get(member_id, {}).items()}
        partitions += sum(map(len, target.values()))
        if group.target.get(member_id) != target:
            changes.target(member_id, target)
    changes.assignment(group.epoch, now.wall_ms, pace_ms(len(group.members), partitions))


def given(member: Member) -> Body:
    """The partitions of a member, for the answer to its heartbeat."""
    return {
        "topic_partitions": [
            {"topic_id": topic, "partitions": sorted(numbers)}
            for topic, numbers in sorted(member.assigned.items())
        ]
    }


def members_left(changes: GroupChanges[Any], topics: Topics) -> None:
    """A new group epoch without members that were removed: what they had goes to others."""
    group = changes.group
    changes.epoch(group_hash(group.topics, topics))
    if not group.members:
        changes.assignment(group.epoch, 0)
