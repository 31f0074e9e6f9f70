"""Members of the classic protocol and members that heartbeat (KIP-848) in one group, which
is upgraded and downgraded with its members."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL
from tests.unit.coordinator.consumer_calls import MODERN, ConsumerDesk, given
from tests.unit.coordinator.group_calls import config, subscription
from tests.unit.coordinator.migration_calls import (
    CLASSIC,
    NONE,
    NOT_FOUND,
    REBALANCE,
    UNKNOWN,
    assigned,
    classic_group,
    kinds,
    mixed,
    of_policy,
    owning,
    rejoin,
    snapshot,
    told,
    understood,
)


@pytest.fixture
def desk() -> ConsumerDesk:
    return of_policy("bidirectional")


# ---- upgrade -------------------------------------------------------------------------------


def test_the_first_member_that_heartbeats_upgrades_a_classic_group(desk: ConsumerDesk) -> None:
    """The others keep their partitions until they rejoin; the generation is the epoch."""
    first, second = classic_group(desk)
    entered = desk.enter("new")
    assert (entered.error, entered.member_epoch, given(entered)) == (NONE, 2, {})
    assert desk.listed()["g"].group_type == "consumer"
    described = desk.described()
    types = {one.member_id: (one.member_type, one.member_epoch) for one in described.members}
    assert types == {first: (0, 1), second: (0, 1), "new": (1, 2)}
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    assert sorted(assigned(desk)[first] + assigned(desk)[second]) == [0, 1, 2, 3]
    assert desk.describe("g", 6).error_code == NOT_FOUND


def test_an_upgraded_group_is_loaded_as_it_was(desk: ConsumerDesk) -> None:
    """Its classic members keep their protocols and session timeouts."""
    first, second = classic_group(desk)
    desk.enter("new")
    before = desk.described()
    desk.restart()
    assert desk.described() == before
    assert "GroupMetadata" not in kinds(desk)
    assert desk.heartbeat(first, 1) is REBALANCE
    joined, parts = rejoin(desk, second)
    assert joined.generation_id == 2
    assert len(parts) <= 2


def test_classic_members_give_partitions_up_by_joining_again(desk: ConsumerDesk) -> None:
    """One partition of four goes to the new member, when its owner has joined without it."""
    first, second = classic_group(desk)
    epoch = desk.enter("new").member_epoch
    for member_id in (first, second):
        assert desk.heartbeat(member_id, 1) is REBALANCE
        owned = assigned(desk)[member_id]
        joined, parts = rejoin(desk, member_id, *owned)
        if joined.generation_id == 1:  # it has something to give up, and does so
            assert set(parts) < set(owned)
            assert desk.heartbeat(member_id, 1) is REBALANCE
            joined, _ = rejoin(desk, member_id, *parts)
        assert joined.generation_id == 2
        assert desk.heartbeat(member_id, 2) is NONE
    assert given(desk.beat("new", epoch)) is not None
    assert desk.described().group_state == "Stable"
    parts = [one for some in assigned(desk).values() for one in some]
    assert sorted(parts) == [0, 1, 2, 3]
    assert all(assigned(desk).values())


def test_an_eager_member_gives_all_up_when_it_joins(desk: ConsumerDesk) -> None:
    """Its subscription names no partitions; it gets its part at once, or as soon as it is free."""
    (member_id,) = classic_group(desk, 1)
    epoch = desk.enter("new").member_epoch
    joined, parts = rejoin(desk, member_id)
    assert (joined.generation_id, len(parts)) == (2, 2)
    assert given(desk.beat("new", epoch)) == {"1": sorted({0, 1, 2, 3} - set(parts))}


def test_a_classic_member_rejoins_for_partitions_that_became_free(desk: ConsumerDesk) -> None:
    desk.members("a")
    member_id = desk.new_id(protocols=CLASSIC)
    joined, parts = rejoin(desk, member_id)
    assert parts == []
    assert desk.heartbeat(member_id, joined.generation_id) is NONE
    freed = given(desk.beat("a", 2))
    assert freed is not None
    desk.beat("a", 2, {"t": freed["1"]})
    assert desk.heartbeat(member_id, joined.generation_id) is REBALANCE
    joined, parts = rejoin(desk, member_id)
    assert len(parts) == 2
    assert desk.heartbeat(member_id, joined.generation_id) is NONE


def test_members_that_wait_for_a_generation_are_told_to_rejoin(desk: ConsumerDesk) -> None:
    """By JoinGroup and by SyncGroup."""
    first, second = classic_group(desk)
    waits = desk.join(desk.new_id(protocols=CLASSIC), protocols=CLASSIC)
    assert waits.waits
    assert desk.enter("new").error is NONE
    assert waits.error is REBALANCE
    desk.restart()
    assert {first, second} < set(assigned(desk))

    other = of_policy("upgrade")
    first, second = classic_group(other)
    joined = [other.join(one, protocols=CLASSIC, session_ms=9_000) for one in (first, second)]
    joined = [one for one in joined if not one.waits] or joined
    follower = next(one for one in joined if one.member_id != one.leader)
    waits = other.sync(follower)
    assert waits.waits
    assert other.enter("new").error is NONE
    assert waits.error is REBALANCE


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_without_upgrades_refuses_the_first_member(policy: str) -> None:
    desk = of_policy(policy)
    classic_group(desk)
    before = snapshot(desk)
    assert desk.enter("new").error is NOT_FOUND
    assert snapshot(desk) == before


def other_type(desk: ConsumerDesk) -> None:
    replies = [desk.join(desk.new_id(protocol_type="connect"), protocol_type="connect")]
    desk.wait(2 * desk.settings.group_initial_rebalance_delay_ms)
    desk.sync(replies[0], {replies[0].member_id: b""}, protocol_type="connect")


def malformed(desk: ConsumerDesk) -> None:
    classic_group(desk, 1, protocols=[("range", b"\0")])


def unreadable_assignment(desk: ConsumerDesk) -> None:
    desk.stable(1, protocols=CLASSIC)


def own_data(desk: ConsumerDesk) -> None:
    joined = desk.join(desk.new_id(protocols=CLASSIC), protocols=CLASSIC)
    desk.wait(2 * desk.settings.group_initial_rebalance_delay_ms)
    kept = CONSUMER_PROTOCOL.encode_assignment(0, {"assigned_partitions": [], "user_data": b"x"})
    desk.sync(joined, {joined.member_id: kept})


@pytest.mark.parametrize("begin", [other_type, malformed, unreadable_assignment, own_data])
def test_a_group_that_cannot_be_read_stays_as_it_is(desk: ConsumerDesk, begin: Any) -> None:
    """It has another protocol type, other metadata, or an assignor with data of its own."""
    begin(desk)
    before, weight = snapshot(desk), desk.core.weight.bytes
    refused = desk.enter("new")
    assert (refused.error, refused.member_id) == (NOT_FOUND, None)
    assert snapshot(desk) == before
    desk.restart()
    desk.delete("none")
    assert snapshot(desk)[:3] == before[:3]
    assert desk.core.weight.bytes <= weight + 10_000


def test_a_group_that_is_too_large_is_not_upgraded() -> None:
    desk = of_policy("bidirectional", group_consumer_max_size=1)
    classic_group(desk)
    assert desk.enter("new").error is NOT_FOUND
    assert desk.listed()["g"].group_type == "classic"


def test_a_refused_first_member_leaves_the_classic_group(desk: ConsumerDesk) -> None:
    """Its pattern is refused after the group was converted: that is undone, with what waits."""
    first, second = classic_group(desk)
    waits = desk.join(desk.new_id(protocols=CLASSIC), protocols=CLASSIC)
    before, weight = snapshot(desk), desk.core.weight.bytes
    assert desk.enter("new", subscribed_topic_regex="(").error
    assert snapshot(desk) == before
    assert waits.waits
    assert desk.core.weight.bytes <= weight + 5_000
    for member_id in (first, second):
        desk.join(member_id, protocols=CLASSIC)
    assert (waits.error, waits.generation_id) == (NONE, 2)


def test_the_first_generation_comes_before_an_upgrade(desk: ConsumerDesk) -> None:
    """A member that heartbeats comes again once it is complete."""
    joined = desk.join(desk.new_id(protocols=CLASSIC), protocols=CLASSIC)
    assert desk.enter("new").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.wait(2 * desk.settings.group_initial_rebalance_delay_ms)
    assert joined.error is NONE
    assert desk.enter("new").error is NONE


# ---- classic members in a consumer group ---------------------------------------------------


def test_a_classic_member_joins_members_that_heartbeat(desk: ConsumerDesk) -> None:
    desk.members("a")
    asked = desk.join(protocols=CLASSIC)
    assert asked.error is ErrorCode.MEMBER_ID_REQUIRED
    joined = desk.join(asked.member_id, protocols=CLASSIC, rebalance_ms=40_000)
    assert (joined.error, joined.generation_id, joined.protocol_type) == (NONE, 3, "consumer")
    assert (joined.protocol_name, joined.leader, joined.members) == ("range", "", [])
    assert kinds(desk)["ConsumerGroupMemberMetadata"] == 2
    early = desk.join(version=2, protocols=CLASSIC)
    assert early.error is NONE


@pytest.mark.parametrize("version", [0, 1, 4, 6, 9])
def test_each_version_of_join_group_is_answered(desk: ConsumerDesk, version: int) -> None:
    desk.members("a")
    assert desk.join(version=version, protocols=CLASSIC, protocol_type="other").error
    assert desk.join(version=version, session_ms=1, protocols=CLASSIC).error
    joined = desk.join("named", version=version, protocols=CLASSIC)
    assert joined.error is NONE
    assert desk.sync(joined, version=min(version, 5)).error is NONE


def test_requests_of_classic_members_are_checked(desk: ConsumerDesk) -> None:
    """Ids, generations, protocols; members that heartbeat have other requests."""
    desk.members("a")
    joined = desk.join("b", protocols=CLASSIC)
    later = joined.generation_id + 1
    assert desk.heartbeat("none", 1) is UNKNOWN
    assert desk.heartbeat("a", 2) is UNKNOWN
    assert desk.heartbeat("b", later) is ErrorCode.ILLEGAL_GENERATION
    assert desk.heartbeat("b", 3, instance="none") is UNKNOWN
    assert desk.sync(joined, generation_id=later).error is ErrorCode.ILLEGAL_GENERATION
    for other in ({"protocol_type": "x"}, {"protocol_name": "x"}, {"protocol_name": None}):
        assert desk.sync(joined, **other).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = [
        desk.join("c", protocols=[("other", subscription("t"))]),
        desk.join("c", protocols=CLASSIC, protocol_type="x"),
        desk.join("c", protocols=[]),
    ]
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert [one.error for one in refused] == [inconsistent] * 3
    broken = desk.join("c", protocols=[("range", b"\0\7x")])
    assert broken.error is inconsistent
    assert set(assigned(desk)) == {"a", "b"}


def test_classic_members_commit_by_their_generation(desk: ConsumerDesk) -> None:
    """A later or earlier one is refused with the error that they know."""
    (member_id,) = classic_group(desk, 1)
    desk.commit({("t", 0): 1}, member_id, 1)
    desk.enter("new")
    results = {}
    for generation in (0, 1, 2):
        (topic,) = desk.commit({("t", 0): 7}, member_id, generation, version=8).topics
        results[generation] = topic.partitions[0].error_code
    illegal = ErrorCode.ILLEGAL_GENERATION
    assert results == {0: illegal, 1: NONE, 2: illegal}
    assert desk.offsets() == {("t", 0): 7}
    assert desk.commit({("t", 0): 8}, "", -1).topics[0].partitions[0].error_code == UNKNOWN


def test_the_session_of_a_classic_member_is_its_own(desk: ConsumerDesk) -> None:
    """Members that heartbeat have that of the group."""
    desk.members("a")
    joined, _ = rejoin(desk, "b", session_ms=7_000)
    desk.wait(6_000)
    assert desk.heartbeat("b", joined.generation_id) is NONE
    desk.beat("a", 3)
    desk.wait(6_999)
    assert "b" in assigned(desk)
    desk.beat("a", 3)
    desk.wait(1)
    assert set(assigned(desk)) == {"a"}


def test_a_classic_member_that_does_not_ask_for_its_part_is_removed(desk: ConsumerDesk) -> None:
    """After its rebalance timeout, though it sends heartbeats."""
    desk.members("a")
    joined = desk.join("b", protocols=CLASSIC, rebalance_ms=8_000)
    for _ in range(4):
        desk.wait(2_000)
        desk.heartbeat("b", joined.generation_id)
        desk.beat("a", 2)
    assert set(assigned(desk)) == {"a"}


def test_a_classic_member_that_does_not_rejoin_is_removed(desk: ConsumerDesk) -> None:
    """The time begins when it was told to."""
    (member_id,) = classic_group(desk, 1, rebalance_ms=8_000)
    epoch = desk.enter("new").member_epoch
    for _ in range(4):
        assert desk.heartbeat(member_id, 1) is REBALANCE
        desk.wait(2_000)
        epoch = desk.beat("new", epoch).member_epoch
    assert set(assigned(desk)) == {"new"}


def test_classic_members_leave(desk: ConsumerDesk) -> None:
    desk.members("a")
    rejoin(desk, "b")
    left = desk.leave(("b", None), ("c", None))
    assert [row.error_code for row in left.members] == [NONE, UNKNOWN]
    assert set(assigned(desk)) == {"a"}
    assert desk.heartbeat("b", 3) is UNKNOWN


def test_a_topic_that_grows_makes_classic_members_rejoin(desk: ConsumerDesk) -> None:
    (member_id,) = classic_group(desk, 1)
    desk.enter("new")
    joined, _ = rejoin(desk, member_id)
    desk.change_topic("t", 8)
    desk.beat("new", 2)
    assert desk.heartbeat(member_id, joined.generation_id) is REBALANCE


def test_a_full_group_takes_no_classic_member() -> None:
    desk = of_policy("bidirectional", group_consumer_max_size=1)
    desk.members("a")
    assert desk.join("b", protocols=CLASSIC).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_memory_that_is_used_up_takes_no_classic_member() -> None:
    desk = of_policy("bidirectional", kafkalog_groups_max_bytes=12_000)
    desk.members("a")
    large = [("range", subscription(*(f"topic-{n}" for n in range(80))))]
    assert desk.join("b", protocols=large).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert set(assigned(desk)) == {"a"}


# ---- downgrade -----------------------------------------------------------------------------


def leaves(desk: ConsumerDesk) -> None:
    assert desk.beat("new", -1).error is NONE


def is_removed(desk: ConsumerDesk) -> None:
    assert desk.leave(("new", None)).members[0].error_code == NONE


def expires(desk: ConsumerDesk) -> None:
    ids = [one.member_id for one in desk.described().members if one.member_type == 0]
    for _ in range(5):
        desk.wait(2_000)
        for member_id in ids:
            desk.heartbeat(member_id, 2)


@pytest.mark.parametrize("go", [leaves, is_removed, expires])
def test_the_last_member_that_heartbeats_downgrades_its_group(desk: ConsumerDesk, go: Any) -> None:
    """The others rebalance, with the group epoch as their generation."""
    first, second = mixed(desk)
    before = assigned(desk)
    go(desk)
    listed = desk.listed()["g"]
    assert (listed.group_type, listed.group_state) == ("classic", "PreparingRebalance")
    described = {one.member_id: one for one in desk.describe().members}
    assert {first, second} == set(described)
    for member_id in (first, second):
        assert understood(described[member_id].member_assignment)["t"] == before[member_id]
        assert desk.heartbeat(member_id, 2) is REBALANCE
    assert kinds(desk) == {"GroupMetadata": 1}
    replies = [desk.join(one, protocols=CLASSIC) for one in (first, second)]
    assert [one.generation_id for one in replies] == [3, 3]
    desk.restart()
    assert (desk.state(), len(desk.describe().members)) == ("PreparingRebalance", 2)


@pytest.mark.parametrize("go", [leaves, is_removed, expires])
def test_a_downgraded_group_rebalances_after_its_coordinator_moved(
    desk: ConsumerDesk, go: Any
) -> None:
    """Its record has nobody with the partitions of the member that is gone."""
    ids = mixed(desk)
    go(desk)
    desk.restart()
    assert desk.state() == "PreparingRebalance"
    assert [desk.heartbeat(one, 2) for one in ids] == [REBALANCE] * 2
    replies = [desk.join(one, protocols=CLASSIC) for one in ids]
    for reply in sorted(replies, key=lambda one: one.member_id == one.leader):
        desk.sync(reply, {one: told(n, n + 2) for n, one in enumerate(ids)})
    desk.restart()
    assert desk.state() == "Stable", "once is enough"
    assert [desk.heartbeat(one, 3) for one in ids] == [NONE] * 2


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_a_policy_without_downgrades_keeps_the_group(policy: str) -> None:
    desk = of_policy("bidirectional")
    first, second = mixed(desk)
    desk.settings = config(**{**MODERN, "group_consumer_migration_policy": policy})
    desk.restart()
    desk.beat("new", -1)
    assert set(assigned(desk)) == {first, second}
    assert desk.listed()["g"].group_type == "consumer"
    joined = desk.join(first, protocols=CLASSIC)
    refused = policy == "disabled"
    assert joined.error is (ErrorCode.INCONSISTENT_GROUP_PROTOCOL if refused else NONE)


def test_a_group_that_is_too_large_for_classic_ones_is_kept() -> None:
    desk = of_policy("bidirectional")
    mixed(desk)
    desk.settings = config(**{**MODERN, "group_max_size": 1})
    desk.restart()
    desk.beat("new", -1)
    assert desk.listed()["g"].group_type == "consumer"


def test_a_group_goes_there_and_back(desk: ConsumerDesk) -> None:
    """Its offsets stay."""
    first, second = mixed(desk)
    desk.commit({("t", 0): 5}, first, 2)
    desk.beat("new", -1)
    replies = [desk.join(one, protocols=CLASSIC) for one in (first, second)]
    shares = {first: told(0, 1), second: told(2, 3)}
    for reply in sorted(replies, key=lambda one: one.member_id == one.leader):
        desk.sync(reply, shares)
    assert desk.state() == "Stable"
    assert desk.enter("again").member_epoch == 4
    assert desk.offsets() == {("t", 0): 5}
    assert assigned(desk) == {first: [0, 1], second: [2, 3], "again": []}
    desk.restart()
    assert assigned(desk) == {first: [0, 1], second: [2, 3], "again": []}
    for member_id in (first, second):
        desk.leave((member_id, None))
    desk.beat("again", -1)
    assert desk.listed()["g"].group_state == "Empty"
    assert desk.delete("g").results[0].error_code == NONE
    desk.restart()
    assert desk.listed() == {}


def test_the_last_classic_member_leaves_an_empty_group(desk: ConsumerDesk) -> None:
    (member_id,) = classic_group(desk, 1)
    desk.enter("new")
    desk.leave((member_id, None), ("new", None))
    assert desk.listed()["g"].group_type == "consumer"
    assert desk.listed()["g"].group_state == "Empty"


# ---- static members ------------------------------------------------------------------------


def test_a_static_classic_member_is_replaced_by_one_that_heartbeats(desk: ConsumerDesk) -> None:
    """It keeps its partitions; the process with the old id is fenced."""
    joined = desk.join(protocols=CLASSIC, instance="one")
    desk.wait(2 * desk.settings.group_initial_rebalance_delay_ms)
    desk.sync(joined, {joined.member_id: told(0, 1, 2, 3)}, instance="one")
    old = joined.member_id
    entered = desk.enter("new", instance_id="one")
    assert (entered.error, given(entered)) == (NONE, {"1": [0, 1, 2, 3]})
    assert set(assigned(desk)) == {"new"}
    fenced = desk.heartbeat(old, 1, instance="one")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
    assert desk.listed()["g"].group_type == "consumer"


def test_a_static_classic_member_replaces_the_last_that_heartbeats(desk: ConsumerDesk) -> None:
    """The group is downgraded without a rebalance: it has the same partitions."""
    desk.enter("new", instance_id="one")
    rejoin(desk, "b")
    epoch = desk.beat("new", 2, {"t": [0, 1]}, instance_id="one").member_epoch
    epoch = desk.beat("new", epoch, {"t": [0, 1]}, instance_id="one").member_epoch
    rejoin(desk, "b")
    before = assigned(desk)
    joined = desk.join(protocols=owning(*before["new"]), instance="one")
    assert (joined.error, joined.generation_id) == (NONE, epoch)
    listed = desk.listed()["g"]
    assert (listed.group_type, listed.group_state) == ("classic", "Stable")
    synced = desk.sync(joined, instance="one")
    assert understood(synced.assignment) == {"t": before["new"]}
    assert desk.heartbeat("b", epoch) is NONE
    assert kinds(desk) == {"GroupMetadata": 1}
    desk.restart()
    assert desk.heartbeat(joined.member_id, epoch, instance="one") is NONE


def test_a_replacement_that_subscribes_to_other_topics_is_followed_by_a_rebalance(
    desk: ConsumerDesk,
) -> None:
    desk.enter("new", instance_id="one")
    rejoin(desk, "b")
    desk.join(protocols=[("range", subscription("t", "u"))], instance="one")
    listed = desk.listed()["g"]
    assert (listed.group_type, listed.group_state) == ("classic", "PreparingRebalance")


def test_a_static_member_is_replaced_among_members_that_heartbeat(desk: ConsumerDesk) -> None:
    """By a classic one; then by another classic one."""
    desk.members("a")
    desk.enter("new", instance_id="one")
    first = desk.join(protocols=CLASSIC, instance="one")
    assert first.error is NONE
    assert "new" not in assigned(desk)
    second = desk.join(protocols=CLASSIC, instance="one")
    assert second.error is NONE
    fenced = desk.join(first.member_id, protocols=CLASSIC, instance="one")
    assert fenced.error is ErrorCode.FENCED_INSTANCE_ID
    unknown = desk.join("x", protocols=CLASSIC, instance="two")
    assert unknown.error is UNKNOWN
    left = desk.leave(("", "one"))
    assert left.members[0].error_code == NONE


# ---- found by the simulation ---------------------------------------------------------------


def test_partitions_of_the_dead_are_assigned_among_classic_members() -> None:
    """Also when nobody joins, in a group that stays a consumer group."""
    desk = of_policy("upgrade", group_consumer_assignment_interval_ms=1_000)
    first, second = mixed(desk)
    desk.beat("new", -1)
    assert desk.heartbeat(first, 2) is NONE or desk.described().group_epoch > 2
    desk.wait(1_000)
    assert desk.heartbeat(first, 2) is REBALANCE
    assert desk.heartbeat(second, 2) is REBALANCE
    parts = [rejoin(desk, one)[1] for one in (first, second)]
    assert sorted(parts[0] + parts[1]) == [0, 1, 2, 3]


def test_a_downgraded_member_keeps_its_partitions_until_it_joins(desk: ConsumerDesk) -> None:
    """The next member that heartbeats does not get what it still reads."""
    (member_id,) = classic_group(desk, 1)
    desk.enter("new")
    desk.beat("new", -1)
    described = desk.describe().members[0]
    assert understood(described.member_assignment) == {"t": [0, 1, 2, 3]}
    entered = desk.enter("again")
    assert (entered.error, given(entered)) == (NONE, {})
    assert assigned(desk)[member_id] == [0, 1, 2, 3]


def test_a_replacement_among_members_on_their_way_is_followed_by_a_rebalance(
    desk: ConsumerDesk,
) -> None:
    """Another classic member has not got its part yet."""
    desk.enter("new", instance_id="one")
    rejoin(desk, "b")
    desk.join(protocols=owning(0, 1, 2, 3), instance="one")
    listed = desk.listed()["g"]
    assert (listed.group_type, listed.group_state) == ("classic", "PreparingRebalance")
