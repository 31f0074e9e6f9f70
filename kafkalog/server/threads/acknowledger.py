"""Waits until appends are acknowledged as with acks=all."""

import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.clock import Clock
from kafkalog.errors import Closed, Timeout

if TYPE_CHECKING:
    from kafkalog.server.network.reactor import Appended, Reactor
    from kafkalog.types import TopicPartition

__all__ = ["Acknowledger"]

_logger = logging.getLogger(__name__)

SLICE_MS = 5
"""How long the thread waits for one partition before it checks all others again."""

Done = Callable[[Exception | None], None]


class _Waiting(NamedTuple):
    topic: str
    partition: int
    offset: int
    """The append is acknowledged when the high watermark reaches this."""
    on_disk: bool
    """Wait for the disk even if acks=all does not."""
    cuts: int
    deadline_s: float
    done: Done


class Acknowledger:
    """One thread that reports to Python's appends when the high watermark has passed them.

    No append waits for another's: all are checked in turn, and each is reported when its own disk
    has it.
    """

    def __init__(self, reactor: "Reactor", clock: Clock, name: str) -> None:
        """The thread starts with the first append that must wait."""
        self._reactor = reactor
        self._clock = clock
        self._wake = threading.Condition()  # guards what follows
        self._waiting: list[_Waiting] = []
        self._busy = False  # some were taken out to be reported
        self._turns = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name=f"{name} acks", daemon=True)

    def wait(
        self,
        topic: str,
        partition: int,
        offset: int,
        timeout_ms: int | None,
        done: Done,
        *,
        on_disk: bool = False,
        cuts: int = -1,
    ) -> None:
        """Call `done(None)` once the high watermark is at least `offset`, and all below it is on
        disk if acks=all means that, or if `on_disk`.  `cuts`: as for Reactor.wait.

        `done(Timeout)` after `timeout_ms` (None: never), or immediately if no thread can wait;
        `done(Closed)` when the broker stops.  Called from this object's thread, or before this
        returns if there is nothing to wait for.  `done` must not block.
        """
        deadline_s = math.inf
        if timeout_ms is not None:
            deadline_s = self._clock.monotonic_s() + timeout_ms / 1000
        one = _Waiting(topic, partition, offset, on_disk, cuts, deadline_s, done)
        with self._wake:
            overtakes = self._busy or self._waiting or self._stopping
        if not overtakes and self._settled(one, 0):
            return  # already acknowledged, and a thread switch costs more than all the rest
        outcome: Exception = Closed("the broker is being closed")
        with self._wake:
            if not self._stopping:
                try:
                    if self._thread.ident is None:
                        self._thread.start()
                except RuntimeError as problem:  # nobody would ever report it
                    outcome = Timeout(
                        f"{topic}-{partition}: no thread can wait for its disk: {problem}"
                    )
                else:
                    self._waiting.append(one)
                    self._wake.notify()
                    return
        done(outcome)

    def wait_for(
        self, where: "TopicPartition", found: "Appended", timeout_ms: int | None, done: Done
    ) -> None:
        """As `wait`, for the outcome of an append."""
        self.wait(*where, found.last_offset + 1, timeout_ms, done,
                  on_disk=found.sync_due, cuts=found.cuts)  # fmt: skip

    def stop(self) -> None:
        """Stop the thread; pending waits fail.  Idempotent."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _loop(self) -> None:
        while self._turn():
            pass

    def _turn(self) -> bool:
        """Report those that are ready; wait for one of the others briefly.  False: stop."""
        with self._wake:
            while not self._waiting and not self._stopping:
                self._wake.wait()
            if not self._waiting:
                return False
            waiting, self._waiting = self._waiting, []
            self._busy = True
        left = [one for one in waiting if not self._settled(one, 0)]
        first: dict[tuple[str, int, bool], _Waiting] = {}
        for one in left:
            first.setdefault((one.topic, one.partition, one.on_disk), one)
        if first:
            # A different partition each time: a disk that hangs delays nobody else's.
            self._turns += 1
            one = list(first.values())[self._turns % len(first)]
            if self._settled(one, SLICE_MS):
                left.remove(one)
        with self._wake:
            self._waiting = left + self._waiting
            self._busy = False
        return True

    def _settled(self, one: _Waiting, wait_ms: int) -> bool:
        """True if the outcome is known after at most `wait_ms`; then it was reported."""
        outcome: Exception | None = None
        try:
            passed = self._reactor.wait(
                one.topic, one.partition, one.offset, wait_ms, one.on_disk, one.cuts
            )
        except Exception as problem:  # only this one failed; the thread serves all others, too
            passed, outcome = True, problem
        if not passed:
            if self._stopping:
                outcome = Closed("the broker is being closed")
            elif self._clock.monotonic_s() >= one.deadline_s:
                outcome = Timeout(f"{one.topic}-{one.partition}: not on disk in time")
            else:
                return False
        self._tell(one, outcome)
        return True

    def _tell(self, one: _Waiting, outcome: Exception | None) -> None:
        try:
            one.done(outcome)
        except Exception:
            _logger.exception("a wait for %s-%d failed", one.topic, one.partition)
