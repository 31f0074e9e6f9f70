"""A world for a coordinator: virtual time, a journal, a network, and the faults of each; one seed
decides all chance.

The coordinator is the real one (its core, which the thread only feeds).  Each simulation adds its
own clients and invariants.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar

from kafkalog.coordinator.core import Append, CoordinatorState, too_large
from kafkalog.coordinator.step import Call, Step
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from tests.support import simulated
from tests.support.simulated import drawn
from tests.unit.coordinator.repeating import Network
from tests.unit.coordinator.virtual_core import HOST, WALL_MS, MemoryJournal, Reply

__all__ = ["Faults", "First", "Patience", "World"]

C = TypeVar("C", bound=CoordinatorState[Any])


@dataclass
class Faults(simulated.Faults):
    """How often each fault happens; each simulation says which ones it draws."""

    delay_ms: int = drawn(1, 20, 200, calm=5)
    lost: float = 0.0
    """Requests, and answers, that never arrive."""
    twice: float = 0.0
    """Requests that arrive twice."""
    slow: float = 0.0
    """Messages that take up to Patience.slow_ms."""
    append_fails: float = 0.0
    append_fails_written: float = 0.0
    """Reported as failed, but in the journal."""
    append_slow: float = 0.0
    marker_fails: float = 0.0
    crash: float = 0.0
    """After each event, of the coordinator."""
    dies: float = 0.0
    """Probability that a client dies, in each second."""
    busy: float = 0.0
    """Probability that a consumer is busy when it must rejoin."""


@dataclass(frozen=True)
class Patience:
    """Upper bounds of slow operations."""

    request_ms: int
    """How long a client waits for an answer."""
    slow_ms: int
    """A slow message, at most."""
    append_ms: int
    """A slow append, at most."""


class First:
    """Passes on the first answer only."""

    def __init__(self, then: Callable[[Any], None]) -> None:
        self._then = then
        self.over = False

    def __call__(self, answer: Any) -> None:
        if not self.over:
            self.over = True
            self._then(answer)


class World(simulated.World, Generic[C]):
    """Virtual time, the coordinator, its journal, the network."""

    def __init__(self, seed: int, patience: Patience, append_errors: list[ErrorCode]) -> None:
        super().__init__(seed)
        self.patience = patience
        self.faults: Faults = Faults()
        self.journal = MemoryJournal()
        self.network = Network(lambda: self.now_ms)
        self.life = 0
        """How often the coordinator was started."""
        self.paused_until_ms = 0
        self._append_errors = append_errors
        self._ready_ms = 0

    # ---- what each simulation adds ----------------------------------------------------------

    @abstractmethod
    def new_core(self) -> C:
        """A coordinator without state."""

    @abstractmethod
    def keeps_unfinished(self) -> bool:
        """True if an append in flight survives a crash."""

    def effect(self, effect: Any) -> None:
        """Carry out an effect of a step."""
        raise AssertionError(f"unexpected effect: {effect}")

    def arrives(self, api: Api, fields: dict[str, Any]) -> None:
        """Called when a request arrives at the coordinator."""

    def crashed(self) -> None:
        """Called after the coordinator died and restarted."""

    # ---- time ------------------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def happen(self, until_ms: float = inf) -> bool:
        """As simulated.World.happen; timers of the coordinator, too."""
        timer_ms = self.core.timers.next_ms()
        if timer_ms is None or self.next_ms <= max(timer_ms, self.now_ms):
            if not super().happen(until_ms):
                return False
        elif timer_ms > until_ms:
            return False
        else:
            self.now_ms = max(timer_ms, self.now_ms)
            self.step(lambda _step: None)
        if self.rng.random() < self.faults.crash:
            self.restart()
            self.crashed()
        return True

    # ---- the coordinator -------------------------------------------------------------------

    def restart(self) -> None:
        """Let the coordinator die, and a new one read the journal."""
        self.life += 1
        self._ready_ms = 0
        self.note(f"coordinator {self.life} starts")
        self.network.clear()
        self.core = self.new_core()
        self.core.begin_load(0, 1, self.life)
        shard = self.core.new_shard(0, self.life)
        self.core.load(shard, self.journal.read(0), self.wall_ms)
        self.step(lambda step: self.core.end_load(shard, step))

    def step(self, event: Callable[[Step], None]) -> None:
        step = Step(self.now_ms, self.wall_ms)
        event(step)
        self.core.tick(step)
        while step.writes:
            for append in self.core.appends(step):
                self._append(append)
        for answer, body in step.answers:
            answer(body)
        for effect in step.effects:
            self.effect(effect)

    def _append(self, append: Append) -> None:
        """Append to the journal: in order, but sometimes slow or failing."""
        rng, faults = self.rng, self.faults
        error, written = ErrorCode.NONE, True
        if rng.random() < faults.append_fails:
            error = rng.choice(self._append_errors)
            written = rng.random() < faults.append_fails_written and not too_large(error)
        slow = rng.random() < faults.append_slow
        delay_ms = rng.randint(0, self.patience.append_ms if slow else 3)
        self._ready_ms = max(self.now_ms + delay_ms, self._ready_ms)
        early = self.keeps_unfinished()

        def write() -> None:
            self.journal.put_of(append.partition, append.records, append.producer)

        def outcome() -> None:
            if written and not early:
                write()
            self.step(lambda step: self.core.settled(append.number, error, step))

        if written and early:
            write()
        self.later(self._ready_ms - self.now_ms, outcome, self)

    # ---- the network -----------------------------------------------------------------------

    def travel_ms(self) -> int:
        slow = self.rng.random() < self.faults.slow
        return self.rng.randint(0, self.patience.slow_ms if slow else self.faults.delay_ms)

    def _lost(self) -> bool:
        return self.rng.random() < self.faults.lost

    def post(
        self, request: Callable[[Callable[[Any], None]], None], then: Callable[[Any], None]
    ) -> None:
        """Let a request arrive once, twice or never; `then` gets its answer, or None."""
        first = First(then)

        def answered(body: Any) -> None:
            if not self._lost():
                self.later(self.travel_ms(), lambda: first(body))

        twice = self.faults.twice and self.rng.random() < self.faults.twice
        for _ in range(2 if twice else 1):
            if not self._lost():
                self.later(self.travel_ms(), lambda: request(answered))
        self.later(self.patience.request_ms, lambda: first(None))

    def send(
        self, api: Api, version: int, fields: dict[str, Any], then: Callable[[Any], None],
        client: str = "client",
    ) -> None:  # fmt: skip
        """Send a request to the coordinator; see post."""

        def request(answered: Callable[[Any], None]) -> None:
            reply, life = Reply(api, version), self.life

            def answer(body: dict[str, Any]) -> None:
                reply(body)  # fails on a second answer
                if life == self.life:
                    answered(reply.body)

            self.arrives(api, fields)
            data = api.encode_request(version, fields)
            if (same := self.network.answered(client, data)) is not None:
                answer(same)
                return
            told, repeat = self.network.passing(client, data, answer)
            decoded = api.decode_request(version, data)
            asked = Call(decoded, version, client, HOST, told, repeat=repeat)
            self.step(lambda step: self.core.request(api, asked, step))

        self.post(request, then)
