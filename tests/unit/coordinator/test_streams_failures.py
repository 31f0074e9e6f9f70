"""Streams groups: failed and slow writes, and what is left of them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.coordinator.groups.group import Group
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.group_calls import subscription
from tests.unit.coordinator.streams_group_calls import StreamsDesk, topology

CLASSIC = [("range", subscription("t"))]


@pytest.fixture
def desk() -> StreamsDesk:
    return StreamsDesk()


def known(desk: StreamsDesk, group: str = "s") -> Group:
    """The coordinator's knowledge about a group."""
    return next(one.groups[group] for one in desk.core.shards.values() if group in one.groups)


def settle(desk: StreamsDesk, held: Any, error: ErrorCode) -> None:
    """A write in progress ends."""
    desk._write(held, error)
    desk.step(lambda step: desk.core.settled(held.number, error, step))


def test_a_failed_write_of_the_classic_group_leaves_later_members(desk: StreamsDesk) -> None:
    """The group's last classic write fails after a member that processes tasks has joined."""
    (member,) = desk.stable(1, group="s", protocols=CLASSIC)
    desk.held = []
    desk.leave((member.member_id, None), group="s")
    joined = desk.come("a")
    classic, newer = desk.held
    desk.held = None
    settle(desk, classic, ErrorCode.NOT_ENOUGH_REPLICAS)
    settle(desk, newer, ErrorCode.NONE)
    desk.heard("a", joined)
    assert joined.error is ErrorCode.NONE
    assert desk.go_on("a").error is ErrorCode.NONE
    assert [one.member_id for one in desk.told().members] == ["a"]


def test_a_group_of_another_type_does_not_come_back_over_later_members(desk: StreamsDesk) -> None:
    """It was a consumer group, then for a moment a classic one, whose write fails too late."""
    desk.enter("old", group="s")
    desk.beat("old", -1, group="s")
    asked = desk.new_id(group="s", protocols=CLASSIC)
    desk.join(asked, group="s", protocols=CLASSIC)
    desk.held = []
    desk.leave((asked, None), group="s")
    desk.wait(desk.settings.group_initial_rebalance_delay_ms)
    joined = desk.come("a")
    classic, newer = desk.held
    desk.held = None
    settle(desk, newer, ErrorCode.NONE)
    settle(desk, classic, ErrorCode.NOT_ENOUGH_REPLICAS)
    desk.heard("a", joined)
    assert desk.go_on("a").error is ErrorCode.NONE
    assert known(desk).newer is known(desk).streams


def test_a_heartbeat_that_waits_is_answered_after_a_write_of_a_classic_group(
    desk: StreamsDesk,
) -> None:
    """The records of a failed write are being restated, as the classic group is written."""
    desk.held = []
    desk.come("a")
    (failed,) = desk.held
    desk.held = None
    desk.step(lambda step: desk.core.settled(failed.number, ErrorCode.NOT_ENOUGH_REPLICAS, step))
    asked = desk.new_id(group="s", protocols=CLASSIC)
    member = desk.join(asked, group="s", protocols=CLASSIC)
    desk.wait(desk.settings.group_initial_rebalance_delay_ms)
    desk.held = []
    first, second = desk.come("b"), desk.come("c")
    synced = desk.sync(member, {asked: b"x"}, group="s")
    desk.release()
    assert synced.error is ErrorCode.NONE
    assert [first.error, second.error] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


def test_the_weight_of_a_group_that_became_a_classic_one_is_given_back(desk: StreamsDesk) -> None:
    """Its topology stays as long as it is an empty streams group."""
    desk.come("a")
    desk.say("a", -1)
    for group in "s", "p":
        (member,) = desk.stable(1, group=group, protocols=CLASSIC)
        desk.leave((member.member_id, None), group=group)
    assert known(desk).weight.bytes == known(desk, "p").weight.bytes


def codes(reply: Any) -> list[int]:
    """The statuses that the members are told."""
    return [one.status_code for one in reply.status]


@pytest.mark.parametrize("present", [["a"], []])
def test_a_stranger_does_not_end_the_application(desk: StreamsDesk, present: list[str]) -> None:
    """Neither the one that runs nor the next one of the group."""
    desk.come("a")
    if not present:
        desk.say("a", -1)
    left = desk.say("stranger", -1, shutdown_application=True)
    assert left.error is ErrorCode.UNKNOWN_MEMBER_ID
    for member in present:
        assert codes(desk.go_on(member)) == []
    assert codes(desk.come("b")) == []


@pytest.mark.parametrize("epoch", [0, -1])
def test_an_end_of_the_application_that_is_not_written_is_forgotten(
    desk: StreamsDesk, epoch: int
) -> None:
    """Its member is told that it failed, and says so again."""
    for member in "a", "b":
        desk.come(member)
    if epoch == 0:
        desk.say("b", -1)
    desk.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    fields = {"process_id": "p", "rebalance_timeout_ms": 30_000, "topology": topology()}
    tasks: dict[str, Any] = {f"{role}_tasks": [] for role in ("active", "standby", "warmup")}
    joins = {**fields, **tasks} if epoch == 0 else {}
    asked = desk.say("b", epoch, shutdown_application=True, **joins)
    assert asked.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(desk.go_on("a")) == []


def test_the_epoch_of_endpoints_does_not_grow_with_a_failed_write(desk: StreamsDesk) -> None:
    """Nobody was told of it, nor is there anything behind the endpoint."""
    desk.come("a")
    before = desk.go_on("a").endpoint_information_epoch
    desk.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert desk.come("b", user_endpoint={"host": "h", "port": 1}).error
    assert desk.go_on("a").endpoint_information_epoch == before
