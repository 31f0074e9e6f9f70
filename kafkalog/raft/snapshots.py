"""Snapshots: taken of committed records, and fetched when the leader's log has less than a
follower lacks.

Source: KIP-630.
"""

from __future__ import annotations

from kafkalog.raft import following, leading, log, state
from kafkalog.raft.log import LogView, OffsetAndEpoch
from kafkalog.raft.messages import (
    Answer,
    Failed,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FinishSnapshot,
    HighWatermark,
    SnapshotLoaded,
    SnapshotTaken,
    TrimLog,
    WriteSnapshot,
)
from kafkalog.raft.roles import Follower, Leader
from kafkalog.raft.state import Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "on_fetch_snapshot",
    "on_fetch_snapshot_response",
    "on_snapshot_loaded",
    "on_snapshot_taken",
    "poll_snapshot",
]


def on_snapshot_taken(step: Step, event: SnapshotTaken) -> None:
    """Offer the snapshot to followers, and let the log begin where it may.  One that is not new
    changes nothing."""
    view, found = step.state.log, event.snapshot
    if found.offset > step.state.high_watermark:
        step.emit(Failed(f"a snapshot of {found.offset} has records that are not committed"))
        return
    if view.snapshot is None or found.offset > view.snapshot.offset:
        step.change(log=view._replace(snapshot=found, older=view.snapshot))
    begins = event.begins
    if begins is None or begins not in held(step.state.log) or begins.offset <= view.start:
        return
    if not lacked(step, begins):
        step.change(log=log.trimmed(step.state.log, begins))
        step.emit(TrimLog(begins.offset))


def held(view: LogView) -> tuple[OffsetAndEpoch, ...]:
    """The snapshots that followers may fetch."""
    return tuple(one for one in (view.snapshot, view.older) if one is not None)


def lacked(step: Step, begins: OffsetAndEpoch) -> bool:
    """True if a voter that fetches from this leader lacks records below a snapshot's end: they are
    kept until the next snapshot, so that it need not fetch one."""
    now = step.state
    if not isinstance(now.role, Leader):
        return False
    since_ms = step.now_ms - now.options.fetch_timeout_ms
    found = [leading.voter_progress(now.role.progress, one.key) for one in now.voters]
    return any(
        one.fetched_at_ms is not None and one.fetched_at_ms > since_ms
        and now.log.start <= one.end < begins.offset for one in found
    )  # fmt: skip


def on_fetch_snapshot(step: Step, token: object, request: FetchSnapshotRequest) -> None:
    """Let the driver send bytes of a snapshot."""
    now = step.state
    error = following.leader_error(step, request.current_leader_epoch)
    if not error and request.snapshot not in held(now.log):
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    if not error and request.position < 0:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    answer = FetchSnapshotResponse(
        error, now.epoch, now.leader_id, position=request.position, snapshot=request.snapshot
    )
    if error:
        step.emit(Answer(token, answer))
        return
    assert isinstance(now.role, Leader)
    leading.count_fetch(step, now.role, request.replica)
    step.emit(Answer(token, answer, request.position, request.snapshot))


def on_fetch_snapshot_response(
    step: Step, node_id: int, answer: FetchSnapshotResponse, asked: FetchSnapshotRequest
) -> None:
    """Write the next bytes; after an error, fetch again to learn of a later snapshot."""
    if state.heard(step, answer.leader_epoch, answer.leader_id):
        return
    role = step.state.role
    if not following.answers(step, node_id, asked.current_leader_epoch):
        return
    assert isinstance(role, Follower)
    if (asked.snapshot, asked.position) != (role.snapshot, role.position):
        return
    if answer.error_code or not _continues(answer, asked):
        step.back_off(node_id)
        step.change(role=role._replace(snapshot=None, position=0))
        return
    following.fetched(step)
    role = step.state.role
    assert isinstance(role, Follower)
    position = role.position + len(answer.records)
    step.emit(WriteSnapshot(asked.snapshot, role.position, answer.records))
    step.change(role=role._replace(position=position))
    if position >= answer.size:
        step.emit(FinishSnapshot(asked.snapshot))
        step.change(role=role._replace(position=position, loading=True))


def _continues(answer: FetchSnapshotResponse, asked: FetchSnapshotRequest) -> bool:
    """True if an answer has bytes of the snapshot from the position on, and no more than it has."""
    if (answer.snapshot, answer.position) != (asked.snapshot, asked.position):
        return False
    return bool(answer.records) and answer.position + len(answer.records) <= answer.size


def on_snapshot_loaded(step: Step, event: SnapshotLoaded) -> None:
    """The log is empty now, and begins at the snapshot's end."""
    now = step.state
    step.change(
        log=log.at_snapshot(now.log, event.snapshot, event.version, event.voters), flushing=0
    )
    if event.snapshot.offset > now.high_watermark:
        step.change(high_watermark=event.snapshot.offset)
        step.emit(HighWatermark(event.snapshot.offset))
    if isinstance(now.role, Follower):
        step.change(role=now.role._replace(snapshot=None, position=0, loading=False))


def poll_snapshot(step: Step, role: Follower) -> Follower:
    """Ask for the next bytes of a snapshot; give it up once the leader does not answer any longer.
    Returns the role after that."""
    now = step.state
    wanted = role.snapshot
    if wanted is None or role.loading:
        return role
    if role.fetch_at_ms <= step.now_ms:
        role = role._replace(snapshot=None, position=0)
        step.change(role=role)
    elif step.can_send(role.leader_id):
        asked = FetchSnapshotRequest(now.me, now.epoch, wanted, role.position)
        step.send(role.leader_id, asked)
    return role
