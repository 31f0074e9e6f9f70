"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups.

Source: Kafka's GroupMetadataManager; KIP-345 (static members), KIP-394 (member ids are handed
out before joining), KIP-559 (protocol names in SyncGroup), KIP-814 (skip assignment).
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog.config.group import GroupConfig
from kafkalog.coordinator.core import append_error
from kafkalog.coordinator.groups import rebalance, records
from kafkalog.coordinator.groups.group import (
    CONSUMER,
    GROUP_BYTES,
    Group,
    Member,
    Protocols,
    State,
    member_bytes,
)
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Answer, Body, Call, Step
from kafkalog.coordinator.weight import text_bytes
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.runtime import STRING_BYTES_MAX

__all__ = [
    "KNOWN_ID_VERSION", "NAMES_IN_SYNC_VERSION", "answer_leave", "answered", "check_join",
    "heartbeat", "join", "leave", "leaving_in", "protocols_in", "rebalance_ms", "sync",
    "validate_member",
]  # fmt: skip

NEW_MEMBER_JOIN_MS = 300_000
"""How long the first JoinGroup of a member may wait before the member is removed."""
LONGEST_ID = "0" * 36
"""As long as GroupShard.new_id makes them."""
SMALL_BYTES = 4096
"""Free allowance for each member's metadata and assignment when memory is used up: the partitions
it owns change with each generation."""
NULL_NAME_VERSION = 7
"""From this version on, a refused JoinGroup names no protocol."""
KNOWN_ID_VERSION = 4
"""From this version of JoinGroup on, a member first gets an id, then joins with it."""
SKIP_ASSIGNMENT_VERSION = 9
NAMES_IN_SYNC_VERSION = 5
LEAVE_LIST_VERSION = 3
MAY_BE_THERE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""A write with a timeout or of unknown durability may be in the journal nevertheless."""


def validate_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Check that a request comes from a member of the group; of a static member, only the last one
    that joined under its instance id counts.
    """
    if instance_id is not None:
        known = group.static.get(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


# ---- JoinGroup -----------------------------------------------------------------------------


def join(shard: GroupShard, step: Step, request: Call) -> None:
    """Answer a JoinGroup, or park it until its generation is complete."""
    body, request = request.body, answered(request)
    group = shard.groups.get(body.group_id)
    error = check_join(shard.config, request)
    if error is not ErrorCode.NONE:
        pass
    elif group is None and body.member_id:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    elif not shard.has_room(_more_bytes(group, request)):
        error = ErrorCode.GROUP_MAX_SIZE_REACHED  # no client retries it immediately
    else:
        if group is None:
            group = shard.new_group(body.group_id, step.wall_ms)
        error = _join(shard, step, group, request)
        if error is ErrorCode.NONE:
            return
        if group.unused:
            shard.forget(group)
    full = error is ErrorCode.GROUP_MAX_SIZE_REACHED
    member_id = "" if full or (group and records.is_share(group)) else body.member_id
    step.answer(request.answer, **rebalance.refused_join(error, member_id))


def answered(request: Call) -> Call:
    """A JoinGroup whose answer may name no protocol, whatever its version."""
    if request.version >= NULL_NAME_VERSION:
        return request
    return request._replace(answer=_without_null(request.answer))


def check_join(config: GroupConfig, request: Call) -> ErrorCode:
    """Why a JoinGroup is refused whatever its group."""
    low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not low <= request.body.session_timeout_ms <= high:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.INVALID_REQUEST if _too_long(request) else ErrorCode.NONE


def _too_long(request: Call) -> bool:
    """True if the client's id, or the member id made of it, fits in no answer or record."""
    body, client_id = request.body, request.client_id
    named = "" if body.member_id else f"{body.group_instance_id or client_id}-{LONGEST_ID}"
    longest = max(len(name.encode()) for name in (client_id, named))
    return longest > STRING_BYTES_MAX


def _more_bytes(group: Group | None, request: Call) -> int:
    """The memory a JoinGroup adds beyond its member's allowance; 0 for a member with little
    metadata."""
    body, protocols = request.body, protocols_in(request)
    if group is not None:
        before = group.static.get(body.group_instance_id) or body.member_id
        if (known := group.members.get(before)) is not None:
            small = member_bytes((), protocols, b"") <= member_bytes((), (), b"") + SMALL_BYTES
            said = member_bytes(known.names, protocols, known.assignment)
            return 0 if small else said - known.weighed_bytes
    instance_id, client_id = body.group_instance_id, request.client_id
    names = instance_id or client_id, instance_id, client_id  # the first as part of its id
    said = member_bytes(names, protocols, b"")
    new = GROUP_BYTES + text_bytes(body.group_id) + text_bytes(body.protocol_type)
    return said + new * (group is None)


def _without_null(answer: Answer) -> Answer:
    """For versions of JoinGroup whose answers must name a protocol."""

    def named(body: Body) -> None:
        answer({**body, "protocol_name": body["protocol_name"] or ""})

    return named


def _join(shard: GroupShard, step: Step, group: Group, request: Call) -> ErrorCode:
    """As `join`.  Returns an error if nothing was answered yet."""
    body = request.body
    comes_back = not body.member_id and body.group_instance_id in group.static
    if not comes_back and not _has_room(shard, group, body.member_id):
        group.remove(body.member_id)
        shard.cancel_timer("session", group, body.member_id)
        rebalance.complete_if_all_joined(shard, step, group)
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if records.is_share(group) or group.takes_tasks:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not group.supports(body.protocol_type, (p.name for p in body.protocols)):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not body.member_id:
        return _join_unknown(shard, step, group, request)
    if body.member_id in group.pending and body.group_instance_id is None:
        _add(shard, step, group, request, body.member_id)
        return ErrorCode.NONE
    error = validate_member(group, body.member_id, body.group_instance_id)
    if error is ErrorCode.NONE:
        error = _rejoin(shard, step, group, request)
    return error


def _has_room(shard: GroupShard, group: Group, member_id: str) -> bool:
    limit = shard.config.group_max_size
    if group.state in (State.EMPTY, State.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is State.PREPARING:
        # Members that joined count: if the limit was lowered, the last to join are left out.
        return (member is not None and member.join is not None) or group.joined_count < limit
    return member is not None or len(group.members) < limit


def _join_unknown(shard: GroupShard, step: Step, group: Group, request: Call) -> ErrorCode:
    """A JoinGroup without a member id."""
    instance_id = request.body.group_instance_id
    member_id = f"{instance_id or request.client_id}-{shard.new_id()}"
    if instance_id is None and request.version >= KNOWN_ID_VERSION:
        group.expect(member_id)
        expires_ms = step.now_ms + request.body.session_timeout_ms
        shard.set_timer("session", group, expires_ms, member_id)
        error = ErrorCode.MEMBER_ID_REQUIRED
        step.answer(request.answer, **rebalance.refused_join(error, member_id))
    elif instance_id is None or instance_id not in group.static:
        _add(shard, step, group, request, member_id)
    else:
        return _replace_static(shard, step, group, request, member_id)
    return ErrorCode.NONE


def _add(shard: GroupShard, step: Step, group: Group, request: Call, member_id: str) -> None:
    """Add a new member."""
    body = request.body
    member = Member(member_id, body.group_instance_id, request.client_id, request.client_host)
    _describe(group, member, request)
    member.is_new = True
    if group.initial is not None:
        group.new_member_added = True
    group.add(member, body.protocol_type)
    group.park_join(member, request.answer)
    shard.set_timer("session", group, step.now_ms + NEW_MEMBER_JOIN_MS, member_id)
    rebalance.begin_or_complete(shard, step, group)


def protocols_in(request: Call) -> Protocols:
    """The member's protocols; a repeated name counts once."""
    found: dict[str, bytes] = {}
    for protocol in request.body.protocols:
        found.setdefault(protocol.name, protocol.metadata)
    return tuple(found.items())


def rebalance_ms(request: Call) -> int:
    """The time for a rebalance that a JoinGroup's member asks for."""
    body = request.body
    asked_ms: int = body.rebalance_timeout_ms if request.version else body.session_timeout_ms
    return asked_ms


def _describe(group: Group, member: Member, request: Call) -> None:
    """Take over what a JoinGroup says about its member."""
    body = request.body
    member.rebalance_timeout_ms = rebalance_ms(request)
    member.session_timeout_ms = body.session_timeout_ms
    if member.member_id in group.members:
        group.speak(member, protocols_in(request))
    else:
        member.protocols = protocols_in(request)


def _rejoin(shard: GroupShard, step: Step, group: Group, request: Call) -> ErrorCode:
    """A JoinGroup of a member of the group."""
    member = group.members[request.body.member_id]
    leads = member.member_id == group.leader
    changed = member.protocols != protocols_in(request)
    if group.state is State.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if (
        group.state is State.PREPARING
        or (group.state is State.COMPLETING and changed)
        or (group.state is State.STABLE and (leads or changed))
    ):
        # A leader rejoins when it sees partitions added or removed.
        _describe(group, member, request)
        rebalance.replaced_join(step, group.park_join(member, request.answer))
        rebalance.begin_or_complete(shard, step, group)
        return ErrorCode.NONE
    # Its JoinGroup's answer was lost, or a follower rejoined for no reason.
    members = rebalance.members_for_leader(group) if leads else []
    step.answer(request.answer, **rebalance.current_generation(group, member.member_id, members))
    return ErrorCode.NONE


# ---- static members ------------------------------------------------------------------------


def _replace_static(
    shard: GroupShard, step: Step, group: Group, request: Call, member_id: str
) -> ErrorCode:
    """A static member rejoins without its id, as after a restart: it gets a new one, and the
    process with the old id is fenced.
    """
    old = group.members[group.static[request.body.group_instance_id]]
    old_leader = group.leader or ""
    fenced = ErrorCode.FENCED_INSTANCE_ID
    rebalance.answer_join(step, group, old, rebalance.refused_join(fenced, old.member_id))
    rebalance.answer_sync(step, old, error_code=fenced)
    shard.cancel_timer("session", group, old.member_id)
    member = group.replace(old, member_id)
    _describe(group, member, request)
    group.park_join(member, request.answer)
    shard.keep_session(group, member, step.now_ms)
    same = group.protocol == group.choose_protocol() and not _subscribes_anew(group, old, member)
    if group.state is State.STABLE and same:
        _record_replacement(shard, step, group, (old, member), (old_leader, request.version))
    elif group.state is State.COMPLETING:
        # The leader may be about to get the old id: it would assign nothing to the new one.
        rebalance.begin(shard, step, group)
    else:
        rebalance.begin_or_complete(shard, step, group)
    return ErrorCode.NONE


def _subscribes_anew(group: Group, old: Member, member: Member) -> bool:
    """True if a returning consumer subscribes to other topics than before.

    Kafka does not check; then nobody reads an added topic until the next rebalance.
    Other parts of the metadata, such as the partitions it owned, change with each restart.
    """
    protocol = group.protocol or ""
    if group.protocol_type != CONSUMER:
        return False
    before = records.topics_of(old.metadata(protocol))
    return before != records.topics_of(member.metadata(protocol))


def _record_replacement(
    shard: GroupShard,
    step: Step,
    group: Group,
    pair: tuple[Member, Member],
    before: tuple[str, int],
) -> None:
    """Write the new id of a static member, `pair` old and new, without a rebalance.

    `before`: the previous leader, and the version of the JoinGroup.
    """
    old, member = pair
    old_leader, version = before
    generation = group.generation
    assignments = {m.member_id: m.assignment for m in group.members.values()}

    def settle(step: Step, error: ErrorCode) -> None:
        if group.members.get(member.member_id) is not member:
            return  # it left, or was replaced, and has its answer
        if error is not ErrorCode.NONE:
            answer = group.take_join(member)
            stays = group.state is State.STABLE and group.generation == generation
            if stays and answer is not None:
                shard.cancel_timer("session", group, member.member_id)
                reverted = group.replace(member, old.member_id)
                group.speak(reverted, old.protocols)
                reverted.rebalance_timeout_ms = old.rebalance_timeout_ms
                reverted.session_timeout_ms = old.session_timeout_ms
                shard.keep_session(group, reverted, step.now_ms)
                if error in MAY_BE_THERE:
                    # Then the journal has the new id: the next generation replaces it.
                    rebalance.begin(shard, step, group)
            if answer is not None:
                step.answer(answer, **rebalance.refused_join(append_error(error)))
            return
        shard.keep_session(group, member, step.now_ms)
        body = rebalance.current_generation(group, member.member_id, [])
        if version < SKIP_ASSIGNMENT_VERSION:
            # A leader that does not know the skip flag would assign again, so the answer names
            # another leader.
            body["leader"] = old_leader
        elif member.member_id == group.leader:
            body["members"] = rebalance.members_for_leader(group)
            body["skip_assignment"] = True
        rebalance.answer_join(step, group, member, body)

    rebalance.write_group(shard, step, group, assignments, settle)


# ---- SyncGroup -----------------------------------------------------------------------------


def sync(shard: GroupShard, step: Step, request: Call) -> None:
    """Answer a SyncGroup, or park it until the leader's assignment is in the journal."""
    body = request.body
    group = shard.groups.get(body.group_id)
    error = _check_sync(group, request)
    if group is None or error is not ErrorCode.NONE:
        step.answer(request.answer, error_code=error)
        return
    member = group.members[body.member_id]
    rebalance.heard_sync(shard, group, member)
    if group.state is State.STABLE:
        step.answer(
            request.answer,
            error_code=ErrorCode.NONE,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            assignment=member.assignment,
        )
        return
    if member.sync is not None:  # as in replaced_join
        step.answer(member.sync, error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync = None
    given = {each.member_id: each.assignment for each in body.assignments}
    leads = member.member_id == group.leader
    if leads and not shard.has_room(_more_assigned(group, given)):
        step.answer(request.answer, error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
        return
    member.sync = request.answer
    if leads:
        _assign(shard, step, group, {m: given.get(m, b"") for m in group.members})


def _more_assigned(group: Group, given: Mapping[str, bytes]) -> int:
    """The memory an assignment adds to the previous one; 0 if it is small for each member."""
    wanted = sum(len(given.get(member_id, b"")) for member_id in group.members)
    before = sum(len(member.assignment) for member in group.members.values())
    return 0 if wanted <= SMALL_BYTES * len(group.members) else wanted - before


def _check_sync(group: Group | None, request: Call) -> ErrorCode:
    body = request.body
    named = body.protocol_type is not None and body.protocol_name is not None
    if request.version >= NAMES_IN_SYNC_VERSION and not named:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group is None or group.state is State.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = validate_member(group, body.member_id, body.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if body.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    for said, known in (
        (body.protocol_type, group.protocol_type),
        (body.protocol_name, group.protocol),
    ):
        if said is not None and known is not None and said != known:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _assign(shard: GroupShard, step: Step, group: Group, assignments: dict[str, bytes]) -> None:
    """Write the leader's assignment, then send it to everybody."""
    generation = group.generation

    def settle(step: Step, error: ErrorCode) -> None:
        # If a member has joined or left since, the next generation is in progress.
        if group.state is not State.COMPLETING or group.generation != generation:
            return
        if error is ErrorCode.NONE:
            rebalance.hand_out(shard, step, group, assignments)
        else:
            rebalance.reset(shard, step, group, append_error(error))
            rebalance.begin(shard, step, group)

    rebalance.write_group(shard, step, group, assignments, settle)


# ---- Heartbeat -----------------------------------------------------------------------------


def heartbeat(shard: GroupShard, step: Step, request: Call) -> None:
    """Answer a Heartbeat."""
    body = request.body
    group = shard.groups.get(body.group_id)
    if group is None:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    elif group.state is State.DEAD:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    else:
        error = validate_member(group, body.member_id, body.group_instance_id)
        if error is ErrorCode.NONE and body.generation_id != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is ErrorCode.NONE:
            shard.keep_session(group, group.members[body.member_id], step.now_ms)
            if group.state is State.PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
    step.answer(request.answer, error_code=error)


# ---- LeaveGroup ----------------------------------------------------------------------------


def leave(shard: GroupShard, step: Step, request: Call) -> None:
    """Answer a LeaveGroup; if a member left, a rebalance follows."""
    body = request.body
    group = shard.groups.get(body.group_id) or Group(body.group_id, step.wall_ms)
    requested = leaving_in(request)
    if group.state is State.DEAD:
        step.answer(request.answer, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    results, going = _leaving(shard, group, requested)
    for member in going:
        rebalance.remove_member(shard, step, group, member)
    if going and group.can_rebalance:
        rebalance.begin(shard, step, group)
    else:
        rebalance.complete_if_all_joined(shard, step, group)
    answer_leave(step, request, results)


def leaving_in(request: Call) -> list[tuple[str, str | None]]:
    """The members that a LeaveGroup names, by id and instance id."""
    if request.version < LEAVE_LIST_VERSION:
        return [(request.body.member_id, None)]
    return [(member.member_id, member.group_instance_id) for member in request.body.members]


def answer_leave(step: Step, request: Call, results: list[Body]) -> None:
    """Answer a LeaveGroup with the results of its members."""
    top = results[0]["error_code"] if request.version < LEAVE_LIST_VERSION else ErrorCode.NONE
    step.answer(request.answer, error_code=top, members=results)


def _leaving(
    shard: GroupShard, group: Group, requested: list[tuple[str, str | None]]
) -> tuple[list[Body], list[Member]]:
    """The answers to leaving members, and the members that leave; pending ids are
    removed."""
    results: list[Body] = []
    going: dict[str, Member] = {}
    for member_id, instance_id in requested:
        error, leaving = _check_leave(group, member_id, instance_id)
        if leaving in group.members:
            going[leaving] = group.members[leaving]
        elif leaving:
            group.remove(leaving)
            shard.cancel_timer("session", group, leaving)
        results.append(
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
        )
    return results, list(going.values())


def _check_leave(group: Group, member_id: str, instance_id: str | None) -> tuple[ErrorCode, str]:
    """The answer to a leaving member, and the id that leaves ("": none)."""
    if not member_id and instance_id is not None:
        # Without a member id: an administrator removes a static member.
        known = group.static.get(instance_id)
        return (ErrorCode.NONE, known) if known else (ErrorCode.UNKNOWN_MEMBER_ID, "")
    if member_id in group.pending:
        return ErrorCode.NONE, member_id
    error = validate_member(group, member_id, instance_id)
    return error, member_id if error is ErrorCode.NONE else ""
