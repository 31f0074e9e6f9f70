"""StreamsGroupHeartbeat: what a member says, and what becomes of its group.

Source: KIP-1071, Kafka's GroupMetadataManager.streamsGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from kafkalog.coordinator.consumer_groups.epochs import (
    REFRESH_MS,
    Now,
    check_epoch,
    check_room,
    new_assignment,
    unknown_member,
)
from kafkalog.coordinator.consumer_groups.heartbeat import known_static
from kafkalog.coordinator.consumer_groups.member import JOINING, LEFT_STATIC
from kafkalog.coordinator.consumer_groups.reconcile import MustRejoin
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.topics import group_hash
from kafkalog.coordinator.step import Body
from kafkalog.coordinator.streams_groups.assignor import Assignee, Found, TaskSpec, sticky
from kafkalog.coordinator.streams_groups.changes import StreamsChanges
from kafkalog.coordinator.streams_groups.configured import Configured, Status, configured
from kafkalog.coordinator.streams_groups.endpoints import by_endpoint
from kafkalog.coordinator.streams_groups.member import StreamsMember
from kafkalog.coordinator.streams_groups.reconcile import Goal, next_step
from kafkalog.coordinator.streams_groups.records import task_fields
from kafkalog.coordinator.streams_groups.said import Said, check_tasks
from kafkalog.coordinator.streams_groups.state import (
    NO_OFFSETS,
    NOT_VALIDATED,
    Offsets,
    StreamsGroup,
)
from kafkalog.coordinator.streams_groups.topology import InternalTopic, Topology
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Creatable", "Outside", "TaskSettings", "assign", "fence", "heartbeat", "leave"]

SHOWN_MAX = 3
"""Reasons why topics were not created that a message has."""
STANDBYS, TAGS = "num.standby.replicas", "rack.aware.assignment.tags"
"""Settings of a target assignment, as the group's record names them."""
Creatable = Callable[[Collection[str]], Collection[str]]
"""Those of some topics that a member may create."""


class TaskSettings(NamedTuple):
    """Settings in effect for a group's tasks."""

    standbys: int
    """Copies of the state of each task."""
    delay_ms: int
    """How long an empty group waits for more members before its first assignment."""
    offsets_ms: int
    """Time between two reports of a member's copies of state."""
    lag: int
    """How far a copy of state may be behind, and still count as complete."""
    tags: tuple[str, ...]
    """Keys of the tags that members must have."""

    @property
    def configs(self) -> tuple[tuple[str, str], ...]:
        """As the group's record has them."""
        found = {STANDBYS: str(self.standbys)}
        if self.tags:
            found[TAGS] = ",".join(self.tags)
        return tuple(sorted(found.items()))


class Outside(NamedTuple):
    """The surroundings of a heartbeat."""

    now: Now
    settings: TaskSettings
    delayed: bool
    """An empty group still waits for more members."""
    creatable: Creatable


# ---- a heartbeat ---------------------------------------------------------------------------


def heartbeat(
    changes: StreamsChanges, said: Said, outside: Outside
) -> tuple[Body, Mapping[str, InternalTopic]]:
    """Change the group as a heartbeat requires; returns the answer, and the internal topics to
    create.  Raises: Refusal."""
    group, now = changes.group, outside.now
    known = said.instance_id in group.static or said.member_id in group.members
    if said.epoch == JOINING and not known:
        check_room(changes, "streams", now.limits)
    new = group.topology is None
    replaced = _replaced(group, said)
    before = _member(changes, said)
    member = _with_what_it_says(before, said)
    statuses: list[tuple[Status, str]] = []
    bump = _take_over(changes, before, member, said)
    _topology(changes, said)
    _note_stale(group, member, statuses)
    found = _look(changes, now, bump, outside.settings)
    if found.problem is None and found.parts is not None:
        check_tasks(said.owned, found.parts)
    _take_offsets(changes, said)
    _assign_now(changes, outside, statuses)
    moved = _reconciled(changes, member, said, outside.delayed)
    if said.shutdown and group.shutdown is None:
        changes.shutdown(said.member_id)
    answer: Body = {
        "member_id": moved.member_id,
        "member_epoch": moved.epoch,
        "heartbeat_interval_ms": now.limits.heartbeat_ms,
    }
    if said.epoch == JOINING or moved.assigned != before.assigned or _missed(said, moved):
        answer |= task_fields(moved.assigned)
    endpoints = _endpoints(changes, before, moved, said, now, replaced)
    answer |= always_told(outside.settings, group) | endpoints
    if new:  # as Kafka answers the first heartbeat of all
        changes.endpoint_epoch(0)
        answer["endpoint_information_epoch"] = 0
    creates = _note_problems(group, found, outside, statuses)
    _note_tags(moved, said, outside.settings, statuses)
    answer["status"] = [{"status_code": code, "status_detail": text} for code, text in statuses]
    return answer, creates


def _replaced(group: StreamsGroup, said: Said) -> str | None:
    """The static member that one that joins replaces."""
    found = None if said.instance_id is None else group.static.get(said.instance_id)
    return None if found == said.member_id else found


def _member(changes: StreamsChanges, said: Said) -> StreamsMember:
    """The member that sent a heartbeat, as it was."""
    group, joins = changes.group, said.epoch == JOINING
    if said.instance_id is None:
        member = group.members.get(said.member_id)
        if member is None and not joins:
            raise unknown_member(changes, said.member_id)
        member = member or StreamsMember(said.member_id)
    else:
        found = group.static_member(said.instance_id)
        if joins:
            return _static_member(changes, said, found)
        member = known_static(said.member_id, said.instance_id, found)
    check_epoch("streams", member, said.epoch, said.owned)
    return member


def _static_member(
    changes: StreamsChanges, said: Said, found: StreamsMember | None
) -> StreamsMember:
    """A static member joins: it takes the place of the one with its instance id, if any."""
    if found is None:
        return changes.group.members.get(said.member_id) or StreamsMember(said.member_id)
    if found.epoch != LEFT_STATIC:
        raise Refusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {said.member_id} with instance id {said.instance_id} cannot join the "
            f"group because the instance id is owned by {found.member_id} member.",
        )
    target = changes.group.target.get(found.member_id, {})
    changes.remove(found.member_id)
    member = found._replace(member_id=said.member_id, epoch=JOINING, previous_epoch=JOINING)
    changes.subscription(member)
    changes.target(member.member_id, target)
    changes.current(member)
    return member


def _missed(said: Said, member: StreamsMember) -> bool:
    """True if it says that it has other tasks than it was given: an answer may have been lost,
    after which Kafka leaves it without them."""
    if said.owned is None:
        return False
    has = {key: set(numbers) for key, numbers in said.owned.items() if numbers}
    return has != {key: set(numbers) for key, numbers in member.assigned.items()}


def _with_what_it_says(member: StreamsMember, said: Said) -> StreamsMember:
    timeout_ms = said.rebalance_timeout_ms
    kept = member.endpoint if said.epoch != JOINING else None
    return member._replace(
        instance_id=member.instance_id if said.instance_id is None else said.instance_id,
        rack_id=member.rack_id if said.rack_id is None else said.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=member.topology_epoch if said.topology is None else said.topology.epoch,
        process_id=member.process_id if said.process_id is None else said.process_id,
        endpoint=kept if said.endpoint is None else said.endpoint,
        tags=member.tags if said.tags is None else said.tags,
        client_id=said.client_id, client_host=said.client_host,
    )  # fmt: skip


def _take_over(
    changes: StreamsChanges, before: StreamsMember, member: StreamsMember, said: Said
) -> bool:
    """The member as it is now; returns whether the tasks are to be assigned again."""
    if member == before and member.member_id in changes.group.members:
        return False
    changes.subscription(member)
    if said.instance_id is None:
        return True
    return _relevant(before) != _relevant(member)


def _relevant(member: StreamsMember) -> tuple[object, ...]:
    """The part on which the assignment depends; a static member may come back with another
    rest."""
    return member.topology_epoch, member.rack_id, member.tags, member.process_id


def _topology(changes: StreamsChanges, said: Said) -> None:
    """Take over the topology of the first member; those of others must be the same."""
    known, given = changes.group.topology, said.topology
    if known is None:
        if given is None:
            why = "The topology is null and the group topology is also null."
            raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, why)
        changes.topology(given)
    elif given is not None and given.epoch >= known.epoch and given != known:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")


def _note_stale(
    group: StreamsGroup, member: StreamsMember, statuses: list[tuple[Status, str]]
) -> None:
    known = _topology_of(group)
    if member.topology_epoch < known.epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology "
            f"epoch {known.epoch}."
        )
        statuses.append((Status.STALE_TOPOLOGY, detail))


def _topology_of(group: StreamsGroup) -> Topology:
    assert group.topology is not None, "a member has brought one"
    return group.topology


def _take_offsets(changes: StreamsChanges, said: Said) -> None:
    if said.offsets is not None or said.end_offsets is not None:
        before = changes.group.offsets.get(said.member_id, NO_OFFSETS)
        at = before.at if said.offsets is None else said.offsets
        end = before.end if said.end_offsets is None else said.end_offsets
        changes.offsets(said.member_id, Offsets.of(at, end))


# ---- epochs --------------------------------------------------------------------------------


def _look(changes: StreamsChanges, now: Now, bump: bool, settings: TaskSettings) -> Configured:
    """Look at the topology's topics, if it is time; a new group epoch follows if they, or
    anything else of the assignment, have changed."""
    group = changes.group
    found, topics_hash = group.configured, group.metadata_hash
    look = found is None or group.stale(now.now_ms)
    if found is None or look:
        topics_hash = group_hash(group.topics, now.topics)
        bump = bump or topics_hash != group.metadata_hash
        if found is None or topics_hash != group.metadata_hash:
            found = configured(_topology_of(group), now.topics)
            changes.configured(found)
    validated = found.epoch if found.problem is None else NOT_VALIDATED
    if bump or validated != group.validated_epoch or settings.configs != group.configs:
        changes.next_epoch(topics_hash, validated, settings.configs)
    if look:
        group.looked(now.now_ms + REFRESH_MS, group.epoch)
    return found


def _assign_now(
    changes: StreamsChanges, outside: Outside, statuses: list[tuple[Status, str]]
) -> None:
    """A new target assignment for a new group epoch, unless it is to wait."""
    group = changes.group
    if outside.delayed:
        detail = "Assignment delayed due to the configured initial rebalance delay."
        statuses.append((Status.ASSIGNMENT_DELAYED, detail))
        return
    assign(changes, outside.now)
    if group.assignment_epoch < group.epoch:
        detail = "Assignment delayed due to the configured assignment interval."
        statuses.append((Status.ASSIGNMENT_DELAYED, detail))


def assign(changes: StreamsChanges, now: Now) -> None:
    """A new target assignment for a new group epoch, unless the last one is too young."""
    new_assignment(changes, now, partial(_assignment, changes.group))


def _assignment(group: StreamsGroup) -> Found:
    found = group.configured
    if found is None or found.problem is not None or found.parts is None:
        return {}
    members = {
        name: Assignee(
            one.process_id, one.assigned, group.offsets.get(name, NO_OFFSETS).at
        )
        for name, one in sorted(group.members.items())
    }  # fmt: skip
    stateful = frozenset(name for name, part in found.parts.items() if part.changelogs)
    tasks = {name: part.tasks for name, part in found.parts.items()}
    standbys = int(dict(group.configs).get(STANDBYS, 0))
    return sticky(TaskSpec(members, tasks, stateful, standbys))


def _reconciled(
    changes: StreamsChanges, member: StreamsMember, said: Said, delayed: bool
) -> StreamsMember:
    """Take a member one step further; returns it as it is then."""
    group = changes.group
    if member.reconciled(group.assignment_epoch):
        return member
    tasks = {} if delayed else group.target.get(member.member_id, {})
    try:
        goal = Goal(group.assignment_epoch, tasks, group.processes)
        moved = next_step(member, goal, said.owned)
    except MustRejoin:
        why = "The streams group member is in a unknown state. The member must abandon all its "
        raise Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"{why}tasks and rejoin.") from None
    if moved != member:
        changes.current(moved)
    return moved


# ---- the answer ----------------------------------------------------------------------------


def always_told(settings: TaskSettings, group: StreamsGroup) -> Body:
    """The fields of every answer that only streams groups have."""
    return {
        "task_offset_interval_ms": settings.offsets_ms,
        "acceptable_recovery_lag": settings.lag,
        "endpoint_information_epoch": group.endpoint_epoch,
        "status": [],
    }


def no_status(group: StreamsGroup, member: StreamsMember, settings: TaskSettings) -> bool:
    """True if a member of a settled group is to be told of no problem, and the topology and the
    settings are those of the target assignment."""
    found, known = group.configured, group.topology
    if found is None or found.problem is not None or known is None or group.shutdown is not None:
        return False
    same = found.epoch == group.validated_epoch and settings.configs == group.configs
    has = {key for key, _ in member.tags}
    return same and member.topology_epoch >= known.epoch and has.issuperset(settings.tags)


def _endpoints(
    changes: StreamsChanges, before: StreamsMember, member: StreamsMember, said: Said, now: Now,
    replaced: str | None,
) -> Body:  # fmt: skip
    """Where the state of each partition can be queried, unless the member knows."""
    group = changes.group
    moved = member.assigned != before.assigned and member.endpoint is not None
    if moved or member.endpoint != before.endpoint:
        changes.endpoint_epoch(group.endpoint_epoch + 1)
    if group.endpoint_epoch == said.endpoint_epoch:
        return {}
    others = [
        one for name, one in group.members.items() if name not in (member.member_id, replaced)
    ]
    rows = by_endpoint([*others, member], group.configured, now.topics)
    return {"partitions_by_user_endpoint": rows}


def _note_problems(
    group: StreamsGroup, found: Configured, outside: Outside, statuses: list[tuple[Status, str]]
) -> Mapping[str, InternalTopic]:
    """Say why the topology cannot be run, if so; returns the internal topics to create."""
    creates: Mapping[str, InternalTopic] = {}
    if found.problem is not None:
        status, detail = found.problem
        if found.missing:
            denied = sorted(found.missing.keys() - set(outside.creatable(found.missing)))
            if denied:
                detail += f"; Unauthorized to CREATE on topics {', '.join(denied)}."
            else:
                creates = _to_create(group, found.missing, outside.now.now_ms)
                detail += _failures(group, found.missing, outside.now.now_ms)
        statuses.append((status, detail))
    if group.shutdown is not None:
        detail = (
            f"Streams group member {group.shutdown} encountered a fatal error and requested a "
            "shutdown for the entire application."
        )
        statuses.append((Status.SHUTDOWN_APPLICATION, detail))
    return creates


def _failed(group: StreamsGroup, missing: Collection[str], now_ms: int) -> list[str]:
    return [
        name for name in sorted(missing)
        if name in group.failures and now_ms < group.failures[name].until_ms
    ]  # fmt: skip


def _to_create(
    group: StreamsGroup, missing: Mapping[str, InternalTopic], now_ms: int
) -> Mapping[str, InternalTopic]:
    failed = set(_failed(group, missing, now_ms))
    return {
        name: one for name, one in missing.items()
        if name not in failed and now_ms >= group.creating.get(name, now_ms)
    }  # fmt: skip


def _failures(group: StreamsGroup, missing: Collection[str], now_ms: int) -> str:
    failed = _failed(group, missing, now_ms)
    if not failed:
        return ""
    shown = ", ".join(f"{name} ({group.failures[name].why})" for name in failed[:SHOWN_MAX])
    more = f" and {len(failed) - SHOWN_MAX} additional topics" if len(failed) > SHOWN_MAX else ""
    return f"; Creation failed: {shown}{more}."


def _note_tags(
    member: StreamsMember, said: Said, settings: TaskSettings, statuses: list[tuple[Status, str]]
) -> None:
    has = dict(member.tags)
    lost = [key for key in settings.tags if key not in has]
    if said.version >= 1 and lost:
        detail = (
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(lost)}]. "
            "Configure them via 'client.tag.<tagKey>' in your Streams config."
        )
        statuses.append((Status.MISSING_CLIENT_TAGS, detail))


# ---- leaving -------------------------------------------------------------------------------


def leave(changes: StreamsChanges, said: Said) -> Body:
    """A member leaves; returns the answer.  Raises: Refusal."""
    group = changes.group
    if said.shutdown and group.shutdown is None:
        changes.shutdown(said.member_id)
    answer: Body = {"member_id": said.member_id, "member_epoch": said.epoch, "status": []}
    if said.instance_id is None:
        member = group.members.get(said.member_id)
        if member is None:
            raise unknown_member(changes, said.member_id)
    else:
        found = group.static_member(said.instance_id)
        member = known_static(said.member_id, said.instance_id, found)
        if said.epoch == LEFT_STATIC:
            reset = {key: dict.fromkeys(numbers, 0) for key, numbers in member.assigned.items()}
            changes.current(member._replace(epoch=LEFT_STATIC, revoking={}, assigned=reset))
            return answer
    fence(changes, member)
    return answer


def fence(changes: StreamsChanges, member: StreamsMember) -> None:
    """Remove a member: what it had goes to others."""
    group = changes.group
    changes.remove(member.member_id)
    changes.next_epoch(group.metadata_hash, group.validated_epoch, group.configs)
    if not group.members:
        changes.shutdown(None)
        changes.assignment(group.epoch, 0)
