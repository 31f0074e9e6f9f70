"""The coordinator of streams groups: each request in one line; internal topics are created when the
test says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalog.config.group import GroupConfig
from kafkalog.coordinator.consumer_groups.patterns import Lookup
from kafkalog.coordinator.step import Call
from kafkalog.coordinator.streams_groups.outside import CreateTopics
from kafkalog.wire import apis
from tests.unit.coordinator.consumer_calls import ConsumerDesk
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.virtual_core import HOST, MemoryJournal, Reply

__all__ = [
    "COUNTING", "TASKS", "StreamsDesk", "given_tasks", "internal", "subtopology", "tasks",
    "topology",
]  # fmt: skip

TASKS: dict[str, Any] = {
    "group_streams_session_timeout_ms": 10_000,
    "group_streams_heartbeat_interval_ms": 1_000,
    "group_streams_assignment_interval_ms": 0,
    "group_streams_initial_rebalance_delay_ms": 0,
}
Parts = dict[str, list[int]]
_ROLES = ("active", "standby", "warmup")


def internal(name: str, partitions: int = 0, **configs: str) -> dict[str, Any]:
    """An internal topic of a topology."""
    rows = [{"key": key, "value": value} for key, value in configs.items()]
    return {
        "name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": rows,
    }  # fmt: skip


def subtopology(name: str, *sources: str, **fields: Any) -> dict[str, Any]:
    """A part of a topology."""
    return {
        "subtopology_id": name, "source_topics": list(sources), "source_topic_regex": [],
        "state_changelog_topics": [], "repartition_sink_topics": [],
        "repartition_source_topics": [], "copartition_groups": [], **fields,
    }  # fmt: skip


def topology(*parts: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    """A topology; without parts, one that reads t and has no state."""
    return {"epoch": epoch, "subtopologies": list(parts) or [subtopology("0", "t")]}


COUNTING = topology(
    subtopology("0", "t", repartition_sink_topics=["again"]),
    subtopology(
        "1", state_changelog_topics=[internal("kept", **{"cleanup.policy": "compact"})],
        repartition_source_topics=[internal("again")],
    ),
)  # fmt: skip
"""A word count: it reads t, writes by word, and counts."""


def tasks(**parts: list[int]) -> list[dict[str, Any]]:
    """Tasks of a heartbeat: `_0=[1]` is partition 1 of subtopology 0."""
    return [
        {"subtopology_id": name.removeprefix("_"), "partitions": numbers}
        for name, numbers in parts.items()
    ]


def given_tasks(reply: Any) -> dict[str, Parts] | None:
    """The tasks of an answer, or of a member's assignment, by role; None: not told."""
    if reply.active_tasks is None:
        return None
    found = {
        role: {one.subtopology_id: one.partitions for one in getattr(reply, f"{role}_tasks")}
        for role in _ROLES
    }
    return {role: parts for role, parts in found.items() if parts}


class StreamsDesk(ConsumerDesk):
    """A coordinator of streams groups."""

    def __init__(
        self, settings: GroupConfig | None = None, journal: MemoryJournal | None = None,
        topics: dict[str, int] | None = None, own: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        self.asked: list[CreateTopics] = []
        self.owned: dict[str, dict[str, Parts]] = {}
        self.epochs: dict[str, int] = {}
        super().__init__(settings or config(**TASKS), journal, topics, own)

    def effect(self, effect: Any) -> None:
        if isinstance(effect, Lookup):
            super().effect(effect)
            return
        assert isinstance(effect, CreateTopics)
        self.asked.append(effect)

    def create(self, **failed: str) -> None:
        """Create the internal topics that were asked for, but those that fail."""
        while self.asked:
            effect = self.asked.pop(0)
            for name, one in effect.topics.items():
                if name not in failed:
                    self.change_topic(name, one.partitions)
            why = {name: text for name, text in failed.items() if name in effect.topics}
            self.step(lambda step, why=why, done=effect.done: done(why, step))  # type: ignore[misc]

    # ---- requests --------------------------------------------------------------------------

    def say(
        self, member: str, epoch: int, group: str = "s", version: int = 1, **fields: Any
    ) -> Reply:
        """A heartbeat of a member of a streams group."""
        body = {"group_id": group, "member_id": member, "member_epoch": epoch, **fields}
        return self.call(apis.STREAMS_GROUP_HEARTBEAT, version, body)

    def call_as(self, body: dict[str, Any], **rights: Any) -> Reply:
        """A heartbeat of a sender with these rights."""
        api = apis.STREAMS_GROUP_HEARTBEAT
        reply = Reply(api, 1)
        request = Call(api.decode_request(1, api.encode_request(1, body)), 1, "client", HOST, reply,
                       **rights)  # fmt: skip
        self.step(lambda step: self.core.request(api, request, step))
        return reply

    def come(self, member: str, group: str = "s", **fields: Any) -> Reply:
        """A member's first heartbeat."""
        body = {
            "topology": topology(), "rebalance_timeout_ms": 30_000, "process_id": f"p-{member}",
            "active_tasks": [], "standby_tasks": [], "warmup_tasks": [], **fields,
        }  # fmt: skip
        reply = self.say(member, 0, group, **body)
        self.heard(member, reply)
        return reply

    def heard(self, member: str, reply: Reply) -> None:
        """A member does as it was told."""
        if reply.waits or reply.error:
            return
        self.epochs[member] = reply.member_epoch
        found = given_tasks(reply)
        if found is not None:
            self.owned[member] = found

    def go_on(self, member: str, **fields: Any) -> Reply:
        """A heartbeat with the member's epoch and all that it has."""
        has = self.owned.get(member, {})
        rows = {f"{role}_tasks": [
            {"subtopology_id": name, "partitions": numbers}
            for name, numbers in has.get(role, {}).items()
        ] for role in _ROLES}  # fmt: skip
        reply = self.say(member, self.epochs[member], **{**rows, **fields})
        self.heard(member, reply)
        return reply

    def rounds(self, *members: str, times: int = 4) -> None:
        """Let members heartbeat until all have their tasks."""
        for _ in range(times):
            for member in members:
                assert not self.go_on(member).error

    def told(self, group: str = "s", **fields: Any) -> Any:
        """The group in StreamsGroupDescribe's answer."""
        body = {"group_ids": [group], **fields}
        (found,) = self.call(apis.STREAMS_GROUP_DESCRIBE, 1, body).groups
        return found

    def parts(self, group: str = "s") -> dict[str, dict[str, Parts] | None]:
        """The tasks of each member, by role."""
        return {
            member.member_id: given_tasks(member.assignment) for member in self.told(group).members
        }
