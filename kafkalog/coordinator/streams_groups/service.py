"""Requests about streams groups, and timers of members: each finds its group, and takes its turn
there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from kafkalog.config.group import GroupConfig
from kafkalog.coordinator.consumer_groups.describe import not_described
from kafkalog.coordinator.consumer_groups.epochs import Limits, Now
from kafkalog.coordinator.consumer_groups.member import JOINING
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.sessions import NewerGroups, OwnSettings, nobody
from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.consumer_groups.turns import Turn
from kafkalog.coordinator.groups import records
from kafkalog.coordinator.groups.group import Group, State
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.coordinator.streams_groups import heartbeat
from kafkalog.coordinator.streams_groups.assignor import NAME
from kafkalog.coordinator.streams_groups.changes import StreamsChanges
from kafkalog.coordinator.streams_groups.describe import described
from kafkalog.coordinator.streams_groups.heartbeat import Creatable, Outside, TaskSettings
from kafkalog.coordinator.streams_groups.member import StreamsMember, StreamsState
from kafkalog.coordinator.streams_groups.outside import CreateTopics
from kafkalog.coordinator.streams_groups.said import Said, check, said_in, says_nothing
from kafkalog.coordinator.streams_groups.state import Failure, StreamsGroup
from kafkalog.coordinator.streams_groups.topology import InternalTopic
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["STREAMS_TIMERS", "StreamsGroups"]

SESSION, REVOKE, DELAY = "streams", "streams-revoke", "streams-delay"
"""Kinds of timers: a member's session; the time in which it has to give tasks up; in which a group
that was empty waits for more members."""
CREATION_MS = 60_000
"""How long internal topics may take to be created before they are asked for again."""
STREAMS_TIMERS = frozenset({SESSION, REVOKE, DELAY})


class StreamsGroups(NewerGroups[StreamsGroup]):
    """The streams groups of a coordinator.  Only for the coordinator's thread."""

    session = SESSION
    own_settings: ClassVar = {
        "session_ms": "streams.session.timeout.ms",
        "heartbeat_ms": "streams.heartbeat.interval.ms",
        "assignment_ms": "streams.assignment.interval.ms",
    }

    def __init__(self, config: GroupConfig, topics: Topics, own: OwnSettings) -> None:
        """`own`: a group's own settings, by name."""
        super().__init__(topics, own)
        self.config = config

    def state_of(self, group: Group) -> StreamsGroup | None:
        """The state of a streams group."""
        return group.streams

    def _changes(self, group: Group) -> StreamsChanges:
        assert group.streams is not None, group.group_id
        return StreamsChanges(group.group_id, group.streams, group.foreign)

    def _defaults(self) -> Limits:
        config = self.config
        return Limits(
            config.group_streams_max_size,
            config.group_streams_heartbeat_interval_ms,
            config.group_streams_session_timeout_ms,
            config.group_streams_assignment_interval_ms,
            NAME,
        )

    def settings(self, group_id: str) -> TaskSettings:
        """The settings in effect for a group's tasks."""
        own, config = self._own(group_id), self.config
        return TaskSettings(
            own.get("streams.num.standby.replicas", config.group_streams_num_standby_replicas),
            own.get(
                "streams.initial.rebalance.delay.ms",
                config.group_streams_initial_rebalance_delay_ms,
            ),
            own.get(
                "streams.task.offset.interval.ms", config.group_streams_task_offset_interval_ms
            ),
            own.get(
                "streams.acceptable.recovery.lag", config.group_streams_acceptable_recovery_lag
            ),
            tuple(
                own.get(
                    "streams.rack.aware.assignment.tags",
                    config.group_streams_rack_aware_assignment_tags,
                )
            ),
        )

    # ---- heartbeats ------------------------------------------------------------------------

    def heartbeat(self, shard: GroupShard, step: Step, request: Call) -> None:
        """Answer a StreamsGroupHeartbeat once what follows from it is in the journal."""
        if self.repeats(shard, step, request):
            return
        body = request.body
        try:
            check(body)
            said = said_in(body, request.version, request.client_id, request.client_host)
            group = self._group(shard, step, body)
        except Refusal as refusal:
            step.answer(request.answer, error_code=refusal.code, error_message=refusal.message)
            return
        assert group.streams is not None, group.group_id
        # A static member that joins may be refused until its earlier session has ended.
        if said.epoch != JOINING and said.member_id in group.streams.members:
            self.keep_session(shard, group, said.member_id, step.now_ms)
        creates: dict[str, InternalTopic] = {}
        to, creatable = request.answer, request.creatable  # its body is not kept

        def told(step: Step, code: ErrorCode, message: str | None, answer: Body) -> None:
            step.answer(to, error_code=code, error_message=message, **answer)
            if code is ErrorCode.NONE:
                self._create(shard, step, group, creates)

        work = partial(self._heard, shard, group, said, creatable, creates)
        self.take_turn(shard, step, group, Turn(work, told, keeps=said))

    def _no_news(
        self, shard: GroupShard, _step: Step, group: Group, member: StreamsMember, request: Call
    ) -> Body | None:  # fmt: skip
        streams = group.streams
        assert streams is not None, group.group_id
        if not says_nothing(streams, member, request.body) or shard.has_timer(DELAY, group):
            return None
        settings = self.settings(group.group_id)
        if not heartbeat.no_status(streams, member, settings):
            return None
        return heartbeat.always_told(settings, streams)

    def _group(self, shard: GroupShard, step: Step, body: Any) -> Group:
        """The group of a heartbeat, which is a streams group from now on.  Raises: Refusal."""
        group_id, epoch = body.group_id, body.member_epoch
        group = shard.groups.get(group_id)
        if epoch < JOINING:
            return self._existing(shard, group_id)
        if group is not None and group.state is State.DEAD:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if group is None:
            if epoch != JOINING:
                why = f"Streams group {group_id} not found."
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, why)
            group = shard.new_group(group_id, step.wall_ms)
        if group.streams is None:
            other = group.is_classic or group.newer is not None or records.newer_type(group)
            if other or epoch != JOINING:
                raise _other_type(group_id)
            group.streams = StreamsGroup(group.weight)
        return group

    def _existing(self, shard: GroupShard, group_id: str) -> Group:
        group = shard.groups.get(group_id)
        if group is None or group.state is State.DEAD:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if group.streams is None:
            raise _other_type(group_id)
        return group

    def _heard(
        self, shard: GroupShard, group: Group, said: Said, creatable: Creatable,
        creates: dict[str, InternalTopic], changes: StreamsChanges, step: Step,
    ) -> Body:  # fmt: skip
        """A heartbeat's turn; `creates` gets the internal topics to create."""
        if group.is_classic:
            raise _other_type(group.group_id)
        if said.epoch < JOINING:
            return heartbeat.leave(changes, said)
        settings = self.settings(group.group_id)
        begins = not changes.group.members and settings.delay_ms > 0
        outside = Outside(
            self.now(group, step), settings, begins or shard.has_timer(DELAY, group),
            creatable,
        )  # fmt: skip

        def act() -> Body:
            if group.recorded and not group.foreign:  # it was an empty classic group
                changes.replace_classic(records.group_key(group.group_id))
            answer, found = heartbeat.heartbeat(changes, said, outside)
            creates.clear()
            creates.update(found)
            return answer

        answer = self.within_memory(shard, group, said.member_id, changes, act)
        if begins and not shard.has_timer(DELAY, group):
            shard.set_timer(DELAY, group, step.now_ms + settings.delay_ms)
        return answer

    def now(self, group: Group, step: Step) -> Now:
        """The moment of a request, for a group."""
        return Now(step.now_ms, step.wall_ms, self.topics, self.limits(group.group_id))

    # ---- internal topics -------------------------------------------------------------------

    def _create(
        self, shard: GroupShard, step: Step, group: Group, topics: Mapping[str, InternalTopic]
    ) -> None:  # fmt: skip
        """Have internal topics created, those that are not being created already."""
        streams = group.streams
        if streams is None:
            return
        new = {
            name: one for name, one in topics.items()
            if step.now_ms >= streams.creating.get(name, step.now_ms)
        }  # fmt: skip
        if not new:
            return
        streams.creating.update(dict.fromkeys(new, step.now_ms + CREATION_MS))
        again_ms = 2 * self.limits(group.group_id).heartbeat_ms

        def done(failed: Mapping[str, str], step: Step) -> None:
            until_ms = step.now_ms + again_ms
            for name in new:
                streams.creating.pop(name, None)
            left = {name: one for name, one in streams.failures.items() if name not in new}
            streams.failures = {**left, **{n: Failure(why, until_ms) for n, why in failed.items()}}

        step.effects.append(CreateTopics(group.group_id, new, done))

    # ---- time ------------------------------------------------------------------------------

    def _watch(self, shard: GroupShard, step: Step, group: Group, member: StreamsMember) -> None:
        """A member that has to give tasks up has its rebalance timeout for it."""
        if member.state is StreamsState.UNREVOKED:
            at_ms = step.now_ms + member.rebalance_timeout_ms
            shard.set_timer(REVOKE, group, at_ms, member.member_id)
        else:
            shard.cancel_timer(REVOKE, group, member.member_id)

    def _unwatch(self, shard: GroupShard, group: Group, member_id: str) -> None:
        shard.cancel_timer(REVOKE, group, member_id)

    def _fence(
        self, _shard: GroupShard, _group: Group, changes: StreamsChanges, member: StreamsMember,
        _step: Step,
    ) -> None:  # fmt: skip
        heartbeat.fence(changes, member)

    def expire(self, shard: GroupShard, step: Step, group: Group, key: tuple[str, str]) -> None:
        """A timer of a member, or of the group, is due; `key`: its kind, and the member."""
        if key[0] != DELAY:
            super().expire(shard, step, group, key)
            return
        if group.streams is None:
            return

        def work(changes: StreamsChanges, step: Step) -> Body:
            if changes.group.members:
                heartbeat.assign(changes, self.now(group, step))
            return {}

        self.take_turn(shard, step, group, Turn(work, nobody))

    # ---- the rest --------------------------------------------------------------------------

    def describe(self, shard: GroupShard, group_id: str, request: Call) -> Body:
        """A group of StreamsGroupDescribe's answer."""
        try:
            group = self._existing(shard, group_id)
        except Refusal as refusal:
            return not_described(group_id, refusal.code, refusal.message)
        if group.streams is None or group.streams.topology is None:
            why = f"Group {group_id} not found."
            return not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND, why)
        asked = bool(getattr(request.body, "include_topology_description", False))
        return described(group_id, group.streams, description=asked)


def _other_type(group_id: str) -> Refusal:
    why = f"Group {group_id} is not a streams group."
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, why)
