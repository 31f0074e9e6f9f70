"""Where the share partitions of a group begin: described, changed, deleted."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.share_group_calls import SHARED, ShareDesk
from tests.unit.coordinator.test_share_groups import states
from tests.unit.coordinator.virtual_core import Reply


@pytest.fixture
def desk() -> ShareDesk:
    return ShareDesk()


def alter(desk: ShareDesk, offsets: dict[tuple[str, int], int], group: str = "s") -> Reply:
    topics: dict[str, list[dict[str, int]]] = {}
    for (name, number), offset in offsets.items():
        part = {"partition_index": number, "start_offset": offset}
        topics.setdefault(name, []).append(part)
    rows = [{"topic_name": name, "partitions": parts} for name, parts in topics.items()]
    return desk.call(apis.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": group, "topics": rows})


def delete(desk: ShareDesk, *names: str, group: str = "s") -> Reply:
    rows = [{"topic_name": name} for name in names]
    return desk.call(apis.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": group, "topics": rows})


def describe(
    desk: ShareDesk, topics: dict[str, list[int]] | None = None, group: str = "s", version: int = 1
) -> Any:
    asked = None if topics is None else [
        {"topic_name": name, "partitions": numbers} for name, numbers in topics.items()
    ]  # fmt: skip
    body = {"groups": [{"group_id": group, "topics": asked}]}
    reply = desk.call(apis.DESCRIBE_SHARE_GROUP_OFFSETS, version, body)
    desk.share()
    (found,) = reply.groups
    return found


def rows_of(found: Any) -> dict[tuple[str, int], tuple[int, int, int]]:
    return {
        (topic.topic_name, one.partition_index): (one.error_code, one.start_offset, one.lag)
        for topic in found.topics for one in topic.partitions
    }  # fmt: skip


def codes(reply: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.topic_name, one.partition_index): one.error_code
        for topic in reply.responses for one in topic.partitions
    }  # fmt: skip


# ---- alter -----------------------------------------------------------------------------------


def test_a_new_group_begins_where_an_administrator_says(desk: ShareDesk) -> None:
    reply = alter(desk, {("t", 1): 5, ("t", 9): 5, ("t", -1): 5, ("none", 0): 5})
    assert reply.waits
    desk.share()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(reply) == {
        ("t", 1): 0, ("t", 9): unknown, ("t", -1): unknown, ("none", 0): unknown,
    }  # fmt: skip
    assert states(desk) == ({}, {"t": [1]}, [])
    assert desk.told().group_state == "Empty"
    assert (desk.told().group_epoch, desk.told().assignment_epoch) == (1, 1)


def test_offsets_are_changed_only_while_a_group_is_empty(desk: ShareDesk) -> None:
    desk.sharing("a")
    for reply in (alter(desk, {("t", 0): 1}), delete(desk, "t")):
        assert reply.error is ErrorCode.NON_EMPTY_GROUP
        assert reply.error_message == "The group is not empty."
    desk.enter("m", group="g")
    for reply in (alter(desk, {("t", 0): 1}, "g"), delete(desk, "t", group="g")):
        assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert reply.error_message == "Group g is not a share group."
    assert delete(desk, "t", group="none").error_message == "Group none not found."
    for api in (apis.ALTER_SHARE_GROUP_OFFSETS, apis.DELETE_SHARE_GROUP_OFFSETS):
        empty = desk.call(api, 0, {"group_id": "", "topics": []})
        assert empty.error is ErrorCode.INVALID_GROUP_ID


def test_an_error_of_the_share_coordinator_is_told(desk: ShareDesk) -> None:
    desk.kept.error = ErrorCode.FENCED_STATE_EPOCH
    reply = alter(desk, {("t", 0): 1, ("t", 9): 1})
    desk.share()
    assert codes(reply) == {
        ("t", 0): ErrorCode.FENCED_STATE_EPOCH, ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }  # fmt: skip


def test_nothing_to_change_begins_no_group(desk: ShareDesk) -> None:
    assert alter(desk, {}).error is ErrorCode.NONE
    assert codes(alter(desk, {("none", 0): 5})) == {
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert desk.told().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_memory_of_new_groups_is_bounded() -> None:
    desk = ShareDesk(config(**SHARED, kafkalog_groups_max_bytes=10_000))
    for number in range(20):
        alter(desk, {("t", 0): 1}, f"group-{number}")
    assert alter(desk, {("t", 0): 1}).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.told().error_code == ErrorCode.GROUP_ID_NOT_FOUND


# ---- describe --------------------------------------------------------------------------------


def test_offsets_are_described_with_the_lag(desk: ShareDesk) -> None:
    alter(desk, {("t", 0): 3, ("t", 1): 5})
    desk.share()
    desk.kept.ends = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 5}
    assert rows_of(describe(desk)) == {("t", 0): (0, 3, 7), ("t", 1): (0, 5, 0)}
    named = describe(desk, {"t": [1, 2, 99], "none": [0], "u": [0]})
    assert rows_of(named) == {
        ("t", 1): (0, 5, 0), ("t", 2): (0, -1, -1), ("t", 99): (0, -1, -1),
        ("none", 0): (0, -1, -1), ("u", 0): (0, -1, -1),
    }  # fmt: skip
    assert rows_of(describe(desk, {"t": [0]}, group="other")) == {("t", 0): (0, -1, -1)}
    assert not describe(desk, group="other").topics


def test_the_first_version_asks_for_no_ends(desk: ShareDesk) -> None:
    alter(desk, {("t", 0): 3})
    desk.share()
    (topic,) = describe(desk, version=0).topics
    assert [one.start_offset for one in topic.partitions] == [3]


def test_a_description_ends_when_the_coordinator_moves(desk: ShareDesk) -> None:
    body = {"groups": [{"group_id": "s", "topics": [{"topic_name": "t", "partitions": [0]}]}]}
    reply = desk.call(apis.DESCRIBE_SHARE_GROUP_OFFSETS, 1, body)
    for partition in list(desk.core.shards):
        desk.step(lambda step, one=partition: desk.core.resign(one, step))
    desk.share()
    assert [one.error_code for one in reply.groups] == [ErrorCode.NOT_COORDINATOR]


# ---- delete ----------------------------------------------------------------------------------


def test_the_offsets_of_topics_are_deleted(desk: ShareDesk) -> None:
    alter(desk, {("t", 0): 3, ("u", 0): 5})
    desk.share()
    reply = delete(desk, "t", "t", "none")
    assert states(desk) == ({}, {"u": [0]}, ["t"])
    desk.share()
    assert {one.topic_name: one.error_code for one in reply.responses} == {
        "t": 0, "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }  # fmt: skip
    assert states(desk) == ({}, {"u": [0]}, [])
    (again,) = delete(desk, "t").responses
    assert again.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert again.error_message == "There is no offset information to delete."


def test_a_failed_deletion_is_tried_again(desk: ShareDesk) -> None:
    alter(desk, {("t", 0): 3})
    desk.share()
    desk.kept.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    reply = delete(desk, "t")
    desk.share()
    assert [one.error_code for one in reply.responses] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert states(desk) == ({}, {}, ["t"])
    desk.kept.error = ErrorCode.NONE
    reply = delete(desk, "t")
    desk.share()
    assert [one.error_code for one in reply.responses] == [0]
    assert not desk.kept.states
