"""A group that changes its protocol, and the writes that fail: nothing is half converted."""

from __future__ import annotations

import pytest

from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import OFFSETS
from tests.unit.coordinator.consumer_calls import ConsumerDesk
from tests.unit.coordinator.migration_calls import (
    CLASSIC,
    NONE,
    REBALANCE,
    assigned,
    classic_group,
    kinds,
    mixed,
    of_policy,
    snapshot,
)
from tests.unit.coordinator.virtual_core import WALL_MS


@pytest.fixture
def desk() -> ConsumerDesk:
    return of_policy("bidirectional")


FAILURES = [
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
]  # fmt: skip


@pytest.mark.parametrize("error", FAILURES)
def test_an_upgrade_that_is_not_written_did_not_happen(
    desk: ConsumerDesk, error: ErrorCode
) -> None:
    first, second = classic_group(desk)
    before, weight = snapshot(desk), desk.core.weight.bytes
    desk.errors = [error]
    assert desk.enter("new").error is not NONE
    assert snapshot(desk) == before
    assert desk.core.weight.bytes <= weight + 5_000
    for member_id in (first, second):
        assert desk.heartbeat(member_id, 1) is NONE
    assert desk.commit({("t", 0): 1}, first, 1).topics[0].partitions[0].error_code == NONE
    desk.restart()
    assert snapshot(desk)[0] == "classic"
    desk.wait(9_000)
    assert desk.enter("new").error is NONE


@pytest.mark.parametrize("error", FAILURES)
def test_a_failed_upgrade_keeps_those_that_wait(desk: ConsumerDesk, error: ErrorCode) -> None:
    """A JoinGroup waits on, and gets the generation that follows."""
    first, second = classic_group(desk)
    third = desk.join(desk.new_id(protocols=CLASSIC), protocols=CLASSIC)
    desk.errors = [error]
    assert desk.enter("new").error is not NONE
    assert (third.waits, desk.state()) == (True, "PreparingRebalance")
    others = [desk.join(one, protocols=CLASSIC) for one in (first, second)]
    assert {one.generation_id for one in [third, *others]} == {2}


def test_an_upgrade_that_may_be_in_the_journal_is_written_over(desk: ConsumerDesk) -> None:
    """The classic group's record follows, without records of the other kind."""
    first, _ = classic_group(desk)
    desk.held = []
    entered = desk.enter("new")
    (held,) = desk.held
    desk._write(held, NONE)
    desk.held = None
    failed = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    desk.step(lambda step: desk.core.settled(held.number, failed, step))
    assert entered.error is not NONE
    assert kinds(desk) == {"GroupMetadata": 1}
    desk.restart()
    assert (desk.state(), desk.heartbeat(first, 1)) == ("Stable", NONE)


def test_a_journal_with_records_of_both_kinds_is_served_as_a_classic_group(
    desk: ConsumerDesk,
) -> None:
    """The classic group's record follows those of an upgrade, which are not deleted."""
    first, second = classic_group(desk)
    partition = next(n for n, one in desk.core.shards.items() if "g" in one.groups)
    batches = desk.journal.batches[partition]
    stored = [one for batch in batches for one in batch.records if one.value is not None]
    (*_, last) = (
        one for one in stored if one.key and OFFSETS.decode_key(one.key)[0] == "GroupMetadata"
    )
    assert last.key is not None
    assert desk.enter("new").error is NONE
    desk.journal.put(partition, [(last.key, last.value)])
    desk.restart()
    group = desk.core.shards[partition].groups["g"]
    assert group.is_classic and group.takes_consumers
    assert desk.heartbeat(first, 1) is NONE
    assert [one.error_code for one in desk.leave((second, None)).members] == [NONE]
    assert desk.heartbeat(first, 1) is REBALANCE


def test_requests_wait_for_the_upgrade(desk: ConsumerDesk) -> None:
    """Classic members' requests go on in the group that comes of it."""
    for failed in (ErrorCode.NOT_ENOUGH_REPLICAS, NONE):
        (member_id,) = classic_group(desk, 1)
        desk.held = []
        entered = desk.enter("new")
        later = desk.join(member_id, protocols=CLASSIC)
        assert (entered.waits, later.waits) == (True, True)
        desk.release(failed)
        assert (entered.error is NONE) == (failed is NONE)
        assert later.error is NONE
        assert (later.leader == member_id) == (failed is not NONE)
        desk.leave((member_id, None))
        desk.beat("new", -1)
        desk.delete("g")


def test_an_upgrade_ends_when_the_coordinator_moves(desk: ConsumerDesk) -> None:
    """Everybody that waits is told so."""
    first, _ = classic_group(desk)
    waits = desk.join(desk.new_id(protocols=CLASSIC), protocols=CLASSIC)
    desk.held = []
    entered = desk.enter("new")
    joined = desk.join(first, protocols=CLASSIC)
    (append,) = desk.held
    desk.step(lambda step: desk.core.resign(append.partition, step))
    moved = ErrorCode.NOT_COORDINATOR
    assert [one.error for one in (waits, entered, joined)] == [moved] * 3
    desk.held = None
    desk.load(append.partition)
    assert (desk.state(), desk.listed()["g"].group_type) == ("Stable", "classic")


def test_sessions_go_on_after_a_failed_upgrade(desk: ConsumerDesk) -> None:
    """Also those that ended during the write."""
    classic_group(desk)
    desk.held = []
    desk.enter("new")
    desk.wait(11_000)
    desk.release(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert len(desk.describe().members) == 2
    desk.wait(11_000)
    assert desk.describe().members == []


@pytest.mark.parametrize("error", FAILURES)
def test_a_downgrade_that_is_not_written_did_not_happen(
    desk: ConsumerDesk, error: ErrorCode
) -> None:
    first, second = mixed(desk)
    before, weight = snapshot(desk), desk.core.weight.bytes
    desk.errors = [error]
    assert desk.beat("new", -1).error is not NONE
    assert (snapshot(desk), desk.core.weight.bytes) == (before, weight)
    assert [desk.heartbeat(one, 2) for one in (first, second)] == [NONE, NONE]
    assert desk.beat("new", 2).error is NONE
    desk.restart()
    assert snapshot(desk) == before
    assert desk.beat("new", -1).error is NONE
    assert kinds(desk) == {"GroupMetadata": 1}


def test_a_downgrade_that_may_be_in_the_journal_is_written_over(desk: ConsumerDesk) -> None:
    mixed(desk)
    before = snapshot(desk)
    desk.held = []
    desk.beat("new", -1)
    (held,) = desk.held
    desk._write(held, NONE)
    desk.held = None
    failed = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    desk.step(lambda step: desk.core.settled(held.number, failed, step))
    desk.beat("new", 2)
    assert "GroupMetadata" not in kinds(desk)
    desk.restart()
    assert snapshot(desk) == before


def test_requests_wait_for_the_downgrade(desk: ConsumerDesk) -> None:
    """They go on in the classic group; a member that heartbeats upgrades it again."""
    first, second = mixed(desk)
    desk.held = []
    left = desk.beat("new", -1)
    beat = desk.join(first, protocols=CLASSIC)
    again = desk.enter("again")
    gone = desk.leave((second, None))
    assert [one.waits for one in (left, beat, again, gone)] == [True] * 4
    desk.release()
    assert [one.error for one in (left, again)] == [NONE, NONE]
    assert beat.error is NONE
    assert gone.members[0].error_code == NONE
    assert set(assigned(desk)) == {first, "again"}


def test_a_downgrade_ends_when_the_coordinator_moves(desk: ConsumerDesk) -> None:
    first, _ = mixed(desk)
    before = snapshot(desk)
    desk.held = []
    left, joined = desk.beat("new", -1), desk.join(first, protocols=CLASSIC)
    (append,) = desk.held
    desk.step(lambda step: desk.core.resign(append.partition, step))
    assert [one.error for one in (left, joined)] == [ErrorCode.NOT_COORDINATOR] * 2
    desk.held = None
    desk.load(append.partition)
    assert snapshot(desk) == before


def test_offsets_of_used_topics_stay_while_a_change_is_written(desk: ConsumerDesk) -> None:
    """They do not expire, though the write takes long."""
    first, _ = mixed(desk)
    desk.commit({("t", 0): 5}, first, 2)
    desk.held = []
    desk.beat("new", -1)
    assert desk.core.shards
    desk.now_ms += 8 * 86_400_000
    desk.step(lambda _step: None)
    desk.release()
    assert desk.offsets() == {("t", 0): 5}
    assert desk.wall_ms > WALL_MS
