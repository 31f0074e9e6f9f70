"""Streams groups next to other types, their offsets, and their records in the journal."""

from __future__ import annotations

import pytest

from kafkalog.coordinator.groups import records
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import OFFSETS
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.streams_group_calls import COUNTING, TASKS, StreamsDesk, given_tasks


@pytest.fixture
def desk() -> StreamsDesk:
    return StreamsDesk()


# ---- types of groups ---------------------------------------------------------------------------


def test_a_group_is_of_one_type(desk: StreamsDesk) -> None:
    desk.come("a")
    reply = desk.enter("m", group="s")
    assert (reply.error, reply.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND, "Group s is not a consumer group.",
    )  # fmt: skip
    assert desk.join(group="s").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    desk.enter("m", group="g")
    for epoch in (0, 1, -1):
        reply = desk.come("a", group="g") if epoch == 0 else desk.say("a", epoch, group="g")
        assert (reply.error, reply.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a streams group.",
        )  # fmt: skip
    (row,) = desk.call(apis.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["s"]}).groups
    assert row.error_message == "Group s is not a consumer group."


def test_groups_are_listed_with_their_type(desk: StreamsDesk) -> None:
    desk.come("a")
    desk.enter("m", group="g")
    (row,) = desk.listed(types_filter=["Streams"]).values()
    assert (row.group_id, row.group_type, row.protocol_type, row.group_state) == (
        "s", "streams", "streams", "Stable",
    )  # fmt: skip


def test_an_empty_classic_group_becomes_a_streams_group(desk: StreamsDesk) -> None:
    desk.commit({("t", 0): 5}, group="s")
    desk.come("a")
    assert desk.told().group_state == "Stable"
    assert desk.offsets("s") == {("t", 0): 5}
    desk.restart()
    assert desk.told().group_state == "Stable"


def offset_error(
    desk: StreamsDesk, member: str, epoch: int, topic: str, offset: int, version: int = 9
) -> ErrorCode:
    """The outcome of a commit for partition 0 of a topic."""
    reply = desk.commit({(topic, 0): offset}, member, epoch, "s", version=version)
    return ErrorCode(reply.topics[0].partitions[0].error_code)


# ---- offsets -------------------------------------------------------------------------------


def test_commits_need_the_members_epoch(desk: StreamsDesk) -> None:
    desk.come("a")
    epoch = desk.epochs["a"]
    assert offset_error(desk, "a", epoch, "t", 1) is ErrorCode.NONE
    assert offset_error(desk, "a", epoch + 1, "t", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert offset_error(desk, "x", epoch, "t", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert offset_error(desk, "", -1, "t", 1) is ErrorCode.UNKNOWN_MEMBER_ID, "it has members"
    assert offset_error(desk, "a", epoch, "t", 1, 8) is ErrorCode.UNSUPPORTED_VERSION
    desk.come("b")
    desk.rounds("a", "b")
    assert offset_error(desk, "a", epoch, "t", 2) is ErrorCode.NONE, (
        "it has had the task since then"
    )
    assert offset_error(desk, "b", epoch, "t", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert offset_error(desk, "a", epoch, "u", 2) is ErrorCode.STALE_MEMBER_EPOCH, (
        "not in the topology"
    )
    for wrong, error in ((0, ErrorCode.NONE), (1, ErrorCode.STALE_MEMBER_EPOCH)):
        group = {"group_id": "s", "member_id": "a", "member_epoch": desk.epochs["a"] - wrong}
        (row,) = desk.call(apis.OFFSET_FETCH, 9, {"groups": [{**group, "topics": None}]}).groups
        assert row.error_code is error or row.error_code == error


def test_an_administrator_moves_the_offsets_of_an_empty_group(desk: StreamsDesk) -> None:
    desk.come("a")
    desk.say("a", -1)
    assert offset_error(desk, "", -1, "t", 9) is ErrorCode.NONE
    assert desk.offsets("s") == {("t", 0): 9}


# ---- records -------------------------------------------------------------------------------


def stored(desk: StreamsDesk) -> dict[bytes, bytes | None]:
    """The last record of each key."""
    return {
        one.key: one.value for batches in desk.journal.batches.values() for batch in batches
        for one in batch.records if one.key is not None
    }  # fmt: skip


def test_a_group_is_the_same_after_a_restart() -> None:
    desk = StreamsDesk(config(**TASKS, group_streams_num_standby_replicas=1))
    desk.come("a", topology=COUNTING, instance_id="i", rack_id="r",
              user_endpoint={"host": "one", "port": 1},
              client_tags=[{"key": "zone", "value": "1"}])  # fmt: skip
    desk.create()
    desk.come("b", topology=COUNTING)
    desk.go_on("a", instance_id="i")
    before = desk.told()
    desk.restart()
    after = desk.told()
    # The sizes of internal topics are not stored, as in Kafka.
    assert dict(after) == {**dict(before), "topology": after.topology}
    desk.go_on("a", instance_id="i")
    assert desk.told().topology == before.topology
    for _ in range(4):
        desk.go_on("a", instance_id="i")
        desk.go_on("b")
    assert desk.told().group_state == "Stable"
    desk.wait(10_001)
    assert desk.told().group_state == "Empty", "sessions run again"


def test_a_deleted_group_leaves_no_records(desk: StreamsDesk) -> None:
    desk.come("a", topology=COUNTING)
    desk.create()
    desk.rounds("a")
    for error in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE):
        (row,) = desk.delete("s").results
        assert row.error_code == error
        desk.say("a", -1)
    assert set(stored(desk).values()) == {None}
    assert desk.told().error_message == "Group s not found."


def test_all_kinds_of_records_are_written(desk: StreamsDesk) -> None:
    desk.come("a")
    kinds = {OFFSETS.decode_key(key)[1] for key in stored(desk)}
    assert kinds == set(records.FOREIGN["streams"])


def test_a_failed_write_leaves_nothing_behind(desk: StreamsDesk) -> None:
    desk.come("a", topology=COUNTING)
    before = desk.told()
    desk.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert desk.come("b", topology=COUNTING).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.told() == before
    desk.create()
    desk.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    failed = desk.say("a", desk.epochs["a"])
    assert failed.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert given_tasks(desk.go_on("a")) == {"active": {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}}
