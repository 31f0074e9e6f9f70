"""The controller: events in, effects out, nothing else.

An event starts steps, which run one after another, each to its end before the next begins.  Their
reads and writes are effects, and the outcomes of these are events.  So a reader may think of one
thing at a time, and a driver of none of them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from kafkalog.controller import answers, steps
from kafkalog.controller.active import Active, NotActive, Steps, Store, Work
from kafkalog.controller.context import Copies, Reign, Snapshot
from kafkalog.controller.events import (
    Answered,
    Asked,
    Behind,
    Clock,
    Deposed,
    Done,
    Elected,
    Options,
    Reply,
    Resign,
    Tick,
    Timer,
)

__all__ = ["ASKED_MAX", "Controller"]

_logger = logging.getLogger(__name__)

ASKED_MAX = 10_000
"""Requests that may wait; clients of further ones must look for the controller again."""
FIRST_CHECK_MS = 5_000
"""Until the first check whether leaderships are balanced."""
RETRY_MS, RETRY_MAX_MS = 1_000, 60_000
"""Until what failed is retried: the first delay, which doubles each time, and the longest."""
SAID_MAX = 1_000
"""Different exceptions that are logged in a reign."""
_NOBODY = object()
Effect: TypeAlias = Any
"""One of kafkalog.controller.events, or of the store."""


class _Waiting(NamedTuple):
    work: Work
    token: Any = _NOBODY
    """The caller, which gets the result as its answer."""


def _named(step: Callable[[Active], Steps[None]]) -> Work:
    return Work(step.__name__, step, step)


def _answering(answer: answers.Answer, event: Asked) -> Callable[[Active], Steps[Any]]:
    return lambda office: answer(office, event.request, event.version)


def _running(office: Active, steps_: Steps[Any]) -> Generator[Effect, Any, Any]:
    """Take steps: the store carries out what they yield.  Returns their result."""
    sent: Any = None
    while True:
        try:
            wanted = steps_.send(sent)
        except StopIteration as end:
            return end.value
        sent = yield from office.store.perform(office.context, wanted)


class Controller:
    """One node's controller.  It begins each time the node is elected, and ends when another is.

    One thread only.
    """

    def __init__(self, options: Options, store: Callable[[Reign, Snapshot], Store]) -> None:
        """`store`: makes the store of a controller that has become active."""
        self._options = options
        self._store = store
        self._office: Active | None = None
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
        self._strays: Copies = {}  # of the last reign: known nowhere else

    @property
    def reigns(self) -> bool:
        """True if this node is the controller, as far as it knows."""
        return self._office is not None

    @property
    def office(self) -> Active | None:
        """Its state while it reigns, for inspection; None: it does not reign."""
        return self._office

    @property
    def problems(self) -> list[str]:
        """The exceptions of this reign, for inspection."""
        broken = {} if self._office is None else self._office.context.broken
        found = [f"{name}: {said}" for name, said in sorted(self._said)]
        return found + [f"{topic}-{number}: {said}" for (topic, number), said in broken.items()]

    def handle(self, event: object, now_ms: int) -> list[Effect]:
        """The effects of an event, in order: one of kafkalog.controller.events, or of the
        store."""
        effects: list[Effect] = []
        if isinstance(event, Elected):
            effects += self._end()
            effects += self._begin(event, now_ms)
        elif isinstance(event, Deposed):
            effects += self._end()
        elif isinstance(event, Done):
            if self._office is not None and self._work and event.number == self._number:
                effects += self._go(self._office, self._work[0], event.results)
        elif self._office is None:
            if isinstance(event, Asked):
                effects.append(Reply(event.token, None))
        else:
            effects += self._take(self._office, event, now_ms)
        while self._work is None and self._waiting:
            effects += self._next()
        effects += self._again(now_ms)
        return effects

    # ---- reigns ----------------------------------------------------------------------------------

    def _begin(self, event: Elected, now_ms: int) -> Iterator[Effect]:
        store = self._store(event.reign, event.loaded)
        self._office = Active(self._options, event.reign, event.loaded, store, self._strays)
        self._retry_ms, self._retry_waits = RETRY_MS, False
        for problem in event.loaded.problems:
            _logger.warning("%s", problem)
        for work in (_named(steps.first), *store.first_works()):
            self._add(work)
        if self._options.rebalances:
            yield Timer(Clock.BALANCE, now_ms + min(FIRST_CHECK_MS, self._options.check_ms))

    def _end(self) -> list[Effect]:
        """Stop deciding; no waiting request gets an answer of this controller."""
        works = [*([self._work[0]] if self._work else []), *self._waiting]
        if self._work is not None:
            self._work[1].close()
        if self._office is not None:
            self._strays = self._office.context.strays
        self._office, self._work = None, None
        self._waiting.clear()
        self._keys.clear()
        self._failed.clear()
        self._retried.clear()
        self._said.clear()
        self._asked_count = 0
        return [Reply(one.token, None) for one in works if one.token is not _NOBODY]

    # ---- what is to be done ----------------------------------------------------------------------

    def _take(self, office: Active, event: object, now_ms: int) -> Iterator[Effect]:
        if isinstance(event, Asked):
            answer = answers.ANSWERS.get(event.api.key)
            if answer is None or self._asked_count >= ASKED_MAX:
                yield Reply(event.token, None)
            else:
                self._asked_count += 1
                self._add(Work(event.api.name, _answering(answer, event)), event.token)
        elif isinstance(event, Answered):
            begin = partial(steps.answered, send=event.send, response=event.response)
            name = f"broker {event.send.broker}'s answer to {event.send.api.name}"
            self._add(Work(name, begin))
        elif isinstance(event, Behind):
            name = f"broker {event.broker} is behind"
            self._add(Work(name, partial(steps.behind, broker=event.broker), name))
        elif isinstance(event, Tick) and event.clock is Clock.BALANCE:
            self._add(_named(answers.rebalanced))
            yield Timer(Clock.BALANCE, now_ms + self._options.check_ms)
        elif isinstance(event, Tick):
            self._retry_waits = False
            failed, self._failed = self._failed, {}
            self._retried.update(failed)
            for work in (_named(steps.failed_again), *failed.values()):
                self._add(work)
        else:
            for work in office.store.works(event):
                self._add(work)

    def _again(self, now_ms: int) -> Iterator[Effect]:
        """Retry what failed, each time after a longer delay, until nothing fails."""
        context = None if self._office is None else self._office.context
        left = context is not None and bool(context.failed or context.unread or self._failed)
        if context is None or not (left or context.again or self._retried):
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
        office = self._office
        assert office is not None
        waiting = self._waiting.popleft()
        self._keys.discard(waiting.work.key)
        self._work = waiting, _running(office, waiting.work.begin(office))
        return self._go(office, waiting, None)

    def _go(self, office: Active, waiting: _Waiting, results: Any) -> list[Effect]:
        """Continue to the store's next effect, or to the end."""
        assert self._work is not None
        running = self._work[1]
        try:
            bad = next((one for one in results or () if isinstance(one, Exception)), None)
            effect = running.send(results) if bad is None else running.throw(bad)
        except StopIteration as end:
            return self._ended(office, waiting, end.value)
        except NotActive:
            _logger.warning("another controller reigns; this one resigns")
            return [*self._end(), Resign()]
        except Exception as problem:  # it harms nothing else
            self._fail(waiting.work, problem)
            return self._ended(office, waiting, problem)
        self._number += 1
        return [*office.told.urgent(), effect._replace(number=self._number)]

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

    def _ended(self, office: Active, waiting: _Waiting, body: Any) -> list[Effect]:
        self._work = None
        self._retried.discard(waiting.work.key)
        effects: list[Effect] = [*office.told.sends()]
        if waiting.token is not _NOBODY:
            self._asked_count -= 1
            effects.append(Reply(waiting.token, body))
        if office.context.stale - office.context.unread:
            self._add(_named(steps.stale_again))
        if office.context.shifted:
            self._add(_named(steps.moves_again))
        return effects
