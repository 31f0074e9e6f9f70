"""DeleteRecords requests that wait until the replicas, too, have deleted the records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkalog.clock import Clock
from kafkalog.logs.limit import limited
from kafkalog.server.failures import code_of
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Deleted", "Deletions"]

_logger = limited(__name__)

LOOK_S = 0.05
"""How often the replicas' progress is checked while a request waits."""


class Deleted(NamedTuple):
    """The outcome for a partition."""

    low_watermark: int
    """Where the live replicas begin; -1 if unknown."""
    error: ErrorCode


Done = Callable[[Mapping[TopicPartition, Deleted]], None]


class _Waiting(NamedTuple):
    wanted: dict[TopicPartition, int]
    """The offsets at which all replicas must begin, of partitions where some do not yet."""
    until_s: float
    found: dict[TopicPartition, Deleted]
    done: Done


class Deletions:
    """Waiting requests; one thread checks them, started by the first.  Safe from any thread."""

    def __init__(
        self, low_watermark: Callable[[TopicPartition], int], clock: Clock, name: str
    ) -> None:
        """`low_watermark`: the lowest offset that all replicas of a partition led here have; the
        error that it raises is the answer."""
        self._low_watermark = low_watermark
        self._clock = clock
        self._changed = threading.Condition()  # guards what follows
        self._waiting: list[_Waiting] = []
        self._ending = False
        self._thread: threading.Thread | None = None
        self._name = f"{name} deletions"

    def wait(self, wanted: Mapping[TopicPartition, int], timeout_ms: int, done: Done) -> None:
        """Call `done` once the replicas of each begin at its offset or above, or its time is over:
        from this object's thread, or before this returns if nothing must be waited for or nobody
        can."""
        until_s = self._clock.monotonic_s() + max(timeout_ms, 0) / 1000
        one = _Waiting(dict(wanted), until_s, {}, done)
        if self._over(one, {}) or self._kept(one):
            return
        self._over(one, {}, ending=True)

    def _kept(self, one: _Waiting) -> bool:
        """True if the thread takes it over from here."""
        with self._changed:
            if self._ending:
                return False
            if self._thread is None:
                thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the next one may
                    return False
                self._thread = thread
            self._waiting.append(one)
            self._changed.notify_all()
            return True

    def stop(self) -> None:
        """Stop: pending requests are answered with a timeout."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ending or self._waiting)
                self._changed.wait_for(lambda: self._ending, LOOK_S)
                ending, those = self._ending, self._waiting
                self._waiting = []
            marks: dict[TopicPartition, Deleted] = {}  # each partition is looked up once
            left = [one for one in those if not self._over(one, marks, ending)]
            with self._changed:
                self._waiting = left + self._waiting
                if self._ending and not self._waiting:
                    return

    def _mark(self, tp: TopicPartition) -> Deleted:
        try:
            return Deleted(self._low_watermark(tp), ErrorCode.NONE)
        except Exception as problem:
            return Deleted(-1, code_of(problem))

    def _over(
        self, one: _Waiting, marks: dict[TopicPartition, Deleted], ending: bool = False
    ) -> bool:
        """Answer a request if it is due; returns whether it was.  `marks`: found in this turn."""
        late = ending or self._clock.monotonic_s() >= one.until_s
        for tp, offset in list(one.wanted.items()):
            found = marks.get(tp)
            if found is None:
                found = marks[tp] = self._mark(tp)
            if not found.error and found.low_watermark < offset:
                if not late:
                    continue
                found = found._replace(error=ErrorCode.REQUEST_TIMED_OUT)
            one.found[tp] = found
            del one.wanted[tp]
        if one.wanted:
            return False
        try:
            one.done(one.found)
        except Exception:  # only this one failed; the thread serves all others, too
            _logger.exception("no answer about the deleted records of %s", list(one.found))
        return True
