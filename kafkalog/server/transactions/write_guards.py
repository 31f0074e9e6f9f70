"""Writes that a coordinator allowed, and the markers that end what they belong to.

Between the coordinator's word and the append, the transaction may have ended: its marker is in
the partition already.  What came behind it would belong to no transaction that ends, or to the
next one.  So a write is guarded from the step on in which the coordinator allows it, a marker takes
the guard away, and none of the two gets between the other's look and its append.  Not sooner: a
write may wait for the transaction before to end, whose markers are none of its business.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kafkalog.types import TopicPartition

__all__ = ["Guard", "Guards"]

LOCKS = 64

Key = tuple[TopicPartition, int]
"""A partition and a producer id."""


class Guard:
    """Of one write that is under way."""

    __slots__ = ("holds", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.holds = True
        """Whether no marker came since."""


class Guards:
    """All writes under way.  Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._guards: dict[Key, set[Guard]] = {}
        self._locks = [threading.RLock() for _ in range(LOCKS)]

    def any(self) -> bool:
        """Whether a write is under way."""
        with self._lock:
            return bool(self._guards)

    def begin(self, where: TopicPartition, producer_id: int) -> Guard:
        """Guard a write, in the step of the coordinator that allows it."""
        guard = Guard((where, producer_id))
        with self._lock:
            self._guards.setdefault(guard.key, set()).add(guard)
        return guard

    def end(self, guard: Guard) -> None:
        """The write is over, one way or the other.  Harmless when repeated."""
        with self._lock:
            known = self._guards.get(guard.key)
            if known is not None:
                known.discard(guard)
                if not known:
                    del self._guards[guard.key]

    @contextmanager
    def writing(self, guard: Guard) -> Iterator[bool]:
        """Whether the write may be done, inside of the block."""
        with self._locks[hash(guard.key) % LOCKS]:
            yield guard.holds

    @contextmanager
    def ending(
        self, where: TopicPartition, producer_id: int, *, wait: bool = True
    ) -> Iterator[bool]:
        """A marker is appended inside of the block: what was allowed is so no longer.

        Not `wait`: inside of it False where a write is being done, and nothing has changed.
        """
        key = (where, producer_id)
        lock = self._locks[hash(key) % LOCKS]
        if not lock.acquire(blocking=wait):
            yield False
            return
        try:
            with self._lock:
                for guard in self._guards.pop(key, ()):
                    guard.holds = False
            yield True
        finally:
            lock.release()
