"""Each request in each state of a classic group, one test each."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.coordinator.groups.group import State
from kafkalog.coordinator.partitions import partition_for
from kafkalog.coordinator.step import Step
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.group_calls import Desk, subscription
from tests.unit.coordinator.virtual_core import EPOCH

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
OFFSETS = {("t", 0): 7}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def empty(desk: Desk) -> Any:
    """An empty group; returns the JoinGroup answer of the member that left it."""
    (member,) = desk.stable(1)
    desk.leave((member.member_id, None))
    assert desk.state() == "Empty"
    return member


def preparing(desk: Desk) -> list[Any]:
    """Two members; the second has joined again."""
    members = desk.stable(2)
    changed = [("range", b"new")]
    assert desk.join(members[1].member_id, protocols=changed).waits
    assert desk.state() == "PreparingRebalance"
    return members


def completing(desk: Desk) -> list[Any]:
    """Two members of a generation without an assignment, the leader first."""
    replies = [desk.join(desk.new_id()) for _ in range(2)]
    desk.wait(9_000)
    assert desk.state() == "CompletingRebalance"
    return replies


def dead(desk: Desk) -> Any:
    """A group whose deletion is being written to the journal."""
    member = empty(desk)
    desk.held = []
    assert desk.delete("g").waits
    return member


# ---- Empty ---------------------------------------------------------------------------------


def test_empty_join(desk: Desk) -> None:
    member = empty(desk)
    assert desk.join(member.member_id).error is UNKNOWN
    assert desk.join(desk.new_id()).waits
    assert desk.state() == "PreparingRebalance"


def test_empty_sync_heartbeat_leave(desk: Desk) -> None:
    member = empty(desk)
    assert desk.sync(member).error is UNKNOWN
    assert desk.heartbeat(member.member_id, 2) is UNKNOWN
    left = desk.leave((member.member_id, None))
    assert (left.error, left.members[0].error_code) == (NONE, UNKNOWN)


def test_empty_commit(desk: Desk) -> None:
    """Only commits without a generation, as of a consumer without a group."""
    member = empty(desk)
    assert codes(desk.commit(OFFSETS)) == [NONE]
    assert codes(desk.commit(OFFSETS, member.member_id, 1)) == [UNKNOWN]
    assert desk.offsets() == OFFSETS


# ---- PreparingRebalance --------------------------------------------------------------------


def test_preparing_join(desk: Desk) -> None:
    """A join waits until all members have joined."""
    leader, follower = preparing(desk)
    new = desk.join(desk.new_id())
    assert new.waits
    last = desk.join(leader.member_id)
    assert (last.error, last.generation_id, last.leader) == (NONE, 2, leader.member_id)
    assert new.generation_id == 2
    assert {m.member_id for m in last.members} == {
        leader.member_id, follower.member_id, new.member_id,
    }  # fmt: skip
    assert not new.members


def test_preparing_sync_heartbeat(desk: Desk) -> None:
    leader, _ = preparing(desk)
    assert desk.sync(leader).error is REBALANCE
    assert desk.heartbeat(leader.member_id, 1) is REBALANCE
    assert desk.heartbeat(leader.member_id, 0) is ErrorCode.ILLEGAL_GENERATION


def test_preparing_leave(desk: Desk) -> None:
    """The last missing member leaves: the rebalance is complete."""
    leader, _ = preparing(desk)
    assert desk.leave((leader.member_id, None)).members[0].error_code == NONE
    assert desk.state() == "CompletingRebalance"


def test_preparing_commit(desk: Desk) -> None:
    """Only for the current generation: members are about to give up their partitions."""
    leader, _ = preparing(desk)
    assert codes(desk.commit(OFFSETS, leader.member_id, 1)) == [NONE]
    assert codes(desk.commit(OFFSETS, leader.member_id, 2)) == [ErrorCode.ILLEGAL_GENERATION]
    assert codes(desk.commit(OFFSETS, "nobody", 1)) == [UNKNOWN]
    assert codes(desk.commit(OFFSETS)) == [UNKNOWN]


# ---- CompletingRebalance -------------------------------------------------------------------


def test_completing_join(desk: Desk) -> None:
    """The same join again: its answer was lost.  A different join: a rebalance."""
    leader, follower = completing(desk)
    again = desk.join(leader.member_id)
    assert (again.error, again.generation_id, len(again.members)) == (NONE, 1, 2)
    assert not desk.join(follower.member_id).members
    parked = desk.sync(follower)
    assert desk.join(leader.member_id, protocols=[("range", b"new")]).waits
    assert parked.error is REBALANCE
    assert desk.state() == "PreparingRebalance"


def test_completing_sync(desk: Desk) -> None:
    """Followers wait for the leader; a member without an assignment gets an empty one."""
    leader, follower = completing(desk)
    parked = desk.sync(follower)
    assert parked.waits
    led = desk.sync(leader, {leader.member_id: b"all", "nobody": b"x"})
    assert (led.error, led.assignment) == (NONE, b"all")
    assert (parked.error, parked.assignment) == (NONE, b"")
    assert desk.state() == "Stable"


def test_completing_heartbeat_leave(desk: Desk) -> None:
    leader, follower = completing(desk)
    assert desk.heartbeat(leader.member_id, 1) is NONE
    parked = desk.sync(leader, {leader.member_id: b"all"})
    assert parked.error is NONE
    leader, follower = completing_again(desk, leader, follower)
    parked = desk.sync(follower)
    desk.leave((leader.member_id, None))
    assert parked.error is REBALANCE
    assert desk.state() == "PreparingRebalance"


def completing_again(desk: Desk, leader: Any, follower: Any) -> list[Any]:
    replies = [desk.join(m.member_id, protocols=[("range", b"2")]) for m in (leader, follower)]
    assert desk.state() == "CompletingRebalance"
    return replies


def test_completing_commit(desk: Desk) -> None:
    leader, _ = completing(desk)
    assert codes(desk.commit(OFFSETS, leader.member_id, 1)) == [REBALANCE]


# ---- Stable --------------------------------------------------------------------------------


def test_stable_join(desk: Desk) -> None:
    """The leader's join, or a changed one, starts a rebalance; others get the current state."""
    leader, follower = desk.stable(2)
    same = desk.join(follower.member_id)
    assert (same.generation_id, same.leader, same.members) == (1, leader.member_id, [])
    assert desk.state() == "Stable"
    assert desk.join(follower.member_id, protocols=[("range", b"more")]).waits
    assert desk.join(leader.member_id).generation_id == 2
    desk = Desk()
    leader, follower = desk.stable(2)
    assert desk.join(leader.member_id).waits
    assert desk.state() == "PreparingRebalance"


def test_stable_sync_heartbeat(desk: Desk) -> None:
    _, follower = desk.stable(2)
    assert desk.sync(follower).assignment == follower.member_id.encode()
    assert desk.heartbeat(follower.member_id, 1) is NONE


def test_stable_leave(desk: Desk) -> None:
    leader, follower = desk.stable(2)
    desk.leave((follower.member_id, None))
    assert desk.state() == "PreparingRebalance"
    assert desk.heartbeat(leader.member_id, 1) is REBALANCE


def test_stable_commit_is_a_heartbeat(desk: Desk) -> None:
    (member,) = desk.stable(1)
    for _ in range(5):
        desk.wait(9_000)
        assert codes(desk.commit(OFFSETS, member.member_id, 1)) == [NONE]
    assert desk.state() == "Stable"
    desk.wait(10_001)
    assert desk.state() == "Empty"


# ---- Dead ----------------------------------------------------------------------------------


def test_dead_is_not_available(desk: Desk) -> None:
    """While a deletion is in flight nobody can join; afterwards the group is new."""
    member = dead(desk)
    assert desk.state() == "Dead"
    assert desk.join().error is GONE
    assert desk.join(member.member_id).error is GONE
    assert desk.sync(member).error is GONE
    assert desk.heartbeat(member.member_id, 1) is GONE
    assert desk.leave((member.member_id, None)).error is GONE
    assert codes(desk.commit(OFFSETS)) == [GONE]
    assert desk.offsets() == {}
    assert desk.listed() == {}
    desk.release()
    assert "g" not in desk.core.shards
    assert desk.join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_deletion_that_fails_brings_the_group_back(desk: Desk) -> None:
    (member,) = desk.stable(1)
    desk.commit(OFFSETS, member.member_id, 1)
    desk.leave((member.member_id, None))
    desk.errors = [ErrorCode.KAFKA_STORAGE_ERROR]
    assert desk.delete("g").results[0].error_code == ErrorCode.NOT_COORDINATOR
    assert desk.state() == "Empty"
    assert desk.offsets() == OFFSETS


def test_every_state_was_seen(desk: Desk) -> None:
    """The states' names on the wire are Kafka's."""
    assert {state.value for state in State} == {
        "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead",
    }  # fmt: skip


def codes(reply: Any) -> list[ErrorCode]:
    """The error of each partition."""
    return [ErrorCode(p.error_code) for topic in reply.topics for p in topic.partitions]


# ---- no group yet --------------------------------------------------------------------------------


def test_loading(desk: Desk) -> None:
    """Heartbeats succeed; all other requests get a retriable error."""
    desk.core.shards.clear()
    desk.core.loading = dict.fromkeys(range(4), EPOCH)
    load = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert desk.join().error is load
    assert desk.heartbeat("m", 1) is NONE
    fields = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    assert desk.call(apis.SYNC_GROUP, 4, fields).error is REBALANCE
    assert desk.leave(("m", None)).error is load
    assert codes(desk.commit(OFFSETS)) == [load]
    assert desk.describe().error_code == load
    assert desk.call(apis.LIST_GROUPS, 4, {}).error is load
    assert desk.delete("g").results[0].error_code == load
    for version in (1, 5, 7, 8):
        asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
        fields = {"groups": [asked]} if version >= 8 else asked
        reply = desk.call(apis.OFFSET_FETCH, version, fields)
        if version == 1:
            assert codes(reply) == [load]
        else:
            assert (reply.groups[0] if version >= 8 else reply).error_code == load


@pytest.mark.parametrize("count", [0, 4])
def test_another_broker_coordinates(desk: Desk, count: int) -> None:
    """Also if __consumer_offsets does not exist yet."""
    desk.core.shards.clear()
    desk.core.partition_count = count
    assert desk.join().error is ErrorCode.NOT_COORDINATOR
    assert desk.heartbeat("m", 1) is ErrorCode.NOT_COORDINATOR
    assert desk.describe().error_code == ErrorCode.NOT_COORDINATOR
    assert desk.call(apis.LIST_GROUPS, 4, {}).error is NONE


def test_resigning_answers_all_waiting_requests(desk: Desk) -> None:
    leader, follower = completing(desk)
    parked = desk.sync(follower)
    joining = desk.join(desk.new_id("h"), "h")
    desk.held = []
    committing = desk.commit(OFFSETS, group="i")
    led = desk.sync(leader, {})
    for partition in range(4):
        desk.step(lambda step, p=partition: desk.core.resign(p, step))
    gone = ErrorCode.NOT_COORDINATOR
    assert [parked.error, led.error, joining.error] == [gone] * 3
    assert codes(committing) == [gone]
    desk.release()
    assert desk.state() == "" and desk.describe().error_code == gone


def test_subscriptions_are_read() -> None:
    """A group knows which topics its members use."""
    desk = Desk()
    desk.stable(2, protocols=[("range", subscription("a", "b"))])
    (shard,) = (s for s in desk.core.shards.values() if s.groups)
    assert shard.groups["g"].topics == {"a", "b"}


def lead_again(desk: Desk, partition: int, step: Step) -> None:
    """Lead the partition again, in epoch 7, for which no earlier decision was made."""
    desk.core.resign(partition, step)
    desk.core.begin_load(partition, 4, 7)
    desk.core.end_load(desk.core.new_shard(partition, 7), step)


def test_decisions_are_not_appended_in_the_next_epoch(desk: Desk) -> None:
    """Even if the partition is lost and read again in the same step."""
    desk.later.append(lambda step: lead_again(desk, partition_for("g", 4), step))
    assert codes(desk.commit(OFFSETS)) == [ErrorCode.NOT_COORDINATOR]
    assert not any(desk.journal.batches.values())
    desk.held = []
    assert desk.commit(OFFSETS).waits
    assert [append.epoch for append in desk.held] == [7]


def test_a_continuing_leader_appends_in_the_next_epoch(desk: Desk) -> None:
    """It keeps its state."""
    assert codes(desk.commit(OFFSETS)) == [NONE]
    desk.held = []
    assert desk.commit(OFFSETS).waits
    partition = partition_for("g", 4)
    desk.step(lambda step: desk.core.lead_on(partition, EPOCH + 1, step))
    assert desk.commit(OFFSETS).waits
    assert [append.epoch for append in desk.held] == [EPOCH, EPOCH + 1]
    assert desk.offsets() == OFFSETS
