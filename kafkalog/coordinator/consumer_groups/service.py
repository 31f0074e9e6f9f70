"""Requests about consumer groups, and timers of members: each finds its group, and takes its turn
there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, ClassVar

from kafkalog.config.group import GroupConfig
from kafkalog.coordinator.consumer_groups import heartbeat, patterns
from kafkalog.coordinator.consumer_groups.base import REPEAT_BYTES
from kafkalog.coordinator.consumer_groups.changes import Changes
from kafkalog.coordinator.consumer_groups.convert import downgrade, leaves_classic, upgrade
from kafkalog.coordinator.consumer_groups.describe import described, not_described
from kafkalog.coordinator.consumer_groups.epochs import Limits, Now
from kafkalog.coordinator.consumer_groups.heartbeat import Said
from kafkalog.coordinator.consumer_groups.member import JOINING, Member, MemberState
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.sessions import NewerGroups, OwnSettings, nobody
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup
from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.consumer_groups.turns import Turn
from kafkalog.coordinator.groups import records
from kafkalog.coordinator.groups.group import Group, State
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["REJOIN", "RESYNC", "REVOKE", "SESSION", "TIMERS", "ConsumerGroups"]

SESSION, REVOKE, REJOIN, RESYNC = "consumer", "revoke", "rejoin", "resync"
"""Kinds of timers: a member's session; the time in which it has to give partitions up; in which a
member of the classic protocol has to join, and to ask for its part."""
TIMERS = frozenset({SESSION, REVOKE, REJOIN, RESYNC})


class ConsumerGroups(NewerGroups[ConsumerGroup]):
    """The consumer groups of a coordinator.  Only for the coordinator's thread."""

    session = SESSION
    own_settings: ClassVar = {
        "session_ms": "consumer.session.timeout.ms",
        "heartbeat_ms": "consumer.heartbeat.interval.ms",
        "assignment_ms": "consumer.assignment.interval.ms",
    }

    def __init__(
        self, config: GroupConfig, topics: Topics, new_id: Callable[[], str], own: OwnSettings
    ) -> None:
        """`new_id` makes ids of members; `own`: a group's own settings, by name."""
        super().__init__(topics, own)
        self.config = config
        self._new_id = new_id
        self._lookups = patterns.Lookups()

    def state_of(self, group: Group) -> ConsumerGroup | None:
        """The state of a consumer group."""
        return group.consumer

    def _changes(self, group: Group) -> Changes:
        assert group.consumer is not None, group.group_id
        return Changes(group.group_id, group.consumer, group.foreign)

    def _defaults(self) -> Limits:
        config = self.config
        explicit = config.explicit("group.consumer.assignment.interval.ms")
        least_ms = config.group_consumer_min_assignment_interval_ms
        return Limits(
            config.group_consumer_max_size,
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_session_timeout_ms,
            config.group_consumer_assignment_interval_ms if explicit else least_ms,
            config.group_consumer_assignors[0],
            pace_max_ms=0 if explicit else config.group_consumer_max_assignment_interval_ms,
        )

    # ---- requests --------------------------------------------------------------------------

    def heartbeat(self, shard: GroupShard, step: Step, request: Call) -> None:
        """Answer a ConsumerGroupHeartbeat once what follows from it is in the journal."""
        if self.repeats(shard, step, request):
            group = shard.groups[request.body.group_id]
            assert group.consumer is not None, group.group_id
            if group.consumer.patterns:
                self._maybe_look_up(shard, step, group, request.visible)
            else:
                member_id = request.body.member_id
                has_room = member_id in group.consumer.repeated or shard.has_room(REPEAT_BYTES)
                group.consumer.repeats(member_id, request.repeat() if has_room else None)
            return
        body = request.body
        try:
            heartbeat.check(body, request.version, self.config.group_consumer_assignors)
            group = self._group(shard, step, body)
        except Refusal as refusal:
            step.answer(request.answer, error_code=refusal.code, error_message=refusal.message)
            return
        said = heartbeat.said_in(
            body, body.member_id or self._new_id(), request.client_id, request.client_host
        )
        assert group.consumer is not None, group.group_id
        # A static member that joins may be refused until its earlier session has ended.
        if said.epoch != JOINING and said.member_id in group.consumer.members:
            self.keep_session(shard, group, said.member_id, step.now_ms)

        stays = said.epoch >= JOINING
        to, visible = request.answer, request.visible  # its body is not kept

        def told(step: Step, code: ErrorCode, message: str | None, answer: Body) -> None:
            step.answer(to, error_code=code, error_message=message, **answer)
            if code is ErrorCode.NONE and stays:
                self._maybe_look_up(shard, step, group, visible)

        work = partial(self._heard, shard, group, said)
        self.take_turn(shard, step, group, Turn(work, told, keeps=said))

    def _no_news(
        self, shard: GroupShard, step: Step, group: Group, member: Member, request: Call
    ) -> Body | None:  # fmt: skip
        assert group.consumer is not None, group.group_id
        return {} if heartbeat.says_nothing(group.consumer, member, request.body) else None

    def _group(self, shard: GroupShard, step: Step, body: Any) -> Group:
        """The group of a heartbeat, which is a consumer group from now on.  Raises: Refusal."""
        group_id, joins = body.group_id, body.member_epoch == JOINING
        group = shard.groups.get(group_id)
        if group is not None and group.state is State.DEAD:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if group is None:
            if not joins:
                why = f"Consumer group {group_id} not found."
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, why)
            group = shard.new_group(group_id, step.wall_ms)
        newer = records.newer_type(group)
        known = not group.is_classic and (newer or group.consumer)
        if newer not in (None, records.CONSUMER) or not (joins or known):
            raise _other_type(group_id)
        if group.consumer is None:
            group.consumer = ConsumerGroup(group.weight)
        return group

    def _heard(
        self, shard: GroupShard, group: Group, said: Said, changes: Changes, step: Step
    ) -> Body:
        """A heartbeat's turn."""
        if group.is_classic and said.epoch != JOINING:
            raise _other_type(group.group_id)
        if said.epoch < JOINING:
            member = heartbeat.leave(changes, said)
            self.fence(shard, group, changes, [] if member is None else [member], step)
            return {"member_id": said.member_id, "member_epoch": said.epoch}

        def work() -> Body:
            if group.is_classic:
                upgrade(changes, shard, step, group, self.topics)
            elif group.recorded and not group.foreign:  # it was an empty classic group
                changes.replace_classic(records.group_key(group.group_id))
            return heartbeat.heartbeat(changes, said, self.now(group, step))

        return self.within_memory(shard, group, said.member_id, changes, work)

    def now(self, group: Group, step: Step) -> Now:
        """The moment of a request, for a group."""
        return Now(step.now_ms, step.wall_ms, self.topics, self.limits(group.group_id))

    def fence(
        self, shard: GroupShard, group: Group, changes: Changes, members: Collection[Member],
        step: Step,
    ) -> None:  # fmt: skip
        """Remove members; if only members of the classic protocol are left, the group becomes
        theirs."""
        if members and leaves_classic(shard, changes.group, members):
            downgrade(changes, shard, step, group, members, self.topics)
        else:
            heartbeat.fence(changes, members, self.topics)

    # ---- patterns --------------------------------------------------------------------------

    def _maybe_look_up(
        self, shard: GroupShard, step: Step, group: Group, visible: patterns.Visible
    ) -> None:  # fmt: skip
        """Have the topics of a group's patterns looked up, if it is time."""
        consumer = group.consumer
        if consumer is None or not consumer.patterns:
            return
        refresh_ms = self.config.group_consumer_regex_refresh_interval_ms
        may = not consumer.looking and step.now_ms >= consumer.look_up_ms
        if may and patterns.to_look_up(consumer, step.wall_ms, refresh_ms, self.topics):
            consumer.looking = True
            texts = tuple(consumer.patterns)
            self._lookups.add(patterns.Lookup(shard.partition, group.group_id, texts, visible))
        self._next_lookup(step)

    def _next_lookup(self, step: Step) -> None:
        """Begin the next lookup; after a pause, a later heartbeat does."""
        lookup = self._lookups.begin(step.now_ms)
        if lookup is not None:
            step.effects.append(lookup)

    def looked_up(
        self, shard: GroupShard | None, step: Step, group_id: str, found: patterns.Found
    ) -> None:
        """The topics of a group's patterns were looked up; `shard`: None if it is not here any
        more."""
        self._lookups.done(found.work, step.now_ms)
        self._next_lookup(step)
        if shard is None:
            return
        group = shard.groups.get(group_id)
        if group is None or group.consumer is None:
            return
        group.consumer.looking = False
        if group.is_classic:
            return

        def work(changes: Changes, step: Step) -> Body:
            before = group.weight.bytes
            if group.is_classic:
                return {}
            patterns.matched(changes, found, step.wall_ms, self.topics)
            if group.weight.bytes > before and not shard.has_room(1):
                raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED)
            return {}

        def told(step: Step, code: ErrorCode, _message: str | None, _body: Body) -> None:
            if code is not ErrorCode.NONE and group.consumer is not None:
                group.consumer.look_up_ms = step.now_ms + patterns.REFRESH_MIN_MS

        self.take_turn(shard, step, group, Turn(work, told))

    # ---- time ------------------------------------------------------------------------------

    def keep_session(self, shard: GroupShard, group: Group, member_id: str, now_ms: int) -> None:
        """Restart a member's session: of the classic protocol, it says how long that is."""
        member = None if group.consumer is None else group.consumer.members.get(member_id)
        if member is not None and member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        else:
            session_ms = self.limits(group.group_id).session_ms
        shard.set_timer(SESSION, group, now_ms + session_ms, member_id)

    def _watch(self, shard: GroupShard, step: Step, group: Group, member: Member) -> None:
        """A member that has to give partitions up has its rebalance timeout for it; of the classic
        protocol it has other timers."""
        if member.classic is None:
            shard.cancel_timer(REJOIN, group, member.member_id)
            shard.cancel_timer(RESYNC, group, member.member_id)
        if member.classic is None and member.state is MemberState.UNREVOKED:
            at_ms = step.now_ms + member.rebalance_timeout_ms
            shard.set_timer(REVOKE, group, at_ms, member.member_id)
        else:
            shard.cancel_timer(REVOKE, group, member.member_id)

    def _unwatch(self, shard: GroupShard, group: Group, member_id: str) -> None:
        for kind in TIMERS - {SESSION}:
            shard.cancel_timer(kind, group, member_id)

    def _fence(
        self, shard: GroupShard, group: Group, changes: Changes, member: Member, step: Step
    ) -> None:  # fmt: skip
        self.fence(shard, group, changes, [member], step)

    def expire(self, shard: GroupShard, step: Step, group: Group, key: tuple[str, str]) -> None:
        """A member's timer is due; `key`: its kind, and the member."""
        kind, member_id = key
        if group.consumer is None or member_id not in group.consumer.members:
            return
        late = group.consumer.members[member_id]
        silence_ms = group.consumer.silence_ms(member_id) if kind == SESSION else None
        if silence_ms is not None:
            left_ms = self.limits(group.group_id).session_ms - silence_ms
            if left_ms > 0:
                shard.set_timer(SESSION, group, step.now_ms + left_ms, member_id)
                return
        # If the write fails, or others have made it late, it is tried again.
        self.keep_session(shard, group, member_id, step.now_ms)
        if kind == REVOKE:
            self._watch(shard, step, group, late)
        elif kind != SESSION:
            shard.set_timer(kind, group, step.now_ms + late.rebalance_timeout_ms, member_id)

        def work(changes: Changes, step: Step) -> Body:
            member = changes.group.members.get(member_id)
            if member is None or (kind == REVOKE and member.epoch != late.epoch):
                return {}
            came = member_id in changes.touched or not shard.has_timer(kind, group, member_id)
            if kind not in (REJOIN, RESYNC) or not came:
                self.fence(shard, group, changes, [member], step)
            return {}

        self.take_turn(shard, step, group, Turn(work, nobody))

    # ---- the rest --------------------------------------------------------------------------

    def remove(
        self, shard: GroupShard, step: Step, group: Group,
        named: list[tuple[str, str | None]], told: Callable[[Step, list[Body]], None],
        again: Callable[[Step], None], *, keeps: Any,
    ) -> None:  # fmt: skip
        """LeaveGroup, by which members leave or are removed: `named` by id and instance id.
        `again`: the group turned out to be a classic one.  `keeps`: see Turn."""
        rows: list[Body] = []
        moved = False

        def work(changes: Changes, step: Step) -> Body:
            nonlocal moved
            rows.clear()
            moved = group.is_classic
            if moved:
                return {}
            gone: dict[str, Member] = {}
            for member_id, instance_id in named:
                error, member = _to_remove(changes.group, member_id, instance_id)
                if member is not None:
                    gone[member.member_id] = member
                row = {"member_id": member_id, "group_instance_id": instance_id}
                rows.append({**row, "error_code": error})
            self.fence(shard, group, changes, list(gone.values()), step)
            return {}

        def answer(step: Step, code: ErrorCode, _message: str | None, _body: Body) -> None:
            if moved and not shard.closed:
                again(step)
                return
            if len(rows) != len(named):  # it had no turn
                rows[:] = [{"member_id": m, "group_instance_id": i} for m, i in named]
            for row in rows:
                row["error_code"] = row.get("error_code") or code
            told(step, rows)

        self.take_turn(shard, step, group, Turn(work, answer, keeps=(keeps, named)))

    def describe(self, shard: GroupShard, group_id: str, _request: Call) -> Body:
        """A group of ConsumerGroupDescribe's answer."""
        group = shard.groups.get(group_id)
        if group is None or group.state is State.DEAD:
            why = f"Group {group_id} not found."
        elif group.consumer is None or group.is_classic or not records.newer_type(group):
            why = f"Group {group_id} is not a consumer group."
        else:
            default = self.config.group_consumer_assignors[0]
            return described(group_id, group.consumer, default, self.topics)
        return not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND, why)


def _other_type(group_id: str) -> Refusal:
    why = f"Group {group_id} is not a consumer group."
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, why)


def _to_remove(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ErrorCode, Member | None]:
    """The member that is to be removed, or why not."""
    if instance_id is None:
        member = group.members.get(member_id)
        unknown = member is None
    else:
        member = group.static_member(instance_id)
        unknown = member is None
        if member is not None and member_id and member.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID, None
    return (ErrorCode.UNKNOWN_MEMBER_ID, None) if unknown else (ErrorCode.NONE, member)
