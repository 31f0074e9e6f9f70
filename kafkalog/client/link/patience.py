"""How long the current call may still wait, in total.

A call waits many times: for connections, answers and backoffs.  All these waits share one time
limit.  A poll that ends before an answer arrives leaves the request in flight, and the next poll
takes the answer: so polls of any length get through.
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


KEPT_MAX = 16
"""Answers that an errand has not used yet; one that is dropped is asked for again."""
Wait = Callable[[Collection[Any], float], object]
"""(connections, seconds): wait until one of them has something, or for something else."""


class NotYet(errors.Timeout):
    """The call's time is over and its request still in flight: a later call gets the answer."""


class Errand:
    """The answers to something that takes several requests, until all of it is done."""

    def __init__(self) -> None:
        self.log: list[tuple[Hashable, Any]] = []
        self._again: deque[tuple[Hashable, Any]] = deque()

    def rewind(self) -> None:
        """Begin again, with the same answers."""
        self._again = deque([*self.log, *self._again])
        self.log = []

    def keep(self, key: Hashable, answer: Any) -> None:
        """An answer to an earlier attempt's request arrived while something else was waited for.

        The oldest is dropped if there are many: attempts that ask differently each time want none.
        """
        self._again.append((key, answer))
        if len(self._again) > KEPT_MAX:
            self._again.popleft()

    def known(self, key: Hashable) -> Any:
        """The earlier answer to this request, in order; None: there is none."""
        for at, (kept, answer) in enumerate(self._again):
            if kept == key:
                del self._again[at]
                self.log.append((key, answer))
                return answer
        return None


class Patience:
    """Time limits of one cluster's calls, in one thread; a call shares that of its caller."""

    def __init__(self) -> None:
        self.until_s = math.inf
        """When the call is over (time.monotonic)."""
        self.errand: Errand | None = None
        """The errand that the call is part of, if a later call can continue it."""
        self.wait: Wait | None = None
        """Only set if a later call continues one that is over."""
        self.due: list[Any] = []
        """Connections on which errands have left requests in flight."""
        self._errands: dict[str, Errand] = {}

    def left_s(self) -> float:
        """The time that is left."""
        return max(self.until_s - time.monotonic(), 0.0)

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        """Limit the time within, which also ends with the call around it."""
        before = self.until_s
        self.until_s = min(before, time.monotonic() + timeout_s)
        try:
            yield
        finally:
            self.until_s = before

    @contextmanager
    def whole(self, timeout_s: float, wait: Wait | None = None) -> Iterator[None]:
        """A call with its full time, also in a callback within another call.  `wait` None: what it
        does not get by then is not wanted any more."""
        before = self.until_s, self.errand, self.wait
        self.until_s, self.errand, self.wait = time.monotonic() + timeout_s, None, wait
        try:
            yield
        finally:
            self.until_s, self.errand, self.wait = before

    def once(self, what: str, make: Callable[[], Any]) -> Any:
        """The result of `make`; within an errand the same in every attempt."""
        errand = self.errand
        if errand is None:
            return make()
        if (found := errand.known(what)) is None:
            found = make()
            errand.log.append((what, found))
        return found

    def forget(self, name: str) -> None:
        """Drop the answers of an errand: it begins again."""
        self._errands.pop(name, None)

    @contextmanager
    def errand_of(self, name: str, until_s: float) -> Iterator[None]:
        """Within: something that takes several requests, none of which changes anything.  When it
        is started again after a NotYet or a WakeUp, it gets the answers that it had.

        `until_s`: in time.monotonic; 0: it does not wait.  Raises: NotYet; Timeout, even then, for
        a request whose own time is over.
        """
        if self.wait is None:  # no later call continues
            yield
            return
        before, errand = (self.until_s, self.errand), self._errands.pop(name, None) or Errand()
        errand.rewind()
        until_s = max(until_s, time.monotonic())  # no request was due earlier
        self.until_s, self.errand = min(self.until_s, until_s), errand
        try:
            yield
        except (NotYet, errors.WakeUp):
            self._errands[name] = errand
            raise
        finally:
            self.until_s, self.errand = before
