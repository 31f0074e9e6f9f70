"""Controllers over a simulated quorum: the records of each node's controller are the values of its
Raft log, and its image is made of those that are committed.

Real: Raft's core, the join of both (quorum/replica/joining), the controller with its store, and the
records as bytes.  The controller takes its events in a thread of its own: some time after Raft.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafkalog.controller.core import Controller
from kafkalog.controller.events import (
    ClientRequest,
    Elected,
    Options,
    Reply,
    Resign,
    Tick,
    Timer,
)
from kafkalog.errors import CorruptLog
from kafkalog.kraft.records import decode
from kafkalog.metadata.changes import Replay
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage, empty_image
from kafkalog.metadata.levels import LEVEL
from kafkalog.quorum.replica import joining
from kafkalog.quorum.replica.joining import Applied, Joint, values_at
from kafkalog.quorum.sessions import Sessions
from kafkalog.quorum.store import QuorumStore, SessionsDue, Snapshot
from kafkalog.quorum.writing import Append, MetadataRecord
from kafkalog.raft import messages as raft
from kafkalog.simulate.quorum.node import Node
from kafkalog.simulate.world import Violated
from kafkalog.wire.api import Api

__all__ = ["CLUSTER_ID", "ControllerNode", "Records"]

CLUSTER_ID = "cluster"
SESSION_MS = 900
CHECK_MS = 50
"""The time between two checks of sessions."""
LATE_MS = 2.0
"""The controller's thread takes an event at most so much later."""


class Records(NamedTuple):
    """A batch of metadata records."""

    offset: int
    epoch: int
    values: tuple[bytes, ...]
    """Framed, as in the log."""


FIRST: Sequence[MetadataRecord] = [
    ("FeatureLevelRecord", {"name": METADATA_VERSION, "feature_level": LEVEL})
]
"""The records that a new cluster begins with."""


class ControllerNode(Node):
    """A node of the quorum with its controller."""

    settled: Callable[[Node, MetadataImage, MetadataImage], None]
    """Called after each batch that it applied, with the image before and after it."""
    elected: Callable[[Node, int], None]
    """Called when its controller becomes active in an epoch."""

    def start(self) -> None:
        """Read the disk and begin."""
        self.replay = Replay(empty_image(CLUSTER_ID, self.id))
        self._taken = 0
        self._joint = Joint(self.id, False, Applied(0, self.replay.image))
        self._controller = self._new_controller()
        self._tasks: deque[Any] = deque()
        super().start()
        self._check_sessions()

    @property
    def image(self) -> MetadataImage:
        """The metadata that its controller knows to be committed."""
        return self.replay.image

    @property
    def is_active(self) -> bool:
        """True if its controller is the active one, as far as it knows."""
        return self.alive and self._joint.active

    def ask(self, api: Api, body: dict[str, Any], answer: Callable[[Any], None]) -> None:
        """A request, which travels as bytes; `answer` gets the response; None: ask another."""
        version = api.versions.stop - 1
        request = api.decode_request(version, api.encode_request(version, body))

        def reply(found: Any) -> None:
            if isinstance(found, Exception):
                raise Violated(f"decides: {api.name}: {found!r}") from found
            answer(found and api.decode_response(version, api.encode_response(version, found)))

        self._post(ClientRequest(reply, api, request, version))

    # ---- Raft's side ---------------------------------------------------------------------------

    def _AppendBatch(self, effect: raft.AppendBatch) -> None:
        batch = effect.batch
        if not batch.control and not isinstance(batch.data, Records):
            at = batch.base_offset
            data = Records(at, batch.epoch, tuple(values_at(batch.data, at)))
            effect = raft.AppendBatch(batch._replace(data=data))
        super()._AppendBatch(effect)

    def _Appended(self, effect: raft.Appended) -> None:
        self._post(effect)

    def _BecameLeader(self, effect: raft.BecameLeader) -> None:
        super()._BecameLeader(effect)
        self._post(effect)

    def _LostLeadership(self, effect: raft.LostLeadership) -> None:
        super()._LostLeadership(effect)
        self._post(effect)

    def _HighWatermark(self, effect: raft.HighWatermark) -> None:
        super()._HighWatermark(effect)
        self._post(effect)

    # ---- the controller's thread -----------------------------------------------------------------

    def _post(self, event: Any) -> None:
        self._tasks.append(event)
        if len(self._tasks) == 1:
            self._soon()

    def _soon(self) -> None:
        self.world.later(self.world.rng.uniform(0, LATE_MS), self._turn, self)

    def _turn(self) -> None:
        self._take(self._tasks[0])
        if self.alive and self._tasks:  # not started again in between
            self._tasks.popleft()
            if self._tasks:
                self._soon()

    def _take(self, event: Any) -> None:
        if isinstance(event, raft.HighWatermark):
            self._apply(event.offset)
        elif isinstance(event, raft.BecameLeader | raft.LostLeadership | raft.Appended):
            if isinstance(event, raft.BecameLeader):
                self._controller = self._new_controller()
            self._join(event)
        else:
            self._do(self._controller.handle(event, int(self.now_ms)))

    def _apply(self, offset: int) -> None:
        """Apply the committed records below an offset."""
        while self._taken < len(self.values) and self.values[self._taken].offset < offset:
            found: Records = self.values[self._taken]
            self._taken += 1
            before = self.replay.image
            try:
                for value in found.values:
                    self.replay.feed(decode(value))
            except CorruptLog as error:
                raise Violated(
                    f"applies: node {self.id}: offset {found.offset}: {error}"
                ) from error
            end = found.offset + len(found.values)
            self.settled(self, before, self.replay.settle(end - 1, found.epoch, 0))
        epoch = self.replay.image.epoch
        image = self.replay.settle(max(offset - 1, self.replay.image.offset), epoch, 0)
        self._join(Applied(image.offset + 1, image, self.replay.in_transaction))

    def _new_controller(self) -> Controller:
        """One for each leadership: its topic ids are drawn, so no two may have one seed."""
        options = Options("PLAINTEXT", rebalances=False, seed=self.world.rng.getrandbits(32))
        return Controller(options, lambda _, found: self._store(found, options))

    def _store(self, found: object, options: Options) -> QuorumStore:
        assert isinstance(found, Snapshot)
        sessions = Sessions(SESSION_MS, found.whole, int(self.now_ms))
        return QuorumStore(found, sessions, FIRST, lambda now_ms: now_ms, options)

    def _join(self, event: object) -> None:
        self._joint, effects = joining.step(self._joint, event)
        for effect in effects:
            if isinstance(effect, raft.Append | raft.Resign):
                self.deliver(effect)
                continue
            if isinstance(effect, Elected):
                self.note("its controller is active in epoch", effect.claim.epoch)
                self.elected(self, effect.claim.epoch)
            self._do(self._controller.handle(effect, int(self.now_ms)))

    def _do(self, effects: Sequence[Any]) -> None:
        if self._controller.problems:
            raise Violated(f"decides: node {self.id}: {self._controller.problems}")
        for effect in effects:
            if isinstance(effect, Append | Resign):
                self._join(effect)
            elif isinstance(effect, Reply):
                effect.token(effect.body)
            else:
                assert isinstance(effect, Timer), effect
                wait_ms = max(0.0, effect.at_ms - self.now_ms)
                self.world.later(wait_ms, partial(self._post, Tick(effect.clock)), self)

    def _check_sessions(self) -> None:
        if self.is_active:
            self._post(SessionsDue())
        self.world.later(CHECK_MS, self._check_sessions, self)
