"""How a classic group moves from one generation to the next.

Empty -> PreparingRebalance (collect JoinGroups) -> CompletingRebalance (the leader's
assignment is awaited) -> Stable.  Source: Kafka's GroupMetadataManager, KIP-134 (initial
delay), KIP-394 (pending ids).
"""

from __future__ import annotations

from kafkalog.coordinator.groups import records
from kafkalog.coordinator.groups.group import Group, InitialDelay, Member, State
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Answer, Body, Settle, Step
from kafkalog.logs.limit import limited
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "answer_join",
    "answer_sync",
    "begin",
    "begin_or_complete",
    "complete_if_all_joined",
    "current_generation",
    "expire_join",
    "expire_session",
    "expire_sync",
    "fail_waiting",
    "hand_out",
    "heard_sync",
    "keep_time",
    "members_for_leader",
    "refused_join",
    "remove_member",
    "replaced_join",
    "reset",
    "write_group",
]


LOG = limited(__name__)
PENDING_MS = 60_000
"""How long a handed-out member id may wait for its member, if that is no longer known."""


# ---- answers -------------------------------------------------------------------------------


def answer_join(step: Step, group: Group, member: Member, body: Body) -> None:
    """Answer a member's waiting JoinGroup, if there is one."""
    answer = group.take_join(member)
    if answer is not None:
        step.answer(answer, **body)


def refused_join(error: ErrorCode, member_id: str = "") -> Body:
    """The answer to a JoinGroup that joins no generation."""
    return {"error_code": error, "member_id": member_id, "protocol_name": None}


def answer_sync(step: Step, member: Member, **body: object) -> bool:
    """Answer a member's waiting SyncGroup; returns whether there was one."""
    answer, member.sync = member.sync, None
    if answer is None:
        return False
    step.answer(answer, **body)
    return True


def members_for_leader(group: Group) -> list[Body]:
    """All members, with their metadata for the chosen protocol."""
    protocol = group.protocol or ""
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "metadata": member.metadata(protocol),
        }
        for member in group.members.values()
    ]


def current_generation(group: Group, member_id: str, members: list[Body]) -> Body:
    """The answer to the JoinGroup of a member of the current generation."""
    return {
        "error_code": ErrorCode.NONE,
        "generation_id": group.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol,
        "leader": group.leader or "",
        "member_id": member_id,
        "members": members,
    }


def fail_waiting(step: Step, group: Group, error: ErrorCode) -> None:
    """Answer all waiting requests of a group with an error."""
    for member in group.members.values():
        answer_join(step, group, member, refused_join(error, member.member_id))
        answer_sync(step, member, error_code=error)


# ---- a generation begins -------------------------------------------------------------------


def begin_or_complete(shard: GroupShard, step: Step, group: Group) -> None:
    """After a member joined or left: begin a rebalance, or complete the running one."""
    if group.can_rebalance:
        begin(shard, step, group)
    else:
        complete_if_all_joined(shard, step, group)


def begin(shard: GroupShard, step: Step, group: Group) -> None:
    """Ask all members to rejoin."""
    if group.state is State.COMPLETING:
        reset(shard, step, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    shard.cancel_timer("sync", group)
    was_empty = group.state is State.EMPTY
    group.become(State.PREPARING, step.wall_ms)
    if was_empty:
        # The group is new: members that start at the same time shall share the first generation.
        delay_ms = shard.config.group_initial_rebalance_delay_ms
        group.initial = InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        group.new_member_added = False
        shard.set_timer("join", group, step.now_ms + delay_ms)
    elif group.all_joined:
        complete(shard, step, group)
    else:
        shard.set_timer("join", group, step.now_ms + group.rebalance_timeout_ms)


def complete_if_all_joined(shard: GroupShard, step: Step, group: Group) -> None:
    """End the join phase early when no member is missing; the initial delay still applies."""
    if group.state is State.PREPARING and group.all_joined and group.initial is None:
        complete(shard, step, group)


def expire_join(shard: GroupShard, step: Step, group: Group) -> None:
    """The join phase has timed out: continue with the members that joined."""
    if group.state is not State.PREPARING:
        return
    delay = group.initial
    if delay is not None and group.new_member_added and delay.left_ms:
        group.new_member_added = False
        delay_ms = min(shard.config.group_initial_rebalance_delay_ms, delay.left_ms)
        group.initial = InitialDelay(delay_ms, max(delay.left_ms - delay.delay_ms, 0))
        shard.set_timer("join", group, step.now_ms + delay_ms)
    else:
        complete(shard, step, group)


def complete(shard: GroupShard, step: Step, group: Group) -> None:
    """Begin the next generation with the members that joined, if any."""
    shard.cancel_timer("join", group)
    group.initial = None
    for member in [m for m in group.members.values() if m.join is None]:
        if member.instance_id is None:
            group.remove(member.member_id)
            shard.cancel_timer("session", group, member.member_id)
    if group.members and not group.elect():
        # Only static members are left, and none has rejoined: they have until their sessions
        # end.
        shard.set_timer("join", group, step.now_ms + group.rebalance_timeout_ms)
        return
    group.generation += 1
    group.pending_sync.clear()
    if group.members:
        _generation(shard, step, group)
        return
    group.protocol = None
    group.leader = None
    group.subscribe(records.subscribed_topics(group))
    group.become(State.EMPTY, step.wall_ms)
    LOG.info("group %s: generation %d: nobody is left", group.group_id, group.generation)
    # If this fails, the previous generation returns after a restart, and times out.
    write_group(shard, step, group, {}, lambda _step, _error: None)


def _generation(shard: GroupShard, step: Step, group: Group) -> None:
    """Send the members that joined their new generation."""
    group.protocol = group.choose_protocol()
    group.subscribe(records.subscribed_topics(group))
    group.become(State.COMPLETING, step.wall_ms)
    LOG.info(
        "group %s: generation %d: %d members, protocol %s",
        group.group_id, group.generation, len(group.members), group.protocol,
    )  # fmt: skip
    for member in group.members.values():
        members = members_for_leader(group) if member.member_id == group.leader else []
        answer_join(step, group, member, current_generation(group, member.member_id, members))
        shard.keep_session(group, member, step.now_ms)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    shard.set_timer("sync", group, step.now_ms + group.rebalance_timeout_ms)


# ---- the assignment ------------------------------------------------------------------------


def heard_sync(shard: GroupShard, group: Group, member: Member) -> None:
    """A member asked for its assignment."""
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        shard.cancel_timer("sync", group)


def expire_sync(shard: GroupShard, step: Step, group: Group) -> None:
    """The sync phase has timed out: members that did not ask for their assignment are removed."""
    if group.state not in (State.COMPLETING, State.STABLE) or not group.pending_sync:
        return
    for member_id in list(group.pending_sync):
        LOG.info("group %s: %s did not ask for its assignment in time: removed",
                 group.group_id, member_id)  # fmt: skip
        shard.cancel_timer("session", group, member_id)
        group.remove(member_id)
    begin(shard, step, group)


def hand_out(shard: GroupShard, step: Step, group: Group, assignments: dict[str, bytes]) -> None:
    """The assignment is in the journal: send it to every member that asked."""
    for member in group.members.values():
        group.assign(member, assignments.get(member.member_id, b""))
        if answer_sync(
            step,
            member,
            error_code=ErrorCode.NONE,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            assignment=member.assignment,
        ):
            # While it waited for us, its session may have expired without effect.
            shard.keep_session(group, member, step.now_ms)
    group.become(State.STABLE, step.wall_ms)


def reset(shard: GroupShard, step: Step, group: Group, error: ErrorCode) -> None:
    """The generation gets no assignment: answer every member that asked with an error."""
    for member in group.members.values():
        group.assign(member, b"")
        if answer_sync(step, member, error_code=error):
            shard.keep_session(group, member, step.now_ms)


# ---- somebody goes -------------------------------------------------------------------------


def remove_member(shard: GroupShard, step: Step, group: Group, member: Member) -> None:
    """Remove a member from its group, and answer its waiting requests."""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    answer_join(step, group, member, refused_join(unknown))
    answer_sync(step, member, error_code=unknown)
    shard.cancel_timer("session", group, member.member_id)
    group.remove(member.member_id)


def expire_session(shard: GroupShard, step: Step, group: Group, member_id: str) -> None:
    """A member sent no heartbeat for its session timeout, or never joined with its id."""
    if group.state is State.DEAD:
        return
    member = group.members.get(member_id)
    if member_id in group.pending:
        group.remove(member_id)
    elif member is None or member.keeps_session:
        return
    else:
        LOG.info("group %s: %s sent no heartbeat for %d ms: removed",
                 group.group_id, member_id, member.session_timeout_ms)  # fmt: skip
        remove_member(shard, step, group, member)
        if group.state in (State.STABLE, State.COMPLETING):
            begin(shard, step, group)
            return
    if group.state is State.PREPARING and group.all_joined:
        complete(shard, step, group)


# ---- the journal ---------------------------------------------------------------------------


def write_group(
    shard: GroupShard, step: Step, group: Group, assignments: dict[str, bytes], settle: Settle
) -> None:
    """Write a group's record with these assignments; `settle` gets the outcome."""
    try:
        record = records.group_record(group, assignments)
    except Exception:  # nothing is changed yet; like a record that the journal refuses
        LOG.exception("group %s: its record cannot be encoded", group.group_id)
        settle(step, ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    # An empty group of a newer type becomes a classic one.
    foreign, newer, before = group.newer_keys, group.newer, (group.consumer, group.streams)
    group.foreign = {}
    if newer is not None:
        newer.unsure.clear()
        if not newer.waiting:
            newer.weight.move(None)
            group.consumer = group.streams = None
    group.recorded = True
    group.writing += 1

    def settled(step: Step, error: ErrorCode) -> None:
        group.writing -= 1
        if error is not ErrorCode.NONE:
            group.foreign.update(foreign)
            if newer is not None and group.newer is None:  # no members of any type have come since
                newer.weight.move(group.weight)
                group.consumer, group.streams = before
        settle(step, error)

    step.write(shard.partition, [*records.foreign_tombstones(foreign), record], settled)


def keep_time(shard: GroupShard, step: Step, group: Group) -> None:
    """Start the timers that a group of this state needs and that do not run."""
    for member in group.members.values():
        if not shard.has_timer("session", group, member.member_id):
            shard.keep_session(group, member, step.now_ms)
    for member_id in group.pending:
        if not shard.has_timer("session", group, member_id):
            shard.set_timer("session", group, step.now_ms + PENDING_MS, member_id)
    kind = {State.PREPARING: "join", State.COMPLETING: "sync"}.get(group.state)
    if kind is not None and not shard.has_timer(kind, group):
        delay = group.initial
        wait_ms = group.rebalance_timeout_ms if delay is None else delay.delay_ms
        shard.set_timer(kind, group, step.now_ms + wait_ms)


def replaced_join(step: Step, answer: Answer | None) -> None:
    """Answer a JoinGroup that a later one of the same member replaced.

    Kafka never does; but its client is gone or has given up, and the answer frees the memory that
    the connection holds.
    """
    if answer is not None:
        step.answer(answer, **refused_join(ErrorCode.REBALANCE_IN_PROGRESS))
