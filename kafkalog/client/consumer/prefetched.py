"""Records that a consumer's thread has read for awaits that may be cancelled.

Between the read and the moment in which a caller gets them anything may happen: a seek, a pause, a
commit, the loss of the membership, the end.  This decides what becomes of them then; a simulation
drives it (tests/unit/client/consumer/test_prefetched.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.types import Record, TopicPartition

__all__ = ["Below", "Prefetched"]

_logger = logging.getLogger(__name__)
SURE_S = 0.01
"""How long an iteration counts on the membership: to ask costs more than to hand out a record."""
Offsets = dict[TopicPartition, CommittedOffset]


class Below(Protocol):
    """The methods it needs of the consumer."""

    def _holds(self) -> bool:
        """True if no other member has its partitions, as far as it can know.  From any thread."""

    def _go_back(self, firsts: Mapping[TopicPartition, int]) -> None:
        """Continue at these offsets in the partitions that are still read."""

    def _committable(self) -> Offsets:
        """The positions."""

    def _committed_at(self, tp: TopicPartition, offset: int) -> CommittedOffset:
        """A position as it is committed."""


class Prefetched:
    """Records read and not handed out yet, as records or as columns, or why that failed.

    `take` and `first` are for any thread; the rest for the consumer's own.
    """

    def __init__(self, below: Below) -> None:
        self._below = below
        self._lock = threading.Lock()  # guards what follows; never held during a wait
        self._records: deque[Record] = deque()
        self._columns: deque[Any] = deque()
        self._failure: Exception | None = None
        self._over = False
        self.sure_s = SURE_S
        self._sure_until_s = 0.0

    def take(self, columns: bool, most: int | None = None) -> list[Any]:
        """Hand out up to `most` records, or all batches of columns; empty: a `read` must come
        first, if only because another member may have their partitions.

        Raises: what a read raised, once, to the first that asks.
        """
        found: deque[Any] = self._columns if columns else self._records
        if not found and self._failure is None:
            return []
        holds = self._below._holds()
        with self._lock:
            problem, self._failure = self._failure, None
            if problem is not None:
                raise problem
            if self._over or not holds:
                return []
            if most is None or most >= len(found):
                taken = list(found)
                found.clear()
                return taken
            return [found.popleft() for _ in range(most)]

    def next(self) -> Record | None:
        """As `take`, one record; None: there is none.  It asks for the membership every SURE_S."""
        if not self._records or self._failure is not None:
            found = self.take(False, 1)
            return found[0] if found else None
        now_s = time.monotonic()
        if now_s >= self._sure_until_s:
            if not self._below._holds():
                return None
            self._sure_until_s = now_s + self.sure_s
        with self._lock:
            return self._records.popleft() if self._records and not self._over else None

    def read(self, columns: bool, poll: Callable[[], list[Any]]) -> None:
        """Poll, and keep what comes, or the failure.  What was read before is read again: it was
        for a caller that wants the other form, or of a membership that may have ended."""
        try:
            self._return()
            came = poll()
        except Exception as problem:
            with self._lock:
                self._failure = problem
            return
        with self._lock:
            (self._columns if columns else self._records).extend(came)

    def change(self, call: Callable[[], None], over: bool = False) -> None:
        """Make a call that changes what is read next: it finds the positions of the records that
        were handed out.  `over`: it is the last one, and nothing is handed out from now on."""
        with self._lock:
            self._over |= over
            problem = self._failure
            if problem is not None and (over or getattr(problem, "partition", None)):
                self._failure = None  # a seek may be the answer to it
                if over:
                    _logger.warning("a poll failed, and its caller was cancelled: %r", problem)
        self._return()
        call()

    def first(self, tp: TopicPartition) -> int | None:
        """The first offset of a partition that was not handed out; None: all were."""
        return self._firsts().get(tp)

    def committable(self) -> Offsets:
        """Up to where records were handed out."""
        found = self._below._committable()
        for tp, offset in self._firsts().items():
            if tp in found:
                found[tp] = self._below._committed_at(tp, offset)
        return found

    def _firsts(self) -> dict[TopicPartition, int]:
        with self._lock:
            return self._firsts_held()

    def _firsts_held(self) -> dict[TopicPartition, int]:
        firsts: dict[TopicPartition, int] = {}
        for record in self._records:
            firsts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for batch in self._columns:
            firsts.setdefault(*_first_of(batch))
        return firsts

    def _return(self) -> None:
        """Give everything back: from now on it is handed out only if it is read again."""
        with self._lock:
            firsts = self._firsts_held()
            self._records.clear()
            self._columns.clear()
        if firsts:
            self._below._go_back(firsts)


def _first_of(batch: Any) -> tuple[TopicPartition, int]:
    """Where a batch of columns begins."""
    topic, partition, offset = (batch.numpy(name)[0] for name in ("topic", "partition", "offset"))
    return TopicPartition(str(topic), int(partition)), int(offset)
