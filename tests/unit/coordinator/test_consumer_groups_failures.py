"""Groups whose members heartbeat: failed and slow writes, foreign records, memory, clocks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkalog.coordinator.consumer_groups import records, sessions
from kafkalog.coordinator.consumer_groups.patterns import Lookup, look_up
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.consumer_calls import MODERN, ConsumerDesk, given
from tests.unit.coordinator.group_calls import config, subscription

CLASSIC = [("range", subscription("t"))]


@pytest.fixture
def desk() -> ConsumerDesk:
    return ConsumerDesk()


def consumer(desk: ConsumerDesk) -> Any:
    """The coordinator's knowledge about the group's members that heartbeat."""
    (shard,) = (one for one in desk.core.shards.values() if "g" in one.groups)
    return shard.groups["g"].consumer


def stuck(desk: ConsumerDesk) -> None:
    """Let a write about the group take too long."""
    desk.held = []
    desk.enter("slow")
    desk.wait(desk.settings.offsets_commit_timeout_ms)


def test_a_failed_write_of_the_classic_group_leaves_later_members(desk: ConsumerDesk) -> None:
    """The group's last classic write fails after a member of the newer protocol has joined."""
    (member,) = desk.stable(1, protocols=CLASSIC)
    desk.held = []
    desk.leave((member.member_id, None))
    joined = desk.enter("a")
    classic, newer = desk.held
    desk.held = None
    desk.step(lambda step: desk.core.settled(classic.number, ErrorCode.NOT_ENOUGH_REPLICAS, step))
    desk._write(newer, ErrorCode.NONE)
    desk.step(lambda step: desk.core.settled(newer.number, ErrorCode.NONE, step))
    assert joined.error is ErrorCode.NONE
    assert desk.beat("a", joined.member_epoch).error is ErrorCode.NONE


def test_a_refused_member_leaves_a_classic_group_as_it_was(desk: ConsumerDesk) -> None:
    """Offsets of topics that classic members use are not deleted."""
    desk.commit({("t", 0): 5})
    assert desk.enter("a", subscribed_topic_regex="(").error
    desk.held = None
    joined = desk.join(desk.new_id(protocols=CLASSIC), protocols=CLASSIC)
    asked = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
    kept = desk.call(apis.OFFSET_DELETE, 0, asked)
    assert joined.waits
    assert kept.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize("version", [2, 5])
def test_an_administrator_is_told_that_nobody_was_removed(desk: ConsumerDesk, version: int) -> None:
    """A write about the group takes too long."""
    stuck(desk)
    left = desk.leave(("slow", None), version=version)
    rows = left.members if version > 2 else [left]
    assert [row.error_code for row in rows] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_a_member_that_gives_nothing_up_is_removed_after_a_slow_write(desk: ConsumerDesk) -> None:
    """Its rebalance timeout ends during the write."""
    desk.enter("a", rebalance_timeout_ms=7_000)
    desk.enter("b")
    desk.beat("a", 2, {"t": [0, 1, 2, 3]})
    desk.wait(2_000)
    stuck(desk)
    desk.wait(1_000)
    desk.release()
    for _ in range(4):
        desk.beat("a", 2, {"t": [0, 1, 2, 3]})
        desk.beat("b", 3)
        desk.wait(2_500)
    assert "a" not in desk.has()


def test_a_classic_member_waits_for_the_last_of_the_others_to_leave(desk: ConsumerDesk) -> None:
    """Then the group is a classic one, whatever the policy."""
    desk.enter("a")
    desk.held = []
    desk.beat("a", -1)
    asked = desk.join(protocols=CLASSIC)
    assert asked.waits
    desk.release()
    assert asked.error is ErrorCode.MEMBER_ID_REQUIRED
    assert desk.join(asked.member_id, protocols=CLASSIC).waits


def test_an_assignor_that_is_unknown_here_is_replaced_by_the_default(desk: ConsumerDesk) -> None:
    """A group of another broker may prefer it."""
    desk.enter("a", server_assignor="uniform")
    group = consumer(desk)
    group.put_member(group.members["a"]._replace(assignor="of_theirs"))
    key, value = records.restated("g", group, records.SUBSCRIPTION, "a")
    (partition,) = (n for n, one in desk.core.shards.items() if "g" in one.groups)
    desk.journal.put(partition, [(key, value)])
    desk.restart()
    assert desk.enter("b").error is ErrorCode.NONE


def test_a_lookup_that_fails_is_repeated(desk: ConsumerDesk) -> None:
    """The member's rights cannot be read."""
    desk.enter("a", subscribed_topic_names=[], subscribed_topic_regex="t")
    (lookup,) = desk.lookups

    def broken(_names: Any) -> Any:
        raise RuntimeError("no rights")

    found = look_up(Lookup(*lookup[:3], broken), desk.counts, desk.version)
    desk.lookups = []
    desk.step(lambda step: desk.core.looked_up(lookup, found, step))
    desk.beat("a", 1)
    desk.look_up()
    assert desk.beat("a", 1).assignment is not None


def test_failed_writes_of_new_members_are_not_remembered_for_ever(
    desk: ConsumerDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From some number on they wait until a write succeeds; the others go on."""
    desk.members("a")
    monkeypatch.setattr(sessions, "UNSURE_MAX", 30)
    for number in range(30):
        desk.errors = [ErrorCode.KAFKA_STORAGE_ERROR]
        desk.enter(f"m{number}")
    assert len(consumer(desk).unsure) <= 40
    assert desk.beat("a", 2).error is ErrorCode.NONE
    assert consumer(desk).unsure == {}
    assert desk.enter("b").error is ErrorCode.NONE


def test_a_write_that_is_too_large_is_not_repeated(desk: ConsumerDesk) -> None:
    """The journal certainly does not have it."""
    desk.members("a")
    desk.errors = [ErrorCode.RECORD_LIST_TOO_LARGE]
    assert desk.enter("b").error
    assert consumer(desk).unsure == {}


def test_much_that_failed_is_written_over_in_parts(desk: ConsumerDesk) -> None:
    """So that one write is never too large."""
    names = [f"{number}{'x' * 2_000}" for number in range(60)]
    for name in names:
        desk.enter(name)
    desk.held = []
    for name in names:
        desk.beat(name, -1)
    desk.errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 4
    desk.release(ErrorCode.NOT_ENOUGH_REPLICAS)
    desk.errors = []
    assert len(desk.has()) == len(names)
    sizes = []
    while consumer(desk).unsure:
        desk.held = []
        desk.beat(names[0], 99)
        (held,) = desk.held
        sizes.append(sum(len(key) + len(value or b"") for key, value in held.records))
        desk.release()
    assert len(sizes) > 1
    assert max(sizes) < 120_000


def test_later_texts_of_members_count_as_memory() -> None:
    """Also what is not a topic."""
    desk = ConsumerDesk(config(**MODERN, kafkalog_groups_max_bytes=12_000))
    desk.enter("a")
    grown = desk.beat("a", 2, rack_id="r" * 9_000)
    assert grown.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.beat("a", 2).error is ErrorCode.NONE


def test_requests_that_wait_count_as_memory() -> None:
    """They are to be sent again."""
    desk = ConsumerDesk(config(**MODERN, kafkalog_groups_max_bytes=30_000))
    desk.held = []
    desk.enter("a")
    replies = [desk.enter(f"b{number}", "x" * 9_000) for number in range(4)]
    assert replies[-1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.release()
    for name in desk.has():
        desk.beat(name, -1)
    desk.delete("g")
    assert desk.core.weight.bytes == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"rack_id": "r" * 9_000},
        {"topic_partitions": [{"topic_id": UUID(int=at), "partitions": []} for at in range(1, 21)]},
    ],
)
def test_all_that_a_request_that_waits_says_counts_as_memory(fields: dict[str, Any]) -> None:
    desk = ConsumerDesk(config(**MODERN, kafkalog_groups_max_bytes=30_000))
    epoch = desk.enter("a").member_epoch
    desk.held = []
    desk.enter("b")
    replies = [desk.beat("a", epoch, **fields) for _ in range(4)]
    assert replies[-1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_topics_that_match_patterns_count_as_memory() -> None:
    topics = {f"topic-{number}": 1 for number in range(100)}
    desk = ConsumerDesk(config(**MODERN, kafkalog_groups_max_bytes=12_000), topics=topics)
    joined = desk.enter("a", subscribed_topic_names=[], subscribed_topic_regex=".*")
    desk.look_up()
    assert given(desk.beat("a", joined.member_epoch)) is None
    assert desk.core.weight.bytes < 12_000


def test_a_clock_that_was_set_back_delays_no_assignment() -> None:
    """The last one was made in the future."""
    desk = ConsumerDesk(config(**{**MODERN, "group_consumer_assignment_interval_ms": 500}))
    desk.enter("a")
    consumer(desk).assignment_ms += 3_600_000
    assert desk.enter("b").member_epoch == 3


def test_a_static_member_that_missed_its_first_answer_joins_after_its_session(
    desk: ConsumerDesk,
) -> None:
    """Its refused requests do not keep alive the member that the group knows."""
    desk.enter("a", instance_id="one")
    replies = []
    for _ in range(6):
        desk.wait(2_000)
        replies.append(desk.enter("a", instance_id="one").error)
    assert replies[0] is ErrorCode.UNRELEASED_INSTANCE_ID
    assert ErrorCode.NONE in replies
