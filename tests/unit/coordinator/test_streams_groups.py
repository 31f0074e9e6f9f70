"""Streams groups: joining, the topology and its topics, tasks, leaving, fencing, records."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.coordinator.streams_groups.configured import Status
from kafkalog.coordinator.streams_groups.topology import (
    COPARTITIONS_MAX,
    NAMES_MAX,
    SUBTOPOLOGIES_MAX,
)
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.streams_group_calls import (
    COUNTING,
    TASKS,
    StreamsDesk,
    given_tasks,
    internal,
    subtopology,
    tasks,
    topology,
)


@pytest.fixture
def desk() -> StreamsDesk:
    return StreamsDesk()


def notes(reply: Any) -> list[tuple[Status, str]]:
    """The statuses of an answer."""
    return [(Status(one.status_code), one.status_detail) for one in reply.status]


# ---- members -------------------------------------------------------------------------------


def test_a_member_gets_all_tasks(desk: StreamsDesk) -> None:
    first = desk.come("a")
    assert (first.error, first.member_epoch, first.heartbeat_interval_ms) == (0, 2, 1_000)
    assert (first.task_offset_interval_ms, first.acceptable_recovery_lag) == (60_000, 10_000)
    assert given_tasks(first) == {"active": {"0": [0, 1, 2, 3]}}
    assert notes(first) == []
    assert given_tasks(desk.go_on("a")) is None, "told once"
    assert desk.told().group_state == "Stable"


def test_members_share_the_tasks(desk: StreamsDesk) -> None:
    desk.come("a")
    second = desk.come("b")
    assert given_tasks(second) == {}, "the first has to give some up"
    assert given_tasks(desk.go_on("a")) == {"active": {"0": [0, 1]}}
    assert given_tasks(desk.go_on("b")) is None
    desk.go_on("a")
    assert given_tasks(desk.go_on("b")) == {"active": {"0": [2, 3]}}
    assert desk.told().group_state == "Stable"


def test_a_member_that_leaves_gives_its_tasks_up(desk: StreamsDesk) -> None:
    desk.come("a")
    desk.come("b")
    desk.rounds("a", "b")
    left = desk.say("b", -1)
    assert (left.error, left.member_id, left.member_epoch, left.status) == (0, "b", -1, [])
    desk.rounds("a")
    assert desk.parts() == {"a": {"active": {"0": [0, 1, 2, 3]}}}
    desk.say("a", -1)
    assert desk.told().group_state == "Empty"
    assert desk.told().assignment_epoch == desk.told().group_epoch


def test_a_silent_member_is_removed(desk: StreamsDesk) -> None:
    desk.come("a")
    desk.come("b")
    desk.rounds("a", "b")
    for _ in range(5):
        desk.wait(3_000)
        desk.go_on("a")
    assert desk.say("b", desk.epochs["b"]).error is ErrorCode.UNKNOWN_MEMBER_ID
    desk.rounds("a")
    assert desk.parts() == {"a": {"active": {"0": [0, 1, 2, 3]}}}


def test_a_member_that_gives_nothing_up_is_removed(desk: StreamsDesk) -> None:
    desk.come("a", rebalance_timeout_ms=5_000)
    has = desk.owned["a"]
    desk.come("b")
    desk.go_on("a")
    for _ in range(4):
        desk.wait(1_500)
        desk.owned["a"] = has
        if desk.go_on("a").error:
            break
        desk.go_on("b")
    assert desk.say("a", desk.epochs["a"]).error is ErrorCode.UNKNOWN_MEMBER_ID
    desk.rounds("b")
    assert desk.parts() == {"b": {"active": {"0": [0, 1, 2, 3]}}}


def test_an_answer_is_repeated_to_a_member_that_missed_it(desk: StreamsDesk) -> None:
    desk.come("a")
    desk.come("b")
    desk.rounds("a", "b")
    epoch, before = desk.epochs["a"], desk.owned["a"]
    desk.say("b", -1)
    moved = desk.say("a", epoch)
    assert moved.member_epoch == epoch + 1
    rows = {"active_tasks": tasks(**{"0": before["active"]["0"]}), "standby_tasks": [],
            "warmup_tasks": []}  # fmt: skip
    assert desk.say("a", epoch, **rows).error is ErrorCode.NONE, "its previous epoch"
    assert desk.say("a", epoch).error is ErrorCode.FENCED_MEMBER_EPOCH
    new = desk.say("a", epoch + 7)
    assert new.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert f"greater member epoch ({epoch + 7})" in new.error_message


def test_tasks_are_told_again_to_a_member_that_has_others(desk: StreamsDesk) -> None:
    """An answer may have been lost, also one that did not change the epoch."""
    desk.come("a")
    desk.owned["a"] = {}
    assert given_tasks(desk.go_on("a")) == {"active": {"0": [0, 1, 2, 3]}}
    assert given_tasks(desk.go_on("a")) is None


def test_an_absent_group_and_member_are_told_apart(desk: StreamsDesk) -> None:
    assert desk.say("a", 1).error_message == "Streams group s not found."
    assert desk.say("a", -1).error_message == "Group s not found."
    desk.come("a")
    for epoch in (1, -1):
        reply = desk.say("x", epoch)
        assert reply.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert reply.error_message == "Member x is not a member of group s."


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"member": " "}, "MemberId can't be empty."),
        ({"group": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"active_tasks": tasks(_0=[1])}, "ActiveTasks must be empty when (re-)joining."),
        ({"warmup_tasks": tasks(_0=[1])}, "WarmupTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"standby_tasks": None}, "If one task-type is non-null, all must be non-null."),
        (
            {"topology": topology(subtopology("0", "t", source_topic_regex=["t.*"]))},
            "Regular expressions for source topics are not supported yet.",
        ),
    ],
)
def test_a_first_heartbeat_that_makes_no_sense_is_refused(
    desk: StreamsDesk, fields: dict[str, Any], why: str
) -> None:
    reply = desk.come(fields.pop("member", "a"), **fields)
    assert (reply.error, reply.error_message) == (ErrorCode.INVALID_REQUEST, why)


@pytest.mark.parametrize(
    ("epoch", "fields", "why"),
    [
        (-2, {}, "InstanceId can't be null."),
        (-3, {}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        (2, {"topology": topology()}, "Topology can only be provided when (re-)joining."),
        (
            2, {"task_offsets": [{"subtopology_id": "0", "partition": 1, "offset": 5}] * 2},
            "Task offsets contain a duplicate entry for subtopology 0 and partition 1.",
        ),
        (
            2, {"active_tasks": tasks(_9=[0]), "standby_tasks": [], "warmup_tasks": []},
            "Subtopology 9 does not exist in the topology.",
        ),
        (
            2, {"active_tasks": [], "standby_tasks": tasks(_0=[4]), "warmup_tasks": []},
            "Task 4 for subtopology 0 is invalid. Number of tasks for this subtopology: 4",
        ),
    ],
)  # fmt: skip
def test_a_later_heartbeat_that_makes_no_sense_is_refused(
    desk: StreamsDesk, epoch: int, fields: dict[str, Any], why: str
) -> None:
    desk.come("a")
    reply = desk.say("a", epoch, **fields)
    assert (reply.error, reply.error_message) == (ErrorCode.INVALID_REQUEST, why)
    assert desk.go_on("a").error is ErrorCode.NONE


def test_a_static_member_comes_back_to_its_tasks(desk: StreamsDesk) -> None:
    desk.come("a", instance_id="i", process_id="p")
    desk.come("b")
    desk.rounds("b", times=0)
    for _ in range(4):
        desk.go_on("a", instance_id="i")
        desk.go_on("b")
    has, epoch = desk.owned["a"], desk.told().group_epoch
    busy = desk.come("c", instance_id="i", process_id="p")
    assert busy.error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert "is owned by a member" in busy.error_message
    gone = desk.say("a", -2, instance_id="i")
    assert (gone.error, gone.member_epoch) == (0, -2)
    back = desk.come("c", instance_id="i", process_id="p")
    assert given_tasks(back) == has, "nothing moves"
    assert desk.told().group_epoch == epoch
    fenced = desk.say("a", 3, instance_id="i")
    assert fenced.error is ErrorCode.FENCED_INSTANCE_ID
    assert desk.say("c", -1, instance_id="j").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_waits_for_more_members() -> None:
    desk = StreamsDesk(config(**{**TASKS, "group_streams_initial_rebalance_delay_ms": 3_000}))
    first = desk.come("a")
    assert (first.member_epoch, given_tasks(first)) == (1, {})
    detail = "Assignment delayed due to the configured initial rebalance delay."
    assert notes(first) == [(Status.ASSIGNMENT_DELAYED, detail)]
    desk.come("b")
    desk.wait(3_000)
    desk.rounds("a", "b")
    assert desk.parts() == {
        "a": {"active": {"0": [0, 2]}}, "b": {"active": {"0": [1, 3]}},
    }  # fmt: skip
    assert notes(desk.come("c")) == [], "only an empty group waits"


def test_assignments_keep_their_distance() -> None:
    desk = StreamsDesk(config(**{**TASKS, "group_streams_assignment_interval_ms": 500}))
    desk.come("a")
    late = desk.come("b")
    detail = "Assignment delayed due to the configured assignment interval."
    assert notes(late) == [(Status.ASSIGNMENT_DELAYED, detail)]
    desk.wait(500)
    desk.rounds("a", "b")
    assert sorted(desk.parts()) == ["a", "b"]
    assert notes(desk.go_on("b")) == []


def test_a_full_group_takes_no_new_member() -> None:
    desk = StreamsDesk(config(**TASKS, group_streams_max_size=1))
    desk.come("a")
    reply = desk.come("b")
    assert reply.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "The streams group has reached its maximum capacity of 1" in reply.error_message
    assert desk.come("a").error is ErrorCode.NONE


def test_the_memory_of_groups_is_bounded() -> None:
    desk = StreamsDesk(config(**TASKS, kafkalog_groups_max_bytes=20_000))
    assert desk.come("a").error is ErrorCode.NONE
    names = [f"topic-{number}" for number in range(300)]
    reply = desk.come("b", group="x", topology=topology(subtopology("0", *names)))
    assert reply.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    rows = [{"subtopology_id": "0", "partition": n, "offset": 1} for n in range(300)]
    assert desk.go_on("a", task_offsets=rows).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.told().members[0].task_offsets == []
    assert desk.go_on("a").error is ErrorCode.NONE


def test_the_ids_of_reported_offsets_count() -> None:
    """Kafka does not compare them with the topology: they may be any texts."""
    desk = StreamsDesk(config(**TASKS, kafkalog_groups_max_bytes=40_000))
    desk.come("a")
    total = desk.core.weight.bytes
    rows = [{"subtopology_id": f"{at}" + "x" * 9_000, "partition": 0, "offset": 1}
            for at in range(4)]  # fmt: skip
    assert desk.go_on("a", task_offsets=rows[:2], task_end_offsets=rows[:1]).error == 0
    assert total + 3 * 9_000 < desk.core.weight.bytes < total + 3 * 9_500
    assert desk.go_on("a", task_offsets=rows).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(desk.told().members[0].task_offsets) == 2, "as before"
    desk.go_on("a", task_offsets=[], task_end_offsets=[])
    assert desk.core.weight.bytes == total
    desk.go_on("a", task_offsets=rows[:2])
    desk.say("a", -1)
    desk.come("a")
    assert desk.core.weight.bytes == total


def test_a_group_may_have_its_own_settings() -> None:
    own = {"streams.heartbeat.interval.ms": 77, "streams.session.timeout.ms": 2_000,
           "streams.num.standby.replicas": 1, "streams.acceptable.recovery.lag": 5}  # fmt: skip
    desk = StreamsDesk(own={"s": own})
    desk.come("a", topology=COUNTING)
    desk.create()
    desk.come("b", topology=COUNTING)
    desk.rounds("a", "b")
    assert desk.go_on("a").acceptable_recovery_lag == 5
    assert all(part is not None and "standby" in part for part in desk.parts().values())
    assert desk.go_on("a").heartbeat_interval_ms == 77
    desk.wait(2_001)
    assert desk.say("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_other_settings_of_tasks_begin_a_new_epoch() -> None:
    own: dict[str, dict[str, Any]] = {"s": {}}
    desk = StreamsDesk(own=own)
    desk.come("a", topology=COUNTING)
    desk.create()
    desk.come("b", topology=COUNTING)
    desk.rounds("a", "b")
    own["s"]["streams.num.standby.replicas"] = 1
    desk.rounds("a", "b")
    assert all(part is not None and "standby" in part for part in desk.parts().values())


# ---- the topology and its topics -----------------------------------------------------------


def test_internal_topics_are_created(desk: StreamsDesk) -> None:
    first = desk.come("a", topology=COUNTING)
    missing = (Status.MISSING_INTERNAL_TOPICS, "Internal topics are missing: again, kept")
    assert notes(first) == [missing]
    (effect,) = desk.asked
    found = {one.name: (one.partitions, one.configs) for one in effect.topics.values()}
    assert found == {"again": (4, ()), "kept": (4, (("cleanup.policy", "compact"),))}
    assert notes(desk.go_on("a")) == [missing]
    assert len(desk.asked) == 1, "they are being created"
    assert desk.told().group_state == "NotReady"
    desk.create()
    ready = desk.go_on("a")
    assert notes(ready) == []
    assert given_tasks(ready) == {"active": {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}}
    assert desk.told().group_state == "Stable"


def test_a_topic_that_could_not_be_created_is_tried_again_later(desk: StreamsDesk) -> None:
    desk.come("a", topology=COUNTING)
    desk.create(kept="POLICY_VIOLATION")
    (note,) = notes(desk.go_on("a"))
    assert note[1] == (
        "Internal topics are missing: kept; Creation failed: kept (POLICY_VIOLATION)."
    )
    assert desk.asked == []
    desk.wait(2_000)
    desk.go_on("a")
    assert [list(one.topics) for one in desk.asked] == [["kept"]]
    desk.create()
    assert notes(desk.go_on("a")) == []


def test_a_member_without_the_right_creates_no_topics(desk: StreamsDesk) -> None:
    body = {
        "group_id": "s", "member_id": "a", "member_epoch": 0, "topology": COUNTING,
        "rebalance_timeout_ms": 1_000,
    }  # fmt: skip
    reply = desk.call_as(body, creatable=lambda names: {"again"} & set(names))
    (note,) = notes(reply)
    assert note[1] == (
        "Internal topics are missing: again, kept; Unauthorized to CREATE on topics kept."
    )
    assert desk.asked == []


def test_missing_source_topics_are_named(desk: StreamsDesk) -> None:
    names = [f"x{number}" for number in range(5)]
    reply = desk.come("a", topology=topology(subtopology("0", "t", *names)))
    detail = "Source topics x0, x1, x2 and 2 additional topics are missing."
    assert notes(reply) == [(Status.MISSING_SOURCE_TOPICS, detail)]
    assert desk.asked == []
    for name in names:
        desk.change_topic(name, 6)
    assert given_tasks(desk.go_on("a")) == {"active": {"0": [0, 1, 2, 3, 4, 5]}}


def test_a_topic_of_another_size_stops_the_application(desk: StreamsDesk) -> None:
    desk.come("a", topology=COUNTING)
    desk.create()
    desk.rounds("a")
    desk.change_topic("t", 5)
    detail = "Existing topic again has different number of partitions: expected 5, found 4"
    assert notes(desk.go_on("a")) == [(Status.INCORRECTLY_PARTITIONED_TOPICS, detail)]
    desk.rounds("a")
    assert desk.parts() == {"a": {}}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (topology(subtopology("0", "__consumer_offsets")), "Use of Kafka internal topics"),
        (topology(subtopology("0", "a b")), "Topic names a b are not valid topic names."),
        (topology(epoch=-1), "Topology epoch must be non-negative."),
        (
            topology(subtopology("0", "t"), subtopology("0", "u")),
            "The topology has several subtopologies of the same id.",
        ),
        (
            topology(subtopology("0", "t", state_changelog_topics=[internal("kept", 3)])),
            "Changelog topic kept must have an undefined partition count, but it is set to 3.",
        ),
        (
            topology(subtopology("0", "t", copartition_groups=[
                {"source_topics": [1], "source_topic_regex": [],
                 "repartition_source_topics": []}])),
            "a copartition group names a topic that it does not read.",
        ),
        (
            topology(subtopology("0", repartition_source_topics=[internal("r")])),
            "a repartition source topic is never used as a sink topic.",
        ),
        (
            topology(subtopology("0", repartition_source_topics=[internal("r")],
                                 repartition_sink_topics=["r"])),
            "There may be loops in the topology",
        ),
        (topology(subtopology("0")), "No source topics found for subtopology 0"),
        (
            topology(*(subtopology(str(n), "t") for n in range(SUBTOPOLOGIES_MAX + 1))),
            f"wanted at most {SUBTOPOLOGIES_MAX} and",
        ),
        (
            topology(subtopology("0", *(f"t{n}" for n in range(NAMES_MAX + 1)))),
            f"and {NAMES_MAX}.",
        ),
        (
            topology(subtopology("0", "t", copartition_groups=[{
                "source_topics": [0] * COPARTITIONS_MAX, "source_topic_regex": [],
                "repartition_source_topics": [],
            }])),
            f"{COPARTITIONS_MAX + 1} copartition groups and positions in them, wanted at most",
        ),
    ],
)  # fmt: skip
def test_an_invalid_topology_is_refused(desk: StreamsDesk, found: dict[str, Any], why: str) -> None:
    reply = desk.come("a", topology=found)
    assert reply.error is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert why in reply.error_message
    assert desk.told().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_all_members_have_one_topology(desk: StreamsDesk) -> None:
    desk.come("a", topology=topology(epoch=3))
    stale = desk.come("b", topology=topology(subtopology("0", "u"), epoch=2))
    detail = "The member's topology epoch 2 is behind the group's topology epoch 3."
    assert notes(stale) == [(Status.STALE_TOPOLOGY, detail)]
    other = desk.come("c", topology=topology(subtopology("0", "u"), epoch=3))
    assert other.error is ErrorCode.INVALID_REQUEST
    assert other.error_message == "Topology updates are not supported yet."
    assert desk.come("c", topology=topology(epoch=3)).error is ErrorCode.NONE


# ---- standbys, endpoints, offsets, the end of an application -----------------------------------


def test_the_state_of_a_task_is_kept_twice() -> None:
    desk = StreamsDesk(config(**TASKS, group_streams_num_standby_replicas=1))
    desk.come("a", topology=COUNTING)
    desk.create()
    desk.rounds("a")
    assert desk.parts() == {"a": {"active": {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}}}
    desk.come("b", topology=COUNTING)
    desk.rounds("a", "b")
    found = desk.parts()
    for one, other in (("a", "b"), ("b", "a")):
        mine, others = found[one], found[other]
        assert mine is not None and others is not None
        assert mine["standby"]["1"] == others["active"]["1"]
    desk.say("b", -1)
    desk.rounds("a")
    assert desk.parts() == {"a": {"active": {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}}}


def test_members_learn_where_state_can_be_queried() -> None:
    desk = StreamsDesk(config(**TASKS, group_streams_num_standby_replicas=1))
    desk.come("a", topology=COUNTING, user_endpoint={"host": "one", "port": 1})
    desk.create()
    moved = desk.go_on("a", endpoint_information_epoch=0)
    assert moved.endpoint_information_epoch == 1
    (row,) = moved.partitions_by_user_endpoint
    assert (row.user_endpoint.host, row.user_endpoint.port) == ("one", 1)
    parts = [(one.topic, one.partitions) for one in row.active_partitions]
    assert parts == [("t", [0, 1, 2, 3]), ("again", [0, 1, 2, 3])]
    assert desk.go_on("a", endpoint_information_epoch=1).partitions_by_user_endpoint is None
    desk.come("b", topology=COUNTING, user_endpoint={"host": "two", "port": 2})
    desk.rounds("a", "b")
    rows = desk.go_on("b", endpoint_information_epoch=-1).partitions_by_user_endpoint
    assert sorted(row.user_endpoint.host for row in rows) == ["one", "two"]
    assert all(row.standby_partitions for row in rows)


def test_reported_offsets_are_shown(desk: StreamsDesk) -> None:
    desk.come("a")
    rows = [{"subtopology_id": "0", "partition": 2, "offset": 7}]
    desk.go_on("a", task_offsets=rows, task_end_offsets=rows)
    desk.go_on("a")
    (member,) = desk.told().members
    found = [(one.subtopology_id, one.partition, one.offset) for one in member.task_offsets]
    assert found == [("0", 2, 7)]
    desk.go_on("a", task_offsets=[])
    (member,) = desk.told().members
    assert member.task_offsets == []
    assert len(member.task_end_offsets) == 1


def test_a_member_ends_the_whole_application(desk: StreamsDesk) -> None:
    desk.come("a")
    desk.come("b")
    asked = desk.go_on("a", shutdown_application=True)
    (note,) = notes(asked)
    assert note[0] is Status.SHUTDOWN_APPLICATION
    assert "Streams group member a encountered a fatal error" in note[1]
    assert notes(desk.go_on("b"))[-1] == note
    desk.say("a", -1)
    desk.say("b", -1)
    assert notes(desk.come("c")) == [], "an empty group may begin again"


def test_members_need_the_tags_of_their_group() -> None:
    desk = StreamsDesk(own={"s": {"streams.rack.aware.assignment.tags": ("zone", "rack")}})
    (note,) = notes(desk.come("a", client_tags=[{"key": "zone", "value": "1"}]))
    assert note[0] is Status.MISSING_CLIENT_TAGS
    assert "[rack]" in note[1]
    assert notes(desk.say("a", 2, version=0)) == []
