"""The controller: events in, effects out, nothing else.

An event starts steps, which run one after another, each to its end before the next begins.  Their
reads and writes are effects, and the outcomes of these are events.  So a reader may think of one
thing at a time, and a driver of none of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from kafkalog.controller import answers, steps
from kafkalog.controller.active import (
    Active,
    Answer,
    NotActive,
    Periodic,
    Steps,
    Store,
    Work,
)
from kafkalog.controller.context import Claim, Copies, Snapshot
from kafkalog.controller.events import (
    BrokerResponse,
    Caller,
    ClientRequest,
    Clock,
    Deposed,
    Elected,
    Options,
    QueueOverflow,
    Reply,
    Resign,
    StoreResult,
    Tick,
    Timer,
)
from kafkalog.logs.limit import limited

__all__ = ["ASKED_MAX", "Controller"]

_logger = limited(__name__)

ASKED_MAX = 10_000
"""Requests that may wait; clients of further ones must look for the controller again."""
FIRST_CHECK_MS = 5_000
"""Until the first check whether leaderships are balanced."""
RETRY_MS, RETRY_MAX_MS = 1_000, 60_000
"""Until what failed is retried: the first delay, which doubles each time, and the longest."""
SAID_MAX = 1_000
"""Different exceptions that are logged in a claim."""
_NOBODY = object()
Effect: TypeAlias = Any
"""One of kafkalog.controller.events, or of the store."""


class _Waiting(NamedTuple):
    work: Work
    token: Any = _NOBODY
    """The caller, which gets the result as its answer."""


def _named(step: Callable[[Active], Steps[None]]) -> Work:
    return Work(step.__name__, step, step)


def _answering(answer: Answer, event: ClientRequest) -> Callable[[Active], Steps[Any]]:
    def begin(active: Active) -> Steps[Any]:
        active.caller = event.context or Caller()
        return answer(active, event.request, event.version)

    return begin


def _running(active: Active, steps_: Steps[Any]) -> Generator[Effect, Any, Any]:
    """Take steps: the store carries out what they yield.  Returns their result."""
    sent: Any = None
    while True:
        try:
            wanted = steps_.send(sent)
        except StopIteration as end:
            return end.value
        sent = yield from active.store.perform(active.context, wanted)


class Controller:
    """One node's controller.  It begins each time the node is elected, and ends when another is.

    One thread only.
    """

    def __init__(self, options: Options, store: Callable[[Claim, Snapshot], Store]) -> None:
        """`store`: makes the store of a controller that has become active."""
        self._options = options
        self._store = store
        self._active: Active | None = None
        self._waiting: deque[_Waiting] = deque()
        self._keys: set[Hashable] = set()
        self._asked_count = 0
        self._work: tuple[_Waiting, Generator[Effect, Any, Any]] | None = None
        self._number = 0
        """Number of the store's last effect; an outcome with another number is outdated."""
        self._retry_ms = RETRY_MS
        self._retry_waits = False  # the retry clock is set
        self._failed: dict[Hashable, Work] = {}
        """By key, what raised an exception: retried later."""
        self._retried: set[Hashable] = set()
        """The keys of retries that have not ended yet."""
        self._said: set[tuple[str, str]] = set()
        """The exceptions that were logged, with the names of their works."""
        self._stray_replicas: Copies = {}  # of the last claim: known nowhere else

    @property
    def is_active(self) -> bool:
        """True if this node is the controller, as far as it knows."""
        return self._active is not None

    @property
    def active(self) -> Active | None:
        """Its state while it is active, for inspection; None: it is not."""
        return self._active

    @property
    def problems(self) -> list[str]:
        """The exceptions of this claim, for inspection."""
        broken = {} if self._active is None else self._active.context.undecidable
        found = [f"{name}: {said}" for name, said in sorted(self._said)]
        return found + [f"{topic}-{number}: {said}" for (topic, number), said in broken.items()]

    def handle(self, event: object, now_ms: int) -> list[Effect]:
        """The effects of an event, in order: one of kafkalog.controller.events, or of the
        store."""
        effects: list[Effect] = []
        if self._active is not None:
            self._active.now_ms = now_ms
        if isinstance(event, Elected):
            effects += self._end()
            effects += self._begin(event, now_ms)
        elif isinstance(event, Deposed):
            effects += self._end()
        elif isinstance(event, StoreResult):
            if self._active is not None and self._work and event.number == self._number:
                effects += self._go(self._active, self._work[0], event.results)
        elif self._active is None:
            if isinstance(event, ClientRequest):
                effects.append(Reply(event.token, None))
        else:
            effects += self._take(self._active, event, now_ms)
        while self._work is None and self._waiting:
            effects += self._next()
        effects += self._again(now_ms)
        return effects

    # ---- elections ------------------------------------------------------------------------------

    def _begin(self, event: Elected, now_ms: int) -> Iterator[Effect]:
        store = self._store(event.claim, event.loaded)
        self._active = Active(self._options, event.claim, event.loaded, store, self._stray_replicas)
        self._active.now_ms = now_ms
        self._retry_ms, self._retry_waits = RETRY_MS, False
        for problem in event.loaded.problems:
            _logger.warning("%s", problem)
        for work in store.first_works():
            self._add(work)
        for clock, (_, period_ms) in self._periodic(store).items():
            yield Timer(clock, now_ms + min(FIRST_CHECK_MS, period_ms))

    def _end(self) -> list[Effect]:
        """Stop deciding; no waiting request gets an answer of this controller."""
        works = [*([self._work[0]] if self._work else []), *self._waiting]
        if self._work is not None:
            self._work[1].close()
        if self._active is not None:
            self._stray_replicas = self._active.context.stray_replicas
        self._active, self._work = None, None
        self._waiting.clear()
        self._keys.clear()
        self._failed.clear()
        self._retried.clear()
        self._said.clear()
        self._asked_count = 0
        return [Reply(one.token, None) for one in works if one.token is not _NOBODY]

    # ---- what is to be done ----------------------------------------------------------------------

    def _take(self, active: Active, event: object, now_ms: int) -> Iterator[Effect]:
        if isinstance(event, ClientRequest):
            key = event.api.key
            answer = active.store.answers.get(key) or answers.ANSWERS.get(key)
            if answer is None or self._asked_count >= ASKED_MAX:
                yield Reply(event.token, None)
            else:
                self._asked_count += 1
                self._add(Work(event.api.name, _answering(answer, event)), event.token)
        elif isinstance(event, BrokerResponse):
            begin = partial(steps.answered, send=event.send, response=event.response)
            name = f"broker {event.send.broker}'s answer to {event.send.api.name}"
            self._add(Work(name, begin))
        elif isinstance(event, QueueOverflow):
            name = f"broker {event.broker} is behind"
            self._add(Work(name, partial(steps.behind, broker=event.broker), name))
        elif isinstance(event, Tick) and event.clock is not Clock.RETRY:
            work, period_ms = self._periodic(active.store)[event.clock]
            self._add(work)
            yield Timer(event.clock, now_ms + period_ms)
        elif isinstance(event, Tick):
            self._retry_waits = False
            failed, self._failed = self._failed, {}
            self._retried.update(failed)
            for work in (_named(steps.failed_again), *failed.values()):
                self._add(work)
        else:
            for work in active.store.works(event):
                self._add(work)

    def _periodic(self, store: Store) -> Mapping[Clock, Periodic]:
        """The works of clocks: those of the store, and the balance of leaderships."""
        if not self._options.rebalances:
            return store.periodic
        balance = Periodic(_named(answers.rebalanced), self._options.check_ms)
        return {Clock.BALANCE: balance, **store.periodic}

    def _again(self, now_ms: int) -> Iterator[Effect]:
        """Retry what failed, each time after a longer delay, until nothing fails."""
        context = None if self._active is None else self._active.context
        left = context is not None and bool(context.failed or context.unreadable or self._failed)
        if context is None or not (left or context.retrying or self._retried):
            self._retry_ms = RETRY_MS
        elif left and not self._retry_waits:
            yield Timer(Clock.RETRY, now_ms + self._retry_ms)
            self._retry_waits = True
            self._retry_ms = min(2 * self._retry_ms, RETRY_MAX_MS)

    def _add(self, work: Work, token: Any = _NOBODY) -> None:
        """Queue a work, unless one with its key waits: that one will find the current state."""
        if work.key is None or work.key not in self._keys:
            self._waiting.append(_Waiting(work, token))
            self._keys.add(work.key)

    # ---- doing it --------------------------------------------------------------------------------

    def _next(self) -> list[Effect]:
        active = self._active
        assert active is not None
        waiting = self._waiting.popleft()
        self._keys.discard(waiting.work.key)
        self._work = waiting, _running(active, waiting.work.begin(active))
        return self._go(active, waiting, None)

    def _go(self, active: Active, waiting: _Waiting, results: Any) -> list[Effect]:
        """Continue to the store's next effect, or to the end."""
        assert self._work is not None
        running = self._work[1]
        try:
            bad = next((one for one in results or () if isinstance(one, Exception)), None)
            effect = running.send(results) if bad is None else running.throw(bad)
        except StopIteration as end:
            return self._ended(active, waiting, end.value)
        except NotActive:
            _logger.warning("another controller was elected; this one resigns")
            return [*self._end(), Resign()]
        except Exception as problem:  # it harms nothing else
            self._fail(waiting.work, problem)
            return self._ended(active, waiting, problem)
        self._number += 1
        return [*active.batch.expedited(), effect._replace(number=self._number)]

    def _fail(self, work: Work, problem: Exception) -> None:
        """A work raised: it is retried later, and a request gets the exception as its answer.

        What was written before is in the store, and is read again when a record about the same
        thing is refused.
        """
        if (said := (work.name, repr(problem))) not in self._said and len(self._said) < SAID_MAX:
            self._said.add(said)
            _logger.exception("the controller could not handle: %s", work.name)
        if work.key is not None:
            self._failed[work.key] = work

    def _ended(self, active: Active, waiting: _Waiting, body: Any) -> list[Effect]:
        self._work = None
        self._retried.discard(waiting.work.key)
        effects: list[Effect] = [*active.batch.sends()]
        if waiting.token is not _NOBODY:
            self._asked_count -= 1
            effects.append(Reply(waiting.token, body))
        if active.context.stale - active.context.unreadable:
            self._add(_named(steps.stale_again))
        if active.context.moves_to_check:
            self._add(_named(steps.moves_again))
        return effects
