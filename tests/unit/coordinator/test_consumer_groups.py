"""Groups whose members heartbeat: joining, sharing out, leaving, fencing."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.consumer_calls import MODERN, ConsumerDesk, given
from tests.unit.coordinator.group_calls import config, subscription


@pytest.fixture
def desk() -> ConsumerDesk:
    return ConsumerDesk()


def test_the_first_member_gets_every_partition(desk: ConsumerDesk) -> None:
    reply = desk.enter("a")
    assert (reply.error, reply.member_epoch, reply.heartbeat_interval_ms) == (0, 2, 1_000)
    assert given(reply) == {"1": [0, 1, 2, 3]}


def test_a_partition_moves_only_once_it_was_given_up(desk: ConsumerDesk) -> None:
    """The second member waits for what the first still has."""
    desk.enter("a")
    second = desk.enter("b")
    assert (second.member_epoch, given(second)) == (3, {})
    asked = desk.beat("a", 2)
    assert (asked.member_epoch, given(asked)) == (2, {"1": [0, 1]})
    assert given(desk.beat("b", 3)) is None, "the first may still read them"
    done = desk.beat("a", 2, {"t": [0, 1]})
    assert (done.member_epoch, given(done)) == (3, None)
    assert given(desk.beat("b", 3)) == {"1": [2, 3]}
    assert desk.described().group_state == "Stable"


def test_an_answer_is_repeated_to_a_member_that_missed_it(desk: ConsumerDesk) -> None:
    """Its previous epoch counts as long as it says that it has nothing beyond its part."""
    desk.members("a", "b")
    desk.beat("b", -1)
    missed = desk.beat("a", 3)
    assert missed.member_epoch == 4
    again = desk.beat("a", 3, {"t": [0, 1]}, rebalance_timeout_ms=30_000,
                      subscribed_topic_names=["t"])  # fmt: skip
    assert (again.error, given(again)) == (0, {"1": [0, 1, 2, 3]})
    assert desk.beat("a", 3).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert desk.beat("a", 9).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_members_that_join_together_are_assigned_together() -> None:
    """The next assignment waits for the interval."""
    desk = ConsumerDesk(config(**{**MODERN, "group_consumer_assignment_interval_ms": 500}))
    desk.enter("a")
    for name in "bcd":
        assert desk.enter(name).member_epoch == 2
    assert desk.described().group_state == "Assigning"
    desk.wait(500)
    assert desk.beat("b", 2).member_epoch == 5
    assert desk.described().assignment_epoch == 5


def test_a_silent_member_is_removed(desk: ConsumerDesk) -> None:
    desk.members("a", "b")
    for _ in range(5):
        desk.wait(3_000)
        desk.beat("a", 3)
    assert desk.beat("b", 3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.has() == {"a": {"t": [0, 1, 2, 3]}}


def test_a_member_that_gives_nothing_up_is_removed(desk: ConsumerDesk) -> None:
    """Heartbeats alone do not save it: it has its rebalance timeout."""
    desk.enter("a", rebalance_timeout_ms=5_000)
    desk.enter("b")
    for _ in range(3):
        desk.beat("a", 2, {"t": [0, 1, 2, 3]})
        desk.beat("b", 3)
        desk.wait(2_000)
    assert desk.beat("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert given(desk.beat("b", 3)) == {"1": [0, 1, 2, 3]}


def test_a_static_member_that_comes_back_keeps_its_partitions(desk: ConsumerDesk) -> None:
    """It says that it will be back; another may take its name only then."""
    desk.enter("a", instance_id="one")
    assert desk.enter("c", instance_id="one").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert desk.beat("a", -2, instance_id="one").member_epoch == -2
    back = desk.enter("c", instance_id="one")
    assert (back.member_epoch, given(back)) == (2, {"1": [0, 1, 2, 3]})
    assert desk.beat("a", 2, instance_id="one").error is ErrorCode.FENCED_INSTANCE_ID
    assert desk.described().group_epoch == 2, "nothing was shared out again"


def test_a_new_topic_is_shared_out_with_the_next_heartbeat(desk: ConsumerDesk) -> None:
    desk.enter("a", "t", "new")
    desk.change_topic("new", 1)
    reply = desk.beat("a", 2)
    assert (reply.member_epoch, given(reply)) == (3, {"1": [0, 1, 2, 3], "3": [0]})
    desk.change_topic("new", None)
    assert given(desk.beat("a", 3)) == {"1": [0, 1, 2, 3]}


def test_a_pattern_finds_topics_old_and_new(desk: ConsumerDesk) -> None:
    """They are looked up apart, and shared out with the heartbeat after that."""
    first = desk.enter("a", subscribed_topic_names=[], subscribed_topic_regex="t.*")
    assert (first.member_epoch, given(first)) == (1, {})
    desk.look_up()
    assert given(desk.beat("a", 1)) == {"1": [0, 1, 2, 3]}
    desk.change_topic("tea", 1)
    desk.wait(11_000 // 2)
    desk.beat("a", 2)
    desk.wait(11_000 // 2)
    desk.beat("a", 2)
    desk.look_up()
    assert given(desk.beat("a", 2)) == {"1": [0, 1, 2, 3], "3": [0]}


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", "x" * 1_001])
def test_a_pattern_that_is_none_is_refused(desk: ConsumerDesk, pattern: str) -> None:
    reply = desk.enter("a", subscribed_topic_names=[], subscribed_topic_regex=pattern)
    assert reply.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert desk.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_has_a_limited_number_of_patterns(desk: ConsumerDesk) -> None:
    for number in range(100):
        desk.enter(f"m{number}", subscribed_topic_names=[], subscribed_topic_regex=f"p{number}")
    one_more = {"subscribed_topic_names": [], "subscribed_topic_regex": "p100"}
    assert desk.enter("late", **one_more).error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(desk.described().members) == 100


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_heartbeat_is_refused(desk: ConsumerDesk, fields: dict[str, Any], error: int) -> None:
    """The group stays unknown."""
    assert desk.enter("a", **fields).error == error
    assert desk.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_no_group_has_the_empty_name(desk: ConsumerDesk) -> None:
    assert desk.described("").error_code == ErrorCode.INVALID_GROUP_ID


def test_a_full_group_takes_no_member() -> None:
    desk = ConsumerDesk(config(**MODERN, group_consumer_max_size=1))
    desk.enter("a")
    assert desk.enter("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.enter("a").error is ErrorCode.NONE


def test_memory_that_is_used_up_takes_no_member() -> None:
    """The members that are there go on."""
    desk = ConsumerDesk(config(**MODERN, kafkalog_groups_max_bytes=12_000))
    desk.enter("a")
    refused = desk.enter("b" * 9_000)
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.beat("a", 2).error is ErrorCode.NONE
    assert desk.has() == {"a": {"t": [0, 1, 2, 3]}}


def test_memory_is_given_back(desk: ConsumerDesk) -> None:
    desk.members("a", "b")
    for name in "ab":
        desk.beat(name, -1)
    desk.delete("g")
    assert desk.core.weight.bytes == 0


def test_a_group_has_settings_of_its_own() -> None:
    own = {"consumer.heartbeat.interval.ms": 77, "consumer.session.timeout.ms": 2_000}
    desk = ConsumerDesk(own={"g": own})
    assert desk.enter("a").heartbeat_interval_ms == 77
    assert desk.enter("a", group="h").heartbeat_interval_ms == 1_000
    desk.wait(2_000)
    assert (desk.has(), desk.has("h")) == ({}, {"a": {"t": [0, 1, 2, 3]}})


# ---- the journal ---------------------------------------------------------------------------


def test_a_restart_changes_nothing(desk: ConsumerDesk) -> None:
    """The members go on with their epochs and partitions."""
    desk.members("a", "b")
    desk.enter("c", "t", "u", instance_id="one", rack_id="r", server_assignor="range")
    desk.enter("d", subscribed_topic_names=[], subscribed_topic_regex="u")
    desk.look_up()
    before = desk.described()
    desk.restart()
    assert desk.described() == before
    assert desk.beat("a", 3).error is ErrorCode.NONE
    desk.wait(10_000)
    assert desk.has() == {}, "their sessions began with the restart"


def test_a_heartbeat_whose_write_fails_changes_nothing(desk: ConsumerDesk) -> None:
    """The change is undone; the member tries again."""
    desk.members("a", "b")
    before, weight = desk.described(), desk.core.weight.bytes
    for error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR):
        desk.errors = [error]
        assert desk.enter("c").error in (
            ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR
        )  # fmt: skip
        assert (desk.described(), desk.core.weight.bytes) == (before, weight)
    assert desk.enter("c").error is ErrorCode.NONE


def test_a_failed_write_that_was_written_is_written_over(desk: ConsumerDesk) -> None:
    """The next write states again what the failed one was about."""
    desk.members("a", "b")
    desk.held = []
    desk.beat("b", -1)
    (held,) = desk.held
    desk.journal.put_of(held.partition, held.records, held.producer)
    desk.release(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert set(desk.has()) == {"a", "b"}
    desk.beat("a", 3, rack_id="other")
    before = desk.described()
    desk.restart()
    assert desk.described() == before


def test_requests_wait_for_the_write_in_progress(desk: ConsumerDesk) -> None:
    """They share the next write."""
    desk.held = []
    replies = [desk.enter(name) for name in "abc"]
    assert [reply.waits for reply in replies] == [True] * 3
    assert len(desk.held) == 1
    desk.release()
    assert [reply.error for reply in replies] == [0, 0, 0]
    assert len(desk.described().members) == 3


def test_requests_get_an_error_while_a_write_takes_too_long(desk: ConsumerDesk) -> None:
    """Until its outcome is known, and then it counts."""
    desk.held = []
    first, second = desk.enter("a"), desk.enter("b")
    desk.wait(desk.settings.offsets_commit_timeout_ms)
    third = desk.enter("c")
    codes = {reply.error for reply in (first, second, third)}
    assert codes == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    desk.release()
    assert list(desk.has()) == ["a"]
    assert desk.beat("a", 0, {}, rebalance_timeout_ms=1, subscribed_topic_names=["t"]).error == 0


def test_a_deletion_waits_for_the_write_in_progress(desk: ConsumerDesk) -> None:
    desk.enter("a")
    desk.held = []
    desk.beat("a", -1)
    gone = desk.delete("g")
    assert gone.waits
    desk.release()
    assert gone.results[0].error_code == 0
    desk.restart()
    assert desk.listed() == {}


# ---- other requests ------------------------------------------------------------------------


def test_the_two_protocols_do_not_mix_if_that_is_disabled() -> None:
    """A group with members takes only those of its own protocol."""
    desk = ConsumerDesk(config(**MODERN, group_consumer_migration_policy="disabled"))
    desk.enter("a")
    protocols = [("range", subscription("t"))]
    refused = desk.join(protocols=protocols)
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    desk.stable(1, "classic", protocols=protocols)
    reply = desk.enter("b", group="classic")
    assert (reply.error, reply.member_id) == (ErrorCode.GROUP_ID_NOT_FOUND, None)
    assert desk.described("classic").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.describe("g", 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_without_members_changes_its_protocol(desk: ConsumerDesk) -> None:
    """Its offsets stay, there and back, and across restarts."""
    protocols = [("range", subscription("t"))]
    (member,) = desk.stable(1, protocols=protocols)
    desk.commit({("t", 0): 5}, member.member_id, 1)
    desk.leave((member.member_id, None))
    assert desk.enter("a").error is ErrorCode.NONE
    desk.restart()
    assert (desk.offsets(), desk.listed()["g"].group_type) == ({("t", 0): 5}, "consumer")
    desk.beat("a", -1)
    assert desk.listed()["g"].group_state == "Empty"
    desk.stable(1, protocols=protocols)
    desk.restart()
    assert (desk.offsets(), desk.listed()["g"].group_type) == ({("t", 0): 5}, "classic")
    assert desk.state() == "Stable"


def test_a_member_commits_by_its_epoch(desk: ConsumerDesk) -> None:
    """Also by an earlier one, for partitions that it had then and still has."""
    desk.members("a", "b")
    kept = desk.has()["a"]["t"][0]
    moved = desk.has()["b"]["t"][0]

    def commit(member: str, epoch: int, number: int, version: int = 9) -> ErrorCode:
        reply = desk.commit({("t", number): 1}, member, epoch, version=version)
        return ErrorCode(reply.topics[0].partitions[0].error_code)

    assert commit("a", 3, kept) == 0
    assert commit("a", 2, kept) == 0
    assert commit("a", 2, moved) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit("a", 4, kept) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit("a", 3, kept, 8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit("x", 3, kept) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1, kept) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_fetches_offsets_by_its_epoch(desk: ConsumerDesk) -> None:
    desk.members("a")

    def fetch(**member: Any) -> ErrorCode:
        group = {"group_id": "g", "topics": None, **member}
        (found,) = desk.call(apis.OFFSET_FETCH, 9, {"groups": [group]}).groups
        return ErrorCode(found.error_code)

    assert fetch(member_id="a", member_epoch=2) == 0
    assert fetch() == 0
    assert fetch(member_id="a", member_epoch=1) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(member_id="b", member_epoch=2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_with_members_is_not_deleted(desk: ConsumerDesk) -> None:
    desk.enter("a")
    assert desk.delete("g").results[0].error_code == ErrorCode.NON_EMPTY_GROUP


def test_an_administrator_removes_members(desk: ConsumerDesk) -> None:
    desk.enter("a", instance_id="one")
    desk.enter("b")
    left = desk.leave(("", "one"), ("b", None), ("x", None))
    codes = [member.error_code for member in left.members]
    assert codes == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert desk.has() == {}


def test_offsets_of_topics_that_members_use_stay(desk: ConsumerDesk) -> None:
    """Others can be deleted, and expire."""
    desk.members("a")
    desk.commit({("t", 0): 1, ("u", 0): 1}, "a", 2)
    parts = [{"name": name, "partitions": [{"partition_index": 0}]} for name in "tu"]
    reply = desk.call(apis.OFFSET_DELETE, 0, {"group_id": "g", "topics": parts})
    codes = [topic.partitions[0].error_code for topic in reply.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert desk.offsets() == {("t", 0): 1}
