"""Committed offsets: which are kept, which are refused, when they expire."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import pytest

from kafkalog._native import lib
from kafkalog.coordinator.groups.group import CommittedOffset
from kafkalog.coordinator.groups.offsets import RECORD_BYTES_MIN
from kafkalog.coordinator.groups.records import offset_records
from kafkalog.coordinator.partitions import partition_for
from kafkalog.coordinator.step import Call
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import OFFSETS
from tests.unit.coordinator.group_calls import Desk, config, subscription
from tests.unit.coordinator.test_states import codes
from tests.unit.coordinator.virtual_core import WALL_MS

NONE = ErrorCode.NONE
MINUTE_MS = 60_000
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


@pytest.fixture
def desk() -> Desk:
    return Desk(config(offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE_MS))


def last_record(desk: Desk) -> tuple[Any, int, Any]:
    """Key, version and value of the last written record."""
    found = [r for batches in desk.journal.batches.values() for b in batches for r in b.records]
    (record,) = found[-1:]
    name, _, key = OFFSETS.decode_key(record.key or b"")
    version, value = OFFSETS.decode_value(name, record.value or b"")
    return key, version, value


# ---- commit --------------------------------------------------------------------------------


def test_metadata_and_leader_epoch_come_back(desk: Desk) -> None:
    for metadata in ("", "plain", "grüß dich, 日本", "x" * 4096):
        desk.commit({T0: 7}, metadata=metadata, leader_epoch=5)
        desk.restart()
        found = desk.committed()[T0]
        assert (found.committed_offset, found.committed_leader_epoch) == (7, 5)
        assert found.metadata == metadata
    desk.commit({T0: 7}, metadata=None)
    assert desk.committed()[T0].metadata == ""


def test_too_long_metadata_concerns_its_partition_only(desk: Desk) -> None:
    fields = {
        "group_id": "g",
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": i, "committed_offset": 5, "committed_metadata": m}
                    for i, m in enumerate(["x" * 4097, "x"])
                ],
            }
        ],
    }
    reply = desk.call(apis.OFFSET_COMMIT, 8, fields)
    assert codes(reply) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, NONE]
    assert desk.offsets() == {T1: 5}


def test_a_retention_beyond_the_clock_expires_at_the_next_check(desk: Desk) -> None:
    """As in Kafka: the sum of now and the longest time overflows.  It does not fit a record."""
    assert codes(desk.commit({T0: 5}, retention_ms=(1 << 63) - 1, version=3)) == [NONE]
    assert desk.offsets() == {T0: 5}
    desk.commit({T1: 6}, retention_ms=10 * MINUTE_MS, version=3)
    desk.wait(2 * MINUTE_MS)
    assert desk.offsets() == {T1: 6}


def test_unknown_partitions_are_told_one_by_one() -> None:
    desk = Desk(topics={"t": 1})
    reply = desk.commit({("nowhere", 0): 1, ("t", 1): 1, ("t", 0): 1})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(reply) == [unknown, unknown, NONE]
    assert desk.offsets() == {T0: 1}
    assert codes(desk.commit({("nowhere", 0): 1}, group="other")) == [unknown]
    assert "other" not in desk.listed()


def test_records_are_version_4_or_1_with_an_expiry_of_their_own(desk: Desk) -> None:
    desk.commit({T0: 7}, leader_epoch=2, metadata="m")
    key, version, value = last_record(desk)
    assert (key.group, key.topic, key.partition, version) == ("g", "t", 0, 4)
    assert value.topic_id == desk.id_of("t")
    assert (value.offset, value.leader_epoch, value.metadata) == (7, 2, "m")
    assert value.commit_timestamp == WALL_MS
    desk.commit({T0: 7}, version=4, retention_ms=1_000)
    _, version, value = last_record(desk)
    assert (version, value.expire_timestamp) == (1, WALL_MS + 1_000)


def by_id(desk: Desk, topic_id: UUID, *partitions: int) -> list[tuple[int, int]]:
    """(offset, error) of each partition, from OffsetFetch version 10."""
    topics = [{"topic_id": topic_id, "partition_indexes": list(partitions)}]
    reply = desk.call(apis.OFFSET_FETCH, 10, {"groups": [{"group_id": "g", "topics": topics}]})
    (found,) = reply.groups[0].topics
    assert found.topic_id == topic_id
    return [(one.committed_offset, one.error_code) for one in found.partitions]


def test_topics_have_ids(desk: Desk) -> None:
    """KIP-848: an unknown id fails only its own partitions."""
    known, strange = desk.id_of("t"), UUID(int=99)
    parts = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
    topics = [{"topic_id": one, "partitions": parts} for one in (strange, known)]
    reply = desk.call(apis.OFFSET_COMMIT, 10, {"group_id": "g", "member_id": "", "topics": topics})
    told = [(one.topic_id, one.partitions[0].error_code) for one in reply.topics]
    assert told == [(strange, ErrorCode.UNKNOWN_TOPIC_ID), (known, NONE)]
    assert desk.offsets() == {T0: 7}
    assert by_id(desk, known, 0, 1) == [(7, NONE), (-1, NONE)]
    assert by_id(desk, strange, 0) == [(-1, ErrorCode.UNKNOWN_TOPIC_ID)]
    every = {"groups": [{"group_id": "g", "topics": None}]}
    (found,) = desk.call(apis.OFFSET_FETCH, 10, every).groups[0].topics
    assert (found.topic_id, found.partitions[0].committed_offset) == (known, 7)


def test_an_offset_of_a_recreated_topic_is_of_its_id(desk: Desk) -> None:
    """Also after a restart; requests by name still find it."""
    desk.commit({T0: 7})
    desk.names = {UUID(int=50): "t"}
    for _ in range(2):
        assert by_id(desk, UUID(int=50), 0) == [(-1, NONE)]
        assert desk.offsets() == {T0: 7}
        desk.restart()
    desk.commit({T0: 8})
    assert by_id(desk, UUID(int=50), 0) == [(8, NONE)]


def test_an_offset_without_a_topic_id_matches_any(desk: Desk) -> None:
    """Older versions of the record have no topic id."""
    desk.commit({T0: 7}, version=4, retention_ms=MINUTE_MS)
    desk.restart()
    assert by_id(desk, desk.id_of("t"), 0) == [(7, NONE)]


def test_a_commit_is_one_batch_and_shows_when_it_is_written(desk: Desk) -> None:
    desk.held = []
    reply = desk.commit({T0: 1, T1: 2, U0: 3})
    assert reply.waits
    assert desk.offsets() == {}
    (append,) = desk.held
    assert len(append.records) == 3
    desk.release()
    assert codes(reply) == [NONE] * 3
    assert desk.offsets() == {T0: 1, T1: 2, U0: 3}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_failing_journal(error: ErrorCode, told: ErrorCode) -> None:
    desk = Desk()
    desk.commit({T0: 1})
    desk.errors = [error]
    assert codes(desk.commit({T0: 2})) == [told]
    assert desk.offsets() == {T0: 1}


def test_a_commit_that_no_batch_can_hold_is_refused_before_it_is_encoded(desk: Desk) -> None:
    """The others wait for it: encoding a hundred thousand offsets takes a second."""
    desk.batch_bytes = 100 * RECORD_BYTES_MIN
    few, many = ({("t", number): 1 for number in range(count)} for count in (100, 101))
    assert codes(desk.commit(few)) == [NONE] * 100
    desk.held = []  # nothing is written
    assert codes(desk.commit(many, group="new")) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 101
    offsets = [{"partition_index": number, "committed_offset": 1} for _, number in many]
    asked = {"transactional_id": "x", "group_id": "late", "producer_id": 7, "producer_epoch": 0,
             "topics": [{"name": "t", "partitions": offsets}]}  # fmt: skip
    refused = desk.call(apis.TXN_OFFSET_COMMIT, 3, asked)
    assert codes(refused) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 101
    assert set(desk.listed()) == {"g"}


def test_a_record_of_an_offset_has_at_least_that_many_bytes() -> None:
    offset = CommittedOffset(0, 0, "", 0, -1, -1, UUID(int=0))
    ((key, value),) = offset_records("", {TopicPartition("", 0): offset})
    assert len(key) + len(value or b"") >= RECORD_BYTES_MIN


def test_a_slow_journal(desk: Desk) -> None:
    """The client gets an error in time; a commit that is written later still counts."""
    desk.held = []
    reply = desk.commit({T0: 1})
    desk.wait(4_999)
    assert reply.waits
    desk.wait(1)
    assert codes(reply) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert desk.offsets() == {}
    desk.release()
    assert desk.offsets() == {T0: 1}


def test_commits_of_one_moment_share_a_batch() -> None:
    """So do the writes of several groups, up to a size; each has its own answer."""
    desk = Desk(partitions=1)
    desk.held = []
    core = desk.core
    done: list[Any] = []

    def many(step: Any) -> None:
        for number in range(10):
            fields = {
                "group_id": f"g{number}",
                "topics": [
                    {
                        "name": "t",
                        "partitions": [
                            {"partition_index": p, "committed_offset": 1,
                             "committed_metadata": "x" * 4000}
                            for p in range(10)
                        ],
                    }
                ],
            }  # fmt: skip
            body = apis.OFFSET_COMMIT.decode_request(
                8, apis.OFFSET_COMMIT.encode_request(8, fields)
            )
            request = Call(body, 8, "c", "/h", done.append)
            core.request(apis.OFFSET_COMMIT, request, step)

    desk.step(many)
    sizes = [sum(len(v or b"") for _, v in append.records) for append in desk.held]
    assert [len(append.writes) for append in desk.held] == [6, 4]
    assert max(sizes) < 262_144
    desk.release()
    assert len(done) == 10


# ---- fetch ---------------------------------------------------------------------------------


def test_several_groups_in_one_request(desk: Desk) -> None:
    for number in range(5):
        desk.commit({T0: number}, group=f"g{number}")
    asked = [{"group_id": f"g{number}", "topics": None} for number in (3, 9, 0)]
    reply = desk.call(apis.OFFSET_FETCH, 8, {"groups": asked})
    assert [group.group_id for group in reply.groups] == ["g3", "g9", "g0"]
    assert [len(group.topics) for group in reply.groups] == [1, 0, 1]


def transactional(desk: Desk, producer_id: int, offsets: dict[tuple[str, int], int]) -> None:
    """Write into the journal what a TxnOffsetCommit leaves there."""
    values = {
        TopicPartition(*where): CommittedOffset(offset, -1, "", 0, -1, 0)
        for where, offset in offsets.items()
    }
    partition = partition_of(desk)
    records = offset_records("g", values)
    desk.journal.put(partition, records, producer_id=producer_id, transactional=True)


def marker(desk: Desk, producer_id: int, kind: int) -> None:
    partition = partition_of(desk)
    desk.journal.put(partition, [], producer_id=producer_id, transactional=True, marker=kind)


def partition_of(desk: Desk) -> int:
    """The partition of the group's records."""
    return partition_for("g", desk.partitions)


def test_offsets_of_transactions(desk: Desk) -> None:
    """Pending until their marker, then valid or forgotten; a later plain commit wins."""
    desk.commit({T0: 1, T1: 1})
    transactional(desk, 7, {T0: 5, U0: 6})
    transactional(desk, 8, {T1: 9})
    desk.restart()
    assert desk.offsets() == {T0: 1, T1: 1}
    stable = desk.committed(stable=True)
    assert {w: o.error_code for w, o in stable.items()} == {T0: 88, T1: 88}
    assert stable[T0].committed_offset == -1
    marker(desk, 8, lib.KL_CONTROL_ABORT)
    desk.restart()
    assert desk.committed(stable=True)[T1].committed_offset == 1
    desk.commit({U0: 100})
    marker(desk, 7, lib.KL_CONTROL_COMMIT)
    desk.restart()
    assert desk.offsets() == {T0: 5, T1: 1, U0: 100}
    assert not any(shard.open for shard in desk.core.shards.values())


def test_a_transaction_ends_while_the_coordinator_runs(desk: Desk) -> None:
    desk.commit({T0: 1})
    transactional(desk, 7, {T0: 5, U0: 6})
    transactional(desk, 8, {T1: 9})
    desk.restart()
    desk.commit({U0: 100})
    shard = desk.core.shards[partition_of(desk)]
    shard.end_transaction(7, True)
    shard.end_transaction(8, False)
    shard.end_transaction(9, True)
    assert desk.offsets() == {T0: 5, U0: 100}
    assert desk.committed(stable=True)[T0].error_code == 0


@pytest.mark.parametrize("how", ["group", "offsets", "topic"])
@pytest.mark.parametrize("before", [True, False])
def test_deleted_offsets_do_not_return_with_a_transaction(
    desk: Desk, how: str, before: bool
) -> None:
    """In the journal as in memory, with or without an earlier commit; commits after the deletion
    count."""
    if before:
        desk.commit({T0: 1})
    transactional(desk, 7, {T0: 5})
    desk.restart()
    if how == "group":
        assert desk.delete("g").results[0].error_code == NONE
    elif how == "offsets":
        topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        fields = {"group_id": "g", "topics": topics}
        assert codes(desk.call(apis.OFFSET_DELETE, 0, fields)) == [NONE]
    else:
        desk.step(lambda step: desk.core.drop_topics({"t"}, step))
    assert desk.committed(stable=True).get(T0) is None
    transactional(desk, 7, {T1: 6})
    desk.restart()
    marker(desk, 7, lib.KL_CONTROL_COMMIT)
    desk.restart()
    assert desk.offsets() == {T1: 6}


@pytest.mark.parametrize("how", ["group", "offsets"])
def test_an_end_finds_no_deleted_offsets(desk: Desk, how: str) -> None:
    desk.commit({U0: 1})
    transactional(desk, 7, {T0: 5})
    desk.restart()
    if how == "group":
        desk.delete("g")
    else:
        topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        desk.call(apis.OFFSET_DELETE, 0, {"group_id": "g", "topics": topics})
    desk.core.shards[partition_of(desk)].end_transaction(7, True)
    assert desk.offsets() == ({} if how == "group" else {U0: 1})


# ---- expiry of offsets ---------------------------------------------------------------------


def test_a_group_without_members_expires(desk: Desk) -> None:
    """Offsets by their commit time; then the group itself, with tombstones for all."""
    desk.commit({T0: 1})
    desk.wait(5 * MINUTE_MS)
    desk.commit({T1: 2})
    desk.wait(6 * MINUTE_MS)
    assert desk.offsets() == {T1: 2}
    desk.wait(6 * MINUTE_MS)
    assert desk.listed() == {}
    desk.restart()
    assert desk.listed() == {}


def test_an_empty_group_expires_all_at_once(desk: Desk) -> None:
    """Its retention starts when the last member leaves, however old the commits are."""
    (member,) = desk.stable(1, session_ms=30 * MINUTE_MS)
    desk.commit({T0: 1}, member.member_id, 1)
    desk.wait(20 * MINUTE_MS)
    desk.leave((member.member_id, None))
    desk.wait(9 * MINUTE_MS)
    desk.restart()
    assert desk.offsets() == {T0: 1}
    desk.wait(2 * MINUTE_MS)
    assert desk.listed() == {}
    desk.restart()
    assert desk.listed() == {}


def test_a_stable_group_expires_offsets_of_unsubscribed_topics(desk: Desk) -> None:
    """Only in consumer groups, and only for topics to which no member subscribes."""
    consumers = [("range", subscription("t"))]
    (member,) = desk.stable(1, protocols=consumers, session_ms=30 * MINUTE_MS)
    desk.commit({T0: 1, U0: 2}, member.member_id, 1)
    kinds: dict[str, Any] = {"protocol_type": "connect", "session_ms": 30 * MINUTE_MS}
    (worker,) = desk.stable(1, "workers", **kinds)
    desk.commit({U0: 2}, worker.member_id, 1, "workers")
    for _ in range(12):
        desk.wait(MINUTE_MS)
        desk.heartbeat(member.member_id, 1)
    assert desk.offsets() == {T0: 1}
    assert desk.offsets("workers") == {U0: 2}


def test_an_expiry_of_its_own(desk: Desk) -> None:
    """A retention in the request overrides the broker's."""
    desk.commit({T0: 1}, version=4, retention_ms=2 * MINUTE_MS)
    desk.commit({T1: 1}, version=4, retention_ms=60 * MINUTE_MS)
    desk.commit({U0: 1}, version=4)
    desk.restart()
    desk.wait(4 * MINUTE_MS)
    assert desk.offsets() == {T1: 1, U0: 1}
    desk.wait(8 * MINUTE_MS)
    assert desk.offsets() == {T1: 1}


def test_pending_offsets_do_not_expire(desk: Desk) -> None:
    desk.commit({T0: 1})
    transactional(desk, 7, {T0: 5})
    desk.restart()
    desk.wait(30 * MINUTE_MS)
    assert desk.offsets() == {T0: 1}


def test_a_commit_on_its_way_is_not_expired(desk: Desk) -> None:
    desk.commit({T0: 1})
    desk.wait(15 * MINUTE_MS - 1_000)
    desk.held = []
    desk.commit({T0: 2}, group="g")
    desk.wait(3_000)
    desk.release()
    desk.restart()
    assert desk.offsets() == {T0: 2}
    desk.commit({T0: 3})
    desk.held = []
    desk.commit({T0: 4})
    desk.wait(2_000)
    assert all(value is not None for append in desk.held for _, value in append.records)


def test_members_with_a_pending_id_keep_the_group(desk: Desk) -> None:
    given = desk.new_id(session_ms=5 * MINUTE_MS)
    desk.wait(3 * MINUTE_MS)
    assert desk.join(given).waits
    desk.wait(20 * MINUTE_MS)
    assert desk.listed() == {}


def test_a_topic_is_deleted(desk: Desk) -> None:
    """Its offsets are deleted, also those of active groups."""
    (member,) = desk.stable(1, "alive")
    desk.commit({T0: 1, U0: 2}, member.member_id, 1, "alive")
    desk.commit({T0: 1, U0: 2})
    desk.step(lambda step: desk.core.drop_topics({"t"}, step))
    for _ in range(2):
        assert desk.offsets() == desk.offsets("alive") == {U0: 2}
        desk.restart()


# ---- administration ------------------------------------------------------------------------


def test_offset_delete(desk: Desk) -> None:
    """Only for topics without subscribers; one result for each partition."""
    (member,) = desk.stable(1, protocols=[("range", subscription("t"))])
    desk.commit({T0: 1, U0: 2, ("u", 1): 3}, member.member_id, 1)
    topics = [
        {"name": name, "partitions": [{"partition_index": p} for p in parts]}
        for name, parts in (("t", [0]), ("u", [0, 5]))
    ]
    reply = desk.call(apis.OFFSET_DELETE, 0, {"group_id": "g", "topics": topics})
    assert reply.error is NONE
    assert codes(reply) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE, NONE]
    assert desk.offsets() == {T0: 1, ("u", 1): 3}
    desk.restart()
    assert desk.offsets() == {T0: 1, ("u", 1): 3}
    desk.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    topics = [{"name": "u", "partitions": [{"partition_index": 1}]}]
    reply = desk.call(apis.OFFSET_DELETE, 0, {"group_id": "g", "topics": topics})
    assert reply.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.offsets() == {T0: 1, ("u", 1): 3}


def test_delete_groups(desk: Desk) -> None:
    """Each group has one result, even if named twice."""
    desk.stable(1, "alive")
    for name in ("a", "b"):
        desk.commit({T0: 1}, group=name)
    reply = desk.delete("a", "alive", "nobody", "b", "a")
    assert {r.group_id: ErrorCode(r.error_code) for r in reply.results} == {
        "a": NONE,
        "alive": ErrorCode.NON_EMPTY_GROUP,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
        "b": NONE,
    }
    assert len(reply.results) == 4
    for _ in range(2):
        assert set(desk.listed()) == {"alive"}
        desk.restart()
    assert desk.delete().results == []


def test_a_deletion_takes_a_commit_on_its_way_with_it(desk: Desk) -> None:
    """All that is in the journal before the deletion is deleted by it."""
    desk.commit({T0: 1})
    desk.held = []
    committed = desk.commit({T1: 2})
    deleted = desk.delete("g")
    desk.release()
    assert codes(committed) == [NONE]
    assert deleted.results[0].error_code == NONE
    desk.restart()
    assert desk.offsets() == {}
    assert desk.listed() == {}


def test_commits_that_are_not_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept until their outcome is known, also once they were answered."""
    monkeypatch.setattr("kafkalog.coordinator.groups.core.UNSETTLED_BYTES_MAX", 10_000)
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    desk.held = []
    waiting = [desk.commit({T0: number}, metadata="m" * 4_000) for number in range(3)]
    assert all(one.waits for one in waiting)
    desk.wait(60_000)
    assert [codes(one) for one in waiting] == [[unavailable]] * 3
    assert codes(desk.commit({T0: 9})) == [unavailable]
    assert desk.join().error is unavailable
    desk.release()
    assert desk.core.unsettled_bytes == 0
    assert codes(desk.commit({T0: 9})) == [NONE]
    assert desk.offsets() == {T0: 9}


@pytest.mark.parametrize("held", [True, False])
def test_bytes_of_commits_of_a_partition_given_up(desk: Desk, held: bool) -> None:
    desk.held = [] if held else None
    desk.commit({T0: 1})
    for partition in list(desk.core.shards):
        desk.step(partial(desk.core.resign, partition))
    assert desk.core.unsettled_bytes == 0
    desk.release()
    assert desk.core.unsettled_bytes == 0
