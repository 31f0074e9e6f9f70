"""The service that all types of groups whose members heartbeat have: turns, sessions, and changes
of topics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, ClassVar, Generic

from kafkalog.coordinator.consumer_groups.changes import UNSURE_MAX, G, GroupChanges
from kafkalog.coordinator.consumer_groups.epochs import Limits
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.topics import Topics
from kafkalog.coordinator.consumer_groups.turns import Manner, Turn, end, take_turn
from kafkalog.coordinator.groups.group import Group, State
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["NewerGroups", "OwnSettings", "nobody"]

OwnSettings = Callable[[str], Mapping[str, Any]]
"""The own settings of a group, by name."""


class NewerGroups(Generic[G]):
    """The groups of one type.  Only for the coordinator's thread."""

    session: ClassVar[str]
    """The kind of timer of a member's session."""
    own_settings: ClassVar[Mapping[str, str]]
    """Settings of single groups, by the field of Limits that they set."""

    def __init__(self, topics: Topics, own: OwnSettings) -> None:
        """`own`: a group's own settings, by name."""
        self.topics = topics
        self._own = own
        self._limits: Limits | None = None  # of groups without their own
        # Own settings of a group, the last that were asked for, and the limits by these.
        self._last: tuple[object, Limits | None] = None, None

    # ---- what each type has of its own -------------------------------------------------------

    @abstractmethod
    def state_of(self, group: Group) -> G | None:
        """The state of a group; None: it is of another type."""

    @abstractmethod
    def _changes(self, group: Group) -> GroupChanges[G]:
        """Begin changes of a group of this type."""

    @abstractmethod
    def _defaults(self) -> Limits:
        """The settings of groups without their own, which never change."""

    @abstractmethod
    def _fence(
        self, shard: GroupShard, group: Group, changes: Any, member: Any, step: Step
    ) -> None:  # fmt: skip
        """Remove a member."""

    @abstractmethod
    def _no_news(
        self, shard: GroupShard, step: Step, group: Group, member: Any, request: Call
    ) -> Body | None:
        """The heartbeat of a member that has what the settled target assignment gives it: the
        fields of its answer that only this type has; None: it needs its turn, as it says something
        new, or is to be told something."""

    def _watch(self, shard: GroupShard, step: Step, group: Group, member: Any) -> None:
        """A member has changed: its other timers follow."""

    def _unwatch(self, shard: GroupShard, group: Group, member_id: str) -> None:
        """A member was removed: it needs no other timers."""

    # ---- what is common ----------------------------------------------------------------------

    def limits(self, group_id: str) -> Limits:
        """The settings in effect for a group."""
        if self._limits is None:
            self._limits = self._defaults()
        own, found = self._own(group_id), self._limits
        if not own:
            return found
        known, limits = self._last
        if own is known and limits is not None:
            return limits
        for field, name in self.own_settings.items():
            if name in own:
                found = found._replace(**{field: own[name]})
                if field == "assignment_ms":
                    found = found._replace(pace_max_ms=0)
        self._last = own, found
        return found

    def repeats(self, shard: GroupShard, step: Step, request: Call) -> bool:
        """Answer a heartbeat whose turn would change nothing, as most are; False: it needs its
        turn."""
        body = request.body
        group = shard.groups.get(body.group_id)
        state = None if group is None else self.state_of(group)
        if group is None or state is None or not _at_rest(group):
            return False
        member = state.members.get(body.member_id)
        if member is None or body.member_epoch != member.epoch:
            return False
        if (member.client_id, member.client_host) != (request.client_id, request.client_host):
            return False
        if not member.reconciled(state.assignment_epoch) or not state.settled(step.now_ms):
            return False
        more = self._no_news(shard, step, group, member, request)
        if more is None:
            return False
        limits = self.limits(group.group_id)
        shard.set_timer(self.session, group, step.now_ms + limits.session_ms, member.member_id)
        step.answer(
            request.answer, member_id=member.member_id, member_epoch=member.epoch,
            heartbeat_interval_ms=limits.heartbeat_ms, **more,
        )  # fmt: skip
        return True

    def take_turn(self, shard: GroupShard, step: Step, group: Group, turn: Turn) -> None:
        """Do work on a group in its turn."""
        state = self.state_of(group)
        if state is not None:
            state.end_repeats()
        take_turn(shard, step, group, turn, Manner(self._changes, partial(self._after, shard)))

    def within_memory(
        self, shard: GroupShard, group: Group, member_id: str, changes: GroupChanges[G],
        act: Callable[[], Body],
    ) -> Body:  # fmt: skip
        """Act on what a member says.  Raises: Refusal, if that takes memory that there is not."""
        state, before = changes.group, group.weight.bytes
        member = state.members.get(member_id)
        if member is None and len(state.unsure) >= UNSURE_MAX:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer = act()
        if group.weight.bytes <= before or shard.has_room(1):
            return answer
        if state.said_bytes(member_id) > (0 if member is None else member.said_bytes):
            raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, "The groups' memory is used up.")
        return answer

    def keep_session(self, shard: GroupShard, group: Group, member_id: str, now_ms: int) -> None:
        """Restart a member's session."""
        session_ms = self.limits(group.group_id).session_ms
        shard.set_timer(self.session, group, now_ms + session_ms, member_id)

    def _after(self, shard: GroupShard, step: Step, group: Group, touched: list[str]) -> None:
        """Members have changed: their timers follow."""
        state = self.state_of(group)
        for member_id in touched:
            member = None if state is None else state.members.get(member_id)
            if member is None:
                shard.cancel_timer(self.session, group, member_id)
                self._unwatch(shard, group, member_id)
            else:
                self.keep_session(shard, group, member_id, step.now_ms)
                self._watch(shard, step, group, member)

    def resume(self, shard: GroupShard, step: Step, group: Group) -> None:
        """A group was loaded: its members' sessions start."""
        state = self.state_of(group)
        if state is not None:
            self._after(shard, step, group, list(state.members))

    def expire(self, shard: GroupShard, step: Step, group: Group, key: tuple[str, str]) -> None:
        """A member's timer is due; `key`: its kind, and the member."""
        kind, member_id = key
        state = self.state_of(group)
        if state is None or member_id not in state.members:
            return
        epoch = state.members[member_id].epoch
        # If the write fails, or others have made it late, it is tried again.
        self.keep_session(shard, group, member_id, step.now_ms)
        if kind != self.session:
            self._watch(shard, step, group, state.members[member_id])

        def work(changes: GroupChanges[G], step: Step) -> Body:
            member = changes.group.members.get(member_id)
            left = kind != self.session and member is not None and member.epoch != epoch
            if member is not None and not left:
                self._fence(shard, group, changes, member, step)
            return {}

        self.take_turn(shard, step, group, Turn(work, nobody))

    def topics_changed(self, shard: GroupShard, names: Collection[str]) -> None:
        """Topics were created, changed or deleted: groups look at them with their next
        heartbeat."""
        for group in shard.groups.values():
            state = self.state_of(group)
            if state is not None and not state.topics.keys().isdisjoint(names):
                state.looked(0, 0)
                state.end_repeats()

    def resigned(self, step: Step, group: Group) -> None:
        """The group's partition has left this node."""
        state = self.state_of(group)
        if state is not None:
            state.end_repeats()
            end(step, group, ErrorCode.NOT_COORDINATOR)


def _at_rest(group: Group) -> bool:
    """True for a group of one type, which has left no other."""
    if (group.consumer, group.share, group.streams).count(None) != 2:
        return False
    old = group.recorded and not group.foreign
    return not old and not group.is_classic and group.state is not State.DEAD


def nobody(step: Step, code: ErrorCode, message: str | None, body: Body) -> None:
    """Nobody waits for the outcome."""
