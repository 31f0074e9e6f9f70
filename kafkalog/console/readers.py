"""Consumers of one login, each lent to one request at a time and kept for the next."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkalog import errors
from kafkalog.client.consumer.consumer import Consumer

__all__ = ["READERS_MAX", "Readers"]

READERS_MAX = 5
"""Consumers of one login, each with its connections: more requests wait."""
CLOSE_MS = 1_000


class _Reader(NamedTuple):
    committed: bool
    """It reads only ended transactions."""
    consumer: Consumer
    used_s: float
    """When it was last used."""


class Readers:
    """A few consumers without groups.  Safe to use from many threads."""

    def __init__(self, make: Callable[[bool], Consumer]) -> None:
        """`make`: a consumer, which has sent nothing yet; True: of ended transactions only."""
        self._make = make
        self._turn = threading.Condition()  # guards what follows
        self._idle: list[_Reader] = []  # the one that was used last comes last
        self._lent: list[Consumer] = []
        self._closed = False

    @contextlib.contextmanager
    def lend(self, committed: bool, wait_s: float) -> Iterator[Consumer]:
        """A consumer; after an error of the borrower it is not used again.

        Raises: Closed; Timeout: all are lent for so long.
        """
        made = self._take(committed, wait_s)
        fit = False
        try:
            yield made
            made.assign([])
            fit = True
        finally:
            self._give_back(committed, made, fit)

    def _take(self, committed: bool, wait_s: float) -> Consumer:
        gone: list[_Reader] = []
        with self._turn:
            if not self._turn.wait_for(self._can_lend, wait_s):
                raise errors.Timeout("other requests of this session still read records")
            if self._closed:
                raise errors.Closed("this session has ended")
            fitting = [one for one in self._idle if one.committed == committed]
            if fitting:
                self._idle.remove(fitting[-1])
                made = fitting[-1].consumer
            else:
                made = self._make(committed)
                if self._idle and len(self._idle) + len(self._lent) >= READERS_MAX:
                    gone.append(self._idle.pop(0))
            self._lent.append(made)
        _close(gone)
        return made

    def _can_lend(self) -> bool:
        return self._closed or len(self._lent) < READERS_MAX

    def _give_back(self, committed: bool, made: Consumer, fit: bool) -> None:
        one = _Reader(committed, made, time.monotonic())
        with self._turn:
            self._lent.remove(made)
            keep = fit and not self._closed
            if keep:
                self._idle.append(one)
            self._turn.notify()
        if not keep:
            _close([one])

    def tidy(self, unused_since_s: float) -> None:
        """Close those that nobody has used since."""
        with self._turn:
            gone = [one for one in self._idle if one.used_s <= unused_since_s]
            self._idle = [one for one in self._idle if one.used_s > unused_since_s]
        _close(gone)

    def interrupt(self) -> None:
        """End waits for brokers and for consumers, now and later."""
        with self._turn:
            self._closed = True
            lent = list(self._lent)
            self._turn.notify_all()
        for one in lent:
            one._cluster.openings.interrupt()
            one.wakeup()

    def close(self) -> None:
        """Close all, once those that are lent are given back.  Idempotent."""
        self.interrupt()
        with self._turn:
            self._turn.wait_for(lambda: not self._lent)
            gone, self._idle = self._idle, []
        _close(gone)


def _close(gone: list[_Reader]) -> None:
    for one in gone:
        one.consumer.close(commit=False, timeout_ms=CLOSE_MS)
