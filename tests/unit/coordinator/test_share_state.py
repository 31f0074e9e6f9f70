"""The share coordinator's decisions and records; Kafka decides the same, see
tests/kafka/referee/test_share_state.py."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from kafkalog.coordinator.share_state import messages, requests
from kafkalog.coordinator.share_state.persister import (
    ACKNOWLEDGED,
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateBatch,
    WriteState,
)
from kafkalog.coordinator.share_state.records import change_of, key_of, record_of
from kafkalog.coordinator.share_state.shard import WAITING_MAX
from kafkalog.coordinator.share_state.state import (
    BATCHES_MAX,
    SharePartition,
    ShareState,
    Snapshot,
    Update,
    combined,
)
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.share_calls import (
    GROUP,
    OTHER,
    TOPIC,
    ShareBench,
    drawn,
    settings,
    states,
)
from tests.unit.coordinator.virtual_core import WALL_MS

NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST


def acked(first: int, last: int, count: int = 1) -> StateBatch:
    return StateBatch(first, last, ACKNOWLEDGED, count)


@pytest.fixture
def bench() -> ShareBench:
    return ShareBench()


# ---- batches -----------------------------------------------------------------------------------


def test_batches_are_combined_offset_by_offset(rng: random.Random) -> None:
    for _ in range(1_000):
        before = combined((), drawn(rng), -1)
        more, start = drawn(rng), rng.choice((-1, rng.randrange(30)))
        found = combined(before, more, start)
        assert states(found, -1) == states([*before, *more], start)
        ends = [(one.first_offset, one.last_offset) for one in found]
        assert all(first <= last for first, last in ends)
        assert all(a[1] < b[0] for a, b in pairwise(ends))


def test_neighbours_in_the_same_state_become_one_batch() -> None:
    assert combined([acked(0, 4)], [acked(5, 9)], -1) == (acked(0, 9),)
    assert combined([acked(0, 4)], [acked(5, 9, 2)], -1) == (acked(0, 4), acked(5, 9, 2))
    assert combined([acked(0, 9)], [], 4) == (acked(4, 9),)


# ---- requests ----------------------------------------------------------------------------------


def test_a_state_begins_with_a_snapshot(bench: ShareBench) -> None:
    assert bench.initialize(3, 20).error is NONE
    assert bench.changes() == [Snapshot(ShareState(0, 3, 0, 20, 0, (), WALL_MS, WALL_MS))]
    assert bench.summary()[2:] == (NONE, None, 3, 0, 20, 0)
    bench.initialize(3, -1)  # again: another snapshot
    assert bench.changes()[1] == Snapshot(ShareState(1, 3, 0, -1, -1, (), WALL_MS, WALL_MS))


def test_writes_are_updates_until_a_snapshot_is_due() -> None:
    bench = ShareBench(settings(snapshot_update_records_per_snapshot=2))
    bench.initialize()
    for number in range(3):
        assert bench.write(acked(number, number), start=number, count=1).error is NONE
    now = ShareState(1, 0, 0, 2, 1, (acked(2, 2),), WALL_MS, WALL_MS)
    assert bench.changes()[1:] == [
        Update(0, 0, 0, 1, (acked(0, 0),)), Update(0, 0, 1, 1, (acked(1, 1),)), Snapshot(now),
    ]  # fmt: skip
    bench.restart()
    assert bench.read(0)[2:] == (NONE, None, 0, 2, (acked(2, 2),))
    bench.write(acked(5, 5))
    assert isinstance(bench.changes()[-1], Update)


def test_each_write_is_a_snapshot_if_no_update_is_allowed() -> None:
    bench = ShareBench(settings(snapshot_update_records_per_snapshot=0))
    bench.initialize()
    bench.write(acked(0, 3))
    bench.write(acked(4, 4, 2))
    assert [type(one) for one in bench.changes()] == [Snapshot] * 3


def test_a_read_fences_earlier_leaders_also_after_a_restart(bench: ShareBench) -> None:
    bench.initialize()
    assert bench.read(0).error is NONE
    assert len(bench.changes()) == 1  # it has the epoch already
    assert bench.read(4).error is NONE
    assert bench.changes()[1:] == [Update(0, 4, 0, 0, ())]
    for _ in range(2):
        assert bench.read(3).error is ErrorCode.FENCED_LEADER_EPOCH
        assert bench.write(leader_epoch=3).error is ErrorCode.FENCED_LEADER_EPOCH
        assert bench.write(leader_epoch=4).error is NONE
        assert bench.write(leader_epoch=5).error is NONE  # only reads raise it
        assert bench.summary().leader_epoch == 4
        bench.restart()


def test_earlier_state_epochs_are_fenced(bench: ShareBench) -> None:
    bench.initialize(5)
    assert bench.initialize(4).error is ErrorCode.FENCED_STATE_EPOCH
    assert bench.write(epoch=4).error is ErrorCode.FENCED_STATE_EPOCH
    assert bench.write(epoch=6).error is NONE


def test_a_lower_start_offset_changes_nothing(bench: ShareBench) -> None:
    bench.initialize(0, 10)
    bench.write(start=12, count=3)
    for start, count in ((-1, 9), (11, 9), (12, 2)):
        bench.write(start=start, count=count)
        assert bench.summary()[-2:] == (12, 3)
    bench.write(start=14, count=0)
    assert bench.summary()[-2:] == (14, 0)


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (InitializeState(TOPIC, -1, 0, 0), INVALID, requests.NEGATIVE_PARTITION),
        (InitializeState(TOPIC, 0, -1, 0), INVALID, requests.NEGATIVE_STATE_EPOCH),
        (InitializeState(TOPIC, 8, 0, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (InitializeState(UUID(int=1), 0, 0, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (ReadState(TOPIC, 0, -1), INVALID, requests.NEGATIVE_LEADER_EPOCH),
        (ReadState(TOPIC, 1, 0), INVALID, requests.READ_UNINITIALIZED),
        (WriteState(TOPIC, 1, 0, 0, 0, 0, ()), INVALID, requests.WRITE_UNINITIALIZED),
        (WriteState(TOPIC, 0, 0, 0, 0, 0, (acked(3, 2),)), INVALID,
         "state batch: found last offset 2, wanted first offset 3 or more"),
        (WriteState(TOPIC, 0, 0, 0, 0, 0, (acked(3, 3),) * (BATCHES_MAX + 1)), INVALID,
         "state batches: found 10001, wanted at most 10000 in a share partition"),
        (ReadSummary(TOPIC, -2, 0), INVALID, requests.NEGATIVE_PARTITION),
        (DeleteState(UUID(int=1), 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
    ],
)  # fmt: skip
def test_refusals(bench: ShareBench, asked: Any, code: ErrorCode, message: str | None) -> None:
    bench.initialize()
    found = bench.one(asked)
    assert found.error is code
    assert found.message == (message or requests.MESSAGES[code])
    assert len(bench.changes()) == 1


def test_the_batches_of_a_share_partition_are_bounded(bench: ShareBench) -> None:
    bench.initialize()
    half = BATCHES_MAX // 2
    for number in range(2):
        first = number * 2 * half
        assert (
            bench.write(*(acked(first + 2 * i, first + 2 * i) for i in range(half))).error is NONE
        )
    found = bench.write(acked(10**6, 10**6), acked(10**6 + 2, 10**6 + 2))
    assert (found.error, found.message) == (INVALID, requests._too_many(BATCHES_MAX + 2))
    assert bench.write(acked(10**6, 10**6), start=500).error is NONE


def test_a_deleted_state_is_gone(bench: ShareBench) -> None:
    assert bench.delete().error is NONE
    assert bench.changes() == []
    bench.initialize(5, 7)
    assert bench.delete().error is NONE
    assert bench.changes()[-1] is None
    for _ in range(2):
        assert bench.summary()[2:] == (NONE, None, 0, 0, -1, -1)
        assert not bench.core.shards[0].entries
        bench.restart()
    assert bench.core.weight.bytes == 0
    assert bench.initialize(1).error is NONE  # nothing is fenced any more


def test_a_deleted_topic_takes_its_states_along(bench: ShareBench) -> None:
    bench.initialize()
    bench.one(InitializeState(OTHER, 0, 0, 0))
    bench.drop(OTHER)
    assert bench.changes()[2:] == [None]
    assert [one.topic_id for one in bench.core.shards[0].live()] == [TOPIC]


def test_states_of_topics_that_are_gone_do_not_stay() -> None:
    """If their tombstone was not written, or if the topic was deleted while they were loaded."""
    bench = ShareBench(settings(cold_partition_snapshot_interval_ms=60_000))
    bench.initialize()
    for number in range(2):
        bench.one(InitializeState(OTHER, number, 0, 0))
    bench.errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    bench.drop(OTHER)
    assert [one.topic_id for one in bench.core.shards[0].live()] == [TOPIC, OTHER, OTHER]
    bench.errors = []
    bench.wait(60_000)
    assert [one.topic_id for one in bench.core.shards[0].live()] == [TOPIC]
    del bench.topics[TOPIC]
    bench.restart()
    bench.wait(60_000)
    assert list(bench.core.shards[0].live()) == []
    assert bench.changes()[-1] is None


def test_requests_for_more_memory_get_a_retriable_error() -> None:
    bench = ShareBench()
    bench.config = bench.config.of({"kafkalog.share.states.max.bytes": 3_000})
    bench.restart()
    found = [bench.initialize(partition=number).error for number in range(4)]
    assert found == [NONE, NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, found[2]]
    assert bench.write(*[acked(2 * i, 2 * i) for i in range(4)]).error is NONE
    assert bench.write(*[acked(2 * i, 2 * i) for i in range(30)]).error is found[2]
    later = [acked(100 + 2 * i, 100 + 2 * i) for i in range(4)]
    assert bench.write(*later, start=90).error is NONE, "it takes no more"
    bench.delete(1)
    assert bench.initialize(partition=2).error is NONE


# ---- the journal -------------------------------------------------------------------------------


def test_requests_wait_for_changes_in_progress(bench: ShareBench) -> None:
    bench.initialize()
    bench.held = []
    first = bench.ask(WriteState(TOPIC, 0, 0, 0, -1, -1, (acked(0, 0),)))
    others = [
        bench.ask(WriteState(TOPIC, 0, 0, 0, -1, -1, (acked(1, 1),))),
        bench.ask(ReadState(TOPIC, 0, 0)),
        bench.ask(ReadSummary(TOPIC, 0, 0)),
    ]
    assert not first and not any(others)
    bench.release()
    assert [found[0][0].error for found in (first, *others)] == [NONE] * 4
    assert others[1][0][0].state_batches == (acked(0, 1),)


def test_a_change_that_is_not_written_is_not_made(bench: ShareBench) -> None:
    bench.initialize()
    bench.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert bench.write(acked(0, 0)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert bench.read(3).error is ErrorCode.NOT_COORDINATOR
    bench.errors = [ErrorCode.MESSAGE_TOO_LARGE]
    assert bench.delete().error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.read(0)[3:] == (None, 0, 0, ())


def test_a_failed_change_that_the_journal_has_is_overruled(bench: ShareBench) -> None:
    """The next change is written as a snapshot, unless the journal certainly does not have it."""
    bench.initialize(3, 10)
    bench.errors = [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert bench.delete().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.journal.put(0, [record_of(SharePartition(GROUP, TOPIC, 0), None)])
    for number, kind in enumerate((Snapshot, Update)):
        assert bench.write(acked(12 + number, 12 + number), epoch=3).error is NONE
        assert isinstance(bench.changes()[-1], kind)
    bench.errors = [ErrorCode.MESSAGE_TOO_LARGE]
    assert bench.write(acked(14, 14), epoch=3).error is ErrorCode.UNKNOWN_SERVER_ERROR
    bench.write(acked(15, 15), epoch=3)
    assert isinstance(bench.changes()[-1], Update)
    bench.restart()
    assert bench.read(0)[2:] == (NONE, None, 3, 10, (acked(12, 13), acked(15, 15)))


def test_a_slow_change_is_made_all_the_same(bench: ShareBench) -> None:
    bench.initialize()
    bench.held = []
    first = bench.ask(WriteState(TOPIC, 0, 0, 0, -1, -1, (acked(0, 0),)))
    waits = bench.ask(ReadState(TOPIC, 0, 0))
    bench.wait(bench.config.share_coordinator_write_timeout_ms)
    for found in (first, waits):
        assert found[0][0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = bench.ask(ReadState(TOPIC, 0, 0))
    bench.release()
    assert again[0][0].state_batches == (acked(0, 0),)


def test_waiting_requests_are_bounded(bench: ShareBench) -> None:
    bench.initialize()
    bench.held = []
    found = [bench.ask(ReadState(TOPIC, 0, 1)) for _ in range(WAITING_MAX + 2)]
    assert found[-1][0][0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not any(found[:-1])
    bench.release()
    assert all(one[0][0].error is NONE for one in found[:-1])


def test_a_resignation_answers_everything(bench: ShareBench) -> None:
    bench.initialize()
    bench.held = []
    found = [bench.ask(ReadState(TOPIC, 0, 1)) for _ in range(3)]
    bench.step(lambda step: bench.core.resign(0, step))
    assert [one[0][0].error for one in found] == [ErrorCode.NOT_COORDINATOR] * 3
    assert bench.summary().error is ErrorCode.NOT_COORDINATOR
    assert bench.core.weight.bytes == 0


def test_old_records_are_pruned() -> None:
    bench = ShareBench(settings(snapshot_update_records_per_snapshot=1,
                                state_topic_prune_interval_ms=1_000))  # fmt: skip
    for number in range(2):
        bench.initialize(partition=number)
    for number in range(4):
        bench.write(acked(number, number))  # offsets 2 to 5: 3 and 5 are snapshots
    bench.wait(1_000)
    assert [one.offset for one in bench.prunes] == [1]  # the other partition's
    bench.delete(1)
    bench.wait(1_000)
    assert [one.offset for one in bench.prunes] == [1, 5]
    bench.wait(5_000)
    assert len(bench.prunes) == 2
    bench.restart()
    assert bench.read(0).state_batches == (acked(0, 3),)
    bench.step(lambda step: bench.core.not_pruned(bench.prunes[-1], step))
    bench.wait(1_000)
    assert bench.prunes[-1] == bench.prunes[1]


def test_states_that_do_not_change_are_written_again() -> None:
    bench = ShareBench(settings(cold_partition_snapshot_interval_ms=60_000,
                                state_topic_prune_interval_ms=60_000))  # fmt: skip
    bench.initialize()
    bench.write(acked(0, 3))
    bench.wait(60_000)
    again = bench.changes()[-1]
    now = ShareState(1, 0, 0, 0, 0, (acked(0, 3),), WALL_MS, WALL_MS + 60_000)
    assert again == Snapshot(now)
    count = len(bench.changes())
    bench.wait(600_000)  # all are copies: no more of them
    assert [one.offset for one in bench.prunes][-1] == 2
    assert len(bench.changes()) <= count


def test_foreign_records_are_skipped(bench: ShareBench, caplog: pytest.LogCaptureFixture) -> None:
    bench.initialize()
    bench.journal.put(0, [(b"\0\x09x", b"y"), (b"\0", b"z"), (b"\0\1short", None)])
    bench.restart()
    assert bench.summary().error is NONE
    assert len(caplog.records) == 3


def test_records_of_lost_snapshots_are_taken_as_kafka_takes_them(bench: ShareBench) -> None:
    where = SharePartition(GROUP, TOPIC, 0)
    bench.journal.put(0, [record_of(where, Update(3, 2, 5, 1, (acked(6, 6),)))])
    bench.restart()
    assert bench.read(2)[2:] == (NONE, None, 0, 5, (acked(6, 6),))


@pytest.mark.parametrize(
    "asked",
    [InitializeState(TOPIC, 0, 0, 5), ReadState(TOPIC, 0, 0), ReadSummary(TOPIC, 0, 0),
     WriteState(TOPIC, 0, 0, 0, 6, 1, (acked(8, 8),)), DeleteState(TOPIC, 0)],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_each_api_in_each_version(bench: ShareBench, asked: Any) -> None:
    """A broker's questions and the answers; a message without a group or a partition is answered
    with an empty list."""
    bench.initialize(0, 5)
    missing = asked._replace(topic_id=UUID(int=1))
    api = messages.API_OF[type(asked)]
    for version in api.versions:
        body = bench.call(api, version, messages.question(GROUP, [asked, missing], version))
        found = messages.results_in(api, body)
        assert found[TOPIC, 0] == bench.one(asked)._replace(
            **({} if version or not isinstance(asked, ReadSummary)
               else {"delivery_complete_count": -1})
        )  # fmt: skip
        assert found[UUID(int=1), 0].error is bench.one(missing).error
        for group, rows in (("", [asked]), (GROUP, [])):
            fields = messages.question(group, rows, version)
            assert bench.call(api, version, fields).results == []
    none = {"group_id": GROUP, "topics": [{"topic_id": TOPIC, "partitions": []}]}
    assert bench.call(api, 0, none).results == []


def test_keys_are_kafkas() -> None:
    where = SharePartition("a:b", UUID(int=2**64 + 3), 4)
    assert where.key == "a:b:AAAAAAAAAAEAAAAAAAAAAw:4"
    found = key_of(record_of(where, None)[0])
    assert found is not None and found[0] == where
    assert change_of("ShareSnapshot", None) is None
