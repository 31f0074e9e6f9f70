"""How long the call that is being made may still wait, for everything that it waits for.

A call about the cluster is many waits: for connections, answers and pauses.  They share one end.
A poll that is over sooner than an answer comes leaves the request on its way: the next poll takes
the answer, so that polls of any length come through.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from kafkalog import errors

__all__ = ["Errand", "NotYet", "Patience"]


Wait = Callable[[Collection[Any], float], object]
"""(connections, seconds): wait until one has something, or for something else."""


class NotYet(errors.Timeout):
    """The call's time is over, and what it waits for is on its way: it comes with a later one."""


class Errand:
    """What was answered to one thing that takes several requests, until all of it is done."""

    def __init__(self) -> None:
        self.log: list[tuple[Hashable, Any]] = []
        self._again: deque[tuple[Hashable, Any]] = deque()

    def rewind(self) -> None:
        """It begins again, and is given the same answers."""
        self._again = deque([*self.log, *self._again])
        self.log = []

    def known(self, key: Hashable) -> Any:
        """The answer that it was given to this before, in their order; None: there is none."""
        for at, (asked, answer) in enumerate(self._again):
            if asked == key:
                del self._again[at]
                self.log.append((key, answer))
                return answer
        return None


class Patience:
    """Of one cluster, and so of one thread; other calls within a call have less of it."""

    def __init__(self) -> None:
        self.until_s = math.inf
        """When the call is over (time.monotonic)."""
        self.errand: Errand | None = None
        """What the call is part of, if that goes on in a later one."""
        self.wait: Wait | None = None
        """Only where a call that is over goes on in a later one."""
        self.due: list[Any] = []
        """Connections on which errands have left something."""
        self._errands: dict[str, Errand] = {}

    def left_s(self) -> float:
        """What is left of it."""
        return max(self.until_s - time.monotonic(), 0.0)

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        """No longer than that, nor than the call around it."""
        before = self.until_s
        self.until_s = min(before, time.monotonic() + timeout_s)
        try:
            yield
        finally:
            self.until_s = before

    @contextmanager
    def whole(self, timeout_s: float, wait: Wait | None = None) -> Iterator[None]:
        """A call of its own, also from a callback within another one: it has all of its time.
        `wait` None: what it does not get by then it does not want any more."""
        before = self.until_s, self.errand, self.wait
        self.until_s, self.errand, self.wait = time.monotonic() + timeout_s, None, wait
        try:
            yield
        finally:
            self.until_s, self.errand, self.wait = before

    def once(self, what: str, make: Callable[[], Any]) -> Any:
        """What `make` gives; within an errand the same, however often it is begun again."""
        errand = self.errand
        if errand is None:
            return make()
        if (found := errand.known(what)) is None:
            found = make()
            errand.log.append((what, found))
        return found

    def forget(self, name: str) -> None:
        """What an errand was answered counts no more: it begins again."""
        self._errands.pop(name, None)

    @contextmanager
    def errand_of(self, name: str, until_s: float) -> Iterator[None]:
        """Within: something that takes several requests, none of which changes anything.  Begun
        again after a NotYet or a WakeUp it is given the answers that it had.

        `until_s`: of time.monotonic; 0: it waits for nothing.  Raises: NotYet; Timeout, also then,
        for a request whose own time is over.
        """
        if self.wait is None:  # nothing goes on later
            yield
            return
        before, errand = (self.until_s, self.errand), self._errands.pop(name, None) or Errand()
        errand.rewind()
        until_s = max(until_s, time.monotonic())  # no request was due before
        self.until_s, self.errand = min(self.until_s, until_s), errand
        try:
            yield
        except (NotYet, errors.WakeUp):
            self._errands[name] = errand
            raise
        finally:
            self.until_s, self.errand = before
