"""Share groups: joining, sharing, leaving, fencing; the partitions whose state is kept for them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.coordinator.groups import records
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import OFFSETS
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.share_group_calls import SHARED, ShareDesk, given


@pytest.fixture
def desk() -> ShareDesk:
    return ShareDesk()


# ---- members -------------------------------------------------------------------------------


def test_a_member_gets_partitions_once_their_state_is_kept(desk: ShareDesk) -> None:
    first = desk.come("a")
    assert (first.error, first.member_epoch, first.heartbeat_interval_ms) == (0, 2, 1_000)
    assert given(first) == {}
    assert given(desk.say("a", 2)) is None
    desk.share()
    second = desk.say("a", 2)
    assert (second.member_epoch, given(second)) == (3, {"1": [0, 1, 2, 3]})
    assert given(desk.say("a", 3)) is None, "told once"
    assert desk.told().group_state == "Stable"


def test_members_share_partitions_that_are_too_few(desk: ShareDesk) -> None:
    desk.sharing("a", "b", topics=("u",))
    assert desk.parts() == {"a": {"u": [0]}, "b": {"u": [1]}}
    desk.sharing("c", "d", topics=("u",))
    for member in ("a", "b", "c", "d"):
        desk.say(member, 0, subscribed_topic_names=["u"])
    readers = [number for some in desk.parts().values() for number in some["u"]]
    assert sorted(readers) == [0, 0, 1, 1]


def test_an_answer_is_repeated_to_a_member_that_missed_it(desk: ShareDesk) -> None:
    desk.sharing("a")
    assert desk.say("a", 3).error is ErrorCode.NONE
    assert desk.say("a", 2).error is ErrorCode.NONE, "its previous epoch"
    old = desk.say("a", 1)
    assert old.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert "does not match the previous member epoch (2)" in old.error_message
    new = desk.say("a", 9)
    assert new.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch (9)" in new.error_message


def test_an_absent_group_and_member_are_told_apart(desk: ShareDesk) -> None:
    assert desk.say("a", 1).error_message == "Share group s not found."
    assert desk.say("a", -1).error_message == "Group s not found."
    desk.come("a")
    for epoch in (1, -1):
        reply = desk.say("x", epoch)
        assert reply.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert reply.error_message == "Member x is not a member of group s."


@pytest.mark.parametrize(
    ("member", "epoch", "fields", "why"),
    [
        ("", 0, {}, "Invalid member id in the request."),
        ("x" * 37, 0, {}, "Invalid member id in the request."),
        (" ", 0, {}, "MemberId can't be empty."),
        ("a", 0, {"group": ""}, "GroupId can't be empty."),
        ("a", 0, {"rack_id": ""}, "RackId can't be empty."),
        ("a", 0, {}, "SubscribedTopicNames must be set in first request."),
        ("a", 0, {"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first"),
        ("a", -2, {}, "MemberEpoch is invalid."),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    desk: ShareDesk, member: str, epoch: int, fields: dict[str, Any], why: str
) -> None:
    reply = desk.say(member, epoch, **fields)
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert why in reply.error_message


def test_a_silent_member_is_removed(desk: ShareDesk) -> None:
    desk.sharing("a", "b")
    epochs = {one.member_id: one.member_epoch for one in desk.told().members}
    for _ in range(5):
        desk.wait(3_000)
        epochs["a"] = desk.say("a", epochs["a"]).member_epoch
    assert desk.say("b", epochs["b"]).error is ErrorCode.UNKNOWN_MEMBER_ID
    desk.say("a", epochs["a"])
    assert desk.parts() == {"a": {"t": [0, 1, 2, 3]}}


def test_a_member_that_leaves_gives_its_partitions_up(desk: ShareDesk) -> None:
    desk.sharing("a", "b")
    left = desk.say("b", -1)
    assert (left.error, left.member_id, left.member_epoch) == (0, "b", -1)
    epoch = desk.told().members[0].member_epoch
    assert given(desk.say("a", epoch)) == {"1": [0, 1, 2, 3]}
    desk.say("a", -1)
    assert desk.told().group_state == "Empty"
    assert desk.told().assignment_epoch == desk.told().group_epoch


def test_a_full_group_takes_no_new_member() -> None:
    desk = ShareDesk(config(**SHARED, group_share_max_size=1))
    desk.come("a")
    reply = desk.come("b")
    assert reply.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "maximum capacity of 1 members" in reply.error_message
    assert desk.come("a").error is ErrorCode.NONE


def test_the_memory_of_groups_is_bounded() -> None:
    desk = ShareDesk(config(**SHARED, kafkalog_groups_max_bytes=20_000))
    assert desk.come("a").error is ErrorCode.NONE
    reply = desk.come("b", *[f"topic-{number}" for number in range(300)])
    assert reply.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert list(desk.parts()) == ["a"]


def test_a_group_may_have_its_own_settings() -> None:
    own = {"share.heartbeat.interval.ms": 77, "share.session.timeout.ms": 2_000}
    desk = ShareDesk(own={"s": own})
    assert desk.come("a").heartbeat_interval_ms == 77
    desk.wait(2_001)
    assert desk.say("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_join_together_are_assigned_together() -> None:
    desk = ShareDesk(config(**{**SHARED, "group_share_assignment_interval_ms": 500}))
    desk.come("a")
    for name in "bcd":
        assert desk.come(name).member_epoch == 2
    desk.wait(500)
    assert desk.say("b", 2).member_epoch == 5


# ---- types of groups ---------------------------------------------------------------------------


def test_a_group_is_of_one_type(desk: ShareDesk) -> None:
    desk.come("a")
    reply = desk.enter("m", group="s")
    assert (reply.error, reply.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND, "Group s is not a consumer group.",
    )  # fmt: skip
    desk.enter("m", group="g")
    for epoch in (0, -1):
        reply = desk.say("a", epoch, group="g", subscribed_topic_names=["t"])
        assert (reply.error, reply.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a share group.",
        )  # fmt: skip
    assert desk.join(group="s").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    committed = desk.commit({("t", 0): 1}, group="s")
    assert committed.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.describe("s", 6).error_message == "Group s is not a classic group."
    assert desk.told("g").error_message == "Group g is not a share group."
    assert desk.told("none").error_message == "Group none not found."


def test_groups_are_listed_by_type_and_state(desk: ShareDesk) -> None:
    desk.come("a")
    desk.come("b", group="empty")
    desk.say("b", -1, group="empty")
    desk.enter("m")
    found = desk.listed(types_filter=["share"])
    assert {name: one.group_state for name, one in found.items()} == {
        "s": "Stable", "empty": "Empty",
    }  # fmt: skip
    assert {one.protocol_type for one in found.values()} == {"share"}
    assert list(desk.listed(types_filter=["Share"], states_filter=["empty"])) == ["empty"]


# ---- share partitions ----------------------------------------------------------------------


def test_the_partitions_of_a_subscribed_topic_are_initialized(desk: ShareDesk) -> None:
    desk.come("a", "t", "u", "none")
    (effect,) = desk.asked
    assert {(one.topic_id.int, one.partition) for one in effect.states} == {
        (1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1),
    }  # fmt: skip
    assert {(one.state_epoch, one.start_offset) for one in effect.states} == {(2, -1)}
    assert states(desk) == ({"t": [0, 1, 2, 3], "u": [0, 1]}, {}, [])
    desk.share()
    assert states(desk) == ({}, {"t": [0, 1, 2, 3], "u": [0, 1]}, [])


def test_partitions_that_are_added_are_read_from_their_beginning(desk: ShareDesk) -> None:
    desk.sharing("a")
    desk.change_topic("t", 5)
    epoch = desk.told().members[0].member_epoch
    epoch = desk.say("a", epoch).member_epoch
    (effect,) = desk.asked
    assert [(one.partition, one.start_offset) for one in effect.states] == [(4, 0)]
    desk.share()
    assert given(desk.say("a", epoch)) == {"1": [0, 1, 2, 3, 4]}


def test_a_failed_initialization_is_tried_again_at_once(desk: ShareDesk) -> None:
    desk.kept.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.come("a")
    desk.share()
    assert states(desk) == ({}, {}, [])
    desk.kept.error = ErrorCode.NONE
    desk.say("a", 2)
    desk.share()
    assert given(desk.say("a", 2)) == {"1": [0, 1, 2, 3]}


def test_an_initialization_without_an_answer_is_tried_again_later(desk: ShareDesk) -> None:
    desk.come("a")
    desk.asked.clear()
    for _ in range(4):
        desk.wait(7_000)
        desk.say("a", 2)
    assert not desk.asked
    desk.wait(7_000)
    desk.say("a", 2)
    assert len(desk.asked) == 1


def test_a_deleted_topic_is_forgotten(desk: ShareDesk) -> None:
    desk.sharing("a", topics=("t", "u"))
    desk.change_topic("u", None)
    desk.step(lambda step: desk.core.drop_topics({"u"}, step))
    assert states(desk) == ({}, {"t": [0, 1, 2, 3]}, [])
    epoch = desk.told().members[0].member_epoch
    assert given(desk.say("a", epoch)) == {"1": [0, 1, 2, 3]}


# ---- deletion ------------------------------------------------------------------------------


def test_a_group_is_deleted_with_its_states(desk: ShareDesk) -> None:
    desk.sharing("a")
    assert results(desk.delete("s")) == {"s": ErrorCode.NON_EMPTY_GROUP}
    desk.say("a", -1)
    reply = desk.delete("s", "none")
    assert reply.waits
    assert states(desk) == ({}, {}, ["t"])
    desk.share()
    assert results(reply) == {"s": ErrorCode.NONE, "none": ErrorCode.GROUP_ID_NOT_FOUND}
    assert not desk.kept.states
    assert desk.told().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert not live(desk), "each record has its tombstone"


def test_a_group_whose_states_are_not_deleted_stays(desk: ShareDesk) -> None:
    desk.sharing("a")
    desk.say("a", -1)
    desk.kept.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    reply = desk.delete("s")
    desk.share()
    assert results(reply) == {"s": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert desk.told().group_state == "Empty"
    desk.kept.error = ErrorCode.NONE
    reply = desk.delete("s")
    desk.share()
    assert results(reply) == {"s": ErrorCode.NONE}
    assert not desk.kept.states


def test_a_member_may_join_while_the_group_is_being_deleted(desk: ShareDesk) -> None:
    desk.sharing("a")
    desk.say("a", -1)
    reply = desk.delete("s")
    desk.come("b")
    desk.share()
    assert results(reply) == {"s": ErrorCode.NON_EMPTY_GROUP}
    desk.say("b", desk.told().members[0].member_epoch)
    assert desk.parts() == {"b": {"t": [0, 1, 2, 3]}}


def test_a_deletion_ends_when_the_coordinator_moves(desk: ShareDesk) -> None:
    desk.sharing("a")
    desk.say("a", -1)
    reply = desk.delete("s")
    for partition in list(desk.core.shards):
        desk.step(lambda step, one=partition: desk.core.resign(one, step))
    assert results(reply) == {"s": ErrorCode.NOT_COORDINATOR}
    desk.share()


# ---- the journal ---------------------------------------------------------------------------


def test_a_restart_changes_nothing(desk: ShareDesk) -> None:
    desk.sharing("a", "b", topics=("t", "u"))
    desk.change_topic("t", 5)
    desk.say("a", 0, subscribed_topic_names=["t", "u"], rack_id="r")
    before = picture(desk)
    desk.restart()
    assert picture(desk) == before
    desk.wait(10_001)
    assert desk.told().group_state == "Empty", "sessions started with the loading"


def test_a_failed_write_leaves_nothing(desk: ShareDesk) -> None:
    desk.sharing("a")
    before = picture(desk)
    desk.errors = [ErrorCode.MESSAGE_TOO_LARGE]
    assert desk.come("b").error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert picture(desk) == before
    desk.restart()
    assert picture(desk) == before


def picture(desk: ShareDesk) -> Any:
    """The coordinator's knowledge of the group."""
    group = group_of(desk)
    one = group.share
    return (
        one.epoch, one.metadata_hash, one.assignment_epoch, sorted(one.members.items()),
        sorted(one.target.items()), one.states[:3], sorted(group.foreign.items()),
    )  # fmt: skip


def group_of(desk: ShareDesk) -> Any:
    return next(one.groups["s"] for one in desk.core.shards.values() if "s" in one.groups)


def states(desk: ShareDesk) -> Any:
    """The share partitions of the group, by name of the topic."""
    found = group_of(desk).share.states
    kept = [{one.name: sorted(one.partitions) for one in some.values()} for some in found[:2]]
    return (*kept, sorted(found.deleting.values()))


def results(reply: Any) -> dict[str, ErrorCode]:
    return {one.group_id: ErrorCode(one.error_code) for one in reply.results}


def live(desk: ShareDesk) -> set[bytes]:
    """Keys of the journal's live records of share groups."""
    found: dict[bytes, bytes | None] = {}
    for batches in desk.journal.batches.values():
        for batch in batches:
            found.update({one.key: one.value for one in batch.records if one.key is not None})
    return {
        key for key, value in found.items()
        if value is not None and OFFSETS.decode_key(key)[1] in records.FOREIGN[records.SHARE]
    }  # fmt: skip


def test_requests_are_refused_while_the_partition_is_elsewhere(desk: ShareDesk) -> None:
    for partition in list(desk.core.shards):
        desk.step(lambda step, one=partition: desk.core.resign(one, step))
    assert desk.come("a").error is ErrorCode.NOT_COORDINATOR
    assert desk.told().error_code == ErrorCode.NOT_COORDINATOR
    assert apis.SHARE_GROUP_HEARTBEAT in desk.core._handlers
