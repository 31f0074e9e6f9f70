"""A node of a simulated quorum: carries out the core's effects, one after another."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple, Protocol

from kafkalog.raft import core, state
from kafkalog.raft.log import Batch, OffsetAndEpoch, version_of, voters_in
from kafkalog.raft.messages import (
    Answer,
    AppendBatch,
    Appended,
    BecameLeader,
    Effect,
    EndQuorumEpochRequest,
    Event,
    Failed,
    FetchResponse,
    FinishSnapshot,
    Flush,
    Flushed,
    HighWatermark,
    LostLeadership,
    QuorumResponse,
    Request,
    Response,
    Send,
    SetTimer,
    SnapshotLoaded,
    SnapshotTaken,
    Timer,
    TrimLog,
    Truncate,
    WriteQuorumState,
    WriteSnapshot,
)
from kafkalog.raft.replicas import ReplicaKey
from kafkalog.raft.roles import Follower, Leader
from kafkalog.raft.state import Options, State
from kafkalog.simulate.quorum.disk import Disk, Snapshot
from kafkalog.simulate.world import Violated, World

__all__ = ["Judge", "Network", "Node", "Token"]

PIECES = 4
"""Pieces of a snapshot in one response."""


class Token(NamedTuple):
    """Where an answer goes: a request's sender, its life, and the request."""

    node_id: int
    life: int
    number: int
    message: Any


class Network(Protocol):
    """Carries messages, or loses them."""

    def send(self, node: Node, effect: Send) -> None:
        """A request."""

    def answer(self, node: Node, token: Any, message: Any) -> None:
        """An answer."""

    def reached(self, node: Node, moment: str) -> None:
        """A node is at a moment at which a fault may do the most harm."""


class Judge(Protocol):
    """Checks what must hold."""

    def stepped(self, node: Node, before: State, event: Event) -> None:
        """A node took an event."""

    def appended(self, node: Node, batch: Batch) -> None:
        """A batch is in a node's log."""

    def leads(self, node: Node, epoch: int) -> None:
        """A node leads an epoch."""

    def committed(self, node: Node, before: int, offset: int) -> None:
        """A node's high watermark moved."""

    def sent(self, node: Node, message: Any) -> None:
        """A node sent a request."""

    def answered(self, node: Node, token: Token, message: QuorumResponse) -> None:
        """A node answered a request of an election."""

    def loaded(self, node: Node, snapshot: Snapshot) -> None:
        """A node's state machine took a snapshot."""

    def truncates(self, node: Node, offset: int) -> None:
        """A node is about to truncate its log."""

    def rests(self, node: Node) -> None:
        """A node has carried out all effects."""


def _waited(before: State, event: Event) -> bool:
    """True if a response belongs to a request in flight."""
    number = event.number if isinstance(event, Response) else 0
    return any(number == one for one, _, _ in before.waits.values())


class Node:
    """A replica on its machine."""

    def __init__(
        self, number: int, world: World, network: Network, judge: Judge, disk: Disk,
        options: Options,
    ) -> None:  # fmt: skip
        """Not started yet."""
        self.id, self.world, self.network, self.judge = number, world, network, judge
        self.disk, self.options = disk, options
        self.life = 0
        self.paused_until_ms = 0.0
        self.alive = False
        self.skew_ms = 0.0
        self.disk_ms = 1.0
        self.batches = 8
        """Batches of the log in one response."""
        self.state: State | None = None
        self.values: list[Any] = []
        """The state machine: the committed values."""
        self.applied = 0
        self.fetched: tuple[int, float] = (-1, -inf)
        """The epoch and the time of the last answer of its leader."""
        self._inbox: deque[Event] = deque()
        self._effects: deque[Effect] = deque()
        self._busy = False
        self._timer = 0

    @property
    def key(self) -> ReplicaKey:
        """The replica."""
        return ReplicaKey(self.id, self.disk.directory_id)

    @property
    def now_ms(self) -> float:
        """The node's clock."""
        return self.world.now_ms + self.skew_ms

    @property
    def leads(self) -> bool:
        """True if it believes that it leads."""
        return self.alive and self.state is not None and isinstance(self.state.role, Leader)

    # ---- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the disk and begin."""
        self.life += 1
        self.alive, self._busy, self.paused_until_ms = True, False, 0.0
        self._inbox.clear()
        self._effects.clear()
        self.fetched = (-1, -inf)
        self.values = list(self.disk.snapshot.values) if self.disk.snapshot else []
        self.applied = self.disk.start
        draw = self.world.rng.random
        try:
            view = self.disk.view()
        except ValueError as error:
            raise Violated(f"matching: node {self.id}: {error}") from error
        self.state = state.restored(
            self.key, self.options, view, self.disk.stored, self.now_ms, draw
        )
        self.note("starts", self.state.epoch, type(self.state.role).__name__, self.disk.end)
        self.deliver(Timer())

    def stop(self, power: bool = False) -> None:
        """The process ends, or the machine loses power."""
        self.life += 1
        self.alive = False
        if power:
            self.disk.cut_power(self.world.rng)
        self.disk.stop()
        self.note("loses power" if power else "is killed", self.disk.end)

    def wipe(self, directory_id: uuid.UUID) -> None:
        """Another disk, formatted without voters."""
        version, voters = self.disk.formatted
        self.disk = Disk(directory_id, version, ())
        itself = self.options.itself
        assert itself is not None and voters is not None
        self.options = self.options._replace(itself=itself._replace(key=self.key))

    def note(self, *words: object) -> None:
        """Note what happened."""
        self.world.note(f"node {self.id}:", *words)

    # ---- events --------------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        """Take an event, after those that wait; a paused node takes it later."""
        if self.alive and self.paused_until_ms > self.world.now_ms:
            self.world.at(self.paused_until_ms, lambda: self.deliver(event), self)
        elif self.alive:
            self._inbox.append(event)
            self._go()

    def _go(self) -> None:
        while self.alive and not self._busy:
            if self._effects:
                self._carry(self._effects.popleft())
            elif self._inbox:
                self._step(self._inbox.popleft())
            else:
                self.judge.rests(self)
                return

    def _step(self, event: Event) -> None:
        before = self.state
        assert before is not None
        try:
            self.state, effects = core.step(before, event, self.now_ms, self.world.rng.random)
        except Violated:
            raise
        except Exception as error:
            raise Violated(f"raises: node {self.id}: {event}: {error!r}") from error
        if self.state.epoch != before.epoch or type(self.state.role) is not type(before.role):
            self.note(type(self.state.role).__name__, "in epoch", self.state.epoch)
        self._effects.extend(effects)
        self._hear(before, event)
        self.judge.stepped(self, before, event)

    def _hear(self, before: State, event: Event) -> None:
        """Note when the leader answered last, while this node follows it."""
        now = self.state
        assert now is not None
        answer = event.message if isinstance(event, Response) else None
        followed = isinstance(before.role, Follower) and isinstance(now.role, Follower)
        ended = isinstance(event, Request) and isinstance(event.message, EndQuorumEpochRequest)
        ended = ended or (isinstance(event, Response) and event.refused)
        if ended or not followed:
            self.fetched = (-1, -inf)
        elif isinstance(answer, FetchResponse) and not answer.error_code and _waited(before, event):
            self.fetched = answer.leader_epoch, self.now_ms

    def _wait(self, then: Callable[[], None]) -> None:
        """Let the disk work; `then` is what it did."""
        self._busy = True

        def done() -> None:
            self._busy = False
            then()
            self._go()

        self.world.later(self.disk_ms * self.world.rng.uniform(0.5, 1.5), done, self)

    # ---- effects -------------------------------------------------------------------------------

    def _carry(self, effect: Effect) -> None:
        getattr(self, f"_{type(effect).__name__}")(effect)

    def _WriteQuorumState(self, effect: WriteQuorumState) -> None:
        self.disk.writing = effect.state

        def done() -> None:
            self.disk.stored, self.disk.writing = effect.state, None

        self._wait(done)

    def _Send(self, effect: Send) -> None:
        self.judge.sent(self, effect.message)
        self.network.send(self, effect)

    def _Answer(self, effect: Answer) -> None:
        message = effect.message
        if effect.snapshot is not None:
            (snapshot,) = (one for one in self.disk.snapshots if one.end == effect.snapshot)
            content = snapshot.content()
            start = effect.read_from or 0
            pieces = content[start : start + PIECES]
            message = message._replace(size=len(content), records=pieces)
        elif effect.read_from is not None:
            message = message._replace(records=self._read(effect.read_from))
        if isinstance(message, QuorumResponse) and isinstance(effect.token, Token):
            self.judge.answered(self, effect.token, message)
        self.network.answer(self, effect.token, message)

    def _read(self, offset: int) -> Sequence[Batch]:
        found: list[Batch] = []
        while offset < self.disk.end and len(found) < self.batches:
            batch = self.disk.batches.get(offset)
            if batch is None:
                raise Violated(f"matching: no batch of node {self.id} begins at {offset}")
            found.append(batch)
            offset = found[-1].last_offset + 1
        return found

    def _AppendBatch(self, effect: AppendBatch) -> None:
        self.disk.append(effect.batch)
        self.judge.appended(self, effect.batch)
        if self.leads and not effect.batch.control:
            self.network.reached(self, "appended")

    def _Appended(self, effect: Appended) -> None:
        """The state machine learns of it by the high watermark."""

    def _Truncate(self, effect: Truncate) -> None:
        self.note("truncates to", effect.offset)
        if effect.offset < self.applied:
            raise Violated(f"truncated: node {self.id} removes committed records")
        self.judge.truncates(self, effect.offset)
        self.network.reached(self, "truncated")
        self._wait(lambda: self.disk.truncate(effect.offset))

    def _Flush(self, effect: Flush) -> None:
        self.disk.flushes[effect.number] = self.disk.end
        late_ms = self.disk_ms * self.world.rng.uniform(0.5, 1.5)

        def done() -> None:
            self.disk.flushed(effect.number)
            self.deliver(Flushed(effect.number))

        self.world.later(late_ms, done, self)

    def _TrimLog(self, effect: TrimLog) -> None:
        (snapshot,) = (one for one in self.disk.snapshots if one.end.offset == effect.offset)
        self.disk.begin_at(snapshot)

    def _WriteSnapshot(self, effect: WriteSnapshot) -> None:
        del self.disk.fetched[effect.position :]
        self.disk.fetched += effect.records

    def _FinishSnapshot(self, effect: FinishSnapshot) -> None:
        (version, voters), *values = self.disk.fetched
        snapshot = Snapshot(effect.snapshot, version, voters, tuple(values))

        def done() -> None:
            self.disk.replace(snapshot)
            self.values, self.applied = list(values), snapshot.end.offset
            self.judge.loaded(self, snapshot)
            self._inbox.appendleft(SnapshotLoaded(effect.snapshot, version, voters))

        self._wait(done)

    def _HighWatermark(self, effect: HighWatermark) -> None:
        before, self.applied = self.applied, effect.offset
        offset = before
        while offset < effect.offset:
            batch = self.disk.batches.get(offset)
            if batch is None:
                raise Violated(f"exposed: node {self.id} has nothing at offset {offset}")
            if not batch.control:
                self.values.append(batch.data)
            offset = batch.last_offset + 1
        self.judge.committed(self, before, effect.offset)
        if self.leads:
            self.network.reached(self, "committed")

    def _BecameLeader(self, effect: BecameLeader) -> None:
        self.note("leads epoch", effect.epoch, "from", effect.offset)
        self.judge.leads(self, effect.epoch)
        self.network.reached(self, "elected")

    def _LostLeadership(self, effect: LostLeadership) -> None:
        self.note("no longer leads epoch", effect.epoch)

    def _SetTimer(self, effect: SetTimer) -> None:
        self._timer += 1
        number = self._timer
        if effect.at_ms == inf:
            return

        def due() -> None:
            if number == self._timer:
                self.deliver(Timer())

        # A moment later: the sum of floats may be just below the time that was asked for.
        self.world.later(max(0.0, effect.at_ms - self.now_ms) + 0.001, due, self)

    def _Failed(self, effect: Failed) -> None:
        raise Violated(f"failed: node {self.id}: {effect.why}")

    # ---- the state machine above ---------------------------------------------------------------

    def jump(self, ms: float) -> None:
        """The clock jumps."""
        self.skew_ms += ms
        self.deliver(Timer())

    def take_snapshot(self) -> None:
        """Write a snapshot of everything that is committed, unless the node is at work."""
        now = self.state
        rests = not (self._busy or self._effects or self._inbox)
        if not self.alive or now is None or not rests or self.paused_until_ms > self.world.now_ms:
            return
        known = max(one.end.offset for one in self.disk.snapshots) if self.disk.snapshots else 0
        if self.applied <= max(known, self.disk.start) or self.applied != now.high_watermark:
            return
        last = max(one for one in self.disk.batches if one < self.applied)
        end = OffsetAndEpoch(self.applied, self.disk.batches[last].epoch)
        versions = [one for one in now.log.versions if one[0] < self.applied]
        voters = [one for one in now.log.voters if one[0] < self.applied]
        version = versions[-1][1] if versions else version_of(now.log)
        found = voters[-1][1] if voters else voters_in(now.log)
        snapshot = Snapshot(end, version, found if version else (), tuple(self.values))
        self.disk.later.append(snapshot)
        older = self.disk.snapshots[-2:][0].end
        begins = self.world.rng.choice((None, older, end))
        self.note("takes a snapshot of", end.offset)
        self.deliver(SnapshotTaken(end, begins))
