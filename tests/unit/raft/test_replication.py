"""Fetches, the high watermark, divergence and snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.raft import following, log
from kafkalog.raft.log import Batch, Diverging, OffsetAndEpoch, SnapshotNeeded, Valid, VersionChange
from kafkalog.raft.messages import (
    Answer,
    Append,
    AppendBatch,
    Appended,
    Failed,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FinishSnapshot,
    Flush,
    Flushed,
    HighWatermark,
    QuorumState,
    Request,
    Response,
    SnapshotLoaded,
    SnapshotTaken,
    TrimLog,
    Truncate,
    WriteSnapshot,
)
from kafkalog.raft.state import Step
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.raft.replica import Replica, key, log_of, voters


def leader(*epochs: int, among: tuple[int, ...] = (1, 2, 3)) -> Replica:
    """Node 1, elected, with records of these epochs below its own."""
    one = Replica(1, log_of(*epochs, among=voters(*among)))
    one.elect()
    return one


def follower(*epochs: int, high_watermark: int = 0) -> Replica:
    """Node 2, which follows node 1 in the last of these epochs."""
    one = Replica(2, log_of(*epochs), QuorumState(epochs[-1], 1))
    one.state = one.state._replace(high_watermark=high_watermark)
    one.wait(0)
    return one


# ---- requests that no replica sends ----


@pytest.mark.parametrize(("offset", "epoch"), [(-5, 1), (-1, 0), (0, -1)])
def test_a_fetch_below_all_offsets_is_refused(offset: int, epoch: int) -> None:
    """No batch is there that its answer could have."""
    one = leader(1, 1)
    assert one.fetch(2, offset, epoch).error_code == ErrorCode.INVALID_REQUEST
    assert not one.role.progress


# ---- the high watermark ------------------------------------------------------------------------


def test_a_majority_commits() -> None:
    one = leader(1, 1)
    assert one.state.high_watermark == 0
    one.fetch(2, 5, 2)
    assert one.of(HighWatermark) == [HighWatermark(5)]


def test_records_of_earlier_epochs_are_not_committed_by_counting() -> None:
    """Raft, figure 8: a majority may have them, and the next leader may not."""
    one = leader(1, 1)
    one.fetch(2, 2, 1)
    one.fetch(3, 2, 1)
    assert one.state.high_watermark == 0
    one.fetch(3, 5, 2)
    assert one.state.high_watermark == 5


def test_a_leader_counts_itself_once_it_has_flushed() -> None:
    one = leader(1)
    one.fetch(2, 4, 2)
    one.take(Append("a", 1, "a", 2))
    assert one.of(Appended) == [Appended("a", 4, 2)]
    one.fetch(2, 5, 2)
    assert one.state.high_watermark == 4
    one.flush()
    assert one.state.high_watermark == 5


def test_observers_do_not_count() -> None:
    one = leader(1)
    one.fetch(7, 4, 2)
    assert one.state.high_watermark == 0


def test_an_append_of_an_earlier_leadership_is_refused() -> None:
    one = leader(1)
    one.take(Append("a", 1, "a", 1))
    assert one.of(Appended) == [Appended("a", None, 1)]
    assert one.of(AppendBatch) == []


# ---- fetches -----------------------------------------------------------------------------------


def test_a_fetch_waits_for_records() -> None:
    one = leader(1)
    one.fetch(2, 4, 2)  # the high watermark moves, so it is answered
    assert one.of(Answer)
    assert one.fetch(2, 4, 2) is None
    one.take(Append("a", 1, "a", 2))
    (answer,) = one.of(Answer)
    assert answer.read_from == 4 and answer.message.high_watermark == 4


def test_a_replica_that_knows_a_lower_high_watermark_need_not_wait() -> None:
    """A replica that fetched just before a commit learns of it with its next fetch (KIP-1166)."""
    one = leader(1)
    one.fetch(2, 4, 2)
    assert one.asks(FetchRequest(key(3), 2, 4, 2, high_watermark=4)) is None, "it knows"
    found = one.asks(FetchRequest(key(3), 2, 4, 2, high_watermark=2))
    assert found.high_watermark == 4


def test_a_fetch_waits_while_the_leader_knows_no_high_watermark() -> None:
    one = leader(1)
    assert one.asks(FetchRequest(key(9), 2, 4, 2, high_watermark=-1)) is None


def test_a_fetch_waits_no_longer_than_it_may() -> None:
    one = leader(1)
    one.fetch(2, 4, 2)
    assert one.fetch(2, 4, 2) is None
    one.wait(500)
    assert [answer.message.records for answer in one.of(Answer)] == [()]


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(1, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_fetch_of_another_epoch_is_refused(epoch: int, error: ErrorCode) -> None:
    one = leader(1)
    found = one.asks(FetchRequest(key(2), epoch, 4, 2))
    assert found == FetchResponse(error, 2, 1)


def test_a_follower_names_the_leader() -> None:
    one = follower(1)
    found = one.asks(FetchRequest(key(3), 1, 1, 1))
    assert found == FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 1)


def test_a_follower_fetches_on_once_it_has_flushed() -> None:
    one = follower(1)
    one.fetched(records=[Batch(1, 1, 1, (), "a")], high_watermark=1)
    assert one.of(AppendBatch) and one.of(Flush) and not one.sent(FetchRequest)
    one.flush()
    (send,) = one.sent(FetchRequest)
    assert send.message == FetchRequest(key(2), 1, 2, 1, high_watermark=1)


def test_records_found_at_the_start_are_flushed_first() -> None:
    one = Replica(2, log_of(1, 1), QuorumState(1, 1))
    one.state = one.state._replace(log=one.state.log._replace(flushed=0))
    one.wait(0)
    assert one.of(Flush) and not one.sent(FetchRequest)


def test_a_follower_shows_no_more_than_it_has() -> None:
    one = follower(1)
    one.fetched(records=[Batch(1, 1, 1, (), "a")], high_watermark=9)
    assert one.of(HighWatermark) == [HighWatermark(2)]


def test_a_response_to_an_earlier_fetch_does_not_count() -> None:
    one = follower(1)
    ((number, _, asked),) = one.state.waits.values()
    one.wait(1_999)
    one.wait(1)  # it is given up, and sent again
    before = one.state
    late = FetchResponse(ErrorCode.NONE, 1, 1, 1, records=[Batch(1, 1, 1, (), "late")])
    one.take(Response(number, late))
    assert one.of(AppendBatch) == [] and one.state.log == before.log
    assert asked.fetch_offset == 1


@pytest.mark.parametrize("taken", [0, 1])
def test_records_of_a_later_epoch_are_not_taken(taken: int) -> None:
    """A leader that is none any longer may have read them for an answer of the epoch before."""
    one = follower(1)
    batches = [Batch(offset, offset, 1, (), "a") for offset in range(1, 1 + taken)]
    later = Batch(1 + taken, 1 + taken, 2, (), "b")
    one.fetched(records=[*batches, later], high_watermark=9)
    assert one.of(AppendBatch) == [AppendBatch(batch) for batch in batches]
    assert one.state.log.end == 1 + taken
    assert not one.sent(FetchRequest), "it flushes, or waits before it asks again"


@pytest.mark.parametrize(
    "wrong",
    [
        Batch(3, 3, 2, (), "a"), Batch(1, 2, 2, (), "a"), Batch(2, 1, 2, (), "a"),
        Batch(2, 2, 1, (), "a"), Batch(2, 2, 2, (VersionChange(1), VersionChange(1))),
    ],
    ids=["gap", "again", "empty", "epoch", "control"],
)  # fmt: skip
def test_batches_that_do_not_continue_the_log_are_an_error(wrong: Batch) -> None:
    one = follower(1, 2)
    before = one.state
    one.fetched(records=[wrong], high_watermark=9)
    assert not one.of(AppendBatch) and not one.of(HighWatermark) and not one.sent(FetchRequest)
    assert (one.state.log, one.role) == (before.log, before.role)
    one.wait(50)
    assert one.sent(FetchRequest)


# ---- divergence --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "found"),
    [
        ((0, 0), Valid()),
        ((3, 2), Valid()),
        ((2, 1), Valid()),
        ((3, 1), Diverging(OffsetAndEpoch(2, 1))),
        ((6, 3), Diverging(OffsetAndEpoch(4, 2))),
        ((5, 4), Valid()),
        ((6, 4), Diverging(OffsetAndEpoch(5, 4))),
        ((6, 9), Diverging(OffsetAndEpoch(5, 4))),
    ],
)
def test_where_logs_diverge(end: tuple[int, int], found: object) -> None:
    """The leader's log has the epochs 1, 1, 2, 2, 4."""
    assert log.validated(log_of(1, 1, 2, 2, 4), *end) == found


def test_below_the_log_start_a_snapshot_is_needed() -> None:
    base = OffsetAndEpoch(3, 2)
    view = log.trimmed(log_of(1, 1, 2, 2, 4), base)._replace(snapshot=base)
    assert log.validated(view, 0, 0) == SnapshotNeeded(base)
    assert log.validated(view, 2, 1) == SnapshotNeeded(base)
    assert log.validated(view, 3, 1) == SnapshotNeeded(base)
    assert log.validated(view, 3, 2) == Valid()
    assert log.validated(view, 4, 2) == Valid()
    assert log.validated(view, 5, 4) == Valid()


def test_a_follower_truncates_where_the_logs_part() -> None:
    one = follower(1, 1, 2, 2)
    one.fetched(diverging=OffsetAndEpoch(9, 1))
    assert one.of(Truncate) == [Truncate(2)]
    assert (one.state.log.end, log.last_epoch(one.state.log)) == (2, 1)


def test_a_flush_from_before_a_truncation_counts_no_more() -> None:
    one = follower(1, 1)
    one.fetched(records=[Batch(2, 2, 1, (), "a")])
    (flush,) = one.of(Flush)
    one.state = one.state._replace(log=one.state.log._replace(flushed=2))
    step = Step(one.state, one.now_ms, one.draw)
    following._truncate(step, 2)
    one.state = step.state
    one.take(Flushed(flush.number))
    assert one.state.log.flushed == 2


def test_committed_records_are_never_truncated() -> None:
    one = follower(1, 1, high_watermark=2)
    one.fetched(diverging=OffsetAndEpoch(1, 1))
    assert one.of(Truncate) == [] and len(one.of(Failed)) == 1


def test_the_high_watermark_waits_until_the_logs_agree() -> None:
    """KAFKA-14704."""
    one = follower(1, 1, 2, 2)
    one.fetched(diverging=OffsetAndEpoch(2, 1), high_watermark=4)
    assert one.of(HighWatermark) == []


# ---- snapshots ---------------------------------------------------------------------------------


def test_a_log_begins_where_a_snapshot_ends() -> None:
    one = leader(1, 1)
    one.fetch(2, 5, 2)
    one.take(SnapshotTaken(OffsetAndEpoch(2, 1), OffsetAndEpoch(2, 1)))
    assert one.of(TrimLog) == [TrimLog(2)] and one.state.log.start == 2
    assert one.fetch(3, 1, 1).snapshot == OffsetAndEpoch(2, 1)
    asked = FetchSnapshotRequest(key(3), 2, OffsetAndEpoch(2, 1), 7)
    one.take(Request("bytes", asked))
    (answer,) = one.of(Answer)
    assert (answer.read_from, answer.snapshot) == (7, OffsetAndEpoch(2, 1))
    old = asked._replace(snapshot=OffsetAndEpoch(1, 1))
    assert one.asks(old).error_code == ErrorCode.SNAPSHOT_NOT_FOUND


def test_a_log_keeps_its_records_until_it_may_begin_later() -> None:
    one = leader(1, 1)
    one.fetch(2, 5, 2)
    one.take(SnapshotTaken(OffsetAndEpoch(2, 1)))
    assert not one.of(TrimLog) and one.state.log.start == 0
    assert one.fetch(3, 1, 1).snapshot is None, "the records are still there"


def test_a_follower_in_the_middle_of_an_older_snapshot_goes_on() -> None:
    one = leader(1, 1)
    one.fetch(2, 5, 2)
    first, second = OffsetAndEpoch(2, 1), OffsetAndEpoch(5, 2)
    one.take(SnapshotTaken(first, first))
    one.take(SnapshotTaken(second, first))
    assert one.fetch(3, 1, 1).snapshot == second, "the latest is offered"
    for snapshot in (first, second):
        one.take(Request("bytes", FetchSnapshotRequest(key(3), 2, snapshot, 7)))
        (answer,) = one.of(Answer)
        assert (answer.read_from, answer.snapshot) == (7, snapshot)


def test_records_that_a_live_follower_lacks_are_kept_until_the_next_snapshot() -> None:
    one = leader(1, 1)
    one.fetch(2, 5, 2)
    one.fetch(3, 1, 1)
    first, second = OffsetAndEpoch(2, 1), OffsetAndEpoch(5, 2)
    one.take(SnapshotTaken(first, first))
    assert not one.of(TrimLog)
    one.fetch(3, 2, 1)
    one.take(SnapshotTaken(second, first))
    assert one.of(TrimLog) == [TrimLog(2)] and one.state.log.snapshot == second


def test_a_dead_follower_keeps_no_records() -> None:
    one = leader(1, 1)
    one.fetch(3, 1, 1)
    one.fetch(2, 5, 2)
    one.now_ms += one.options.fetch_timeout_ms
    one.fetch(2, 5, 2)
    one.take(SnapshotTaken(OffsetAndEpoch(2, 1), OffsetAndEpoch(2, 1)))
    assert one.of(TrimLog) == [TrimLog(2)]


def test_a_snapshot_has_committed_records_only() -> None:
    one = leader(1, 1)
    one.take(SnapshotTaken(OffsetAndEpoch(2, 1)))
    assert len(one.of(Failed)) == 1 and one.of(TrimLog) == []


def test_a_follower_fetches_a_snapshot_piece_by_piece() -> None:
    one = follower(1)
    end = OffsetAndEpoch(8, 1)
    one.fetched(snapshot=end)
    for position in (0, 3):
        (send,) = one.sent(FetchSnapshotRequest)
        assert send.message == FetchSnapshotRequest(key(2), 1, end, position)
        one.answers(send, FetchSnapshotResponse(ErrorCode.NONE, 1, 1, 6, position, b"abc", end))
        assert one.of(WriteSnapshot) == [WriteSnapshot(end, position, b"abc")]
    assert one.of(FinishSnapshot) == [FinishSnapshot(end)] and not one.sent(FetchRequest)
    one.take(SnapshotLoaded(end, 1, voters(2, 3)))
    assert one.of(HighWatermark) == [HighWatermark(8)]
    assert one.state.voters == voters(2, 3)
    (send,) = one.sent(FetchRequest)
    assert send.message == FetchRequest(key(2), 1, 8, 1, high_watermark=8)


def test_a_snapshot_below_the_high_watermark_is_refused() -> None:
    """Its leader has lost committed records: to go on with other ones would hide that."""
    one = follower(1, 1, 1, high_watermark=3)
    one.fetched(snapshot=OffsetAndEpoch(2, 1))
    assert len(one.of(Failed)) == 1
    assert not one.sent(FetchSnapshotRequest) and one.role.snapshot is None


@pytest.mark.parametrize("known", [0, 2])
def test_a_snapshot_of_all_committed_records_is_fetched(known: int) -> None:
    """Records above the high watermark may be other ones than the leader's."""
    one = follower(1, 1, 1, high_watermark=known)
    one.fetched(snapshot=OffsetAndEpoch(2, 1))
    assert one.sent(FetchSnapshotRequest) and not one.of(Failed)


def test_after_an_error_a_later_snapshot_is_asked_for() -> None:
    one = follower(1)
    one.fetched(snapshot=OffsetAndEpoch(8, 1))
    (send,) = one.sent(FetchSnapshotRequest)
    one.answers(send, FetchSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, 1, 1))
    one.wait(100)
    assert one.sent(FetchRequest)


END = OffsetAndEpoch(8, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"records": b""}, {"records": None}, {"position": 1}, {"snapshot": None},
        {"snapshot": OffsetAndEpoch(9, 1)}, {"size": 2},
    ],
    ids=str,
)  # fmt: skip
def test_another_piece_of_a_snapshot_than_asked_for_is_an_error(wrong: dict[str, Any]) -> None:
    one = follower(1)
    one.fetched(snapshot=END)
    (send,) = one.sent(FetchSnapshotRequest)
    one.answers(
        send, FetchSnapshotResponse(ErrorCode.NONE, 1, 1, 6, 0, b"abc", END)._replace(**wrong)
    )
    assert not one.of(WriteSnapshot) and not one.of(FinishSnapshot)
    assert not one.sent(FetchSnapshotRequest) and not one.sent(FetchRequest)
    one.wait(50)
    assert one.sent(FetchRequest)


def test_an_observer_looks_for_another_leader_when_its_own_sends_no_more_of_a_snapshot() -> None:
    one = Replica(4, log_of(1), QuorumState(1, 1), request_timeout_ms=500)
    one.draw = lambda: 0.5  # type: ignore[method-assign]
    one.wait(0)
    one.fetched(snapshot=END)
    assert one.sent(FetchSnapshotRequest)
    asked = set()
    for _ in range(10):
        one.wait(500)
        asked |= {send.node_id for send in one.sent(FetchRequest)}
    assert 2 in asked and one.role.snapshot is None
