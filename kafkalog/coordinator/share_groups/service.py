"""Requests about share groups, and timers of members: each finds its group, and takes its turn
there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, ClassVar

from kafkalog.config.group import GroupConfig
from kafkalog.coordinator.consumer_groups.describe import not_described
from kafkalog.coordinator.consumer_groups.epochs import Limits, Now
from kafkalog.coordinator.consumer_groups.member import JOINING, Member
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.sessions import NewerGroups, OwnSettings, nobody
from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.consumer_groups.turns import Turn
from kafkalog.coordinator.groups.group import Group, State
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.share_groups import heartbeat, states
from kafkalog.coordinator.share_groups.assignor import NAME
from kafkalog.coordinator.share_groups.changes import ShareChanges
from kafkalog.coordinator.share_groups.describe import described
from kafkalog.coordinator.share_groups.heartbeat import Said
from kafkalog.coordinator.share_groups.outside import DeleteStates, InitializeStates
from kafkalog.coordinator.share_groups.state import ShareGroup
from kafkalog.coordinator.share_state.persister import (
    DeleteState,
    InitializeState,
    StateChanged,
)
from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["SHARE_SESSION", "Outcome", "ShareGroups", "Told", "first_error"]

SHARE_SESSION = "share"
"""The kind of timer of a member's session."""
Outcome = Callable[[Step, ErrorCode], None]
Told = Callable[[Step, ErrorCode, Sequence[StateChanged]], None]
"""Told the results of the share coordinator, or why there are none."""


class ShareGroups(NewerGroups[ShareGroup]):
    """The share groups of a coordinator.  Only for the coordinator's thread."""

    session = SHARE_SESSION
    own_settings: ClassVar = {
        "session_ms": "share.session.timeout.ms",
        "heartbeat_ms": "share.heartbeat.interval.ms",
        "assignment_ms": "share.assignment.interval.ms",
    }

    def __init__(self, config: GroupConfig, topics: Topics, own: OwnSettings) -> None:
        """`own`: a group's own settings, by name."""
        super().__init__(topics, own)
        self.config = config
        self._numbers = count()
        self._outside: dict[int, tuple[int, Outcome]] = {}
        """Work that waits for the share coordinator: the partition of its group, and the end that
        it gets if that leaves this node."""

    def state_of(self, group: Group) -> ShareGroup | None:
        """The state of a share group."""
        return group.share

    def _changes(self, group: Group) -> ShareChanges:
        assert group.share is not None, group.group_id
        return ShareChanges(group.group_id, group.share, group.foreign)

    def _defaults(self) -> Limits:
        config = self.config
        return Limits(
            config.group_share_max_size,
            config.group_share_heartbeat_interval_ms,
            config.group_share_session_timeout_ms,
            config.group_share_assignment_interval_ms,
            NAME,
        )

    def _fence(
        self, _shard: GroupShard, _group: Group, changes: ShareChanges, member: Member, _step: Step
    ) -> None:  # fmt: skip
        heartbeat.fence(changes, member, self.topics)

    @property
    def _retry_ms(self) -> int:
        config = self.config
        return max(
            config.group_share_initialize_retry_interval_ms, config.offsets_commit_timeout_ms
        )

    # ---- heartbeats ------------------------------------------------------------------------

    def heartbeat(self, shard: GroupShard, step: Step, request: Call) -> None:
        """Answer a ShareGroupHeartbeat once what follows from it is in the journal."""
        if self.repeats(shard, step, request):
            return
        body = request.body
        try:
            heartbeat.check(body)
            if body.member_epoch < JOINING:
                group = self.existing(shard, body.group_id)
            else:
                group = self.wanted(shard, step, body.group_id, begins=body.member_epoch == JOINING)
        except Refusal as refusal:
            step.answer(request.answer, error_code=refusal.code, error_message=refusal.message)
            return
        said = heartbeat.said_in(body, request.client_id, request.client_host)
        assert group.share is not None, group.group_id
        if said.member_id in group.share.members:
            self.keep_session(shard, group, said.member_id, step.now_ms)
        new: list[InitializeState] = []

        to = request.answer  # its body is not kept

        def told(step: Step, code: ErrorCode, message: str | None, answer: Body) -> None:
            step.answer(to, error_code=code, error_message=message, **answer)
            if code is ErrorCode.NONE and new:
                self.initialize(shard, step, group.group_id, new, _nobody_waits)

        work = partial(self._heard, shard, group, said, new)
        self.take_turn(shard, step, group, Turn(work, told, keeps=said))

    def _no_news(
        self, _shard: GroupShard, step: Step, group: Group, _member: Member, request: Call
    ) -> Body | None:  # fmt: skip
        body = request.body
        assert group.share is not None, group.group_id
        if body.subscribed_topic_names is not None or body.rack_id is not None:
            return None
        return {} if states.is_complete(group.share, self.topics, step.wall_ms) else None

    def existing(self, shard: GroupShard, group_id: str) -> Group:
        """A share group that there is.  Raises: Refusal."""
        group = shard.groups.get(group_id)
        if group is None or group.state is State.DEAD:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if group.share is None:
            raise _other_type(group_id)
        return group

    def wanted(self, shard: GroupShard, step: Step, group_id: str, *, begins: bool) -> Group:
        """A share group that there is or, if it `begins` now, shall be.  Raises: Refusal."""
        group = shard.groups.get(group_id)
        if group is not None and group.state is State.DEAD:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if group is None:
            if not begins:
                why = f"Share group {group_id} not found."
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, why)
            group = shard.new_group(group_id, step.wall_ms)
            group.share = ShareGroup(group.weight)
        if group.share is None:
            raise _other_type(group_id)
        return group

    def _heard(
        self, shard: GroupShard, group: Group, said: Said, new: list[InitializeState],
        changes: ShareChanges, step: Step,
    ) -> Body:  # fmt: skip
        """A heartbeat's turn; `new` gets what the share coordinator shall keep."""
        if said.epoch < JOINING:
            return heartbeat.leave(changes, said, self.topics)
        now = Now(step.now_ms, step.wall_ms, self.topics, self.limits(group.group_id))
        act = partial(heartbeat.heartbeat, changes, said, now)
        answer = self.within_memory(shard, group, said.member_id, changes, act)
        new[:] = heartbeat.initialize(changes, now, self._retry_ms)
        return answer

    # ---- the share coordinator ---------------------------------------------------------------

    def outside(self, shard: GroupShard, ends: Outcome) -> Callable[[], bool]:
        """Wait for the share coordinator.  Returns a function to call with its results: True if
        they are wanted; `ends` is called instead if the partition leaves this node."""
        number = next(self._numbers)
        self._outside[number] = shard.partition, ends
        return lambda: self._outside.pop(number, None) is not None

    def left(self, shard: GroupShard, step: Step) -> None:
        """A partition has left this node: end what waits for the share coordinator."""
        for number, (partition, ends) in list(self._outside.items()):
            if partition == shard.partition:
                del self._outside[number]
                ends(step, ErrorCode.NOT_COORDINATOR)

    def initialize(
        self, shard: GroupShard, step: Step, group_id: str, new: Sequence[InitializeState],
        told: Told, *, strict: bool = True,
    ) -> None:  # fmt: skip
        """Have the share coordinator keep states, and record that it does; `told` gets its results,
        or why there are none.  If it could not, `strict`: they are to be asked for again at
        once."""
        wanted = self.outside(shard, lambda step, code: told(step, code, ()))

        def done(results: Sequence[StateChanged], step: Step) -> None:
            if not wanted():
                return
            if strict or first_error(results) is ErrorCode.NONE:
                self._kept(shard, step, group_id, results, told)
            else:
                told(step, ErrorCode.NONE, results)

        step.effects.append(InitializeStates(group_id, new, done))

    def _kept(
        self, shard: GroupShard, step: Step, group_id: str, results: Sequence[StateChanged],
        told: Told,
    ) -> None:  # fmt: skip
        """The share coordinator keeps states, or could not."""
        group = shard.groups.get(group_id)
        if group is None or group.share is None:
            told(step, ErrorCode.NONE, results)
            return
        topics = _by_topic(results)
        failed = first_error(results) is not ErrorCode.NONE

        def work(changes: ShareChanges, step: Step) -> Body:
            before = changes.group.states
            if before is None:
                return {}  # the group was deleted
            if failed and before.initializing:
                changes.states(states.not_initialized(before, topics, step.wall_ms))
            elif not failed:
                changes.states(states.initialized(before, topics, self.topics, step.wall_ms))
            return {}

        def settled(step: Step, code: ErrorCode, _message: str | None, _body: Body) -> None:
            told(step, code, results)

        self.take_turn(shard, step, group, Turn(work, settled))

    def forget(
        self, shard: GroupShard, step: Step, group_id: str, gone: states.Partitions, told: Told
    ) -> None:
        """Have the share coordinator forget states; `told` gets its results, or why there are
        none."""
        wanted = self.outside(shard, lambda step, code: told(step, code, ()))

        def done(results: Sequence[StateChanged], step: Step) -> None:
            if wanted():
                told(step, ErrorCode.NONE, results)

        asked = [DeleteState(topic, n) for topic, numbers in gone.items() for n in numbers]
        step.effects.append(DeleteStates(group_id, asked, done))

    # ---- deletion ----------------------------------------------------------------------------

    def forget_all(self, shard: GroupShard, step: Step, group: Group, told: Outcome) -> None:
        """Have the share coordinator forget everything about a group that is to be deleted; `told`
        gets NONE, or why the group cannot be deleted."""
        found: list[states.Partitions] = []

        def work(changes: ShareChanges, step: Step) -> Body:
            if changes.group.members:
                raise Refusal(ErrorCode.NON_EMPTY_GROUP)
            before = changes.group.states
            if before is not None:
                after, gone = states.forgetting(before, self.topics, step.wall_ms)
                changes.states(after)
                found[:] = [gone]
            return {}

        def written(step: Step, code: ErrorCode, _message: str | None, _body: Body) -> None:
            if code is not ErrorCode.NONE or not found or not found[0]:
                told(step, code)
            else:
                self.forget(shard, step, group.group_id, found[0], forgotten)

        def forgotten(step: Step, code: ErrorCode, results: Sequence[StateChanged]) -> None:
            told(step, code or first_error(results))

        self.take_turn(shard, step, group, Turn(work, written))

    def topics_gone(self, shard: GroupShard, step: Step) -> None:
        """Topics were deleted: their share partitions are gone, and the share coordinator forgets
        them by itself."""
        for group in list(shard.groups.values()):
            share = group.share
            if share is None or share.states is None or group.state is State.DEAD:
                continue
            if states.of_existing(share.states, self.topics, step.wall_ms) is None:
                continue

            def work(changes: ShareChanges, step: Step) -> Body:
                before = changes.group.states
                if before is not None:
                    left = states.of_existing(before, self.topics, step.wall_ms)
                    if left is not None:
                        changes.states(left)
                return {}

            self.take_turn(shard, step, group, Turn(work, nobody))

    # ---- the rest --------------------------------------------------------------------------

    def describe(self, shard: GroupShard, group_id: str, _request: Call) -> Body:
        """A group of ShareGroupDescribe's answer."""
        try:
            group = self.existing(shard, group_id)
        except Refusal as refusal:
            return not_described(group_id, refusal.code, refusal.message)
        assert group.share is not None, group_id
        return described(group_id, group.share, self.topics)


def _other_type(group_id: str) -> Refusal:
    why = f"Group {group_id} is not a share group."
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, why)


def _nobody_waits(step: Step, code: ErrorCode, results: Sequence[StateChanged]) -> None:
    """Nobody waits for the results."""


def _by_topic(results: Sequence[StateChanged]) -> dict[Any, set[int]]:
    """The partitions of results, by topic."""
    found: dict[Any, set[int]] = {}
    for one in results:
        found.setdefault(one.topic_id, set()).add(one.partition)
    return found


def first_error(results: Sequence[StateChanged]) -> ErrorCode:
    """The first error of some results; NONE if there is none."""
    return next((one.error for one in results if one.error is not ErrorCode.NONE), ErrorCode.NONE)
