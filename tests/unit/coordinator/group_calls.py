"""The coordinator of groups behind a desk: each client request in one line."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kafkalog.config.declare import FOREVER
from kafkalog.config.group import GroupConfig
from kafkalog.coordinator.groups.core import GroupCoordinatorState
from kafkalog.coordinator.groups.offsets import Known
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL
from kafkalog.wire.values import ZERO_UUID
from tests.unit.coordinator.virtual_core import PARTITIONS, Bench, MemoryJournal, Reply


def subscription(*topics: str) -> bytes:
    """A consumer's metadata."""
    return CONSUMER_PROTOCOL.encode_subscription(0, {"topics": list(topics)})


def config(**settings: Any) -> GroupConfig:
    """A GroupConfig from settings by their Python names."""
    return GroupConfig({name.replace("_", "."): value for name, value in settings.items()})


class Desk(Bench[GroupCoordinatorState]):
    """One coordinator of groups, its journal and its clock."""

    def __init__(
        self,
        settings: GroupConfig | None = None,
        journal: MemoryJournal | None = None,
        topics: dict[str, int] | None = None,
        seed: int = 1,
        partitions: int = PARTITIONS,
    ) -> None:
        """`topics`: the existing topics and their partition counts; None: any topic exists."""
        self.settings = settings or config()
        self.topics = topics
        self.batch_bytes = FOREVER
        """Limit for a batch of the journal."""
        self.names: dict[UUID, str] = {}
        """The topics whose ids were requested."""
        self._random = random.Random(seed)
        super().__init__(journal, partitions)

    def new_core(self) -> GroupCoordinatorState:
        rng = self._random
        known = Known(
            self._count, self.id_of, lambda topic_id: self.names.get(topic_id),
            lambda: self.batch_bytes,
        )  # fmt: skip
        return GroupCoordinatorState(self.settings, lambda: f"{rng.getrandbits(48):012x}", known)

    def _count(self, topic: str) -> int:
        return 1000 if self.topics is None else self.topics.get(topic, 0)

    def id_of(self, topic: str) -> UUID:
        """The id of an existing topic: always the same unless a test changes `names`."""
        if not self._count(topic):
            return ZERO_UUID
        for topic_id, name in self.names.items():
            if name == topic:
                return topic_id
        made = UUID(int=len(self.names) + 1)
        self.names[made] = topic
        return made

    # ---- requests --------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        group: str = "g",
        *,
        version: int = 9,
        protocols: Sequence[tuple[str, bytes]] = (("range", b""),),
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocol_type: str = "consumer",
        instance: str | None = None,
        client_id: str = "client",
    ) -> Reply:
        fields: dict[str, Any] = {
            "group_id": group,
            "session_timeout_ms": session_ms,
            "member_id": member_id,
            "protocol_type": protocol_type,
            "protocols": [{"name": name, "metadata": data} for name, data in protocols],
        }
        if version >= 1:
            fields["rebalance_timeout_ms"] = rebalance_ms
        if instance is not None:
            fields["group_instance_id"] = instance
        return self.call(apis.JOIN_GROUP, version, fields, client_id)

    def sync(
        self,
        joined: Any,
        assignments: dict[str, bytes] | None = None,
        group: str = "g",
        *,
        version: int = 5,
        instance: str | None = None,
        **other: Any,
    ) -> Reply:
        """SyncGroup of the member with this answer to JoinGroup."""
        given = assignments or {}
        fields = {
            "group_id": group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "assignments": [{"member_id": m, "assignment": a} for m, a in given.items()],
        }
        if version >= 5:
            kind = joined.protocol_type or "consumer"  # JoinGroup's answer has it from version 7 on
            fields |= {"protocol_type": kind, "protocol_name": joined.protocol_name}
        if instance is not None:
            fields["group_instance_id"] = instance
        return self.call(apis.SYNC_GROUP, version, {**fields, **other})

    def heartbeat(
        self,
        member_id: str,
        generation: int,
        group: str = "g",
        *,
        instance: str | None = None,
        version: int = 4,
    ) -> ErrorCode:
        fields: dict[str, Any] = {
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
        }
        if instance is not None:
            fields["group_instance_id"] = instance
        return self.call(apis.HEARTBEAT, version, fields).error

    def leave(self, *members: tuple[str, str | None], group: str = "g", version: int = 5) -> Reply:
        fields: dict[str, Any] = {"group_id": group}
        if version < 3:
            fields["member_id"] = members[0][0]
        else:
            fields["members"] = [{"member_id": m, "group_instance_id": i} for m, i in members]
        return self.call(apis.LEAVE_GROUP, version, fields)

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation: int = -1,
        group: str = "g",
        *,
        version: int = 9,
        instance: str | None = None,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
    ) -> Reply:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in offsets.items():
            where = {"partition_index": partition, "committed_offset": offset}
            where["committed_metadata"] = metadata
            if version >= 6:
                where["committed_leader_epoch"] = leader_epoch
            topics.setdefault(topic, []).append(where)
        fields: dict[str, Any] = {
            "group_id": group,
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
        }
        if instance is not None:
            fields["group_instance_id"] = instance
        if retention_ms >= 0:
            fields["retention_time_ms"] = retention_ms
        return self.call(apis.OFFSET_COMMIT, version, fields)

    def committed(self, group: str = "g", stable: bool = False) -> dict[tuple[str, int], Any]:
        """All offsets of a group in OffsetFetch's answer."""
        fields = {"groups": [{"group_id": group, "topics": None}], "require_stable": stable}
        reply = self.call(apis.OFFSET_FETCH, 9, fields)
        (found,) = reply.groups
        assert found.error_code == 0
        return {(t.name, p.partition_index): p for t in found.topics for p in t.partitions}

    def offsets(self, group: str = "g") -> dict[tuple[str, int], int]:
        """The offsets of a group."""
        return {where: found.committed_offset for where, found in self.committed(group).items()}

    def describe(self, group: str = "g", version: int = 5) -> Any:
        (found,) = self.call(apis.DESCRIBE_GROUPS, version, {"groups": [group]}).groups
        return found

    def state(self, group: str = "g") -> str:
        return str(self.describe(group).group_state)

    def listed(self, **filters: list[str]) -> dict[str, Any]:
        reply = self.call(apis.LIST_GROUPS, 5, filters)
        assert reply.error is ErrorCode.NONE
        return {group.group_id: group for group in reply.groups}

    def delete(self, *groups: str, version: int = 2) -> Reply:
        return self.call(apis.DELETE_GROUPS, version, {"groups_names": list(groups)})

    # ---- several steps ---------------------------------------------------------------------

    def new_id(self, group: str = "g", **join: Any) -> str:
        """A member id that was assigned but not used yet."""
        reply = self.join(group=group, **join)
        assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
        return str(reply.member_id)

    def stable(self, count: int = 2, group: str = "g", **join: Any) -> list[Any]:
        """A stable group of `count` members: their answers to JoinGroup, the leader's first."""
        replies = [self.join(self.new_id(group, **join), group, **join) for _ in range(count)]
        self.wait(2 * self.settings.group_initial_rebalance_delay_ms)
        self.settle(replies, group)
        return replies

    def settle(self, replies: Sequence[Any], group: str = "g") -> None:
        """Send SyncGroup for every member, the leader last, so that the group is Stable."""
        led = [r for r in replies if r.member_id == r.leader]
        followed = [r for r in replies if r.member_id != r.leader]
        synced = [self.sync(reply, group=group) for reply in followed]
        given = {r.member_id: r.member_id.encode() for r in replies}
        synced += [self.sync(reply, given, group=group) for reply in led]
        assert [reply.error for reply in synced] == [ErrorCode.NONE] * len(synced)
