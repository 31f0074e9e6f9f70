"""The work of a heartbeat, counted in calls: it does not grow with the group, and one without news
takes a short way to the same outcome."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from kafkalog.coordinator.consumer_groups import heartbeat
from kafkalog.coordinator.consumer_groups.service import ConsumerGroups
from kafkalog.coordinator.groups.group import Group
from kafkalog.wire import apis
from tests.unit.coordinator.consumer_calls import MODERN, ConsumerDesk, given
from tests.unit.coordinator.group_calls import config

SMALL, LARGE = 10, 120
IDLE_CALLS_MAX = 160
"""A heartbeat without news takes about 130, with the codec on both sides; with a turn of its own it
takes more than twice as many."""

TAKE_OVER_CALLS_MAX = 970
"""It takes about 900, and took 1,030 when all of the member was counted again."""


def calls(work: Callable[[], object]) -> int:
    """How many calls of functions, of Python and C, some work takes."""
    count = 0

    def see(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def settled(count: int, **settings: Any) -> ConsumerDesk:
    """A group of so many members, each with some partitions."""
    desk = ConsumerDesk(config(**{**MODERN, **settings}), topics={"t": LARGE, "u": 1})
    names = [f"m{number:03}" for number in range(count)]
    desk.members(*names)
    assert desk.described().group_state == "Stable"
    return desk


def epoch(desk: ConsumerDesk) -> int:
    found: int = desk.described().group_epoch
    return found


def test_a_heartbeat_without_news_costs_the_same_in_any_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {}
    for count in (SMALL, LARGE):
        desk = settled(count)
        at = epoch(desk)
        desk.beat("m003", at)
        with monkeypatch.context() as patch:  # the records of a group: some for each member
            patch.setattr(Group, "newer_keys", property(lambda _: pytest.fail("a look at all")))
            found[count] = calls(partial(desk.beat, "m003", at))
    assert found[SMALL] == found[LARGE] <= IDLE_CALLS_MAX


def test_a_join_costs_the_same_in_any_group_until_the_next_assignment() -> None:
    found = {}
    for count in (SMALL, LARGE):
        desk = settled(count)
        desk.own = {"g": {"consumer.assignment.interval.ms": 15_000}}
        desk.enter("new-1")  # the last assignment is too young from now on
        found[count] = calls(partial(desk.enter, "new-2"))
    assert found[LARGE] < 1.2 * found[SMALL]


def test_a_member_that_takes_its_part_over_changes_only_its_partitions() -> None:
    """The rest of what it is, and of what is counted of it, stays."""
    desk = settled(LARGE // 2)
    at = epoch(desk)
    desk.beat(f"m{LARGE // 2 - 1:03}", -1)
    desk.beat("m000", at)  # the assignment is made
    assert calls(partial(desk.beat, "m001", at)) <= TAKE_OVER_CALLS_MAX


def test_members_that_join_in_one_interval_are_assigned_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that many members cost one look at all of them, not one each."""
    sizes: list[int] = []
    uniform = heartbeat.ASSIGNORS["uniform"]

    def assign(spec: Any) -> Any:
        sizes.append(len(spec.members))
        return uniform(spec)

    monkeypatch.setattr(heartbeat, "ASSIGNORS", {"uniform": assign})
    desk = ConsumerDesk(config(**{**MODERN, "group_consumer_assignment_interval_ms": 1_000}))
    for number in range(LARGE):
        desk.enter(f"m{number:03}")
    desk.wait(1_000)
    desk.beat("m000", 2)
    for number in range(1, LARGE):
        desk.beat(f"m{number:03}", 2)
    assert sizes == [1, LARGE]


FOLLOWING: dict[str, dict[str, Any]] = {
    "nothing": {},
    "the same topics": {"subscribed_topic_names": ["t"]},
    "other topics": {"subscribed_topic_names": ["t", "u"]},
    "a pattern": {"subscribed_topic_regex": "t"},
    "another rack": {"rack_id": "r"},
    "a timeout": {"rebalance_timeout_ms": 9_000},
    "an assignor": {"server_assignor": "range"},
    "an unknown assignor": {"server_assignor": "none"},
    "its partitions": {"owned": {"t": [1]}},
    "none of them": {"owned": {"t": []}},
    "an instance": {"instance_id": "i"},
    "an empty instance": {"instance_id": " "},
    "the last epoch": {"epoch": -1},
    "the next epoch": {"epoch": 1},
    "another member": {"member": "nobody"},
    "an empty name": {"member": ""},
    "another group": {"group": "other"},
}


@pytest.mark.parametrize("busy", ["settled", "after a change of its topic", "while assigning"])
@pytest.mark.parametrize("said", FOLLOWING.values(), ids=FOLLOWING)
def test_the_short_way_has_the_same_outcome(
    said: dict[str, Any], busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome() -> tuple[Any, ...]:
        desk = settled(3)
        if busy == "after a change of its topic":
            desk.change_topic("t", 5)
        elif busy == "while assigning":
            desk.own = {"g": {"consumer.assignment.interval.ms": 15_000}}
            desk.enter("late")
        desk.wait(6_000)
        fields = dict(said)
        at = epoch(desk) - (busy == "while assigning") + fields.pop("epoch", 0)
        reply = desk.beat(fields.pop("member", "m001"), at, fields.pop("owned", None), **fields)
        answer = (reply.error, reply.member_id, reply.member_epoch, given(reply))
        before = desk.described()
        desk.wait(6_000)  # only the member that was heard is still there
        return (
            answer,
            before,
            desk.has(),
            [dict(one) for one in map(vars, desk.described().members)],
        )

    short = outcome()
    monkeypatch.setattr(ConsumerGroups, "_no_news", lambda *_: None)
    assert str(short) == str(outcome())


def test_a_static_member_is_heard_under_its_own_name_only() -> None:
    desk = ConsumerDesk()
    desk.enter("a", instance_id="i")
    desk.enter("b", instance_id="j")
    at = desk.beat("a", 2, instance_id="i").member_epoch
    told = desk.beat("a", at, instance_id="j")
    assert told.error == 82, "FENCED_INSTANCE_ID"
    assert desk.beat("a", at, {"t": [0, 1]}, instance_id="i").error == 0


def test_a_group_of_another_type_is_refused_as_before() -> None:
    desk = ConsumerDesk()
    desk.call(apis.SHARE_GROUP_HEARTBEAT, 1, {
        "group_id": "s", "member_id": "a", "member_epoch": 0, "subscribed_topic_names": ["t"],
    })  # fmt: skip
    assert desk.beat("a", 2, group="s").error == 69, "GROUP_ID_NOT_FOUND"
