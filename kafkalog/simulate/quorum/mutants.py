"""Mistakes, planted one at a time in the core: a simulation that finds none of them proves nothing.

Each leaves out a rule of Raft (the thesis, and its correction of 2015) or of KRaft (KIP-595, 630,
853, 996).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Any, NamedTuple

from kafkalog.raft import changes, core, elections, following, leading, log, roles, state
from kafkalog.raft.log import OffsetAndEpoch, Valid
from kafkalog.raft.messages import HighWatermark, QuorumState, Send, Truncate, WriteQuorumState
from kafkalog.raft.replicas import is_voter
from kafkalog.raft.roles import Leader, Prospective, Unattached
from kafkalog.raft.state import State, Step
from kafkalog.simulate.quorum.setup import DARK, MEMBERS, ROLLING
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["MUTANTS", "Mutant", "planted"]


class Mutant(NamedTuple):
    """A planted mistake."""

    what: str
    where: tuple[tuple[Any, str], ...]
    """The modules or classes, and the function that is replaced in each."""
    instead: Callable[..., Any]
    given: Mapping[str, Any] = {}
    """Fields of the setup that are not drawn."""


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[None]:
    """Replace the functions of a mutant for a while; None: nothing."""
    saved = [(owner, name, getattr(owner, name)) for owner, name in mutant.where] if mutant else []
    try:
        for owner, name, _ in saved:
            assert mutant is not None
            setattr(owner, name, mutant.instead)
        yield
    finally:
        for owner, name, one in saved:
            setattr(owner, name, one)


# ---- elections -------------------------------------------------------------------------------


def _unwritten_vote(step: Step) -> None:
    """Only an epoch and a leader are written."""
    now = step.state
    wanted = QuorumState(now.epoch, now.leader_id, None)
    if wanted != now.stored:
        step.emit(WriteQuorumState(wanted))
        step.change(stored=wanted)


_step = core.step


def _answers_first(now: State, event: Any, now_ms: float, draw: Any) -> Any:
    """quorum-state is written last."""
    after, effects = _step(now, event, now_ms, draw)
    written = [one for one in effects if isinstance(one, WriteQuorumState)]
    return after, [one for one in effects if not isinstance(one, WriteQuorumState)] + written


_grants = roles.grants


def _votes_again(role: Any, candidate: Any, up_to_date: bool, pre_vote: bool) -> bool:
    if isinstance(role, Unattached) and not pre_vote:
        return up_to_date
    return _grants(role, candidate, up_to_date, pre_vote)


def _votes_while_following(role: Any, candidate: Any, up_to_date: bool, pre_vote: bool) -> bool:
    if pre_vote and not isinstance(role, Leader):
        return up_to_date
    return _grants(role, candidate, up_to_date, pre_vote)


_restored = state.restored


def _forgets_leading(
    me: Any, options: Any, found: Any, stored: Any, now_ms: float, draw: Any
) -> State:
    if stored is not None and stored.leader_id == me.id:
        stored = QuorumState(stored.epoch)
    return _restored(me, options, found, stored, now_ms, draw)


def _found_is_flushed(
    me: Any, options: Any, found: Any, stored: Any, now_ms: float, draw: Any
) -> State:
    made = _restored(me, options, found, stored, now_ms, draw)
    return made._replace(log=made.log._replace(flushed=made.log.end))


_heard = state.heard


def _obeys_earlier(step: Step, epoch: int, leader_id: int | None) -> bool:
    if epoch < step.state.epoch and leader_id not in (None, step.state.me.id):
        assert leader_id is not None
        state.follow(step, leader_id, epoch)
        return True
    return _heard(step, epoch, leader_id)


def _follows_the_dead(step: Step, epoch: int, leader_id: int | None) -> bool:
    now = step.state
    known = leader_id is not None and (epoch, leader_id) == (now.epoch, now.leader_id)
    if known and isinstance(now.role, Prospective):
        assert leader_id is not None
        state.follow(step, leader_id, epoch)
        return True
    return _heard(step, epoch, leader_id)


def _one_number(step: Step, node_id: int, message: Any) -> None:
    """Every request to a node has the same number."""
    now = step.state
    until_ms = step.now_ms + now.options.request_timeout_ms
    step.emit(Send(node_id, node_id + 1, message))
    step.change(waits={**now.waits, node_id: (node_id + 1, until_ms, message)})


# ---- the leader ------------------------------------------------------------------------------


def _removed_counts(view: Any, me: Any, progress: Any) -> int:
    """A leader that is no voter any longer counts itself."""
    voters = log.voters_in(view)
    ends = [leading.voter_progress(progress, one.key).end for one in voters if one.key != me]
    ends.append(leading.own_end(view))
    return int(sorted(ends, reverse=True)[len(voters) // 2])


def _half_counts(view: Any, me: Any, progress: Any) -> int:
    """Half of the voters are enough."""
    voters = log.voters_in(view)
    ends = [
        leading.own_end(view) if is_voter((one,), me)
        else leading.voter_progress(progress, one.key).end for one in voters
    ]  # fmt: skip
    return sorted(ends, reverse=True)[max(0, len(voters) // 2 - 1)]


def _observers_count(view: Any, me: Any, progress: Any) -> int:
    """Observers count as voters do."""
    voters = log.voters_in(view)
    ends = sorted([leading.own_end(view), *(one.end for one in progress.values())], reverse=True)
    return ends[len(voters) // 2] if len(ends) > len(voters) // 2 else -1


def _half_elects(step: Step, ids: Any) -> bool:
    voters = step.state.voters
    return sum(one.key.id in ids for one in voters) >= max(1, len(voters) // 2)


def _flush_counts_all(step: Step, event: Any) -> None:
    """A flush counts for all that is there when it ends."""
    now = step.state
    if event.number == now.flushing:
        step.change(flushing=0, log=now.log._replace(flushed=now.log.end))
        if isinstance(now.role, Leader):
            leading.advance(step, now.role)


def _leads_on(step: Step, role: Any) -> bool:
    step.change(role=role._replace(quorum_at_ms=inf))
    return False


# ---- the follower ----------------------------------------------------------------------------


_validated = log.validated


def _no_divergence(view: Any, offset: int, epoch: int) -> Any:
    found = _validated(view, offset, epoch)
    return Valid() if isinstance(found, log.Diverging) and offset <= view.end else found


def _cuts_to_watermark(step: Step, offset: int) -> None:
    offset = min(offset, step.state.high_watermark)
    step.emit(Truncate(offset))
    step.change(log=log.truncated(step.state.log, offset), flushing=0)


_fetch_response = following.on_fetch_response


def _shows_first(step: Step, node_id: int, answer: Any, asked: Any) -> None:
    if following.answers(step, node_id, asked.current_leader_epoch) and not answer.error_code:
        following.show(step, answer.high_watermark)
    _fetch_response(step, node_id, answer, asked)


def _their_end(view: Any, leaders: OffsetAndEpoch) -> int:
    return int(min(view.end, leaders.offset))


def _shows_all(step: Step, high_watermark: int) -> None:
    """A follower shows all that it has."""
    end = step.state.log.end
    if end > step.state.high_watermark and high_watermark >= 0:
        step.change(high_watermark=end)
        step.emit(HighWatermark(end))


# ---- voters ----------------------------------------------------------------------------------


def _before_own_epoch(step: Step, role: Any) -> None:
    if not changes.change_committed(step):
        raise changes.Refused(ErrorCode.REQUEST_TIMED_OUT, "another change")


_truncated = log.truncated


def _keeps_voters(view: Any, offset: int) -> Any:
    return _truncated(view, offset)._replace(voters=view.voters, versions=view.versions)


_at_snapshot = log.at_snapshot


def _snapshot_without_voters(view: Any, found: Any, version: int, voters: Any) -> Any:
    return _at_snapshot(view, found, version, ())


def _same_node(me: Any, voter: Any) -> bool:
    return bool(me.id == voter.id)


CHURN = {
    "version": 1, "auto_join": False, "fault_ms": 100.0, "lost_share": 0.0, "append_ms": 40.0,
    "delay_ms": 5.0, "disk_ms": 0.5, "faults": MEMBERS,
}  # fmt: skip
"""Voters that change while leaders do."""
POWER = {"fault_ms": 100.0, "append_ms": 20.0, "faults": DARK}
"""Processes that die, and then their power."""
VOTES = {
    "voters": 5, "observers": 0, "delay_ms": 30.0, "disk_ms": 30.0, "fault_ms": 30.0,
    "faults": {"kill": 10, "resign": 1},
}  # fmt: skip
"""Candidates of one epoch, and voters that start again."""
LEADERS = {"fault_ms": 150.0, "append_ms": 20.0, "observers": 0, "faults": ROLLING}
"""Many leaders, none of which lives long."""
EARLY = {
    **CHURN, "voters": 4, "observers": 0, "faults": {"roll": 1}, "fault_ms": 4_000.0,
    "append_ms": 500.0,
    "shares": {"elected": 0.9}, "moments": {"elected": {"change_and_split": 1}},
}  # fmt: skip
"""An even number of voters, which change as soon as there is a leader."""
ALONE = {**LEADERS, "append_ms": 300.0, "fault_ms": 1_500.0}
"""Leaders that are cut off for a while."""
LOSSES = {
    "version": 1, "auto_join": False, "fault_ms": 200.0, "append_ms": 20.0, "observers": 0,
    "faults": {"wipe_voter": 6, "wipe": 2, "roll": 2, "remove_voter": 3, "add_voter": 6},
}  # fmt: skip
"""Disks that are lost."""

MUTANTS: Mapping[str, Mutant] = {
    "vote-not-written": Mutant(
        "a vote is not in quorum-state",
        ((state, "persist"),),
        _unwritten_vote,
        given=VOTES,
    ),
    "vote-written-late": Mutant(
        "quorum-state is written after the answer that depends on it",
        ((core, "step"),),
        _answers_first,
        given=VOTES,
    ),
    "votes-twice": Mutant(
        "a voter gives its vote to each candidate of an epoch", ((roles, "grants"),), _votes_again
    ),
    "votes-for-short-logs": Mutant(
        "a candidate's log is not compared",
        ((elections, "up_to_date"),),
        lambda own, other: True,
        given=LEADERS,
    ),
    "compares-offsets": Mutant(
        "a candidate's offset is compared, and not its last epoch",
        ((elections, "up_to_date"),),
        lambda own, other: other.offset >= own.offset,
        given=LEADERS,
    ),
    "half-elects": Mutant("half of the votes elect", ((elections, "elected"),), _half_elects),
    "votes-while-following": Mutant(
        "a follower of a live leader grants a pre-vote (KIP-996)",
        ((roles, "grants"),),
        _votes_while_following,
    ),
    "forgets-leading": Mutant(
        "a leader that starts again votes for another in the epoch that it led",
        ((state, "restored"),),
        _forgets_leading,
        given=VOTES,
    ),
    "obeys-earlier": Mutant(
        "a leader of an earlier epoch is followed", ((state, "heard"),), _obeys_earlier
    ),
    "follows-the-dead": Mutant(
        "a replica that stands for election follows the leader of its epoch again",
        ((state, "heard"),),
        _follows_the_dead,
    ),
    "old-identity": Mutant(
        "a voter that lost its disk votes as before (KIP-853)",
        ((elections, "meant_for"),),
        _same_node,
        given=LOSSES,
    ),
    "leads-unfollowed": Mutant(
        "a leader that no majority follows leads on",
        ((leading, "poll_quorum"),),
        _leads_on,
        given=ALONE,
    ),
    "stale-responses": Mutant(
        "a response to an earlier request counts", ((Step, "send"),), _one_number
    ),
    "counts-earlier-epochs": Mutant(
        "a record of an earlier epoch is committed by counting",
        ((leading, "committable"),),
        lambda role, end: True,
        given=LEADERS,
    ),
    "half-commits": Mutant(
        "half of the voters commit", ((leading, "replicated_end"),), _half_counts
    ),
    "observers-count": Mutant(
        "an observer counts as a voter", ((leading, "replicated_end"),), _observers_count
    ),
    "leader-unflushed": Mutant(
        "a leader counts itself before its flush", ((leading, "own_end"),), lambda view: view.end
    ),
    "follower-unflushed": Mutant(
        "a follower fetches on before its flush", ((following, "ready"),), lambda step: True
    ),
    "found-unflushed": Mutant(
        "a replica takes what it finds at its start to be on disk",
        ((state, "restored"),),
        _found_is_flushed,
        given=POWER,
    ),
    "flush-counts-all": Mutant(
        "a flush counts for records that were appended while it ran",
        ((core, "_flushed"),),
        _flush_counts_all,
        given=POWER,
    ),
    "no-divergence": Mutant(
        "a leader does not compare where the follower's last epoch ended",
        ((log, "validated"),),
        _no_divergence,
        given=LEADERS,
    ),
    "their-end": Mutant(
        "a follower truncates where the leader's epoch ended, whatever it has itself",
        ((log, "truncation_offset"),),
        _their_end,
        given=LEADERS,
    ),
    "cuts-to-watermark": Mutant(
        "a follower truncates to its high watermark",
        ((following, "_truncate"),),
        _cuts_to_watermark,
        given=LEADERS,
    ),
    "cuts-committed": Mutant(
        "a follower truncates below its high watermark",
        ((log, "truncation_offset"),),
        lambda view, leaders: (
            min(view.end, leaders.offset, view.epochs[-1][1]) if view.epochs else 0
        ),
    ),
    "watermark-first": Mutant(
        "the high watermark is taken over before the log is truncated",
        ((following, "on_fetch_response"),),
        _shows_first,
    ),
    "shows-all": Mutant(
        "a follower shows everything that it has", ((following, "show"),), _shows_all
    ),
    "change-before-own-epoch": Mutant(
        "voters change before a record of the leader's epoch is committed (Raft's mistake of 2015)",
        ((changes, "check_stable"),),
        _before_own_epoch,
        given=EARLY,
    ),
    "two-changes": Mutant(
        "voters change before the change before is committed",
        ((changes, "change_committed"),),
        lambda step: True,
        given=CHURN,
    ),
    "removed-leader-counts": Mutant(
        "a leader that is removed counts itself",
        ((leading, "replicated_end"),),
        _removed_counts,
        given=CHURN,
    ),
    "keeps-voters": Mutant(
        "voters of truncated records stay in force",
        ((log, "truncated"),),
        _keeps_voters,
        given=CHURN,
    ),
    "snapshot-without-voters": Mutant(
        "the voters of a fetched snapshot are ignored",
        ((log, "at_snapshot"),),
        _snapshot_without_voters,
        given=CHURN,
    ),
}
"""By the name that `kafkalog simulate --quorum --mutant` takes."""
