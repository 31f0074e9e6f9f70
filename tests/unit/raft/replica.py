"""A replica for tests: takes events one by one and keeps the effects."""

from __future__ import annotations

import uuid
from typing import Any, TypeVar

from kafkalog.raft import core, state
from kafkalog.raft.log import Batch, LeaderChange, LogView, appended
from kafkalog.raft.messages import (
    Answer,
    Effect,
    Event,
    FetchRequest,
    FetchResponse,
    Flush,
    Flushed,
    QuorumResponse,
    QuorumState,
    Request,
    Response,
    Send,
    Timer,
    VoteRequest,
)
from kafkalog.raft.replicas import NO_DIRECTORY, ReplicaKey, Voter, Voters
from kafkalog.raft.state import Options
from kafkalog.wire.error_codes import ErrorCode

T = TypeVar("T")


def directory(number: int) -> uuid.UUID:
    """The directory id of a node."""
    return uuid.UUID(int=1000 + number)


def key(number: int) -> ReplicaKey:
    """The replica on a node."""
    return ReplicaKey(number, directory(number))


def voter(number: int) -> Voter:
    """The voter on a node."""
    return Voter(key(number), (("CONTROLLER", "localhost", 9000 + number),))


def voters(*numbers: int, version: int = 1) -> Voters:
    """A set of voters."""
    found = tuple(voter(number) for number in numbers)
    if version:
        return found
    return tuple(one._replace(key=ReplicaKey(one.key.id, NO_DIRECTORY)) for one in found)


THREE = voters(1, 2, 3)


def log_of(*epochs: int, among: Voters = THREE, version: int = 1) -> LogView:
    """A flushed log with one record of each epoch given."""
    found = LogView(voters=((-1, among),), versions=((-1, version),))
    for offset, epoch in enumerate(epochs):
        first = epoch not in epochs[:offset]
        control = (LeaderChange(1, (), ()),) if first else ()
        found = appended(found, Batch(offset, offset, epoch, control, None if first else offset))
    return found._replace(flushed=found.end)


class Replica:
    """A replica with its state, its clock, and the effects of the last event."""

    def __init__(
        self, number: int, log: LogView, stored: QuorumState | None = None, **options: Any
    ) -> None:
        """Started; `options`: fields of Options."""
        self.now_ms = 10_000.0
        self.options = Options(**options)
        self.state = state.restored(key(number), self.options, log, stored, self.now_ms, self.draw)
        self.state = self.state._replace(log=log)
        self.effects: list[Effect] = []
        self.all: list[Effect] = []

    @staticmethod
    def draw() -> float:
        """The least jitter."""
        return 0.0

    @property
    def role(self) -> Any:
        """The role."""
        return self.state.role

    def take(self, event: Event) -> list[Effect]:
        """The effects of an event."""
        self.state, self.effects = core.step(self.state, event, self.now_ms, self.draw)
        self.all += self.effects
        return self.effects

    def wait(self, ms: float) -> list[Effect]:
        """Let time pass."""
        self.now_ms += ms
        return self.take(Timer())

    def of(self, kind: type[T]) -> list[T]:
        """The effects of a kind in the last step."""
        return [one for one in self.effects if isinstance(one, kind)]

    def sent(self, kind: type[Any]) -> list[Send]:
        """The requests of a kind in the last step."""
        return [one for one in self.of(Send) if isinstance(one.message, kind)]

    def asks(self, message: Any) -> Any:
        """The answer to a request; None: it waits."""
        token = object()
        self.take(Request(token, message))
        found = [one.message for one in self.of(Answer) if one.token is token]
        return found[0] if found else None

    def answers(self, send: Send, message: Any) -> None:
        """Bring a response."""
        self.take(Response(send.number, message))

    def flush(self) -> None:
        """End the flush in progress, and those that follow it."""
        while self.state.flushing:
            self.take(Flushed(self.state.flushing))

    def pending(self, kind: type[Any]) -> list[int]:
        """The numbers of the requests of a kind in flight."""
        waits = self.state.waits.values()
        return [number for number, _, asked in waits if number and isinstance(asked, kind)]

    # ---- the way to a role ---------------------------------------------------------------------

    def elect(self) -> None:
        """Win an election, with all votes; everything is flushed."""
        self.wait(10_000)
        while numbers := self.pending(VoteRequest):
            self.take(Response(numbers[0], self.response(granted=True)))
        assert self.state.leader_id == self.state.me.id, self.role
        self.flush()

    def response(
        self, error: ErrorCode = ErrorCode.NONE, granted: bool = False, leader: int | None = None
    ) -> QuorumResponse:
        """A response of this replica's epoch."""
        return QuorumResponse(error, self.state.epoch, leader, granted)

    def fetch(self, number: int, offset: int, epoch: int) -> Any:
        """Another replica fetches; its answer, None if it is parked."""
        return self.asks(FetchRequest(key(number), self.state.epoch, offset, epoch))

    def fetched(self, **fields: Any) -> None:
        """The leader answers the fetch in flight."""
        (number,) = self.pending(FetchRequest)
        made = FetchResponse(ErrorCode.NONE, self.state.epoch, self.state.leader_id)
        self.take(Response(number, made._replace(**fields)))


__all__ = ["THREE", "Flush", "Replica", "directory", "key", "log_of", "voter", "voters"]
