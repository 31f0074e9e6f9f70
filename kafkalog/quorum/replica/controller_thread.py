"""The thread of a replica's state machine: applies committed records to the image and, while the
node leads the quorum, runs the active controller."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.controller.active import Store
from kafkalog.controller.context import Claim
from kafkalog.controller.core import Controller
from kafkalog.controller.events import (
    ClientRequest,
    Clock,
    Deposed,
    Options,
    Reply,
    Resign,
    Tick,
    Timer,
)
from kafkalog.errors import CorruptLog, OffsetOutOfRange, StorageOffline, told_once
from kafkalog.kraft.batches import records_in
from kafkalog.kraft.loading import Loaded, load
from kafkalog.kraft.snapshots import list_snapshots
from kafkalog.kraft.snapshotting import Snapshotting
from kafkalog.logs.limit import limited
from kafkalog.metadata.differences import difference
from kafkalog.metadata.levels import check_features
from kafkalog.quorum.identity import Identity
from kafkalog.quorum.replica import joining
from kafkalog.quorum.replica.joining import Applied, Joint, VersionChanged
from kafkalog.quorum.replica.raft_thread import NewSnapshot, Reload
from kafkalog.quorum.sessions import Sessions
from kafkalog.quorum.store import QuorumStore, SessionsDue, Snapshot
from kafkalog.quorum.writing import Append, ChangeKraftVersion
from kafkalog.raft import messages as raft

if TYPE_CHECKING:
    from kafkalog.directory.manager import Manager
    from kafkalog.log.log import Log
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.quorum.writing import MetadataRecord

__all__ = ["ControllerThread"]

_logger = limited(__name__)

READ_BYTES = 1 << 20
FROM_RAFT = raft.BecameLeader, raft.LostLeadership, raft.Appended, VersionChanged
SESSIONS_MS = 100
"""The least time between two checks of sessions."""
READ_S, READ_MAX_S = 1.0, 10.0
"""Until committed records that could not be read are read again; doubled each time."""


class _ReadAgain(NamedTuple):
    """The pause after a failed read is over."""


class ControllerThread:
    """The image of one replica, and its controller.  `put` from any thread."""

    def __init__(
        self, manager: Manager, log: Log, identity: Identity, options: Options, unclean: bool,
        session_ms: int, first: Sequence[MetadataRecord],
    ) -> None:  # fmt: skip
        """Read the newest snapshot.  `session_ms`: broker.session.timeout.ms; `first`: the records
        that a new cluster begins with.

        Raises: CorruptLog, IoFailed; ArgumentError: a record that is not known.
        """
        self._log, self._identity, self._session_ms = log, identity, session_ms
        self._loaded = self._load()
        self.image: MetadataImage = self._loaded.replay.image
        """The committed metadata, as far as they are applied."""
        self._check()
        self._options, self._first, self._clock = options, first, manager.clock
        self._joint = Joint(identity.node, unclean, self._applied())
        self._controller = Controller(options, self._store)
        self._sessions: Sessions | None = None
        self._sessions_ms = 0
        self._snapshots = Snapshotting(manager, log, lambda: self._to_raft(NewSnapshot()))
        self._to_raft: Callable[[Any], None] = lambda _: None
        self._broken: Callable[[Exception], None] = lambda _: None
        self._listening = threading.Lock()  # guards the listeners
        self._listeners: list[Callable[[Change], None]] = []
        self._ticks_ms: dict[Clock, int] = {}
        self._limit, self._reloads = 0, False  # what Raft has told: to apply, and to load
        self._is_torn = False  # the replay has part of the records of the last step
        self._again_ms, self._wait_s = inf, READ_S
        self._told: object = None  # why records could not be read last
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ends = self._is_broken = False
        self._thread = threading.Thread(
            target=self._loop, name=f"quorum controller {identity.node}", daemon=True
        )

    def start(
        self, to_raft: Callable[[Any], None], broken: Callable[[Exception], None]
    ) -> None:  # fmt: skip
        """Begin.  `to_raft` gets Raft's events; `broken` is called if the committed records cannot
        be applied."""
        self._to_raft, self._broken = to_raft, broken
        self._thread.start()

    def put(self, event: Any) -> None:
        """Hand over an effect of Raft, a Reload, or a ClientRequest."""
        self._events.put(event)

    def listen(self, changed: Callable[[Change], None]) -> MetadataImage:
        """Call `changed` after each change, in this thread; returns the image before the first."""
        with self._listening:
            self._listeners.append(changed)
            return self.image

    def deafen(self, changed: Callable[[Change], None]) -> None:
        """Call it no more."""
        with self._listening:
            self._listeners.remove(changed)

    @property
    def is_active(self) -> bool:
        """True if the controller of this node is the active one."""
        return self._joint.active and not self._is_broken

    def stop(self) -> None:
        """End; what waits for an answer gets None.  Once."""
        self._ends = True
        self._events.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        self._snapshots.join()
        self._do(self._controller.handle(Deposed(), 0))
        while not self._events.empty():
            event = self._events.get()
            if isinstance(event, ClientRequest):
                event.token(None)

    # ---- the thread ------------------------------------------------------------------------------

    def _loop(self) -> None:
        while not self._ends:
            try:
                event = self._next()
                if event is not None and not self._ends:
                    self._take(event)
                elif isinstance(event, ClientRequest):
                    event.token(None)
            except Exception:  # not of one request: another node may do better
                _logger.exception("the controller of node %d resigns", self._identity.node)
                self._to_raft(raft.Resign(self._joint.epoch))
                self._joint = self._joint._replace(active=False, pending=None)
                self._do(self._controller.handle(Deposed(), _now_ms()))

    def _next(self) -> Any:
        """The next event, or what is due; None: nothing."""
        now_ms = _now_ms()
        due_ms = min([*self._ticks_ms.values(), *self._sessions_due(), self._again_ms])
        if due_ms > now_ms:
            try:
                wait_s = None if due_ms == inf else (due_ms - now_ms) / 1000
                return self._events.get(timeout=wait_s)
            except queue.Empty:
                pass
        now_ms = _now_ms()
        for clock, at_ms in self._ticks_ms.items():
            if at_ms <= now_ms:
                del self._ticks_ms[clock]
                return Tick(clock)
        if self._sessions_due() and self._sessions_due()[0] <= now_ms:
            self._sessions_ms = now_ms
            return SessionsDue()
        return _ReadAgain() if self._again_ms <= now_ms else None

    def _sessions_due(self) -> list[int]:
        if self._sessions is None or not self._joint.active or self._is_broken:
            return []
        at_ms = self._sessions.next_ms(self.image.brokers)
        return [] if at_ms is None else [max(at_ms, self._sessions_ms + SESSIONS_MS)]

    def _take(self, event: Any) -> None:
        if self._is_broken:
            if isinstance(event, ClientRequest):
                event.token(None)
        elif isinstance(event, Reload):
            self._reloads = True
            self._catch_up()
        elif isinstance(event, raft.HighWatermark):
            self._limit = event.offset
            self._catch_up()
        elif isinstance(event, _ReadAgain):
            self._again_ms = inf
            self._catch_up()
        elif isinstance(event, FROM_RAFT):
            self._join(event)
        else:
            self._do(self._controller.handle(event, _now_ms()))

    def _catch_up(self) -> None:
        """Apply what is committed, unless a read has just failed."""
        while self._again_ms == inf and self._reads():
            pass

    def _reads(self) -> bool:
        """Take a step in applying records; the controller hears of it if there were any.  Returns
        True if there may be more.

        Without memory or descriptors, or after a failed read, the image stays as it is, and the
        step is taken again.  After any other failure this node takes no part in the quorum any
        longer.
        """
        try:
            reloads = self._reloads or self._is_torn
            more = self._reload() if reloads else self._apply(self._limit)
        except Exception as problem:
            self._failed(problem)
            return False
        self._reloads, self._wait_s, self._told = False, READ_S, None
        if more:
            self._join(self._applied())
        return more or reloads

    def _failed(self, problem: Exception) -> None:
        may_pass = isinstance(problem, OSError | MemoryError)
        if may_pass and not isinstance(problem, StorageOffline):
            if told_once(problem) != self._told:
                why = str(problem) or type(problem).__name__
                _logger.error("%s: committed metadata cannot be read now: %s", self._log.path, why)
            self._told = told_once(problem)
            self._again_ms = _now_ms() + int(self._wait_s * 1000)
            self._wait_s = min(2 * self._wait_s, READ_MAX_S)
            return
        _logger.exception("%s: the committed metadata cannot be applied", self._log.path)
        self._is_broken, self._again_ms = True, inf
        self._do(self._controller.handle(Deposed(), _now_ms()))
        self._broken(problem)

    # ---- the committed records -------------------------------------------------------------------

    def _load(self) -> Loaded:
        found = self._identity
        # Not the snapshot 0-0: a leader writes its records to the log.
        return load(self._log, found.cluster_id, found.node, end=0, oldest=1)

    def _check(self) -> None:
        """Refuse metadata that is not completely understood."""
        self._loaded.check_known(str(self._log.path))
        check_features(self._loaded.replay.image)

    def _applied(self) -> Applied:
        replay = self._loaded.replay
        return Applied(replay.image.offset + 1, replay.image, replay.in_transaction)

    def _apply(self, limit: int) -> bool:
        """Apply the next records below `limit`; False: there are none."""
        at = self._loaded.replay.image.offset + 1
        if at >= limit:
            self._snapshots.take_if_due(self._loaded)
            return False
        try:
            data = self._log.read_batches(at, READ_BYTES, "log_end")
        except OffsetOutOfRange:
            kept = list_snapshots(str(self._log.path))
            if not kept or kept[-1].offset <= at:
                raise
            return self._reload()  # the log was emptied for a snapshot that was fetched
        raws = [raw for raw in records_in(data) if at <= raw.offset < limit]
        if not raws:
            return False
        self._is_torn = True
        self._loaded.take(raws)
        self._loaded.removed.clear()  # a broker's folders follow its roles
        self._check()
        change = self._loaded.replay.change(self.image)
        self._is_torn = False
        self._snapshots.written(sum(len(raw.value) for raw in raws))
        self.image = change.new
        self._tell(change)
        return True

    def _reload(self) -> bool:
        """Read the snapshot that was fetched, or again what the image has if memory ran out when
        more was applied; False: the image has it already."""
        loaded, end = self._load(), self.image.offset + 1
        known = loaded.snapshot is None or loaded.snapshot.offset <= end
        if known and not self._is_torn:
            return False
        while (at := loaded.replay.image.offset + 1) < end:
            data = self._log.read_batches(at, READ_BYTES, "log_end")
            raws = [raw for raw in records_in(data) if at <= raw.offset < end]
            if not raws:
                raise CorruptLog(f"{self._log.path}: found nothing at offset {at}, wanted a batch")
            loaded.take(raws)
        loaded.removed.clear()
        loaded.check_known(str(self._log.path))
        check_features(loaded.replay.image)
        change = difference(self.image, loaded.replay.image)
        loaded.replay.change(change.new)  # what was read is no news
        self._loaded, self._is_torn, self.image = loaded, False, change.new
        self._tell(change)
        return True

    def _tell(self, change: Change) -> None:
        with self._listening:
            listeners = [*self._listeners]
        for listener in listeners:
            try:
                listener(change)
            except Exception:
                _logger.exception("node %d: could not follow a change", self._identity.node)

    # ---- the controller --------------------------------------------------------------------------

    def _store(self, _: Claim, found: object) -> Store:
        assert isinstance(found, Snapshot)
        self._sessions = Sessions(self._session_ms, found.whole, _now_ms())
        return QuorumStore(found, self._sessions, self._first, self._wall_ms, self._options)

    def _wall_ms(self, now_ms: int) -> int:
        return self._clock.now_ms() - (_now_ms() - now_ms)

    def _join(self, event: object) -> None:
        self._joint, effects = joining.step(self._joint, event)
        for effect in effects:
            if isinstance(effect, raft.Append | raft.ChangeVersion | raft.Resign):
                self._to_raft(effect)
            else:
                self._do(self._controller.handle(effect, _now_ms()))

    def _do(self, effects: list[Any]) -> None:
        left = deque(effects)
        while left:
            effect = left.popleft()
            if isinstance(effect, Append | ChangeKraftVersion | Resign):
                self._join(effect)
            elif isinstance(effect, Reply):
                self._reply(effect)
            else:
                assert isinstance(effect, Timer), effect
                self._ticks_ms[effect.clock] = effect.at_ms

    def _reply(self, effect: Reply) -> None:
        try:
            effect.token(effect.body)
        except Exception:  # it is the caller's
            _logger.exception("the controller of node %d could not answer", self._identity.node)


def _now_ms() -> int:
    """For timers and sessions alone."""
    return int(time.monotonic() * 1000)
