"""The coordinator of groups with topics, for members that heartbeat: each request in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from kafkalog.config.group import GroupConfig
from kafkalog.coordinator.consumer_groups.patterns import Lookup, look_up
from kafkalog.coordinator.consumer_groups.topics import Topic, Topics, topic_hash
from kafkalog.coordinator.groups.core import GroupCoordinatorState
from kafkalog.coordinator.groups.offsets import Known
from kafkalog.wire import apis
from tests.unit.coordinator.group_calls import Desk, config
from tests.unit.coordinator.virtual_core import MemoryJournal, Reply

__all__ = ["MODERN", "ConsumerDesk", "given"]

MODERN: dict[str, Any] = {
    "group_consumer_session_timeout_ms": 10_000,
    "group_consumer_heartbeat_interval_ms": 1_000,
    "group_consumer_assignment_interval_ms": 0,
}


def given(reply: Any) -> dict[str, list[int]] | None:
    """The partitions of an answer, by the last digit of the topic's id; None: not told."""
    if reply.assignment is None:
        return None
    return {str(one.topic_id)[-1]: one.partitions for one in reply.assignment.topic_partitions}


class ConsumerDesk(Desk):
    """A coordinator of groups whose members heartbeat."""

    def __init__(
        self, settings: GroupConfig | None = None, journal: MemoryJournal | None = None,
        topics: dict[str, int] | None = None, own: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:  # fmt: skip
        """`topics`: partition counts; the ids are 1, 2, ... in their order.  `own`: settings of
        single groups."""
        self.counts = {"t": 4, "u": 2} if topics is None else topics
        self.ids = {name: UUID(int=number + 1) for number, name in enumerate(self.counts)}
        self.own = own or {}
        self.version = 7
        self.lookups: list[Lookup] = []
        super().__init__(settings or config(**MODERN), journal)

    def new_core(self) -> GroupCoordinatorState:
        found = self.names_by_id
        return GroupCoordinatorState(
            self.settings,
            lambda: f"made-{self._random.getrandbits(32):08x}",
            Known(lambda name: self.counts.get(name, 0), self.id_of, lambda one: found().get(one)),
            Topics(self.topic, lambda one: found().get(one), lambda: self.version,
                   lambda: self.version),
            lambda group: self.own.get(group, {}),
        )  # fmt: skip

    def names_by_id(self) -> dict[UUID, str]:
        return {self.ids[name]: name for name in self.counts}

    def id_of(self, topic: str) -> UUID:
        return self.ids[topic] if topic in self.counts else UUID(int=0)

    def topic(self, name: str) -> Topic | None:
        """A topic as consumer groups see it."""
        count = self.counts.get(name)
        if count is None:
            return None
        return Topic(self.ids[name], count, topic_hash(name, self.ids[name], [[]] * count))

    def change_topic(self, name: str, count: int | None) -> None:
        """Create, grow or (None) delete a topic."""
        self.version += 1
        if count is None:
            del self.counts[name]
        else:
            self.ids.setdefault(name, UUID(int=len(self.ids) + 1))
            self.counts[name] = count
        self.step(lambda step: self.core.topics_changed({name}, step))

    def effect(self, effect: Any) -> None:
        self.lookups.append(effect)

    def look_up(self) -> None:
        """Carry out the lookups of patterns that are due."""
        lookups, self.lookups = self.lookups, []
        for lookup in lookups:
            found = look_up(lookup, self.counts, self.version)
            self.step(lambda step, lookup=lookup, found=found:  # type: ignore[misc]
                      self.core.looked_up(lookup, found, step))  # fmt: skip

    # ---- requests --------------------------------------------------------------------------

    def beat(
        self, member: str, epoch: int, owned: dict[str, list[int]] | None = None,
        group: str = "g", version: int = 1, **fields: Any,
    ) -> Reply:  # fmt: skip
        """A heartbeat; `owned`: partitions by topic that the member says it has."""
        body: dict[str, Any] = {"group_id": group, "member_id": member, "member_epoch": epoch}
        if owned is not None:
            body["topic_partitions"] = [
                {"topic_id": self.ids[topic], "partitions": numbers}
                for topic, numbers in owned.items()
            ]
        return self.call(apis.CONSUMER_GROUP_HEARTBEAT, version, {**body, **fields})

    def enter(self, member: str, *topics: str, group: str = "g", **fields: Any) -> Reply:
        """A member's first heartbeat."""
        names = list(topics) if topics or "subscribed_topic_regex" in fields else ["t"]
        body: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": names}
        return self.beat(member, 0, {}, group, **{**body, **fields})

    def described(self, group: str = "g") -> Any:
        """The group in ConsumerGroupDescribe's answer."""
        (found,) = self.call(apis.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]}).groups
        return found

    def has(self, group: str = "g") -> dict[str, dict[str, list[int]]]:
        """The partitions of each member, by topic."""
        return {
            member.member_id: {
                one.topic_name: one.partitions for one in member.assignment.topic_partitions
            }
            for member in self.described(group).members
        }

    def members(self, *names: str, group: str = "g") -> None:
        """Let members join, and do as they are told until each has its part."""
        epochs = {name: self.enter(name, group=group).member_epoch for name in names}
        by_digit = {str(topic_id)[-1]: name for name, topic_id in self.ids.items()}
        for _ in range(3):
            for name in names:
                told = self.beat(name, epochs[name])
                epochs[name] = told.member_epoch
                if (parts := given(told)) is not None:
                    owned = {by_digit[digit]: numbers for digit, numbers in parts.items()}
                    epochs[name] = self.beat(name, epochs[name], owned, group).member_epoch
        assert self.described(group).group_state == "Stable"
