"""The state of a replica, and a step from one state to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from kafkalog.raft.log import LogView, last_epoch, voters_in
from kafkalog.raft.messages import (
    Answer,
    Effect,
    FetchRequest,
    FetchResponse,
    LostLeadership,
    QuorumState,
    Send,
    VoterResponse,
    WriteQuorumState,
)
from kafkalog.raft.replicas import ReplicaKey, Voter, Voters, is_voter
from kafkalog.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    leader_of,
    vote_of,
)
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Options",
    "Parked",
    "State",
    "Step",
    "become",
    "election_timeout_ms",
    "follow",
    "heard",
    "restored",
    "run_for_leader",
    "stand",
    "unattached",
]


class Options(NamedTuple):
    """A replica's settings; the names without `_ms` are those of Kafka's `controller.quorum.*`."""

    election_timeout_ms: float = 1000
    fetch_timeout_ms: float = 2000
    request_timeout_ms: float = 2000
    backoff_ms: float = 50
    """After a request that failed, until the next one to that node."""
    fetch_wait_ms: float = 500
    """The longest that a leader parks a fetch."""
    bootstrap: tuple[int, ...] = ()
    """Nodes to ask for the leader, besides the voters."""
    auto_join: bool = False
    """An observer that can become a voter asks to."""
    itself: Voter | None = None
    """This replica as a voter, with its endpoints."""
    observes: bool = False
    """A broker's replica: nobody reaches it, so it never votes, even if its node was a voter."""
    replicas_max: int = 1_000
    """The most replicas whose progress a leader remembers."""


class Parked(NamedTuple):
    """A fetch that waits for records."""

    token: Any
    request: FetchRequest
    until_ms: float
    high_watermark: int
    """The one that its sender knows."""


class State(NamedTuple):
    """A replica between two events."""

    me: ReplicaKey
    options: Options
    epoch: int
    role: Role
    log: LogView
    stored: QuorumState
    """The contents of the file."""
    high_watermark: int = 0
    next_number: int = 1
    waits: Mapping[int, tuple[int, float, Any]] = {}
    """Per node: the number of the request in flight (0: none), when the next may be sent, and the
    request."""
    parked: Mapping[ReplicaKey, Parked] = {}
    flushing: int = 0
    """The number of the flush in progress; 0: none."""
    flush_end: int = 0
    """Its end."""
    known: Mapping[int, Voter] = {}
    """Voters' own descriptions, as a leader with kraft.version 0 received them."""
    stopping: bool = False
    """The node shuts down: it stands for no election."""
    timer_ms: float = inf

    @property
    def voters(self) -> Voters:
        """The voters in force."""
        return voters_in(self.log)

    @property
    def votes(self) -> bool:
        """True if this replica is a voter."""
        return is_voter(self.voters, self.me) and not self.options.observes

    @property
    def stands(self) -> bool:
        """True if this replica may have to lead: it is a voter, or the record that removed it may
        not be committed.  Source: the Raft thesis, 4.2.2."""
        if self.votes:
            return True
        if self.options.observes:
            return False
        return any(
            next_offset >= self.high_watermark and is_voter(voters, self.me)
            for (_, voters), (next_offset, _) in pairwise(self.log.voters)
        )

    @property
    def durable(self) -> bool:
        """True if everything that a fetch promises is on disk.

        A leader counts a voter of the log, even if that only observes now; of other observers it
        expects nothing.
        """
        counts = not self.options.observes or is_voter(self.voters, self.me)
        return self.log.flushed >= self.log.end if counts else True

    @property
    def leader_id(self) -> int | None:
        """The leader of the epoch, as far as it is known."""
        return leader_of(self.role, self.me)


PLACES = {name: place for place, name in enumerate(State._fields)}
"""The place of each field: `State._replace` would take most of the time of a step."""


class Step:
    """The work of one event: the state, which is replaced, and the effects so far, in order."""

    def __init__(self, state: State, now_ms: float, draw: Callable[[], float]) -> None:
        """`draw`: a random number from 0 to 1."""
        self.state = state
        self.now_ms = now_ms
        self.draw = draw
        self.effects: list[Effect] = []

    def change(self, **fields: Any) -> None:
        """Replace fields of the state."""
        values = [*self.state]
        for name, value in fields.items():
            values[PLACES[name]] = value
        self.state = tuple.__new__(State, values)

    def emit(self, effect: Effect) -> None:
        """Add an effect."""
        self.effects.append(effect)

    def can_send(self, node_id: int) -> bool:
        """True if the node may get a request now."""
        _, at_ms, _ = self.state.waits.get(node_id, (0, -inf, None))
        return at_ms <= self.now_ms

    def send(self, node_id: int, message: Any) -> None:
        """Send a request; an earlier one to the node is given up."""
        state = self.state
        until_ms = self.now_ms + state.options.request_timeout_ms
        waits = {**state.waits, node_id: (state.next_number, until_ms, message)}
        self.emit(Send(node_id, state.next_number, message))
        self.change(waits=waits, next_number=state.next_number + 1)

    def back_off(self, node_id: int) -> None:
        """Send the node no request for a while: the last one failed."""
        at_ms = self.now_ms + self.state.options.backoff_ms
        self.change(waits={**self.state.waits, node_id: (0, at_ms, None)})


def election_timeout_ms(step: Step) -> float:
    """A timeout with jitter, once to twice the setting."""
    return step.state.options.election_timeout_ms * (1 + step.draw())


def persist(step: Step) -> None:
    """Write epoch, leader and vote if they have changed: before an answer or request tells."""
    state = step.state
    wanted = QuorumState(state.epoch, state.leader_id, vote_of(state.role, state.me))
    if wanted != state.stored:
        step.emit(WriteQuorumState(wanted))
        step.change(stored=wanted)


def become(step: Step, role: Role, epoch: int | None = None) -> None:
    """Take a role, in a later epoch if one is given."""
    old = step.state
    step.change(role=role, epoch=old.epoch if epoch is None else epoch)
    if step.state.epoch != old.epoch or type(role) is not type(old.role):
        # What was asked in the former role does not matter any longer.
        step.change(waits={})
    persist(step)
    if isinstance(old.role, Leader) and not isinstance(role, Leader):
        _stop_leading(step, old.role, old.epoch)


def _stop_leading(step: Step, role: Leader, epoch: int) -> None:
    """Answer all that waits for this leader."""
    state = step.state
    where = ErrorCode.NOT_LEADER_OR_FOLLOWER, state.epoch, state.leader_id
    if role.change is not None and role.change.token is not None:
        step.emit(Answer(role.change.token, VoterResponse(*where, "the leader has changed")))
    for one in state.parked.values():
        step.emit(Answer(one.token, FetchResponse(*where)))
    step.change(parked={}, known={})
    step.emit(LostLeadership(epoch))


def unattached(step: Step, epoch: int | None = None, leader_id: int | None = None) -> None:
    """Follow nobody; in the same epoch the vote stays."""
    state = step.state
    voted = vote_of(state.role, state.me) if epoch in (None, state.epoch) else None
    at_ms = step.now_ms + election_timeout_ms(step)
    become(step, Unattached(at_ms, leader_id, voted), epoch)


def follow(step: Step, leader_id: int, epoch: int) -> None:
    """Follow a leader."""
    state = step.state
    voted = vote_of(state.role, state.me) if epoch == state.epoch else None
    at_ms = step.now_ms + state.options.fetch_timeout_ms
    join_ms = step.now_ms + state.options.fetch_timeout_ms
    become(step, Follower(leader_id, at_ms, voted, join_at_ms=join_ms), epoch)


def heard(step: Step, epoch: int, leader_id: int | None) -> bool:
    """Take over a later epoch, or the leader of the same.  Returns True if a role has changed."""
    state = step.state
    me = state.me.id
    if leader_id == me:
        leader_id = None  # only its own election makes it lead
    if epoch > state.epoch:
        if leader_id is None:
            unattached(step, epoch)
        else:
            follow(step, leader_id, epoch)
        return True
    # A prospective that knows the leader doubts that it is alive: it counts its votes first.
    doubts = isinstance(state.role, Prospective) and state.role.leader_id is not None
    joins = isinstance(state.role, Unattached | Prospective | Candidate) and not doubts
    if epoch == state.epoch and leader_id is not None and joins:
        follow(step, leader_id, epoch)
        return True
    return False


def stand(step: Step) -> None:
    """Begin an election, without raising the epoch yet."""
    state = step.state
    at_ms = step.now_ms + election_timeout_ms(step)
    granted = frozenset({state.me.id})
    become(step, Prospective(at_ms, state.leader_id, vote_of(state.role, state.me), granted))


def run_for_leader(step: Step) -> None:
    """Raise the epoch and vote for itself."""
    state = step.state
    at_ms = step.now_ms + election_timeout_ms(step)
    become(step, Candidate(at_ms, frozenset({state.me.id})), state.epoch + 1)


def restored(
    me: ReplicaKey, options: Options, log: LogView, stored: QuorumState | None, now_ms: float,
    draw: Callable[[], float],
) -> State:  # fmt: skip
    """The state of a replica that starts: from its log and its file `quorum-state`.

    Nothing counts as flushed: what an earlier process left in the page cache a power cut may take.
    """
    found = stored or QuorumState(0)
    log = log._replace(flushed=log.start)
    last = last_epoch(log)
    if last > found.epoch:
        found = QuorumState(last)
    at_ms = now_ms + options.election_timeout_ms * (1 + draw())
    ever_voter = any(is_voter(voters, me) for _, voters in log.voters)
    role: Role
    if options.observes and found.leader_id in (None, me.id):
        role = Unattached(at_ms, None, found.voted)
    elif [one.key.id for one in voters_in(log)] == [me.id] and is_voter(voters_in(log), me):
        role = Prospective(at_ms, None, found.voted, frozenset({me.id}))  # nobody else may lead
    elif found.leader_id == me.id:
        role = Resigned(at_ms)
    elif found.leader_id is None and found.voted == me and ever_voter:
        role = Candidate(at_ms, frozenset({me.id}))
    elif found.leader_id is not None:
        at_ms = now_ms + options.fetch_timeout_ms
        role = Follower(found.leader_id, at_ms, found.voted, join_at_ms=at_ms)
    else:
        role = Unattached(at_ms, None, found.voted)
    return State(me, options, found.epoch, role, log, stored or QuorumState(-1), log.start)
