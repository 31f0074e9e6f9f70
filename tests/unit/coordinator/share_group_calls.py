"""The coordinator of share groups: each request in one line; the share coordinator answers as the
test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from kafkalog.config.group import GroupConfig
from kafkalog.coordinator.consumer_groups.patterns import Lookup
from kafkalog.coordinator.share_groups.outside import (
    DeleteStates,
    InitializeStates,
    ReadSummaries,
    ShareEffect,
)
from kafkalog.coordinator.share_state.persister import StateChanged, SummaryRead
from kafkalog.coordinator.step import Step
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.consumer_calls import ConsumerDesk, given
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.virtual_core import MemoryJournal, Reply

__all__ = ["SHARED", "KeptStates", "ShareDesk", "given"]

SHARED: dict[str, Any] = {
    "group_share_session_timeout_ms": 10_000,
    "group_share_heartbeat_interval_ms": 1_000,
    "group_share_assignment_interval_ms": 0,
}
Kept = tuple[str, UUID, int]


class KeptStates:
    """The states that a share coordinator keeps: state epochs and start offsets."""

    def __init__(self) -> None:
        self.states: dict[Kept, tuple[int, int]] = {}
        self.error = ErrorCode.NONE
        """Why it refuses everything."""
        self.ends: dict[TopicPartition, int] = {}

    def carry_out(self, effect: ShareEffect, name_of: Callable[[UUID], str | None]) -> Any:
        """Do it; returns the event that takes its results."""
        if isinstance(effect, ReadSummaries):
            ends = {
                where: end for where, end in self.ends.items()
                if any(where == (name_of(one.topic_id), one.partition) for one in effect.states)
            }  # fmt: skip
            rows = [self._summary(effect.group_id, one) for one in effect.states]
            wanted = ends if effect.with_ends else {}
            return lambda step: effect.done(rows, wanted, step)
        found = []
        for one in effect.states:
            where = effect.group_id, one.topic_id, one.partition
            if self.error is not ErrorCode.NONE:
                pass
            elif isinstance(effect, InitializeStates):
                state: Any = one
                self.states[where] = state.state_epoch, state.start_offset
            else:
                self.states.pop(where, None)
            found.append(StateChanged(one.topic_id, one.partition, self.error))
        done: Callable[[Any, Step], None] = effect.done
        return lambda step: done(found, step)

    def _summary(self, group_id: str, one: Any) -> SummaryRead:
        _epoch, offset = self.states.get((group_id, one.topic_id, one.partition), (0, -1))
        count = 0 if offset >= 0 else -1
        return SummaryRead(
            one.topic_id, one.partition, self.error, None, 0, 0, offset, count
        )  # fmt: skip


class ShareDesk(ConsumerDesk):
    """A coordinator of share groups, and a share coordinator that answers with `settle`."""

    def __init__(
        self, settings: GroupConfig | None = None, journal: MemoryJournal | None = None,
        topics: dict[str, int] | None = None, own: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:  # fmt: skip
        self.kept = KeptStates()
        self.asked: list[ShareEffect] = []
        super().__init__(settings or config(**SHARED), journal, topics, own)

    def effect(self, effect: Any) -> None:
        if isinstance(effect, Lookup):
            super().effect(effect)
            return
        assert isinstance(effect, (InitializeStates, DeleteStates, ReadSummaries))
        self.asked.append(effect)

    def share(self) -> None:
        """Let the share coordinator do what it was asked."""
        while self.asked:
            effect = self.asked.pop(0)
            self.step(self.kept.carry_out(effect, self.names_by_id().get))

    # ---- requests --------------------------------------------------------------------------

    def say(self, member: str, epoch: int, group: str = "s", **fields: Any) -> Reply:
        """A heartbeat of a member of a share group."""
        body = {"group_id": group, "member_id": member, "member_epoch": epoch, **fields}
        return self.call(apis.SHARE_GROUP_HEARTBEAT, 1, body)

    def come(self, member: str, *topics: str, group: str = "s", **fields: Any) -> Reply:
        """A member's first heartbeat."""
        names = list(topics) or ["t"]
        return self.say(member, 0, group, subscribed_topic_names=names, **fields)

    def told(self, group: str = "s") -> Any:
        """The group in ShareGroupDescribe's answer."""
        (found,) = self.call(apis.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [group]}).groups
        return found

    def parts(self, group: str = "s") -> dict[str, dict[str, list[int]]]:
        """The partitions of each member, by topic."""
        return {
            member.member_id: {
                one.topic_name: one.partitions for one in member.assignment.topic_partitions
            }
            for member in self.told(group).members
        }

    def sharing(self, *names: str, topics: tuple[str, ...] = ("t",), group: str = "s") -> None:
        """Let members join, and have their parts."""
        for name in names:
            self.come(name, *topics, group=group)
            self.share()
        for _ in range(2):
            for name in names:
                epochs = {one.member_id: one.member_epoch for one in self.told(group).members}
                self.say(name, epochs[name], group)
