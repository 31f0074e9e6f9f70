"""Replication: a leader's answers to fetches, and a follower's reaction to them."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog.raft import elections, leading, log, state
from kafkalog.raft.log import Batch, Diverging, LogView, OffsetAndEpoch, SnapshotNeeded
from kafkalog.raft.messages import (
    Answer,
    AppendBatch,
    Failed,
    FetchRequest,
    FetchResponse,
    HighWatermark,
    Truncate,
)
from kafkalog.raft.roles import Follower, Leader
from kafkalog.raft.state import Parked, State, Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "answer_parked",
    "leader_error",
    "on_fetch",
    "on_fetch_response",
    "poll_follower",
]


def leader_error(step: Step, epoch: int) -> ErrorCode:
    """The error for a request of an epoch that this replica does not lead; NONE: it leads it."""
    now = step.state
    if epoch < now.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > now.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(now.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def on_fetch(step: Step, token: object, request: FetchRequest) -> None:
    """Note how far a replica is, and answer, or park the fetch until there is more."""
    error = leader_error(step, request.current_leader_epoch)
    if request.fetch_offset < 0 or request.last_fetched_epoch < 0:
        error = ErrorCode.INVALID_REQUEST
    if error:
        now = step.state
        step.emit(Answer(token, FetchResponse(error, now.epoch, now.leader_id)))
        return
    role = step.state.role
    assert isinstance(role, Leader)
    found = log.validated(step.state.log, request.fetch_offset, request.last_fetched_epoch)
    if isinstance(found, Diverging):
        step.emit(Answer(token, _answer(step)._replace(diverging=found.end)))
        return
    if isinstance(found, SnapshotNeeded):
        step.emit(Answer(token, _answer(step)._replace(snapshot=found.snapshot)))
        return
    before = min(request.high_watermark, _shown(step))
    leading.record_fetch(step, role, request.replica, request.fetch_offset)
    assert isinstance(step.state.role, Leader)
    leading.advance(step, step.state.role)
    now = step.state
    if old := now.parked.get(request.replica):
        step.emit(Answer(old.token, _answer(step)))
    until_ms = step.now_ms + now.options.fetch_wait_ms
    parked = {**now.parked, request.replica: Parked(token, request, until_ms, before)}
    step.change(parked=parked)
    if len(parked) > now.options.replicas_max:
        _answer_parked(step, Parked(token, request, until_ms, before))


def _answer(step: Step) -> FetchResponse:
    """A response without records."""
    now = step.state
    return FetchResponse(ErrorCode.NONE, now.epoch, now.me.id, _shown(step))


def _shown(step: Step) -> int:
    """The high watermark that a response tells; -1: no record of the own epoch is committed yet."""
    role = step.state.role
    known = isinstance(role, Leader) and leading.own_epoch_committed(step, role)
    return step.state.high_watermark if known else -1


def answer_parked(step: Step) -> None:
    """Answer the parked fetches for which there is something, or whose time is over."""
    if not step.state.parked:
        return
    end, high_watermark = step.state.log.end, _shown(step)
    for one in step.state.parked.values():
        more = one.request.fetch_offset < end
        if more or one.high_watermark < high_watermark or one.until_ms <= step.now_ms:
            _answer_parked(step, one)


def _answer_parked(step: Step, one: Parked) -> None:
    parked = dict(step.state.parked)
    del parked[one.request.replica]
    step.change(parked=parked)
    offset = one.request.fetch_offset
    more = offset < step.state.log.end
    step.emit(Answer(one.token, _answer(step), offset if more else None))


# ---- the follower ----------------------------------------------------------------------------


def answers(step: Step, node_id: int, epoch: int) -> bool:
    """True if a response belongs to what this replica is doing: it follows that node, in the epoch
    in which it asked."""
    role = step.state.role
    return isinstance(role, Follower) and role.leader_id == node_id and epoch == step.state.epoch


def on_fetch_response(step: Step, node_id: int, answer: FetchResponse, asked: FetchRequest) -> None:
    """Truncate where the logs part, fetch a snapshot, or append."""
    if state.heard(step, answer.leader_epoch, answer.leader_id) or answer.error_code:
        return
    if not answers(step, node_id, asked.current_leader_epoch):
        return
    if asked.fetch_offset != step.state.log.end:
        return
    found = _continued(step.state, answer.records)
    if found is None:
        step.back_off(node_id)
        return
    fetched(step)
    if answer.diverging is not None:
        _truncate(step, log.truncation_offset(step.state.log, answer.diverging))
    elif answer.snapshot is not None:
        _fetch_snapshot(step, answer.snapshot)
    else:
        view, batches = found
        for batch in batches:
            step.emit(AppendBatch(batch))
        role = step.state.role
        assert isinstance(role, Follower)
        step.change(log=view, role=role._replace(leader_shows=answer.high_watermark))
        show(step, answer.high_watermark)


def _continued(now: State, batches: Sequence[Batch]) -> tuple[LogView, list[Batch]] | None:
    """The log with these batches, and those of them that it takes, up to the first of a later epoch
    than the answer's: its sender may have read records that followed when it led no more.  None:
    it takes none, or they do not continue the log."""
    view, found = now.log, []
    for batch in batches:
        if batch.epoch > now.epoch:
            break
        try:
            view = log.appended(view, batch)
        except ValueError:
            return None
        found.append(batch)
    return (view, found) if found or not batches else None


def fetched(step: Step) -> None:
    """The leader answered: it is alive."""
    role = step.state.role
    assert isinstance(role, Follower)
    at_ms = step.now_ms + step.state.options.fetch_timeout_ms
    step.change(role=role._replace(fetch_at_ms=at_ms, has_fetched=True))


def _fetch_snapshot(step: Step, snapshot: OffsetAndEpoch) -> None:
    now, role = step.state, step.state.role
    assert isinstance(role, Follower)
    if cuts_committed(snapshot.offset, now.high_watermark):
        step.emit(Failed(
            f"the leader's snapshot ends at offset {snapshot.offset}, below the high watermark "
            f"{now.high_watermark}"
        ))  # fmt: skip
        return
    step.change(role=role._replace(snapshot=snapshot, position=0))


def _truncate(step: Step, offset: int) -> None:
    now = step.state
    if cuts_committed(offset, now.high_watermark):
        step.emit(Failed(
            f"the leader's log parts at offset {offset}, below the high watermark "
            f"{now.high_watermark}"
        ))  # fmt: skip
        return
    step.emit(Truncate(offset))
    # A flush in progress may say nothing about the records that replace these.
    step.change(log=log.truncated(now.log, offset), flushing=0)


def cuts_committed(offset: int, high_watermark: int) -> bool:
    """True if a truncation, or a snapshot that ends there, would remove committed records."""
    return offset < high_watermark


def show(step: Step, high_watermark: int) -> None:
    """Take over the leader's high watermark, as far as the log goes."""
    end = min(high_watermark, step.state.log.end)
    if end > step.state.high_watermark:
        step.change(high_watermark=end)
        step.emit(HighWatermark(end))


# ---- timers ----------------------------------------------------------------------------------


def ready(step: Step) -> bool:
    """True if everything that a fetch promises is on disk."""
    return step.state.durable


def poll_follower(step: Step, role: Follower) -> float:
    """Fetch; a voter that gets no answers stands for election.  Returns when to look again."""
    now = step.state
    votes = now.stands and not now.stopping
    if role.fetch_at_ms <= step.now_ms and votes:
        state.stand(step)
        return step.now_ms
    if role.fetch_at_ms <= step.now_ms and role.has_fetched:
        # It stands for nothing itself, but may have a vote that others need.
        role = role._replace(has_fetched=False)
        step.change(role=role)
    deadline = role.fetch_at_ms if votes else step.now_ms + now.options.fetch_timeout_ms
    if role.snapshot is not None or not ready(step):
        _, at_ms, _ = now.waits.get(role.leader_id, (0, deadline, None))
        return min(deadline, at_ms) if at_ms > step.now_ms else deadline
    if not votes and role.fetch_at_ms <= step.now_ms:
        return elections.find_leader(step)
    if step.can_send(role.leader_id):
        end = elections.end_offset(step)
        known = now.high_watermark
        step.send(role.leader_id, FetchRequest(now.me, now.epoch, end.offset, end.epoch, known))
    return min(deadline, step.state.waits[role.leader_id][1])
