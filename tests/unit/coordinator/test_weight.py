"""The memory of groups is counted, and its sum is bounded."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafkalog.coordinator.groups.group import (
    GROUP_BYTES,
    Group,
    expected_bytes,
    member_bytes,
    offset_bytes,
    topics_bytes,
)
from kafkalog.coordinator.weight import text_bytes
from kafkalog.wire import apis
from kafkalog.wire.api import REQUEST_NAMES_MAX
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.group_calls import Desk, config, subscription

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
LIMIT = 40_000


def weighed(group: Group) -> int:
    """The bytes of a group, counted independently."""
    committed = [o for partitions in group.offsets.values() for o in partitions.values()]
    pending = [o for offsets in group.pending_offsets.values() for o in offsets.values()]
    return (
        GROUP_BYTES + text_bytes(group.group_id) + text_bytes(group.protocol_type)
        + topics_bytes(group.topics)
        + sum(map(expected_bytes, group.pending))
        + sum(member_bytes(m.names, m.protocols, m.assignment) for m in group.members.values())
        + sum(offset_bytes(offset.metadata) for offset in [*committed, *pending])
    )  # fmt: skip


def check(desk: Desk) -> None:
    """Check that the sums are those of the existing groups."""
    groups = [g for shard in desk.core.shards.values() for g in shard.groups.values()]
    assert [g.weight.bytes for g in groups] == [weighed(g) for g in groups]
    assert desk.core.weight.bytes == sum(map(weighed, groups))


@pytest.mark.parametrize("seed", [1, 2, 3, 11_031])
def test_the_sum_always_equals_the_contents(seed: int) -> None:
    """Joins, rejoins, static members that return, leaves, commits, deletions, timeouts, restarts,
    failing journals."""
    rng = random.Random(seed)
    desk = Desk(config(offsets_retention_minutes=1), seed=seed)
    joined: list[tuple[str, Any]] = []
    for _ in range(400):
        name = rng.choice("abcd")
        if rng.random() < 0.1:
            desk.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
        match rng.randrange(9):
            case 0:
                said = [("range", rng.randbytes(rng.randrange(2000)))]
                reply = desk.join(group=name, version=3, protocols=said)
                joined.append((name, reply))
            case 1:
                desk.join(group=name, version=5)
            case 2:
                reply = desk.join(group=name, instance=rng.choice("xy"), protocols=[("range", b"")])
                joined.append((name, reply))
            case 3:
                desk.wait(rng.choice([100, 4_000, 20_000]))
            case 4 if joined:
                group, reply = rng.choice(joined)
                if not reply.waits:
                    given = {m.member_id: rng.randbytes(300) for m in reply.members}
                    desk.sync(reply, given, group, version=3)
            case 5 if joined:
                group, reply = joined.pop(rng.randrange(len(joined)))
                if not reply.waits:
                    desk.leave((reply.member_id, None), group=group)
            case 6:
                text = "m" * rng.randrange(3000)
                desk.commit({("t", rng.randrange(5)): 1}, group=name, metadata=text)
            case 7:
                desk.delete(name)
            case _ if rng.random() < 0.1:
                desk.wait(70_000)
                desk.restart()
                joined.clear()
        desk.errors = []
        check(desk)
    desk.wait(100_000_000)
    check(desk)


def test_requests_beyond_the_limit_are_refused() -> None:
    """New groups, members and commits; existing ones continue."""
    desk = Desk(config(kafkalog_groups_max_bytes=LIMIT))
    members = desk.stable(2, "old")
    desk.settle(members, "old")
    desk.commit({("t", 0): 5}, group="reader")
    for group in ("one", *(f"g{i}" for i in range(LIMIT // GROUP_BYTES + 1))):
        last = desk.join(group=group, version=3)
        assert desk.core.weight.bytes <= LIMIT
    assert last.error == FULL
    while desk.join(group="one", version=3).waits:
        assert desk.core.weight.bytes <= LIMIT
    assert desk.join(group="old", version=3).error == FULL
    assert desk.join(group="old", version=5).error == FULL
    refused = desk.commit({("t", p): 5 for p in range(100)}, group="reader")
    assert {p.error_code for p in refused.topics[0].partitions} == {FULL}
    assert desk.commit({("t", 0): 5}, group="new").topics[0].partitions[0].error_code == FULL
    assert "new" not in desk.listed()
    # Existing members: heartbeats, commits to the same partitions, a rejoin of similar size.
    one = members[0]
    assert desk.heartbeat(one.member_id, one.generation_id, "old") == ErrorCode.NONE
    again = desk.commit({("t", 0): 6}, group="reader")
    assert again.topics[0].partitions[0].error_code == ErrorCode.NONE
    reply = desk.join(one.member_id, "old", protocols=[("range", b"x" * 100)])
    assert reply.waits
    check(desk)


def test_pending_offsets_count() -> None:
    """Several producers commit to the same partitions, and none of them ends."""
    desk = Desk(config(kafkalog_groups_max_bytes=LIMIT))
    desk.commit({("t", partition): 1 for partition in range(10)})

    def commit(producer_id: int) -> set[ErrorCode]:
        where = [{"partition_index": p, "committed_offset": 2, "committed_metadata": ""}
                 for p in range(10)]  # fmt: skip
        reply = desk.call(apis.TXN_OFFSET_COMMIT, 3, {
            "transactional_id": "x", "group_id": "g", "producer_id": producer_id,
            "producer_epoch": 0, "topics": [{"name": "t", "partitions": where}],
        })  # fmt: skip
        return {ErrorCode(one.error_code) for one in reply.topics[0].partitions}

    room = (LIMIT - desk.core.weight.bytes) // (10 * offset_bytes(""))
    assert [commit(producer_id) for producer_id in range(room)] == [{ErrorCode.NONE}] * room
    assert commit(room) == {FULL}
    assert commit(0) == {ErrorCode.NONE}  # replaces its earlier commit
    assert desk.core.weight.bytes <= LIMIT
    check(desk)


@pytest.mark.parametrize("version", [3, 5])
def test_names_of_any_length_count(version: int) -> None:
    """Names of clients, instances and protocol types are all kept with a member or its id."""
    desk = Desk(config(kafkalog_groups_max_bytes=LIMIT // 2))
    long = "n" * 17_000
    assert desk.join(group="a", version=version, client_id=long).error == FULL
    assert desk.join(group="b", instance=long).error == FULL
    assert desk.join(group="c", version=version, protocol_type=long).error == FULL
    desk.join(group="d", version=version, client_id=long[:6_000])
    assert desk.core.weight.bytes > 6_000
    check(desk)


def test_no_member_that_is_there_takes_more_little_by_little() -> None:
    """A member's metadata and assignment must be small, or there must be room for them."""
    desk = Desk(config(kafkalog_groups_max_bytes=LIMIT))
    (one,) = desk.stable(1)
    for kib in range(1, 100):
        reply = desk.join(one.member_id, protocols=[("range", bytes(kib << 10))])
        assert desk.core.weight.bytes <= LIMIT
        if not reply.waits and reply.error == FULL:
            break
    assert kib > 20
    assert reply.error == FULL
    again = desk.join(one.member_id, protocols=[("range", bytes(3_000))])
    given = {one.member_id: bytes(LIMIT)}
    assert desk.sync(again, given).error == FULL
    assert desk.core.weight.bytes <= LIMIT
    assert desk.sync(again, {one.member_id: bytes(4_096)}).error == ErrorCode.NONE
    check(desk)


def test_protocols_count_however_short_their_names_are() -> None:
    """Each takes a hundred times as much memory as a name of one letter."""
    desk = Desk(config(kafkalog_groups_max_bytes=LIMIT))
    many = [(f"{number:x}", b"") for number in range(LIMIT // 100)]
    assert desk.join(version=3, protocols=many).error == FULL
    assert desk.join(version=3, protocols=many[:20]).waits
    check(desk)


def test_names_of_protocols_go_with_their_members() -> None:
    """A member that rejoins under new names, and members that leave."""
    desk = Desk(config(kafkalog_groups_max_bytes=LIMIT))
    (one,) = desk.stable(1, protocols=[("range", b"")])
    for number in range(20):
        names = ["range", f"{number}" + "x" * 2_000]
        assert desk.join(one.member_id, protocols=[(name, b"") for name in names]).error == 0
    (group,) = (g for shard in desk.core.shards.values() for g in shard.groups.values())
    assert group._support == dict.fromkeys(names, 1)
    desk.leave((one.member_id, None))
    assert not group._support
    check(desk)


def test_topics_of_subscriptions_count_and_are_bounded() -> None:
    """They are read from the members' metadata, in which a topic takes few bytes."""
    desk = Desk()
    (one,) = desk.stable(1, protocols=[("range", subscription(*map(str, range(1_000))))])
    (group,) = (g for shard in desk.core.shards.values() for g in shard.groups.values())
    assert group.topics is not None and len(group.topics) == 1_000
    check(desk)
    assert group.weight.bytes > 1_000 * 100
    most = [("range", subscription(*["t"] * (REQUEST_NAMES_MAX + 1)))]
    assert desk.join(one.member_id, protocols=most).error == 0
    assert group.topics is None  # unknown: any topic may be used
    check(desk)


def test_there_is_room_again_when_others_went() -> None:
    desk = Desk(config(kafkalog_groups_max_bytes=LIMIT))
    before = desk.core.weight.bytes
    joined = []
    while (reply := desk.join(version=3)).waits:
        joined.append(reply)
    assert reply.error == FULL
    desk.wait(1_000_000_000)
    assert desk.core.weight.bytes <= before + GROUP_BYTES + 1
    assert desk.join(version=3).waits


def test_a_lowered_bound_loses_nothing() -> None:
    """Everything in the journal is loaded anyway."""
    desk = Desk()
    desk.settle(desk.stable(3))
    desk.commit({("t", p): p for p in range(50)}, group="reader")
    desk.settings = config(kafkalog_groups_max_bytes=1)
    desk.restart()
    assert len(desk.offsets("reader")) == 50
    assert desk.commit({("t", 0): 9}, group="reader").topics[0].partitions[0].error_code == 0
    assert desk.join(group="new", version=3).error == FULL
    check(desk)
