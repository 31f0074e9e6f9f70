"""A replica of the metadata log's quorum: `step` takes a state and an event, and returns the next
state and the effects.

The driver carries out effects in their order, each before the next.  It reads the clock, sends and
receives, and keeps the log, its snapshots and the file `quorum-state`.  The core decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalog.raft import changes, elections, following, leading, snapshots, state
from kafkalog.raft.messages import (
    AddRaftVoterRequest,
    Answer,
    Append,
    BeginQuorumEpochRequest,
    ChangeVersion,
    Effect,
    EndQuorumEpochRequest,
    Event,
    FetchRequest,
    FetchSnapshotRequest,
    Flushed,
    RemoveRaftVoterRequest,
    Request,
    Resign,
    Response,
    SetTimer,
    ShutDown,
    SnapshotLoaded,
    SnapshotTaken,
    Timer,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from kafkalog.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from kafkalog.raft.state import State, Step

__all__ = ["step"]

TURNS_MAX = 20
"""The most changes of roles in one step: a bound for the case of a mistake."""


def step(
    now: State, event: Event, now_ms: float, draw: Callable[[], float]
) -> tuple[State, list[Effect]]:
    """The next state, and the effects in order.

    `now_ms`: a clock that measures intervals.  `draw`: random numbers from 0 to 1, for jitter.
    """
    work = Step(now, now_ms, draw)
    _take(work, event)
    at_ms = now_ms
    for _ in range(TURNS_MAX):
        before = work.state.epoch, type(work.state.role)
        at_ms = _poll(work)
        if (work.state.epoch, type(work.state.role)) == before:
            break
    if at_ms != work.state.timer_ms or isinstance(event, Timer):
        work.change(timer_ms=at_ms)
        work.emit(SetTimer(at_ms))
    return work.state, work.effects


# ---- events ----------------------------------------------------------------------------------


def _take(work: Step, event: Event) -> None:
    if isinstance(event, Request):
        _request(work, event.token, event.message)
    elif isinstance(event, Response):
        _response(work, event)
    elif isinstance(event, Append):
        leading.on_append(work, event)
    elif isinstance(event, Flushed):
        _flushed(work, event)
    elif isinstance(event, SnapshotTaken):
        snapshots.on_snapshot_taken(work, event)
    elif isinstance(event, SnapshotLoaded):
        snapshots.on_snapshot_loaded(work, event)
    elif isinstance(event, ChangeVersion):
        changes.on_change_version(work, event)
    elif isinstance(event, Resign):
        if event.epoch == work.state.epoch and isinstance(work.state.role, Leader):
            elections.resign(work, work.state.role)
    elif isinstance(event, ShutDown):
        work.change(stopping=True)
        if isinstance(work.state.role, Leader):
            elections.resign(work, work.state.role)


def _request(work: Step, token: Any, message: Any) -> None:
    if isinstance(message, FetchRequest):
        following.on_fetch(work, token, message)
    elif isinstance(message, FetchSnapshotRequest):
        snapshots.on_fetch_snapshot(work, token, message)
    elif isinstance(message, VoteRequest):
        answer = elections.on_vote(work, message)
        work.emit(Answer(token, answer))
    elif isinstance(message, BeginQuorumEpochRequest):
        answer = elections.on_begin_quorum_epoch(work, message)
        work.emit(Answer(token, answer))
    elif isinstance(message, EndQuorumEpochRequest):
        answer = elections.on_end_quorum_epoch(work, message)
        work.emit(Answer(token, answer))
    elif isinstance(message, AddRaftVoterRequest):
        changes.on_add_voter(work, token, message)
    elif isinstance(message, RemoveRaftVoterRequest):
        changes.on_remove_voter(work, token, message)
    elif isinstance(message, UpdateRaftVoterRequest):
        changes.on_update_voter(work, token, message)


def in_flight(now: State, number: int) -> int | None:
    """The node to which the request with this number is in flight; None: it was given up."""
    return next((node for node, (one, _, _) in now.waits.items() if one == number), None)


def _response(work: Step, event: Response) -> None:
    answer, node_id = event.message, in_flight(work.state, event.number)
    if node_id is None:
        return
    _, _, asked = work.state.waits[node_id]
    waits = dict(work.state.waits)
    del waits[node_id]
    work.change(waits=waits)
    if answer is None or answer.error_code:
        work.back_off(node_id)
    if event.refused:
        elections.on_refused(work, node_id)
    if answer is None:
        return
    if isinstance(asked, VoteRequest):
        elections.on_vote_response(work, node_id, answer, asked)
    elif isinstance(asked, BeginQuorumEpochRequest | EndQuorumEpochRequest):
        _acknowledged(work, node_id, answer)
    elif isinstance(asked, FetchRequest):
        following.on_fetch_response(work, node_id, answer, asked)
    elif isinstance(asked, FetchSnapshotRequest):
        snapshots.on_fetch_snapshot_response(work, node_id, answer, asked)
    else:
        changes.on_join_response(work, answer, asked)


def _acknowledged(work: Step, node_id: int, answer: Any) -> None:
    """A voter knows that this leader leads, or that it resigned."""
    role = work.state.role
    if state.heard(work, answer.leader_epoch, answer.leader_id):
        return
    if isinstance(role, Leader | Resigned):
        work.change(role=role._replace(unaware=role.unaware - {node_id}))


def _flushed(work: Step, event: Flushed) -> None:
    now = work.state
    if event.number != now.flushing:
        return
    work.change(flushing=0, log=now.log._replace(flushed=max(now.log.flushed, now.flush_end)))
    if isinstance(now.role, Leader):
        leading.advance(work, now.role)


# ---- timers ----------------------------------------------------------------------------------


def _poll(work: Step) -> float:
    """Do what is due in the role.  Returns when to look again."""
    leading.flush(work)
    role = work.state.role
    if isinstance(role, Unattached):
        return elections.poll_unattached(work, role)
    if isinstance(role, Prospective):
        return elections.poll_prospective(work, role)
    if isinstance(role, Candidate):
        at_ms = elections.poll_candidate(work, role)
        if at_ms is None:
            leading.begin_leading(work, role)
            return work.now_ms
        return at_ms
    if isinstance(role, Resigned):
        return elections.poll_resigned(work, role)
    if isinstance(role, Leader):
        return _poll_leader(work, role)
    return _poll_follower(work, role)


def _poll_leader(work: Step, role: Leader) -> float:
    leading.advance(work, role)
    if isinstance(work.state.role, Leader):
        role = work.state.role
    if leading.poll_quorum(work, role):
        elections.resign(work, role)
        return work.now_ms
    changes.poll_change(work, role)
    following.answer_parked(work)
    assert isinstance(work.state.role, Leader)
    return leading.poll_leader(work, work.state.role)


def _poll_follower(work: Step, role: Follower) -> float:
    role = snapshots.poll_snapshot(work, role)
    joins_ms = changes.poll_join(work, role)
    role = work.state.role if isinstance(work.state.role, Follower) else role
    at_ms = following.poll_follower(work, role)
    return at_ms if joins_ms is None else min(at_ms, joins_ms)
