"""Guards writes that a coordinator allowed against the markers that end their transactions.

Between the coordinator's answer and the append, the transaction may end, and its marker be written
to the partition.  A record after that marker would belong to the next transaction, or to one that
nobody ends.  So a write is guarded, and is done only if its guard still holds.  A marker breaks the
guard, and the check and append of one never overlap those of the other.

A coordinator of this node begins the guard in the step that allows the write.  A coordinator of
another node is asked under a guard that has already begun: it may decide the end as soon as it has
answered, and its marker may overtake its answer.  Kafka does the same with verification guards.

Source: KIP-890.
"""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from kafkalog.coordinator.step import Producer
from kafkalog.coordinator.transactions.transaction import EPOCH_MAX
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Guard", "Guards", "breaks"]

LOCKS = 64

Key = tuple[TopicPartition, int]
"""A partition and a producer id."""


class Guard:
    """One write in progress."""

    __slots__ = ("epoch", "error", "key")

    def __init__(self, key: Key, epoch: int) -> None:
        self.key = key
        self.epoch = epoch
        """The producer's."""
        self.error = ErrorCode.NONE
        """Why the write may no longer be done.  INVALID_TXN_STATE: its transaction has ended in
        the partition; NOT_LEADER_OR_FOLLOWER: the partition was deleted, or another node may have
        led it, and written the marker."""

    @property
    def holds(self) -> bool:
        """True if the write may be done."""
        return self.error is ErrorCode.NONE


def breaks(marker: Producer, epoch: int) -> bool:
    """True if a marker ends the transaction of a write by the same producer id in this epoch.

    In version 2 each end raises the epoch: a marker of the write's own epoch ends the transaction
    before, for which the write may have waited.  Only EPOCH_MAX cannot be raised.  A marker of an
    earlier epoch ends an earlier transaction in both versions.
    """
    if marker.epoch == epoch:
        return not marker.raised or epoch == EPOCH_MAX
    return marker.epoch > epoch


class Guards:
    """All writes in progress.  Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._guards: dict[Key, set[Guard]] = {}
        self._locks = [threading.RLock() for _ in range(LOCKS)]

    def any(self) -> bool:
        """True if a write is in progress."""
        with self._lock:
            return bool(self._guards)

    def begin(self, where: TopicPartition, producer_id: int, epoch: int) -> Guard:
        """Guard a write: in the step of the coordinator that allows it, or before a coordinator on
        another node is asked."""
        guard = Guard((where, producer_id), epoch)
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
        """Yields True if the write may be done, within the block."""
        with self._locks[hash(guard.key) % LOCKS]:
            yield guard.holds

    @contextmanager
    def ending(
        self, where: TopicPartition, marker: Producer, *, wait: bool = True
    ) -> Iterator[bool]:
        """Append a marker within the block, which breaks the guards of the transaction's writes.

        Without `wait`: gives False if a write is in progress, and nothing has changed.
        """
        key = (where, marker.producer_id)
        lock = self._locks[hash(key) % LOCKS]
        if not lock.acquire(blocking=wait):
            yield False
            return
        try:
            self._break(key, ErrorCode.INVALID_TXN_STATE, marker)
            yield True
        finally:
            lock.release()

    def leave(self, partitions: Collection[TopicPartition]) -> None:
        """These are no longer led here in the same leader epoch, or are deleted: their markers may
        be written elsewhere.  On return no write of theirs is within `writing`."""
        left = frozenset(partitions)
        with self._lock:
            keys = [key for key in self._guards if key[0] in left]
        for key in keys:
            with self._locks[hash(key) % LOCKS]:
                self._break(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _break(self, key: Key, error: ErrorCode, marker: Producer | None = None) -> None:
        with self._lock:
            known = self._guards.get(key, set())
            for guard in [one for one in known if marker is None or breaks(marker, one.epoch)]:
                guard.error = error
                known.discard(guard)
            if not known:
                self._guards.pop(key, None)
