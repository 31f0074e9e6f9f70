"""Heartbeats without news in share and streams groups: a short way with the same outcome."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafkalog.coordinator.share_groups.service import ShareGroups
from kafkalog.coordinator.streams_groups.service import StreamsGroups
from kafkalog.wire import apis
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.share_group_calls import SHARED, ShareDesk, given
from tests.unit.coordinator.streams_group_calls import (
    TASKS,
    StreamsDesk,
    given_tasks,
    tasks,
    topology,
)
from tests.unit.coordinator.test_heartbeat_work import IDLE_CALLS_MAX, calls

SIZES = ((5, 10), (40, 400))
"""Members of a group, and partitions of its topic."""
STREAMS_CALLS_MAX = 220
"""There are more fields, in settings, request and answer."""


# ---- share groups --------------------------------------------------------------------------


def sharing(members: int, partitions: int, **settings: Any) -> ShareDesk:
    """A share group in which every member has its part."""
    desk = ShareDesk(config(**{**SHARED, **settings}), topics={"t": partitions, "u": 1})
    desk.sharing(*(f"m{number}" for number in range(members)))
    return desk


def epoch(desk: ShareDesk, member: str) -> int:
    found = {one.member_id: one.member_epoch for one in desk.told().members}
    return found.get(member, 1)


def test_an_idle_heartbeat_of_a_share_group_costs_the_same_in_any() -> None:
    found = {}
    for size in SIZES:
        desk = sharing(*size)
        at = epoch(desk, "m1")
        desk.say("m1", at)
        found[size] = calls(partial(desk.say, "m1", at))
    assert len(set(found.values())) == 1 and max(found.values()) <= IDLE_CALLS_MAX


def test_the_first_heartbeat_after_a_change_looks_at_all() -> None:
    """Partitions that come later are kept, and assigned."""
    desk = sharing(2, 4)
    at = epoch(desk, "m0")
    for _ in range(3):
        assert given(desk.say("m0", at)) is None and not desk.asked
    desk.change_topic("t", 6)
    desk.say("m0", at)
    assert len(desk.asked) == 1, "the states of the new partitions"
    desk.share()
    told = desk.say("m0", epoch(desk, "m0"))
    desk.say("m1", epoch(desk, "m1"))
    every = {number for part in desk.parts().values() for number in part["t"]}
    assert told.member_epoch > at and every == set(range(6))


def test_states_that_could_not_be_kept_are_asked_for_again() -> None:
    """The heartbeats in the meantime have their turns."""
    desk = ShareDesk()
    desk.come("a")
    desk.asked.clear()  # it got no answer
    desk.wait(9_000)
    desk.say("a", 2)
    assert not desk.asked, "it is too soon"
    for _ in range(4):
        desk.wait(9_000)
        desk.say("a", 2)
    assert desk.asked


SAID: dict[str, dict[str, Any]] = {
    "nothing": {},
    "the same topics": {"subscribed_topic_names": ["t"]},
    "other topics": {"subscribed_topic_names": ["t", "u"]},
    "a rack": {"rack_id": "r"},
    "an empty rack": {"rack_id": " "},
    "the last epoch": {"epoch": -1},
    "the next epoch": {"epoch": 1},
    "another member": {"member": "nobody"},
    "an empty name": {"member": ""},
    "another group": {"group": "other"},
}
BUSY = ("settled", "another topic size", "a topic that is gone", "while assigning", "no states yet")


@pytest.mark.parametrize("busy", BUSY)
@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_the_short_way_of_a_share_group_has_the_same_outcome(
    said: dict[str, Any], busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome() -> tuple[Any, ...]:
        desk = sharing(3, 6)
        desk.say("m1", epoch(desk, "m1"))
        if busy == "another topic size":
            desk.change_topic("t", 8)
        elif busy == "a topic that is gone":
            desk.change_topic("t", None)
        elif busy == "while assigning":
            desk.own = {"s": {"share.assignment.interval.ms": 15_000}}
            desk.come("late")
        elif busy == "no states yet":
            desk.come("late", "u")
        desk.wait(6_000)
        fields = dict(said)
        at = epoch(desk, "m1") + fields.pop("epoch", 0)
        reply = desk.say(fields.pop("member", "m1"), at, **fields)
        answer = (reply.error, reply.member_id, reply.member_epoch, given(reply))
        asked = str(desk.asked)
        before = desk.told()
        desk.wait(6_000)  # only the member that was heard is still there
        return answer, asked.count("InitializeState("), str(vars(before)), str(desk.parts())

    short = outcome()
    monkeypatch.setattr(ShareGroups, "_no_news", lambda *_: None)
    assert short == outcome()


# ---- streams groups ------------------------------------------------------------------------


def streaming(members: int, partitions: int, **settings: Any) -> StreamsDesk:
    """A streams group in which every member has its tasks."""
    desk = StreamsDesk(config(**{**TASKS, **settings}), topics={"t": partitions, "u": 1})
    names = [f"m{number}" for number in range(members)]
    for name in names:
        desk.come(name)
    desk.rounds(*names)
    assert desk.told().group_state == "Stable"
    return desk


def test_an_idle_heartbeat_of_a_streams_group_costs_the_same_in_any() -> None:
    found = {}
    for size in SIZES:
        desk = streaming(*size)
        found[size] = calls(partial(desk.say, "m1", desk.epochs["m1"]))
    assert len(set(found.values())) == 1 and max(found.values()) <= STREAMS_CALLS_MAX


WORDS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a topology": {"topology": topology()},
    "its tasks": {"active_tasks": tasks(_0=[1]), "standby_tasks": [], "warmup_tasks": []},
    "one role": {"active_tasks": []},
    "no tasks": {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []},
    "another process": {"process_id": "p"},
    "an endpoint": {"user_endpoint": {"host": "h", "port": 1}},
    "tags": {"client_tags": [{"key": "zone", "value": "a"}]},
    "offsets": {"task_offsets": [{"subtopology_id": "0", "partition": 0, "offset": 5}]},
    "ends": {"task_end_offsets": [{"subtopology_id": "0", "partition": 0, "offset": 5}]},
    "a rack": {"rack_id": "r"},
    "an empty rack": {"rack_id": " "},
    "a timeout": {"rebalance_timeout_ms": 9_000},
    "an end of all": {"shutdown_application": True},
    "an older endpoint epoch": {"endpoint_information_epoch": 9},
    "an instance": {"instance_id": "i"},
    "the last epoch": {"epoch": -1},
    "the next epoch": {"epoch": 1},
    "another member": {"member": "nobody"},
    "another group": {"group": "other"},
    "an older version": {"version": 0},
}
STATES = (
    "settled", "another topic size", "a topic that is gone", "while assigning", "shut down",
    "other settings", "missing tags",
)  # fmt: skip


@pytest.mark.parametrize("busy", STATES)
@pytest.mark.parametrize("said", WORDS.values(), ids=WORDS)
def test_the_short_way_of_a_streams_group_has_the_same_outcome(
    said: dict[str, Any], busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome() -> tuple[Any, ...]:
        desk = streaming(3, 6)
        if busy == "another topic size":
            desk.change_topic("t", 8)
        elif busy == "a topic that is gone":
            desk.change_topic("t", None)
        elif busy == "while assigning":
            desk.own = {"s": {"streams.assignment.interval.ms": 15_000}}
            desk.come("late")
        elif busy == "shut down":
            desk.go_on("m0", shutdown_application=True)
        elif busy == "other settings":
            desk.own = {"s": {"streams.num.standby.replicas": 1}}
        elif busy == "missing tags":
            desk.own = {"s": {"streams.rack.aware.assignment.tags": ["zone"]}}
        desk.wait(6_000)
        fields = dict(said)
        at = desk.epochs["m1"] + fields.pop("epoch", 0)
        reply = desk.say(fields.pop("member", "m1"), at, **fields)
        answer = {name: str(value) for name, value in vars(reply.body).items()}
        before = desk.told()
        desk.wait(6_000)  # only the member that was heard is still there
        return answer, given_tasks(reply), str(vars(before)), str(desk.parts())

    short = outcome()
    monkeypatch.setattr(StreamsGroups, "_no_news", lambda *_: None)
    assert short == outcome()


def test_groups_of_other_types_are_refused_as_before() -> None:
    desk = sharing(1, 2)
    told = desk.call(apis.STREAMS_GROUP_HEARTBEAT, 1, {
        "group_id": "s", "member_id": "m0", "member_epoch": epoch(desk, "m0"),
    })  # fmt: skip
    assert told.error == 69, "GROUP_ID_NOT_FOUND"
    assert desk.beat("m0", epoch(desk, "m0"), group="s").error == 69
