"""Who waits until what was appended counts: acks=all, in the order of the appends."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.clock import Clock
from kafkalog.errors import Closed, KafkalogError, Timeout

if TYPE_CHECKING:
    from kafkalog.server.reactor import Reactor

__all__ = ["Acknowledger"]

_logger = logging.getLogger(__name__)

SLICE_MS = 100
"""One look of the thread at the end of the broker."""

Done = Callable[[Exception | None], None]


class _Waiting(NamedTuple):
    topic: str
    partition: int
    offset: int
    """The high watermark from which on the append counts."""
    on_disk: bool
    """Also where acks=all does not mean it."""
    deadline_s: float
    done: Done


class Acknowledger:
    """One thread that tells appends of Python when the high watermark has passed them.

    The disk works for all that wait at the same time, so that one after the other takes no
    longer than the slowest.
    """

    def __init__(self, reactor: "Reactor", clock: Clock, name: str) -> None:
        """The thread starts with the first append that must wait."""
        self._reactor = reactor
        self._clock = clock
        self._wake = threading.Condition()  # guards what follows
        self._waiting: deque[_Waiting] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name=f"{name} acks", daemon=True)

    def wait(
        self,
        topic: str,
        partition: int,
        offset: int,
        timeout_ms: int,
        done: Done,
        *,
        on_disk: bool = False,
    ) -> None:
        """Call `done(None)` once the high watermark is at least `offset`, and all below it is on
        disk where acks=all means that, or `on_disk`.

        `done(Timeout)` after `timeout_ms`, `done(Closed)` at the end of the broker, from this
        object's thread; `done` must not block.
        """
        deadline_s = self._clock.monotonic_s() + timeout_ms / 1000
        with self._wake:
            if not self._stopping:
                self._waiting.append(_Waiting(topic, partition, offset, on_disk, deadline_s, done))
                if self._thread.ident is None:
                    self._thread.start()
                self._wake.notify()
                return
        done(Closed("the broker is being closed"))

    def stop(self) -> None:
        """End the thread; who still waits is told so.  Harmless when repeated."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._stopping:
                    self._wake.wait()
                if not self._waiting:
                    return
                one = self._waiting.popleft()
            self._tell(one, self._outcome(one))

    def _outcome(self, one: _Waiting) -> Exception | None:
        while True:
            try:
                if self._reactor.wait(one.topic, one.partition, one.offset, SLICE_MS, one.on_disk):
                    return None
            except KafkalogError as problem:
                return problem
            if self._stopping:
                return Closed("the broker is being closed")
            if self._clock.monotonic_s() >= one.deadline_s:
                return Timeout(f"{one.topic}-{one.partition}: not on disk in time")

    def _tell(self, one: _Waiting, outcome: Exception | None) -> None:
        try:
            one.done(outcome)
        except Exception:
            _logger.exception("what waited for %s-%d failed", one.topic, one.partition)
