"""Changes of the voters, one at a time, and of kraft.version.

Source: KIP-853; the Raft thesis, chapter 4, with the correction of 2015: a leader changes voters
only once a record of its own epoch is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from kafkalog.raft import leading, roles, state
from kafkalog.raft.log import Control, VersionChange, version_of
from kafkalog.raft.messages import (
    AddRaftVoterRequest,
    Answer,
    ChangeVersion,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoterResponse,
)
from kafkalog.raft.replicas import (
    NO_DIRECTORY,
    ReplicaKey,
    Voter,
    Voters,
    find,
    is_voter,
    voters_of,
    with_voter,
    without_voter,
)
from kafkalog.raft.roles import Follower, Leader, PendingChange
from kafkalog.raft.state import Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Refused",
    "change_committed",
    "check_stable",
    "on_add_voter",
    "on_change_version",
    "on_join_response",
    "on_remove_voter",
    "on_update_voter",
    "poll_change",
    "poll_join",
]

CAUGHT_UP_MS = 3_600_000
"""A new voter must have had everything within this time."""
VERSION_MAX = 1


class Refused(Exception):
    """The error of a request, and why."""

    def __init__(self, error: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.error = error


def on_add_voter(step: Step, token: object, request: AddRaftVoterRequest) -> None:
    """Add a voter that has caught up as an observer."""

    def voters(role: Leader) -> Voters:
        old, key = step.state.voters, request.voter.key
        _check_ready(step, role)
        _check_voter(step, request.voter)
        if find(old, key.id):
            raise Refused(ErrorCode.DUPLICATE_VOTER, f"node {key.id} has a voter already")
        low, high = request.voter.versions
        if not low <= version_of(step.state.log) <= high:
            raise Refused(ErrorCode.INVALID_REQUEST, f"node {key.id} does not support the version")
        if not caught_up(step, role, key):
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, f"node {key.id} has not caught up")
        return with_voter(old, request.voter)

    _change(step, token, voters, request.ack_when_committed)


def on_remove_voter(step: Step, token: object, request: RemoveRaftVoterRequest) -> None:
    """Remove a voter; a leader that removes itself leads until that is committed."""

    def voters(role: Leader) -> Voters:
        old = step.state.voters
        _check_ready(step, role)
        one = find(old, request.voter.id)
        if one is None or not roles.same_replica(one.key, request.voter):
            raise Refused(ErrorCode.VOTER_NOT_FOUND, f"node {request.voter.id} has no such voter")
        if len(old) == 1:
            raise Refused(ErrorCode.INVALID_REQUEST, "the last voter cannot be removed")
        return without_voter(old, request.voter.id)

    _change(step, token, voters, True)


def on_update_voter(step: Step, token: object, request: UpdateRaftVoterRequest) -> None:
    """Take a voter's new endpoints and versions; with kraft.version 0 only in memory."""
    now = step.state
    if version_of(now.log) == 0 and isinstance(now.role, Leader):
        error = _leads(step, request.current_leader_epoch)
        if not error:
            try:
                _check_voter(step, request.voter)
            except Refused as refused:
                error = refused.error
        if not error and find(now.voters, request.voter.key.id) is None:
            error = ErrorCode.VOTER_NOT_FOUND
        if not error:
            step.change(known={**now.known, request.voter.key.id: request.voter})
        step.emit(Answer(token, VoterResponse(error, now.epoch, now.leader_id)))
        return

    def voters(role: Leader) -> Voters:
        old = step.state.voters
        if error := _leads(step, request.current_leader_epoch):
            raise Refused(error, "the request is of another epoch")
        _check_ready(step, role)
        _check_voter(step, request.voter)
        if not is_voter(old, request.voter.key):
            raise Refused(
                ErrorCode.VOTER_NOT_FOUND, f"node {request.voter.key.id} has no such voter"
            )
        return with_voter(old, request.voter)

    _change(step, token, voters, False)  # its sender must go on fetching for the commit


def _leads(step: Step, epoch: int) -> ErrorCode:
    now = step.state.epoch
    if epoch != now:
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < now else ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def on_change_version(step: Step, event: ChangeVersion) -> None:
    """Raise kraft.version to 1: from then on the log has the voters, with their directories."""

    def records(role: Leader) -> tuple[Control, ...]:
        now = step.state
        check_stable(step, role)
        if event.version == version_of(now.log):
            return ()
        if not version_of(now.log) < event.version <= VERSION_MAX:
            raise Refused(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"kraft.version: found {event.version}, wanted {version_of(now.log)} to "
                f"{VERSION_MAX}",
            )
        known = dict(now.known)
        if now.options.itself is not None:
            known[now.me.id] = now.options.itself
        missing = [one.key.id for one in now.voters if one.key.id not in known]
        old = [one.key.id for one in known.values() if one.versions[1] < event.version]
        if missing or old:
            raise Refused(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"kraft.version {event.version} is not supported by voters {missing + old}",
            )
        return VersionChange(event.version), voters_of(known[one.key.id] for one in now.voters)

    _append(step, event.token, records, True)


# ---- what all changes share ------------------------------------------------------------------


def _change(step: Step, token: object, voters: Callable[[Leader], Voters], waits: bool) -> None:
    def records(role: Leader) -> tuple[Control, ...]:
        found = voters(role)
        return () if found == step.state.voters else (found,)

    _append(step, token, records, waits)


def _append(
    step: Step, token: object, records: Callable[[Leader], tuple[Control, ...]], waits: bool
) -> None:
    """Append records and answer once they are committed; `waits` False: answer at once."""
    now = step.state
    error, why = ErrorCode.NONE, None
    found: tuple[Control, ...] = ()
    if isinstance(now.role, Leader):
        try:
            found = records(now.role)
        except Refused as refused:
            error, why = refused.error, str(refused)
    else:
        error, why = ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node is not the leader"
    if found:
        assert isinstance(now.role, Leader)
        offset = leading.append_controls(step, found)
        expires_ms = step.now_ms + now.options.request_timeout_ms
        change = PendingChange(token if waits else None, offset, expires_ms)
        step.change(role=now.role._replace(change=change))
    if not found or not waits:
        step.emit(Answer(token, VoterResponse(error, now.epoch, now.leader_id, why)))


def _check_ready(step: Step, role: Leader) -> None:
    if version_of(step.state.log) < 1:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, "kraft.version is 0, wanted 1")
    check_stable(step, role)


def _check_voter(step: Step, voter: Voter) -> None:
    """Refuse a voter that the others could not reach, or tell from one with another disk."""
    itself, node = step.state.options.itself, voter.key.id
    wanted = {name for name, _, _ in itself.endpoints} if itself is not None else set()
    if node < 0 or voter.key.directory_id == NO_DIRECTORY:
        raise Refused(ErrorCode.INVALID_REQUEST, f"node {node} has no directory id")
    if wanted and wanted.isdisjoint(name for name, _, _ in voter.endpoints):
        named = " or ".join(sorted(wanted))
        raise Refused(ErrorCode.INVALID_REQUEST, f"node {node} has no listener {named}")


def check_stable(step: Step, role: Leader) -> None:
    if not leading.own_epoch_committed(step, role):
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the leader has committed nothing yet")
    if not change_committed(step):
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "another change is not committed yet")


def change_committed(step: Step) -> bool:
    """True if the last change of the voters is committed: only then may the next begin."""
    log = step.state.log
    return max(log.voters[-1][0], log.versions[-1][0]) < step.state.high_watermark


def caught_up(step: Step, role: Leader, key: ReplicaKey) -> bool:
    """True if an observer has, or lately had, everything."""
    found = role.progress.get(key)
    at_ms = None if found is None else found.caught_up_at_ms
    return at_ms is not None and at_ms + CAUGHT_UP_MS > step.now_ms


def poll_change(step: Step, role: Leader) -> None:
    """Answer a change that takes too long; it may be committed later all the same."""
    change = role.change
    if change is not None and change.token is not None and change.expires_at_ms <= step.now_ms:
        now = step.state
        answer = VoterResponse(
            ErrorCode.REQUEST_TIMED_OUT, now.epoch, now.leader_id, "the change is not committed yet"
        )
        step.emit(Answer(change.token, answer))
        step.change(role=role._replace(change=change._replace(token=None)))


# ---- joining ---------------------------------------------------------------------------------


def poll_join(step: Step, role: Follower) -> float | None:
    """Report to the leader: an observer asks to become a voter if it may join by itself, a voter
    tells its endpoints if the leader does not have them.  Returns when to look again."""
    now = step.state
    itself = now.options.itself
    if itself is None or not role.has_fetched:
        return None
    request = _wanted(step, itself)
    if request is None:
        return None
    if role.join_at_ms > step.now_ms:
        return role.join_at_ms
    if not step.can_send(role.leader_id):
        return None  # the outcome of the request in flight is the next event
    step.send(role.leader_id, request)
    at_ms = step.now_ms + now.options.fetch_timeout_ms
    step.change(role=role._replace(join_at_ms=at_ms))
    return at_ms


def _wanted(
    step: Step, itself: Voter
) -> AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateRaftVoterRequest | None:
    now = step.state
    one = find(now.voters, now.me.id)
    if one is not None and is_voter(now.voters, now.me):
        if one.key.directory_id == NO_DIRECTORY or one != itself:
            return UpdateRaftVoterRequest(now.epoch, itself)
        return None
    if not now.options.auto_join or version_of(now.log) < 1:
        return None
    if one is not None:  # of the directory that this node had before
        return RemoveRaftVoterRequest(one.key)
    return AddRaftVoterRequest(itself, False)


def on_join_response(step: Step, answer: VoterResponse, asked: object) -> None:
    """Learn of another leader; an update that this leader has taken is not sent to it again."""
    role = step.state.role
    if state.heard(step, answer.leader_epoch, answer.leader_id) or answer.error_code:
        return
    if isinstance(role, Follower) and isinstance(asked, UpdateRaftVoterRequest):
        step.change(role=role._replace(join_at_ms=inf))
