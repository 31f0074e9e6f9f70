"""Elections: votes, pre-votes, and how a leader makes itself known and resigns."""

from __future__ import annotations

from kafkalog.raft import roles, state
from kafkalog.raft.log import OffsetAndEpoch, last_epoch, version_of
from kafkalog.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    QuorumResponse,
    VoteRequest,
)
from kafkalog.raft.replicas import NO_DIRECTORY, ReplicaKey, majority
from kafkalog.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kafkalog.raft.state import Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "end_offset",
    "on_begin_quorum_epoch",
    "on_end_quorum_epoch",
    "on_refused",
    "on_vote",
    "on_vote_response",
    "poll_candidate",
    "poll_prospective",
    "poll_resigned",
    "poll_unattached",
    "resign",
    "response",
]

REFUSED_SHARE = 0.2
"""Followers of a leader whose process has ended stand within this share of an election timeout,
each at a drawn moment, so that seldom two do at once."""


def response(
    step: Step, error: ErrorCode = ErrorCode.NONE, granted: bool = False
) -> QuorumResponse:
    """A response with the epoch and the leader that this replica knows."""
    return QuorumResponse(error, step.state.epoch, step.state.leader_id, granted)


def end_offset(step: Step) -> OffsetAndEpoch:
    """The end of the log, and the epoch of its last record."""
    return OffsetAndEpoch(step.state.log.end, last_epoch(step.state.log))


def meant_for(me: ReplicaKey, voter: ReplicaKey) -> bool:
    """True if a request for a voter is for this replica: after the loss of its disk a node is
    another replica, and does not answer for the voter that it was."""
    return roles.same_replica(voter, me)


def up_to_date(own: OffsetAndEpoch, candidate: OffsetAndEpoch) -> bool:
    """True if a candidate's log ends where the own one does, or later: by epoch, then offset."""
    return (candidate.epoch, candidate.offset) >= (own.epoch, own.offset)


# ---- requests --------------------------------------------------------------------------------


def on_vote(step: Step, request: VoteRequest) -> QuorumResponse:
    """Vote, or say how this replica would vote."""
    now = step.state
    # A candidate has no record of its epoch yet, and one that only asks none of a later epoch.
    if request.last_offset_epoch >= request.replica_epoch + request.pre_vote:
        return response(step, ErrorCode.INVALID_REQUEST)
    if not meant_for(now.me, request.voter):
        return response(step, ErrorCode.INVALID_VOTER_KEY)
    if error := _refused(step, request.replica.id, request.replica_epoch):
        return response(step, error)
    if request.replica_epoch > now.epoch:
        state.unattached(step, request.replica_epoch)
    theirs = OffsetAndEpoch(request.last_offset, request.last_offset_epoch)
    role = step.state.role
    granted = roles.grants(
        role, request.replica, up_to_date(end_offset(step), theirs), request.pre_vote
    )
    if granted and not request.pre_vote and isinstance(role, Unattached | Prospective):
        at_ms = step.now_ms + state.election_timeout_ms(step)
        state.become(step, Unattached(at_ms, None, request.replica))
    return response(step, granted=granted)


def _refused(step: Step, sender: int, epoch: int) -> ErrorCode:
    """The error for a voter's request of an earlier epoch, or of no node; NONE: there is none."""
    if epoch < step.state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if sender < 0 else ErrorCode.NONE


def on_begin_quorum_epoch(step: Step, request: BeginQuorumEpochRequest) -> QuorumResponse:
    """Follow a new leader."""
    now = step.state
    if error := _refused(step, request.leader_id, request.leader_epoch):
        return response(step, error)
    if request.leader_id == now.me.id:
        return response(step, ErrorCode.INVALID_REQUEST)
    state.heard(step, request.leader_epoch, request.leader_id)
    if not meant_for(now.me, request.voter):
        return response(step, ErrorCode.INVALID_VOTER_KEY)
    return response(step)


def on_end_quorum_epoch(step: Step, request: EndQuorumEpochRequest) -> QuorumResponse:
    """Stand for election, the sooner the better the leader thinks of this replica."""
    now = step.state
    if error := _refused(step, request.leader_id, request.leader_epoch):
        return response(step, error)
    if request.leader_id == now.me.id:
        return response(step, ErrorCode.INVALID_REQUEST)
    state.heard(step, request.leader_epoch, request.leader_id)
    role = step.state.role
    if isinstance(role, Follower) and role.leader_id == request.leader_id:
        ranks = [one for one in request.preferred_candidates if roles.same_replica(one, now.me)]
        rank = request.preferred_candidates.index(ranks[0]) if ranks else None
        wait_ms = _successor_wait_ms(step, rank, len(request.preferred_candidates))
        at_ms = min(role.fetch_at_ms, step.now_ms + wait_ms)
        state.become(step, role._replace(fetch_at_ms=at_ms, has_fetched=False))
    return response(step)


def _successor_wait_ms(step: Step, rank: int | None, count: int) -> float:
    """The first stands at once, each further one waits longer, with jitter."""
    if rank == 0:
        return 0
    share = 1.0 if rank is None else rank / max(1, count)
    return step.state.options.election_timeout_ms * share * (0.5 + step.draw())


# ---- responses -------------------------------------------------------------------------------


def on_vote_response(step: Step, node_id: int, answer: QuorumResponse, asked: VoteRequest) -> None:
    """Count a vote of this epoch, or of the pre-vote that is held."""
    now = step.state
    if state.heard(step, answer.leader_epoch, answer.leader_id):
        return
    role = now.role
    if not isinstance(role, Candidate | Prospective) or answer.error_code == (
        ErrorCode.FENCED_LEADER_EPOCH
    ):
        return
    if asked.replica_epoch != now.epoch or asked.pre_vote != isinstance(role, Prospective):
        return
    if answer.vote_granted:
        step.change(role=role._replace(granted=role.granted | {node_id}))
    else:
        step.change(role=role._replace(rejected=role.rejected | {node_id}))


def on_refused(step: Step, node_id: int) -> None:
    """Nobody listens at a node's address: if it is the leader that this replica follows, its
    process has ended, and its followers need not wait for the fetch timeout.

    A pre-vote decides, so a replica that alone cannot reach the leader disturbs nobody: the others
    hear from it.  Once for each time that the leader was heard.
    """
    role = step.state.role
    if isinstance(role, Follower) and role.leader_id == node_id and role.has_fetched:
        wait_ms = REFUSED_SHARE * step.state.options.election_timeout_ms * step.draw()
        at_ms = min(role.fetch_at_ms, step.now_ms + wait_ms)
        state.become(step, role._replace(fetch_at_ms=at_ms, has_fetched=False))


# ---- timers ----------------------------------------------------------------------------------


def poll_unattached(step: Step, role: Unattached) -> float:
    """Look for the leader; a voter stands for election in the end."""
    if step.state.stands and not step.state.stopping:
        if role.election_at_ms <= step.now_ms:
            state.stand(step)
            return step.now_ms
        return min(role.election_at_ms, find_leader(step))
    return find_leader(step)


def find_leader(step: Step) -> float:
    """Ask one of the other nodes for the leader, with a fetch.  Returns when to do that again."""
    now = step.state
    ids = {one.key.id for one in now.voters} | set(now.options.bootstrap)
    if now.leader_id is not None:
        ids.add(now.leader_id)  # perhaps a voter since a record that this replica lacks
    others = sorted(ids - {now.me.id})
    if not others or not now.durable:
        return step.now_ms + now.options.election_timeout_ms
    busy = [at_ms for number, at_ms, _ in now.waits.values() if number and at_ms > step.now_ms]
    if busy:
        return min(busy)
    free = [one for one in others if step.can_send(one)]
    if not free:
        return min(now.waits[one][1] for one in others)
    node = free[int(step.draw() * len(free)) % len(free)]
    end = end_offset(step)
    step.send(node, FetchRequest(now.me, now.epoch, end.offset, end.epoch))
    return step.now_ms + now.options.request_timeout_ms


def elected(step: Step, ids: frozenset[int]) -> bool:
    """True if these nodes are a majority of the voters."""
    voters = step.state.voters
    return len([None for one in voters if one.key.id in ids]) >= majority(voters)


def defeated(step: Step, ids: frozenset[int]) -> bool:
    """True if without these nodes there is no majority of the voters."""
    voters = step.state.voters
    return len([None for one in voters if one.key.id not in ids]) < majority(voters)


def poll_prospective(step: Step, role: Prospective) -> float:
    """Ask each voter; with a majority become a candidate."""
    if not step.state.stands or step.state.stopping:
        state.unattached(step, leader_id=role.leader_id)
        return step.now_ms
    if elected(step, role.granted):
        state.run_for_leader(step)
        return step.now_ms
    if role.election_at_ms <= step.now_ms or defeated(step, role.rejected):
        if role.leader_id is not None and role.leader_id != step.state.me.id:
            state.follow(step, role.leader_id, step.state.epoch)
        else:
            state.unattached(step)
        return step.now_ms
    return min(role.election_at_ms, _ask_for_votes(step, role, pre_vote=True))


def poll_candidate(step: Step, role: Candidate) -> float | None:
    """Ask each voter.  Returns when to look again; None: it is elected."""
    if not step.state.stands or step.state.stopping:
        state.unattached(step)
        return step.now_ms
    if elected(step, role.granted):
        return None
    if role.election_at_ms <= step.now_ms or defeated(step, role.rejected):
        # It keeps its vote for itself in this epoch.
        step.change(role=role._replace(rejected=frozenset()))
        state.stand(step)
        return step.now_ms
    return min(role.election_at_ms, _ask_for_votes(step, role, pre_vote=False))


def _ask_for_votes(step: Step, role: Prospective | Candidate, pre_vote: bool) -> float:
    now = step.state
    done = role.granted | role.rejected
    end = end_offset(step)
    for voter in now.voters:
        node = voter.key.id
        if node != now.me.id and node not in done and step.can_send(node):
            step.send(
                node, VoteRequest(voter.key, now.epoch, now.me, end.epoch, end.offset, pre_vote)
            )
    ids = {one.key.id for one in now.voters} - done
    waits = [at_ms for node, (_, at_ms, _) in step.state.waits.items() if node in ids]
    return min(waits, default=role.election_at_ms)


# ---- the end of a leadership -----------------------------------------------------------------


def resign(step: Step, role: Leader) -> None:
    """Stop leading; the voters with the longest logs should follow first."""
    now = step.state
    others = [one.key for one in now.voters if one.key.id != now.me.id]
    ends = {key.id: one.end for key, one in role.progress.items()}
    others.sort(key=lambda one: (-ends.get(one.id, -1), one.id))
    at_ms = step.now_ms + state.election_timeout_ms(step)
    unaware = frozenset(one.id for one in others)
    candidates = tuple(others)
    if version_of(now.log) == 0:
        candidates = tuple(ReplicaKey(one.id, NO_DIRECTORY) for one in others)
    state.become(step, Resigned(at_ms, candidates, unaware))


def poll_resigned(step: Step, role: Resigned) -> float:
    """Tell the voters; after an election timeout, leave the epoch that it led."""
    now = step.state
    if role.election_at_ms <= step.now_ms:
        state.unattached(step, now.epoch + 1)
        return step.now_ms
    for node in sorted(role.unaware):
        if step.can_send(node):
            step.send(node, EndQuorumEpochRequest(now.me.id, now.epoch, role.candidates))
    waits = [step.state.waits[node][1] for node in role.unaware if node in step.state.waits]
    return min([role.election_at_ms, *waits])
