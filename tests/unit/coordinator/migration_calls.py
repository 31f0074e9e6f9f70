"""Groups with members of both protocols behind a desk: each step of their lives in one line."""

from __future__ import annotations

from typing import Any

from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL, OFFSETS
from tests.unit.coordinator.consumer_calls import MODERN, ConsumerDesk
from tests.unit.coordinator.group_calls import config, subscription

__all__ = [
    "CLASSIC", "NONE", "NOT_FOUND", "REBALANCE", "UNKNOWN", "assigned", "classic_group", "kinds",
    "mixed", "of_policy", "owning", "rejoin", "snapshot", "told", "understood",
]  # fmt: skip

NONE, REBALANCE = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN, NOT_FOUND = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND
CLASSIC = [("range", subscription("t"))]


def of_policy(policy: str, **more: Any) -> ConsumerDesk:
    """A coordinator with this group.consumer.migration.policy."""
    return ConsumerDesk(config(**{**MODERN, "group_consumer_migration_policy": policy, **more}))


def told(*numbers: int, topic: str = "t", version: int = 0) -> bytes:
    """An assignment."""
    parts = [{"topic": topic, "partitions": list(numbers)}]
    return CONSUMER_PROTOCOL.encode_assignment(version, {"assigned_partitions": parts})


def understood(assignment: bytes) -> dict[str, list[int]]:
    """The partitions in an assignment."""
    found = CONSUMER_PROTOCOL.decode_assignment(assignment)[1].assigned_partitions
    return {one.topic: one.partitions for one in found}


def owning(*numbers: int) -> list[tuple[str, bytes]]:
    """The protocols of a member that has these partitions."""
    parts = [{"topic": "t", "partitions": list(numbers)}] if numbers else []
    fields = {"topics": ["t"], "owned_partitions": parts}
    return [("range", CONSUMER_PROTOCOL.encode_subscription(1, fields))]


def classic_group(desk: ConsumerDesk, count: int = 2, **join: Any) -> list[str]:
    """A stable classic group; the members share the four partitions of a topic.  Their ids."""
    join.setdefault("protocols", CLASSIC)
    ids = [desk.new_id(**join) for _ in range(count)]
    replies = [desk.join(member_id, **join) for member_id in ids]
    desk.wait(2 * desk.settings.group_initial_rebalance_delay_ms)
    shares = {one: told(*range(n, 4, count)) for n, one in enumerate(ids)}
    for reply in sorted(replies, key=lambda one: one.member_id == one.leader):
        desk.sync(reply, shares)
    assert desk.state() == "Stable"
    return ids


def kinds(desk: ConsumerDesk, group: str = "g") -> dict[str, int]:
    """The live records of the group's members, by kind."""
    live: dict[bytes, str] = {}
    for batches in desk.journal.batches.values():
        for one in (record for batch in batches for record in batch.records):
            assert one.key is not None
            name, kind, fields = OFFSETS.decode_key(one.key)
            if kind in (0, 1) or group not in (getattr(fields, "group", group),):
                continue
            live.pop(one.key, None)
            if one.value is not None:
                live[one.key] = name
    found: dict[str, int] = {}
    for name in live.values():
        found[name] = found.get(name, 0) + 1
    return found


def assigned(desk: ConsumerDesk) -> dict[str, list[int]]:
    """The partitions of the first topic of each member."""
    return {name: parts.get("t", []) for name, parts in desk.has().items()}


def snapshot(desk: ConsumerDesk) -> Any:
    """All that requests can see of the group, without changing it."""
    listed = desk.listed()["g"]
    return listed.group_type, listed.group_state, desk.describe("g", 6), desk.described()


def rejoin(desk: ConsumerDesk, member_id: str, *owned: int, **join: Any) -> Any:
    """JoinGroup and SyncGroup of a classic member in a consumer group; the partitions it gets."""
    joined = desk.join(member_id, protocols=owning(*owned), **join)
    assert joined.error is NONE
    synced = desk.sync(joined, instance=join.get("instance"))
    assert synced.error is NONE
    return joined, understood(synced.assignment).get("t", [])


def mixed(desk: ConsumerDesk) -> list[str]:
    """A settled group with two classic members and "new"; the ids of the former."""
    ids = classic_group(desk)
    epoch = desk.enter("new").member_epoch
    for member_id in ids:
        rejoin(desk, member_id)
    epoch = desk.beat("new", epoch).member_epoch
    for member_id in ids:
        if desk.heartbeat(member_id, epoch) is REBALANCE:
            rejoin(desk, member_id)
    assert desk.described().group_state == "Stable"
    return ids
