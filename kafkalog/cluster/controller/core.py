"""The controller: events in, effects out, nothing else.

An event starts steps, which run one after another, each to its end before the next begins.  Their
reads and writes are effects, and the outcomes of these are events.  So a reader may think of one
thing at a time, and a driver of none of them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, NamedTuple

from kafkalog.cluster.controller import answers, steps
from kafkalog.cluster.controller.context import Copies
from kafkalog.cluster.controller.events import (
    Answered,
    Asked,
    Behind,
    Clock,
    Commit,
    Deposed,
    Done,
    Effect,
    Elected,
    Event,
    Look,
    Options,
    Reply,
    Resign,
    Seen,
    Tick,
    Timer,
    Unwatched,
)
from kafkalog.cluster.controller.steps import Looks, Office, Steps
from kafkalog.metadata.zookeeper.session import Committed

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
REIGN = 0
"""The index of the operation, in all that a controller writes, that checks that it still is one."""
_NOBODY = object()


class _Work(NamedTuple):
    name: str
    """As errors name it."""
    begin: Callable[[Office], Steps[Any]]
    key: Hashable = None
    """Of works with the same key only one waits; None: all of them do."""
    token: Any = _NOBODY
    """The caller, which gets the result as its answer."""


def _named(step: steps.Step) -> _Work:
    return _Work(step.__name__, step, step)


def _answering(answer: answers.Answer, event: Asked) -> Callable[[Office], Steps[Any]]:
    return lambda office: answer(office, event.request, event.version)


class Controller:
    """One node's controller.  It begins each time the node is elected, and ends when another is.

    One thread only.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._office: Office | None = None
        self._waiting: deque[_Work] = deque()
        self._keys: set[Hashable] = set()
        self._asked_count = 0
        self._work: tuple[_Work, Steps[Any]] | None = None
        self._number = 0
        """Of the last reads or writes; an outcome with another number is outdated."""
        self._retry_ms = RETRY_MS
        self._retry_waits = False  # the retry clock is set
        self._failed: dict[Hashable, _Work] = {}
        """By key, what raised an exception: retried later."""
        self._retried: set[Hashable] = set()
        """The keys of retries that have not ended yet."""
        self._said: set[tuple[str, str]] = set()
        """The exceptions that were logged, with the names of their works."""
        self._strays: Copies = {}  # of the last reign: known nowhere else

    @property
    def reigns(self) -> bool:
        """Whether this node is the controller, as far as it knows."""
        return self._office is not None

    @property
    def office(self) -> Office | None:
        """What it knows while it reigns, for inspection; None: it does not reign."""
        return self._office

    @property
    def problems(self) -> list[str]:
        """The exceptions of this reign, for inspection."""
        broken = {} if self._office is None else self._office.context.broken
        found = [f"{name}: {said}" for name, said in sorted(self._said)]
        return found + [f"{topic}-{number}: {said}" for (topic, number), said in broken.items()]

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """The effects of an event, in order."""
        effects: list[Effect] = []
        if isinstance(event, Elected):
            effects += self._end()
            effects += self._begin(event, now_ms)
        elif isinstance(event, Deposed):
            effects += self._end()
        elif isinstance(event, Done):
            if self._work is not None and event.number == self._number:
                effects += self._went(event)
        elif self._office is None:
            if isinstance(event, Asked):
                effects.append(Reply(event.token, None))
        else:
            effects += self._take(event, now_ms)
        while self._work is None and self._waiting:
            effects += self._next()
        effects += self._again(now_ms)
        return effects

    # ---- reigns ----------------------------------------------------------------------------------

    def _begin(self, event: Elected, now_ms: int) -> Iterator[Effect]:
        self._office = Office(self._options, event.reign, event.loaded, self._strays)
        self._retry_ms, self._retry_waits = RETRY_MS, False
        for problem in event.loaded.problems:
            _logger.warning("%s", problem)
        for step in steps.BEGIN:
            self._add(_named(step))
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

    def _take(self, event: Event, now_ms: int) -> Iterator[Effect]:
        if isinstance(event, Seen):
            step = steps.seen(event.path)
            if step is not None:
                self._add(_Work(event.path, step, event.path))
        elif isinstance(event, Unwatched):
            for step in steps.AGAIN:
                self._add(_named(step))
        elif isinstance(event, Asked):
            answer = answers.ANSWERS.get(event.api.key)
            if answer is None or self._asked_count >= ASKED_MAX:
                yield Reply(event.token, None)
            else:
                self._asked_count += 1
                begin = _answering(answer, event)
                self._add(_Work(event.api.name, begin, token=event.token))
        elif isinstance(event, Answered):
            begin = partial(steps.answered, send=event.send, response=event.response)
            name = f"broker {event.send.broker}'s answer to {event.send.api.name}"
            self._add(_Work(name, begin))
        elif isinstance(event, Behind):
            name = f"broker {event.broker} is behind"
            self._add(_Work(name, partial(steps.behind, broker=event.broker), name))
        elif isinstance(event, Tick) and event.clock is Clock.BALANCE:
            self._add(_named(answers.rebalanced))
            yield Timer(Clock.BALANCE, now_ms + self._options.check_ms)
        elif isinstance(event, Tick):
            self._retry_waits = False
            failed, self._failed = self._failed, {}
            self._retried.update(failed)
            for work in (_named(steps.failed_again), *failed.values()):
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

    def _add(self, work: _Work) -> None:
        """Queue a work, unless one with its key waits: that one will find the current state."""
        if work.key is None or work.key not in self._keys:
            self._waiting.append(work)
            self._keys.add(work.key)

    # ---- doing it --------------------------------------------------------------------------------

    def _next(self) -> list[Effect]:
        office = self._office
        assert office is not None
        work = self._waiting.popleft()
        self._keys.discard(work.key)
        self._work = work, work.begin(office)
        return self._go(None)

    def _went(self, event: Done) -> list[Effect]:
        """The outcome of reads or writes arrived."""
        for outcome in event.results:
            if isinstance(outcome, Committed) and outcome.refused == REIGN:
                _logger.warning("another controller reigns; this one resigns")
                return [*self._end(), Resign()]
        return self._go(event.results)

    def _go(self, results: Any) -> list[Effect]:
        """Continue to the next reads or writes, or to the end."""
        office, work = self._office, self._work
        assert office is not None and work is not None
        try:
            bad = next((one for one in results or () if isinstance(one, Exception)), None)
            wanted = work[1].send(results) if bad is None else work[1].throw(bad)
            while not (wanted.reads if isinstance(wanted, Looks) else wanted):
                wanted = work[1].send([])
        except StopIteration as end:
            return self._ended(office, work[0], end.value)
        except Exception as problem:  # it harms nothing else
            self._fail(work[0], problem)
            return self._ended(office, work[0], problem)
        self._number += 1
        if isinstance(wanted, Looks):
            return [Look(self._number, wanted.reads)]
        return [*office.told.urgent(), Commit(self._number, [one.operations for one in wanted])]

    def _fail(self, work: _Work, problem: Exception) -> None:
        """A work raised: it is retried later, and a request gets the exception as its answer.

        What was written before is in the tree, and is read again when a write of the same znode is
        refused.
        """
        if (said := (work.name, repr(problem))) not in self._said and len(self._said) < SAID_MAX:
            self._said.add(said)
            _logger.exception("the controller could not handle: %s", work.name)
        if work.key is not None:
            self._failed[work.key] = work

    def _ended(self, office: Office, work: _Work, body: Any) -> list[Effect]:
        self._work = None
        self._retried.discard(work.key)
        effects: list[Effect] = [*office.told.sends()]
        if work.token is not _NOBODY:
            self._asked_count -= 1
            effects.append(Reply(work.token, body))
        if office.context.stale - office.context.unread:
            self._add(_named(steps.stale_again))
        if office.context.shifted:
            self._add(_named(steps.moves_again))
        return effects
