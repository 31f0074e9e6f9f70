"""The thread of a replica's Raft: hands events to the core, and carries out its effects.

A replica whose disk refuses a write answers nothing and votes for nobody, until it was read from
that disk again.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

from kafkalog.clock import Clock
from kafkalog.errors import (
    ArgumentError,
    CorruptLog,
    KafkalogError,
    NoSpace,
    StorageOffline,
    told_once,
)
from kafkalog.logs.limit import limited
from kafkalog.quorum.replica.answers import Ask, answer_fields, describe_quorum, refused
from kafkalog.quorum.replica.disk import ReplicaDisk
from kafkalog.quorum.replica.joining import VersionChanged
from kafkalog.quorum.replica.peers import Arrived, Peers, Wanted
from kafkalog.quorum.replica.places import Places
from kafkalog.raft import core
from kafkalog.raft import messages as raft
from kafkalog.raft.codec import request_of
from kafkalog.raft.log import LogView, appended, version_of
from kafkalog.raft.messages import QuorumState
from kafkalog.raft.replicas import ReplicaKey
from kafkalog.raft.roles import Leader, Resigned
from kafkalog.raft.state import Options, State, restored
from kafkalog.wire.apis import DESCRIBE_QUORUM
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["NewSnapshot", "RaftThread", "Reload"]

_logger = limited(__name__)

DISK_S, DISK_MAX_S = 1.0, 60.0
"""After a write that the disk refused, until the replica starts again; doubled each time."""
STOP_S = 1.0
"""How long a leader that stops waits until the others know."""


class NewSnapshot(NamedTuple):
    """The controller's thread wrote a snapshot."""


class Reload(NamedTuple):
    """A snapshot was fetched: the log begins at its end, and the image has to be read from it."""


class _FlushFailed(NamedTuple):
    problem: Exception


class _End(NamedTuple):
    """The thread ends."""


class RaftThread:
    """Raft of one replica.  `put` and `ask` from any thread."""

    def __init__(
        self, me: ReplicaKey, options: Options, disk: ReplicaDisk, places: Places, clock: Clock,
        tell: Callable[[Any], None], turned: Callable[[], None],
    ) -> None:  # fmt: skip
        """Read the disk.  `tell` gets BecameLeader, LostLeadership, Appended, HighWatermark, Reload
        and VersionChanged, in this thread; `turned` is called when the leader or the epoch has
        changed.

        Raises: CorruptLog, IoFailed.
        """
        self._me, self._options, self._disk, self._places = me, options, disk, places
        self._clock, self._tell, self._turned = clock, tell, turned
        self._found = disk.view(), disk.stored()
        self.state: State | None = None
        """The state, for any thread; None before `start`."""
        self.problem: Exception | None = None
        """Why this replica takes no part now."""
        self.broken: Exception | None = None
        """The same, if it takes no part until it is restarted."""
        self._peers: Peers | None = None
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._flushes: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._asks: dict[int, Ask] = {}
        self._asked = 0
        self._timer_ms = inf
        self._leads: int | None = None  # the epoch of the last BecameLeader, until LostLeadership
        self._loaded: raft.SnapshotLoaded | None = None
        self._revive_s, self._fell_s, self._wait_s = inf, -inf, DISK_S
        self._told: object = None  # the last problem that was logged
        self._unsaved: raft.WriteQuorumState | None = None  # an observer's, which follows anyway
        self._kept: LogView | None = None  # an observer's log, to which a full disk added nothing
        self._quiet = threading.Event()
        self._threads = [
            threading.Thread(target=loop, name=f"{name} {me.id}", daemon=True)
            for name, loop in (("quorum", self._loop), ("quorum flush", self._flush))
        ]

    def start(self, peers: Peers) -> None:
        """Begin."""
        self._peers = peers
        self._begin(*self._found)
        for thread in self._threads:
            thread.start()

    def put(self, event: Any) -> None:
        """Hand over an event: one of Raft's, an Ask, an Arrived, or a NewSnapshot."""
        self._events.put(event)

    @property
    def unanswered(self) -> str:
        """As Peers.problem."""
        return "" if self._peers is None else self._peers.problem

    def fail(self, problem: Exception) -> None:
        """This node cannot take part any longer."""
        self._events.put(_Broken(problem))

    def stop(self) -> None:
        """Resign, let the others know, and end.  Once."""
        if self.problem is None:
            self._events.put(raft.ShutDown())
            self._quiet.wait(STOP_S)
        self.abandon()

    def abandon(self) -> None:
        """End as in a crash; what waits for an answer gets None.  Once."""
        self._events.put(_End())
        self._flushes.put(0)
        if self._peers is not None:
            for thread in self._threads:
                thread.join()
            self._peers.stop()  # now that nothing is sent to further ones
            self._peers.join()
        while not self._events.empty():
            event = self._events.get()
            if isinstance(event, Ask):
                _reply(event, None)
        self._drop_asks()

    # ---- life ----------------------------------------------------------------------------------

    def _begin(self, view: Any, stored: QuorumState | None) -> None:
        old, now_ms = self.state, _now_ms()
        state = restored(self._me, self._options, view, stored, now_ms, random.random)
        known = max(state.high_watermark, self._disk.committed, old.high_watermark if old else 0)
        self._disk.show(min(known, view.end))
        number = old.next_number if old is not None else 1
        self.state = state._replace(high_watermark=min(known, view.end), next_number=number)
        self._timer_ms, self._revive_s = now_ms, inf
        self.problem = None
        self._quiet.clear()

    def _loop(self) -> None:
        while not isinstance(event := self._next(), _End):
            if event is None:
                self._revive()
            elif isinstance(event, _Broken):
                self._fall(event.problem, final=True)
            elif self.problem is None:
                self._handle(event)
            elif isinstance(event, Ask):
                _reply(event, None)

    def _next(self) -> Any:
        """The next event; None: it is time to start again."""
        if self.problem is not None:
            wait_s: float | None = self._revive_s - time.monotonic()
        else:
            wait_s = (self._timer_ms - _now_ms()) / 1000
        if wait_s == inf:
            wait_s = None
        if wait_s is None or wait_s > 0:
            try:
                return self._events.get(timeout=wait_s)
            except queue.Empty:
                pass
        if self.problem is not None:
            return None
        self._timer_ms = inf
        return raft.Timer()

    def _fall(self, problem: Exception, final: bool = False) -> None:
        """The disk, or what is on it, cannot be trusted with the next effects."""
        final = final or isinstance(problem, StorageOffline | CorruptLog)
        if told_once(problem) != self._told or final:
            self._told = told_once(problem)
            _logger.error(
                "%s: this node takes no part in the quorum%s: %s", self._disk.folder,
                " until it is restarted" if final else " now", problem,
                exc_info=None if isinstance(problem, KafkalogError | OSError) else problem,
            )  # fmt: skip
        now_s, self.problem = time.monotonic(), problem
        self.broken = problem if final else None
        again = now_s - self._fell_s < 2 * DISK_MAX_S
        longer = again and not self._options.observes  # which nobody waits for in an election
        self._wait_s = min(2 * self._wait_s, DISK_MAX_S) if longer else DISK_S
        self._fell_s, self._revive_s = now_s, inf if final else now_s + self._wait_s
        if self._leads is not None:
            self._tell(raft.LostLeadership(self._leads))
            self._leads = None
        self._drop_asks()
        if self._peers is not None:
            self._peers.keep({})
        self._quiet.set()
        self._turned()

    def _revive(self) -> None:
        kept, self._kept = self._kept, None
        try:
            if kept is None:
                self._disk.settle()
            view = self._disk.view() if kept is None else self._disk.with_snapshots(kept)
            self._begin(view, self._disk.stored())
        except Exception as problem:
            self._fall(problem)

    def _drop_asks(self) -> None:
        for ask in self._asks.values():
            _reply(ask, None)
        self._asks.clear()

    def _flush(self) -> None:
        while number := self._flushes.get():
            try:
                self._disk.flush()
                self._events.put(raft.Flushed(number))
            except Exception as problem:
                self._events.put(_FlushFailed(problem))

    # ---- events --------------------------------------------------------------------------------

    def _handle(self, event: Any) -> None:
        if isinstance(event, Ask):
            self._take_ask(event)
        elif isinstance(event, Arrived):
            self._places.learn_from_answer(event.body)
            if self._options.observes and (why := refused(event.body)):
                self._fall(ArgumentError(f"{self._disk.folder}: {why}"), final=True)
                return
            self._take(raft.Response(event.number, event.message, event.refused))
        elif isinstance(event, _FlushFailed):
            self._fall(event.problem)
        elif isinstance(event, NewSnapshot):
            self._trim()
        else:
            self._take(event)

    def _trim(self) -> None:
        assert self.state is not None
        try:
            newest = self._disk.newest
            begins = self._disk.superfluous(self.state.log.base)
        except Exception as problem:
            self._fall(problem)
            return
        if newest is not None:
            self._take(raft.SnapshotTaken(newest, begins))

    def _take_ask(self, ask: Ask) -> None:
        assert self.state is not None
        try:
            if ask.api is DESCRIBE_QUORUM:
                now_ms, wall_ms = _now_ms(), self._clock.now_ms()
                _reply(ask, describe_quorum(self.state, ask.request, now_ms, wall_ms))
                return
            message = request_of(ask.api, ask.request, ask.version, self._me.id)
        except Exception as problem:  # of this request alone
            if not isinstance(problem, KafkalogError):
                _logger.exception("%s: could not be read", ask.api.name)
            _reply(ask, problem)
            return
        if isinstance(message, raft.BeginQuorumEpochRequest | raft.EndQuorumEpochRequest):
            ends = getattr(ask.request, "leader_endpoints", None) or ()
            named = ((one.name, one.host, one.port) for one in ends)
            self._places.learn(message.leader_id, self._places.among(named))
        self._asked += 1
        self._asks[self._asked] = ask
        self._take(raft.Request(self._asked, message))

    def _take(self, event: Any) -> None:
        before = self.state
        assert before is not None
        try:
            state, effects = core.step(before, event, _now_ms(), random.random)
        except Exception as problem:  # nothing has changed
            self._refuse(event, problem)
            return
        self.state = state
        done = 0
        try:
            if self._unsaved is not None:
                self._save(self._unsaved)
            for effect in effects:
                EFFECTS[type(effect)](self, effect)
                done += 1
        except Exception as problem:
            if self._options.observes and isinstance(problem, NoSpace):
                self._kept = _log_after(before.log, effects, done)
            self._fall(problem, final=isinstance(problem, _Contradiction))
            return
        assert self._peers is not None
        self._peers.keep({node: number for node, (number, _, _) in self.state.waits.items()})
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            self._take(loaded)
        if (before.epoch, before.leader_id) != (self.state.epoch, self.state.leader_id):
            self._say_leader(self.state)
            self._turned()
        if self.state.stopping and not isinstance(self.state.role, Leader):
            role = self.state.role
            if not (isinstance(role, Resigned) and role.unaware):
                self._quiet.set()

    def _say_leader(self, state: State) -> None:
        leader = state.leader_id
        if leader is not None and leader != self._me.id:
            _logger.info("node %d at %s leads the quorum in epoch %d", leader, self.place(leader),
                         state.epoch)  # fmt: skip

    def _refuse(self, event: Any, problem: Exception) -> None:
        """The core could not take an event: a request gets the exception as its answer, a response
        counts as lost."""
        if isinstance(event, raft.Request) and (ask := self._asks.pop(event.token, None)):
            _logger.error("%s: %s", ask.api.name, problem, exc_info=problem)
            _reply(ask, problem)
        elif isinstance(event, raft.Response) and event.message is not None:
            _logger.error("the answer of a node of the quorum: %s", problem, exc_info=problem)
            self._take(raft.Response(event.number, None))
        else:
            self._fall(problem)

    # ---- effects -------------------------------------------------------------------------------

    def _save(self, effect: raft.WriteQuorumState) -> None:
        assert self.state is not None
        before, self._unsaved = self._unsaved, None
        try:
            self._disk.save(effect.state, version_of(self.state.log), self.state.voters)
        except OSError as problem:
            if not self._options.observes or isinstance(problem, StorageOffline):
                raise  # an answer or a request may promise what is in it
            self._unsaved = effect
            if before is None:
                _logger.error("%s: the quorum's epoch is not saved: %s", self._disk.folder, problem)

    def _send(self, effect: raft.Send) -> None:
        assert self.state is not None and self._peers is not None
        where = self._places.of(effect.node_id, self.state.voters)
        if where is None:
            self._events.put(Arrived(effect.number))
        else:
            self._peers.send(effect.node_id, Wanted(effect.number, effect.message, where))

    def _answer(self, effect: raft.Answer) -> None:
        if not isinstance(effect.token, int):
            self._tell(VersionChanged(effect.token, effect.message))
            return
        ask = self._asks.pop(effect.token, None)
        if ask is None:
            return
        message = effect.message
        if effect.snapshot is not None:
            message = self._with_piece(ask, effect)
        elif effect.read_from is not None:
            message = message._replace(records=self._disk.read(effect.read_from, ask.bytes_max))
        _reply(ask, answer_fields(ask, message, self.place(message.leader_id, ask.listener)))

    def _with_piece(self, ask: Ask, effect: raft.Answer) -> raft.FetchSnapshotResponse:
        message: raft.FetchSnapshotResponse = effect.message
        position = effect.read_from or 0
        assert effect.snapshot is not None
        found = self._disk.read_snapshot(effect.snapshot, position, ask.bytes_max)
        if found is None:
            return message._replace(error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
        size, data = found
        if position >= size:
            return message._replace(error_code=ErrorCode.POSITION_OUT_OF_RANGE)
        return message._replace(size=size, records=data)

    def place(self, leader: int | None, listener: str = "") -> Any:
        """Where a leader is on a listener; None: not known."""
        state = self.state
        if leader is None or state is None:
            return None
        itself = self._options.itself
        if leader == self._me.id and itself is not None:
            return self._places.among(itself.endpoints, listener) or self._places.among(
                itself.endpoints
            )
        return self._places.of(leader, state.voters)

    def _append(self, effect: raft.AppendBatch) -> None:
        assert self.state is not None
        self._disk.append(effect.batch, version_of(self.state.log))

    def _led(self, effect: raft.BecameLeader) -> None:
        _logger.info("node %d leads the quorum in epoch %d", self._me.id, effect.epoch)
        self._leads = effect.epoch
        self._tell(effect)

    def _lost(self, effect: raft.LostLeadership) -> None:
        _logger.info("node %d no longer leads the quorum", self._me.id)
        self._leads = None
        self._tell(effect)

    def _show(self, effect: raft.HighWatermark) -> None:
        self._disk.show(effect.offset)
        self._tell(effect)

    def _start_flush(self, effect: raft.Flush) -> None:
        self._flushes.put(effect.number)

    def _truncate(self, effect: raft.Truncate) -> None:
        _logger.info("%s: truncated to offset %d, as its leader's", self._disk.folder,
                     effect.offset)  # fmt: skip
        self._disk.truncate(effect.offset)

    def _trim_log(self, effect: raft.TrimLog) -> None:
        self._disk.trim(effect.offset)

    def _write_snapshot(self, effect: raft.WriteSnapshot) -> None:
        self._disk.write_snapshot(effect.snapshot, effect.position, effect.records)

    def _finish_snapshot(self, effect: raft.FinishSnapshot) -> None:
        version, voters = self._disk.finish_snapshot(effect.snapshot)
        self._loaded = raft.SnapshotLoaded(effect.snapshot, version, voters)
        self._tell(Reload())

    def _set_timer(self, effect: raft.SetTimer) -> None:
        self._timer_ms = effect.at_ms

    def _failed(self, effect: raft.Failed) -> None:
        raise _Contradiction(effect.why)


class _Contradiction(Exception):
    """The log contradicts what the quorum has committed."""


class _Broken(NamedTuple):
    problem: Exception


EFFECTS: dict[type[Any], Callable[[RaftThread, Any], None]] = {
    raft.WriteQuorumState: RaftThread._save,
    raft.Send: RaftThread._send,
    raft.Answer: RaftThread._answer,
    raft.AppendBatch: RaftThread._append,
    raft.Appended: lambda self, effect: self._tell(effect),
    raft.Truncate: RaftThread._truncate,
    raft.Flush: RaftThread._start_flush,
    raft.TrimLog: RaftThread._trim_log,
    raft.WriteSnapshot: RaftThread._write_snapshot,
    raft.FinishSnapshot: RaftThread._finish_snapshot,
    raft.HighWatermark: RaftThread._show,
    raft.BecameLeader: RaftThread._led,
    raft.LostLeadership: RaftThread._lost,
    raft.SetTimer: RaftThread._set_timer,
    raft.Failed: RaftThread._failed,
}


def _log_after(view: LogView, effects: Sequence[Any], done: int) -> LogView | None:
    """The log after the first `done` effects, if the next one was an append, which has added
    nothing; None: it has to be read."""
    tried = effects[: done + 1]
    appends = len(tried) > done and isinstance(tried[done], raft.AppendBatch)
    if not appends or any(type(one) in CHANGES_MORE for one in tried):
        return None
    for one in tried[:done]:
        if isinstance(one, raft.AppendBatch):
            view = appended(view, one.batch)
    return view


CHANGES_MORE = {raft.Truncate, raft.TrimLog, raft.WriteSnapshot, raft.FinishSnapshot}
"""Effects that change the log, or its snapshots, otherwise than by an append."""


def _reply(ask: Ask, body: Any) -> None:
    try:
        ask.answer(body)
    except Exception:  # it is the caller's
        _logger.exception("%s: could not be answered", ask.api.name)


def _now_ms() -> float:
    return time.monotonic() * 1000
