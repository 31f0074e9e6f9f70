"""Guards writes that a coordinator allowed against the markers that end their transactions.

Between the coordinator's answer and the append, the transaction may end, and its marker be written
to the partition.  A record after that marker would belong to no transaction, or to the
next one.  So a write is guarded from the step in which the coordinator allows it.  A marker removes
the guard, and the check and append of one never overlap those of the other.  The guard does not
begin earlier: a write may wait for the previous transaction, whose markers do not concern it.
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
    """One write in progress."""

    __slots__ = ("holds", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.holds = True
        """Whether no marker has come since."""


class Guards:
    """All writes in progress.  Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._guards: dict[Key, set[Guard]] = {}
        self._locks = [threading.RLock() for _ in range(LOCKS)]

    def any(self) -> bool:
        """Whether a write is in progress."""
        with self._lock:
            return bool(self._guards)

    def begin(self, where: TopicPartition, producer_id: int) -> Guard:
        """Guard a write, in the step of the coordinator that allows it."""
        guard = Guard((where, producer_id))
        with self._lock:
            self._guards.setdefault(guard.key, set()).add(guard)
        return guard

    def end(self, guard: Guard) -> None:
        """The write is over, with or without success.  Idempotent."""
        with self._lock:
            known = self._guards.get(guard.key)
            if known is not None:
                known.discard(guard)
                if not known:
                    del self._guards[guard.key]

    @contextmanager
    def writing(self, guard: Guard) -> Iterator[bool]:
        """Whether the write may be done, within the block."""
        with self._locks[hash(guard.key) % LOCKS]:
            yield guard.holds

    @contextmanager
    def ending(
        self, where: TopicPartition, producer_id: int, *, wait: bool = True
    ) -> Iterator[bool]:
        """Append a marker within the block, which revokes allowed writes.

        Without `wait`: gives False if a write is in progress, and nothing has changed.
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
