"""Rebalances from start to end, as consumers see them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.runtime import STRING_BYTES_MAX
from tests.unit.coordinator.group_calls import Desk, config, subscription
from tests.unit.coordinator.test_states import codes

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
FENCED = ErrorCode.FENCED_INSTANCE_ID


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_first_member(desk: Desk) -> None:
    given = desk.join()
    assert given.error is ErrorCode.MEMBER_ID_REQUIRED
    assert given.member_id.startswith("client-")
    joined = desk.join(given.member_id)
    desk.wait(2_999)
    assert joined.waits
    desk.wait(1)
    assert (joined.error, joined.generation_id, joined.protocol_name) == (NONE, 1, "range")
    assert joined.leader == joined.member_id == given.member_id
    assert [m.member_id for m in joined.members] == [given.member_id]
    assert desk.state() == "CompletingRebalance"
    desk.held = []
    synced = desk.sync(joined, {joined.member_id: b"all"})
    assert synced.waits and desk.state() == "CompletingRebalance"
    desk.release()
    assert synced.assignment == b"all"
    assert desk.state() == "Stable"


def test_members_that_come_together_share_the_first_generation(desk: Desk) -> None:
    """Each newcomer extends the delay, up to the rebalance timeout."""
    replies = []
    for _ in range(10):
        replies.append(desk.join(desk.new_id(rebalance_ms=20_000), rebalance_ms=20_000))
        desk.wait(2_500)
    assert not any(reply.waits for reply in replies[:8])
    assert replies[0].generation_id == 1
    assert len(replies[0].members) == 8  # it starts at 20 s, with all members that joined by then


def test_second_member_joins_a_stable_group(desk: Desk) -> None:
    (first,) = desk.stable(1)
    second = desk.join(desk.new_id())
    assert desk.heartbeat(first.member_id, 1) is REBALANCE
    assert codes(desk.commit({("t", 0): 3}, first.member_id, 1)) == [NONE]
    again = desk.join(first.member_id)
    assert [again.generation_id, second.generation_id] == [2, 2]
    desk.settle([again, second])
    assert desk.state() == "Stable"


def test_a_member_leaves(desk: Desk) -> None:
    stays, leaves = desk.stable(2)
    desk.leave((leaves.member_id, None))
    assert desk.heartbeat(stays.member_id, 1) is REBALANCE
    again = desk.join(stays.member_id)
    assert again.generation_id == 2
    desk.settle([again])


def test_a_member_crashes(desk: Desk) -> None:
    alive, crashed = desk.stable(2)
    for _ in range(4):
        desk.wait(3_000)
        last = desk.heartbeat(alive.member_id, 1)
    assert last is REBALANCE
    assert desk.join(alive.member_id).generation_id == 2
    assert desk.heartbeat(crashed.member_id, 1) is UNKNOWN
    assert codes(desk.commit({("t", 0): 3}, crashed.member_id, 1)) == [UNKNOWN]
    assert desk.join(crashed.member_id).error is UNKNOWN


def test_a_member_is_slow_to_rejoin(desk: Desk) -> None:
    """Its heartbeats keep it alive, but the others wait no longer than the rebalance timeout."""
    quick, slow = desk.stable(2)
    again = desk.join(quick.member_id)
    for _ in range(11):
        desk.wait(5_000)
        assert desk.heartbeat(slow.member_id, 1) is REBALANCE
    assert again.waits
    desk.wait(5_000)
    assert (again.generation_id, len(again.members)) == (2, 1)
    assert desk.join(slow.member_id).error is UNKNOWN
    assert desk.join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_commit_during_a_rebalance(desk: Desk) -> None:
    first, second = desk.stable(2)
    again = desk.join(first.member_id)
    assert codes(desk.commit({("t", 0): 3}, second.member_id, 1)) == [NONE]
    other = desk.join(second.member_id)
    assert codes(desk.commit({("t", 0): 4}, second.member_id, 2)) == [REBALANCE]
    desk.settle([again, other])
    assert codes(desk.commit({("t", 0): 4}, second.member_id, 2)) == [NONE]
    assert desk.offsets() == {("t", 0): 4}


def test_the_leader_never_syncs(desk: Desk) -> None:
    """It keeps its heartbeats up, and is removed after the rebalance timeout."""
    ids = [desk.new_id(), desk.new_id()]
    leader, follower = (desk.join(each) for each in ids)
    desk.wait(9_000)
    begun = desk.now_ms - 3_000
    parked = desk.sync(follower)
    while parked.waits:
        desk.wait(1_000)
        desk.heartbeat(leader.member_id, 1)
        assert desk.now_ms - begun <= 70_000
    assert parked.error is REBALANCE
    assert desk.heartbeat(leader.member_id, 1) is UNKNOWN
    assert desk.join(follower.member_id).leader == follower.member_id


def static_pair(desk: Desk, **join: Any) -> list[Any]:
    """Two static members, a stable group."""
    replies = [desk.join(instance=name, **join) for name in ("a", "b")]
    desk.wait(9_000)
    desk.settle(replies)
    return replies


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_member_restarts(desk: Desk, version: int) -> None:
    """No rebalance: it gets a new id and the old assignment; the old id is fenced."""
    leader, follower = static_pair(desk, version=version)
    for old, name in ((follower, "b"), (leader, "a")):
        new = desk.join(instance=name, version=version)
        assert (new.error, new.generation_id) == (NONE, 1)
        assert new.member_id != old.member_id
        assert desk.state() == "Stable"
        assert desk.sync(new, instance=name, version=4).assignment == old.member_id.encode()
        assert desk.heartbeat(old.member_id, 1, instance=name) is FENCED
        assert desk.join(old.member_id, instance=name, version=version).error is FENCED
        assert desk.heartbeat(new.member_id, 1, instance=name) is NONE
    # The leader: an old client must not compute an assignment; a new one has skip_assignment.
    assert new.skip_assignment is (version >= 9)
    assert (new.leader == new.member_id) is (version >= 9)
    assert len(new.members) == (2 if version >= 9 else 0)
    desk.restart()
    assert desk.heartbeat(new.member_id, 1, instance="a") is NONE


def test_a_static_member_comes_back_with_other_topics(desk: Desk) -> None:
    """This causes a rebalance; otherwise nobody would read them."""
    metadata = [("range", subscription("t"))]
    static_pair(desk, protocols=metadata)
    assert desk.join(instance="b", protocols=metadata).error is NONE
    assert desk.state() == "Stable"
    assert desk.join(instance="b", protocols=[("range", subscription("t", "u"))]).waits
    assert desk.state() == "PreparingRebalance"


def test_a_static_members_new_id_cannot_be_written(desk: Desk) -> None:
    """The old id stays valid, and the new process may retry."""
    _, follower = static_pair(desk)
    desk.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert desk.join(instance="b").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.heartbeat(follower.member_id, 1, instance="b") is NONE
    assert desk.join(instance="b").error is NONE
    assert desk.heartbeat(follower.member_id, 1, instance="b") is FENCED


def test_a_static_member_that_stays_away(desk: Desk) -> None:
    """The group waits for its session timeout, not just for the rebalance timeout."""
    leader, _ = static_pair(desk, session_ms=100_000, rebalance_ms=10_000)
    again = desk.join(leader.member_id, instance="a", session_ms=100_000, rebalance_ms=10_000)
    desk.wait(10_000)
    assert (again.generation_id, len(again.members)) == (2, 2)
    desk.sync(again, {})
    for _ in range(11):
        desk.wait(9_000)
        state = desk.heartbeat(leader.member_id, 2, instance="a")
    assert state is REBALANCE


def test_two_processes_with_one_instance_id(desk: Desk) -> None:
    """Each join fences the other."""
    (first,) = [desk.join(instance="a")]
    second = desk.join(instance="a")
    assert first.error is FENCED
    desk.wait(6_000)
    desk.settle([second])
    third = desk.join(instance="a")
    assert desk.heartbeat(second.member_id, 1, instance="a") is FENCED
    assert desk.join(second.member_id, instance="a").error is FENCED
    assert desk.heartbeat(third.member_id, 1, instance="a") is NONE


def test_an_administrator_removes_a_static_member(desk: Desk) -> None:
    leader, _ = static_pair(desk)
    left = desk.leave(("", "b"), ("", "nobody"), (leader.member_id, "b"), ("", None))
    assert [m.error_code for m in left.members] == [NONE, UNKNOWN, FENCED, UNKNOWN]
    assert desk.state() == "PreparingRebalance"


def test_the_coordinator_restarts(desk: Desk) -> None:
    """Members continue with heartbeats; their sessions start again."""
    first, second = desk.stable(2)
    desk.commit({("t", 0): 9}, first.member_id, 1)
    desk.wait(9_999)
    desk.restart()
    desk.wait(9_999)
    assert desk.heartbeat(first.member_id, 1) is NONE
    assert desk.sync(first).assignment == first.member_id.encode()
    assert desk.offsets() == {("t", 0): 9}
    desk.wait(1)
    assert desk.heartbeat(second.member_id, 1) is UNKNOWN
    assert desk.heartbeat(first.member_id, 1) is REBALANCE


def test_a_restart_in_the_middle_of_a_rebalance(desk: Desk) -> None:
    """The previous generation is restored; the number of the new one was never written."""
    first, second = desk.stable(2)
    again = [desk.join(m.member_id) for m in (first, second)]
    assert [reply.generation_id for reply in again] == [2, 2]
    desk.restart()
    assert desk.heartbeat(first.member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    assert desk.sync(again[0], {}).error is ErrorCode.ILLEGAL_GENERATION
    assert desk.heartbeat(first.member_id, 1) is NONE


def test_partitions_are_added(desk: Desk) -> None:
    """The leader sees them in its metadata and joins again."""
    leader, follower = desk.stable(2)
    again = desk.join(leader.member_id)
    assert desk.heartbeat(follower.member_id, 1) is REBALANCE
    other = desk.join(follower.member_id)
    assert (again.generation_id, other.generation_id) == (2, 2)


def test_the_last_member_leaves(desk: Desk) -> None:
    """The group gets a new, empty generation; offsets stay, also after a restart."""
    (member,) = desk.stable(1)
    desk.commit({("t", 0): 9}, member.member_id, 1)
    desk.leave((member.member_id, None))
    assert desk.state() == "Empty"
    desk.restart()
    assert desk.state() == "Empty"
    assert desk.offsets() == {("t", 0): 9}
    (again,) = desk.stable(1)
    assert again.generation_id == 3


# ---- who may join --------------------------------------------------------------------------


def test_a_group_is_full() -> None:
    desk = Desk(config(group_max_size=2))
    first, second = desk.stable(2)
    assert desk.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.join().member_id == ""
    assert desk.join(second.member_id).error is NONE
    again = desk.join(first.member_id)
    assert desk.join(second.member_id).error is NONE
    assert again.generation_id == 2


def test_a_static_member_comes_back_to_a_full_group() -> None:
    """It takes its old place."""
    desk = Desk(config(group_max_size=2))
    static_pair(desk)
    assert desk.join(instance="c").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.join(instance="b").error is NONE
    assert desk.state() == "Stable"


def test_a_loaded_group_that_is_too_large_shrinks() -> None:
    desk = Desk()
    members = desk.stable(3)
    desk.settings = config(group_max_size=2)
    desk.restart()
    assert desk.state() == "PreparingRebalance"
    replies = [desk.join(m.member_id) for m in members]
    assert replies[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [reply.generation_id for reply in replies[:2]] == [2, 2]


def test_an_id_that_was_given_out_expires(desk: Desk) -> None:
    """Others wait for it only until its session timeout."""
    (member,) = desk.stable(1, session_ms=20_000)
    lost = desk.new_id(session_ms=10_000)
    again = desk.join(member.member_id, session_ms=20_000)
    assert again.waits
    desk.wait(10_000)
    assert again.generation_id == 2
    assert desk.join(lost).error is UNKNOWN


def test_the_first_join_of_a_member_expires(desk: Desk) -> None:
    """A join that waits for five minutes expires, whatever its session timeout."""
    stays = [desk.stable(1, rebalance_ms=1_700_000)[0]]
    gone = desk.join(desk.new_id(rebalance_ms=1_700_000), rebalance_ms=1_700_000)
    for _ in range(40):
        desk.wait(7_500)
        if gone.waits:
            assert desk.heartbeat(stays[0].member_id, 1) is REBALANCE
    assert gone.error is UNKNOWN


def test_a_join_that_is_repeated_takes_the_place_of_the_first(desk: Desk) -> None:
    first, second = desk.stable(2)
    one = desk.join(first.member_id)
    two = desk.join(first.member_id)
    assert one.error is REBALANCE
    assert desk.join(second.member_id).generation_id == two.generation_id == 2


def test_writing_the_assignment_fails(desk: Desk) -> None:
    """Every member gets an error and joins again."""
    replies = [desk.join(desk.new_id()) for _ in range(2)]
    desk.wait(9_000)
    parked = desk.sync(replies[1])
    for error, told in (
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        desk.errors = [error]
        led = desk.sync(replies[0], {})
        assert (led.error, parked.error) == (told, told)
        assert desk.state() == "PreparingRebalance"
        replies = [desk.join(reply.member_id) for reply in replies]
        parked = desk.sync(replies[1])
    desk.sync(replies[0], {})
    assert parked.error is NONE


def test_writing_the_assignment_takes_too_long(desk: Desk) -> None:
    """A late success for an old generation changes nothing."""
    replies = [desk.join(desk.new_id()) for _ in range(2)]
    desk.wait(9_000)
    desk.held = []
    led = desk.sync(replies[0], {replies[1].member_id: b"x"})
    desk.wait(5_000)
    assert led.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.release()
    assert desk.state() == "PreparingRebalance"
    again = [desk.join(reply.member_id) for reply in replies]
    desk.settle(again)
    assert again[0].generation_id == 2


def test_client_ids_as_long_as_a_member_can_have(desk: Desk) -> None:
    """A member id is the client's or the instance's id, a hyphen and a UUID."""
    fits = STRING_BYTES_MAX - 37
    for version in (3, 9):
        assert desk.join(version=version, client_id="é" * 16_366).error is ErrorCode.INVALID_REQUEST
        refused = desk.join(version=version, client_id="x" * (fits + 1))
        assert refused.error is ErrorCode.INVALID_REQUEST
    assert desk.join(instance="i" * (fits + 1)).error is ErrorCode.INVALID_REQUEST
    assert not any(shard.groups for shard in desk.core.shards.values())
    given = desk.join(client_id="x" * fits)
    assert given.error is ErrorCode.MEMBER_ID_REQUIRED
    long = "é" * (STRING_BYTES_MAX // 2 + 1)
    assert desk.join(given.member_id, client_id=long).error is ErrorCode.INVALID_REQUEST
    joined = desk.join(given.member_id, client_id="x" * STRING_BYTES_MAX)
    desk.wait(3_000)
    assert joined.error is NONE
    assert desk.sync(joined, {joined.member_id: b"a"}).assignment == b"a"
    desk.restart()
    assert desk.heartbeat(joined.member_id, 1) is NONE


def test_a_groups_record_cannot_be_encoded(desk: Desk) -> None:
    """As if the journal refused it: the members join again, and the group can end."""
    (member,) = desk.stable(1)
    again = desk.join(member.member_id)
    (group,) = (one for shard in desk.core.shards.values() for one in shard.groups.values())
    kept = group.members[member.member_id]
    kept.client_id = "x" * (STRING_BYTES_MAX + 1)
    synced = desk.sync(again, {again.member_id: b"new"})
    assert synced.error is ErrorCode.UNKNOWN_SERVER_ERROR
    kept.client_id = "client"
    assert not group.writing and desk.state() == "PreparingRebalance"
    again = desk.join(member.member_id)
    assert desk.sync(again, {again.member_id: b"new"}).assignment == b"new"
