"""Waits until appends are acknowledged as with acks=all."""

import math
import threading
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.clock import Clock
from kafkalog.errors import Closed, Timeout
from kafkalog.logs.limit import limited

if TYPE_CHECKING:
    from kafkalog.server.network.reactor import Appended, Reactor
    from kafkalog.types import TopicPartition

__all__ = ["Acknowledger"]

_logger = limited(__name__)

SLICE_MS = 5
"""How long the thread waits for one partition before it checks all others again."""
STALE_MAX = 64
"""Entries of ended waits that a heap may hold besides as many as there are waits."""

Done = Callable[[Exception | None], None]
_Key = tuple[str, int, bool, int]
"""Topic, partition, `on_disk`, `cuts`: of waits with one key, the lowest offset ends first."""


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

    @property
    def key(self) -> _Key:
        return self.topic, self.partition, self.on_disk, self.cuts


class _Waits:
    """The waits of the thread, by key in the order of offsets, and in that of deadlines.

    A check costs one call per key, however many wait.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._by_key: dict[_Key, dict[int, _Waiting]] = {}
        self._offsets: dict[_Key, list[tuple[int, int]]] = {}  # heaps; may hold ended waits
        self._deadlines: list[tuple[float, int, _Key]] = []  # likewise
        self._size = 0

    def __bool__(self) -> bool:
        return self._size > 0

    def add(self, one: _Waiting) -> None:
        number, key = next(self._numbers), one.key
        self._by_key.setdefault(key, {})[number] = one
        heappush(self._offsets.setdefault(key, []), (one.offset, number))
        if one.deadline_s != math.inf:
            heappush(self._deadlines, (one.deadline_s, number, key))
        self._size += 1

    def all_keys(self) -> list[_Key]:
        return list(self._by_key)

    def first(self, key: _Key) -> tuple[int, _Waiting] | None:
        """The wait with the lowest offset, with its number."""
        waits, heap = self._by_key.get(key), self._offsets.get(key)
        if not waits or not heap:
            return None
        while heap[0][1] not in waits:
            heappop(heap)
        number = heap[0][1]
        return number, waits[number]

    def late(self, now_s: float) -> list[tuple[int, _Waiting]]:
        """The waits whose deadline has come."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, number, key = heappop(self._deadlines)
            one = self._by_key.get(key, {}).get(number)
            if one is not None:
                found.append((number, one))
        return found

    def everything(self) -> list[tuple[int, _Waiting]]:
        return [each for waits in self._by_key.values() for each in waits.items()]

    def remove(self, number: int, key: _Key) -> None:
        waits, heap = self._by_key[key], self._offsets[key]
        del waits[number]
        self._size -= 1
        if not waits:
            del self._by_key[key], self._offsets[key]
        elif len(heap) > 2 * len(waits) + STALE_MAX:
            heap[:] = [each for each in heap if each[1] in waits]
            heapify(heap)
        if len(self._deadlines) > 2 * self._size + STALE_MAX:
            self._deadlines = [
                each for each in self._deadlines if each[1] in self._by_key.get(each[2], ())
            ]
            heapify(self._deadlines)


class Acknowledger:
    """One thread that reports to Python's appends when the high watermark has passed them.

    No append waits for another partition's: all partitions are checked in turn, and each append is
    reported when its own disk has it.
    """

    def __init__(self, reactor: "Reactor", clock: Clock, name: str) -> None:
        """The thread starts with the first append that must wait."""
        self._reactor = reactor
        self._clock = clock
        self._wake = threading.Condition()  # guards what follows
        self._new: list[_Waiting] = []
        self._busy = False  # the thread has waits
        self._stopping = False
        self._waits = _Waits()  # the thread's own
        self._turns = 0
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
            overtakes = self._busy or self._new or self._stopping
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
                    self._new.append(one)
                    self._wake.notify()
                    return
        done(outcome)

    def wait_for(
        self, where: "TopicPartition", found: "Appended", timeout_ms: int | None, done: Done
    ) -> None:
        """As `wait`, for the outcome of an append."""
        self.wait(
            *where, found.last_offset + 1, timeout_ms, done, on_disk=found.sync_due, cuts=found.cuts
        )

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
        """Report the appends that are ready; wait for one of the others briefly.  False: stop."""
        waits = self._waits
        with self._wake:
            self._busy = bool(waits)
            while not self._new and not self._busy and not self._stopping:
                self._wake.wait()
            new, self._new = self._new, []
            if not new and not self._busy:
                return False
            self._busy = True
        for one in new:
            waits.add(one)
        ended = waits.everything() if self._stopping else waits.late(self._clock.monotonic_s())
        for number, one in ended:
            if self._settled(one, 0):
                waits.remove(number, one.key)
        for key in waits.all_keys():
            while (first := waits.first(key)) is not None and self._settled(first[1], 0):
                waits.remove(first[0], key)
        if keys := waits.all_keys():
            # A different partition each time: a disk that hangs delays nobody else's.
            self._turns += 1
            first = waits.first(keys[self._turns % len(keys)])
            if first is not None and self._settled(first[1], SLICE_MS):
                waits.remove(first[0], first[1].key)
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
