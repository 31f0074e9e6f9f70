"""A leader: its log, the high watermark, the quorum that follows it.

Source: KIP-595; the Raft thesis, 3.6.2: only records of the own epoch are committed by counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from kafkalog.raft import elections, roles, state
from kafkalog.raft.log import (
    Batch,
    Control,
    LeaderChange,
    LogView,
    VersionChange,
    appended,
    version_of,
    voters_in,
)
from kafkalog.raft.messages import (
    Answer,
    Append,
    AppendBatch,
    Appended,
    BecameLeader,
    BeginQuorumEpochRequest,
    Flush,
    HighWatermark,
    VoterResponse,
)
from kafkalog.raft.replicas import ReplicaKey, Voters, is_voter, majority
from kafkalog.raft.roles import Candidate, Leader, Progress
from kafkalog.raft.state import Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "advance",
    "append_controls",
    "begin_leading",
    "count_fetch",
    "flush",
    "on_append",
    "own_epoch_committed",
    "poll_leader",
    "poll_quorum",
    "record_fetch",
    "voter_progress",
]

CHECK_QUORUM = 1.5
"""A leader without a majority of followers resigns after this many fetch timeouts."""
NEVER = Progress()
"""The progress of a replica that has not fetched in this epoch."""


def begin_leading(step: Step, role: Candidate) -> None:
    """Take the lead, and append the first records of the epoch."""
    now = step.state
    start = now.log.end
    quorum_ms = step.now_ms + now.options.fetch_timeout_ms * CHECK_QUORUM
    unaware = frozenset(one.key.id for one in now.voters) - {now.me.id}
    state.become(step, Leader(start, quorum_ms, step.now_ms, {}, unaware=unaware))
    keys = tuple(one.key for one in now.voters)
    granting = tuple(one for one in keys if one.id in role.granted)
    records: list[Control] = [LeaderChange(now.me.id, keys, granting)]
    if version_of(now.log) and now.log.voters[-1][0] < 0:
        # The voters come from formatting: from now on the log has them, for all replicas.
        records += [VersionChange(version_of(now.log)), now.voters]
    append_controls(step, records)
    step.emit(BecameLeader(now.epoch, step.state.log.end))


def append_controls(step: Step, records: Iterable[Control]) -> int:
    """Append a batch of control records; returns the offset of its last."""
    controls = tuple(records)
    start = step.state.log.end
    _append(step, Batch(start, start + len(controls) - 1, step.state.epoch, controls))
    return step.state.log.end - 1


def on_append(step: Step, event: Append) -> None:
    """Append records of the state machine above."""
    now = step.state
    if not isinstance(now.role, Leader) or event.epoch != now.epoch:
        step.emit(Appended(event.token, None, event.epoch))
        return
    start = now.log.end
    _append(step, Batch(start, start + event.record_count - 1, now.epoch, (), event.data))
    step.emit(Appended(event.token, step.state.log.end - 1, now.epoch))


def _append(step: Step, batch: Batch) -> None:
    step.emit(AppendBatch(batch))
    step.change(log=appended(step.state.log, batch))


def flush(step: Step) -> None:
    """Sync what was appended, one flush at a time."""
    now = step.state
    if not now.flushing and not now.durable:
        step.emit(Flush(now.next_number))
        step.change(
            flushing=now.next_number, flush_end=now.log.end, next_number=now.next_number + 1
        )


# ---- the high watermark ----------------------------------------------------------------------


def voter_progress(progress: Mapping[ReplicaKey, Progress], voter: ReplicaKey) -> Progress:
    """The progress of a voter; of the one that came furthest if any directory stands for it."""
    found = [one for key, one in progress.items() if roles.same_replica(voter, key)]
    if len(found) < 2:
        return found[0] if found else NEVER
    return max(found, key=lambda one: one.fetched_at_ms or -inf)


def own_end(log: LogView) -> int:
    """How far the leader counts itself: what is on its disk."""
    return log.flushed


def replicated_end(log: LogView, me: ReplicaKey, progress: Mapping[ReplicaKey, Progress]) -> int:
    """The offset below which a majority of the voters have everything on disk."""
    voters: Voters = voters_in(log)
    ends = [
        own_end(log) if is_voter((one,), me) else voter_progress(progress, one.key).end
        for one in voters
    ]
    return sorted(ends, reverse=True)[majority(voters) - 1] if ends else -1


def committable(role: Leader, end: int) -> bool:
    """True if a majority has a record of the leader's own epoch: earlier ones are committed with
    it, never alone."""
    return end > role.epoch_start


def advance(step: Step, role: Leader) -> None:
    """Raise the high watermark as far as a majority goes."""
    now = step.state
    end = replicated_end(now.log, now.me, role.progress)
    if committable(role, end) and end > now.high_watermark:
        step.change(high_watermark=end)
        step.emit(HighWatermark(end))
        _finish_change(step, role)


def _finish_change(step: Step, role: Leader) -> None:
    """Answer a change of the voters that is committed now."""
    change = role.change
    if change is not None and change.offset < step.state.high_watermark:
        step.change(role=role._replace(change=None))
        if change.token is not None:
            now = step.state
            step.emit(Answer(change.token, VoterResponse(ErrorCode.NONE, now.epoch, now.leader_id)))


def own_epoch_committed(step: Step, role: Leader) -> bool:
    """True if a record of this leader's epoch is committed: then it knows all that are."""
    return step.state.high_watermark > role.epoch_start


def record_fetch(step: Step, role: Leader, replica: ReplicaKey, offset: int) -> None:
    """A replica has everything below `offset` on its disk."""
    now = step.state
    before = role.progress.get(replica, NEVER)
    caught_up = before.caught_up_at_ms
    if offset >= now.log.end:
        caught_up = step.now_ms
    elif before.fetched_at_ms is not None and offset >= before.leader_end:
        caught_up = before.fetched_at_ms
    after = Progress(offset, step.now_ms, caught_up, now.log.end)
    progress = {**role.progress, replica: after}
    if len(progress) > now.options.replicas_max:
        others = [one for one in progress if one != replica and not is_voter(now.voters, one)]
        if others:
            del progress[min(others, key=lambda one: progress[one].fetched_at_ms or -inf)]
    count_fetch(step, role._replace(progress=progress), replica)


def count_fetch(step: Step, role: Leader, replica: ReplicaKey) -> None:
    """A replica follows this leader: with a majority of the voters it may go on."""
    now = step.state
    fetched, quorum_ms = role.fetched, role.quorum_at_ms
    if is_voter(now.voters, replica):
        fetched |= {replica.id}
    if elections.elected(step, fetched | {now.me.id}):
        fetched = frozenset()
        quorum_ms = step.now_ms + now.options.fetch_timeout_ms * CHECK_QUORUM
    unaware = role.unaware - {replica.id}
    step.change(role=role._replace(fetched=fetched, unaware=unaware, quorum_at_ms=quorum_ms))


# ---- timers ----------------------------------------------------------------------------------


def poll_quorum(step: Step, role: Leader) -> bool:
    """True if the leader has to resign: no majority fetches, or it is no voter any longer."""
    now = step.state
    removed = own_epoch_committed(step, role) and not now.votes
    if removed and now.log.voters[-1][0] < now.high_watermark:
        return True
    alone = elections.elected(step, frozenset({now.me.id}))
    return role.quorum_at_ms <= step.now_ms and not alone


def poll_leader(step: Step, role: Leader) -> float:
    """Make itself known to the voters that do not fetch.  Returns when to look again."""
    now = step.state
    period_ms = now.options.fetch_timeout_ms / 2
    if role.begin_at_ms <= step.now_ms:
        late = frozenset(
            one.key.id for one in now.voters
            if one.key.id != now.me.id and not _fetches(step, role, one.key, period_ms)
        )  # fmt: skip
        role = role._replace(begin_at_ms=step.now_ms + period_ms, unaware=role.unaware | late)
    if role.unaware:
        keys = {one.key.id: one.key for one in now.voters if one.key.id != now.me.id}
        role = role._replace(unaware=role.unaware.intersection(keys))
        for node in sorted(role.unaware):
            if step.can_send(node):
                step.send(node, BeginQuorumEpochRequest(keys[node], now.me.id, now.epoch))
    if role is not now.role:
        step.change(role=role)
    waits = [step.state.waits[node][1] for node in role.unaware if node in step.state.waits]
    times = [role.quorum_at_ms, role.begin_at_ms, *waits]
    if elections.elected(step, frozenset({now.me.id})):
        times.remove(role.quorum_at_ms)
    if role.change is not None and role.change.token is not None:
        times.append(role.change.expires_at_ms)
    return min([*times, *(one.until_ms for one in now.parked.values())])


def _fetches(step: Step, role: Leader, voter: ReplicaKey, period_ms: float) -> bool:
    at_ms = voter_progress(role.progress, voter).fetched_at_ms
    return at_ms is not None and at_ms + period_ms > step.now_ms
