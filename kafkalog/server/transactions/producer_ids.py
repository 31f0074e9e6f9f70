"""Producer ids: handed out one by one, taken from the metadata in blocks."""

import threading
from collections.abc import Callable

from kafkalog.client.link.failures import failure
from kafkalog.errors import KafkalogError
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["ProducerIds"]

Later = Callable[[Callable[[], None]], None]
PATIENCE_S = 0.5
"""How long a request that finds no id left waits for a block."""


class ProducerIds:
    """Hands out each id once, over all lives of the directory.  Safe to use from many threads."""

    def __init__(self, allocate: Callable[[], range], later: Later | None = None) -> None:
        """`allocate` takes a block durably.  `later`: in a cluster, where another node allocates
        it, runs that in a thread that may wait."""
        self._allocate, self._later = allocate, later
        self._changed = threading.Condition()  # guards what follows
        self._left = range(0)
        self._ordered = False
        self._problem = "a block of them was asked for"

    def next(self) -> int:
        """An id that was never used.

        Raises: errors of taking a block; in a cluster COORDINATOR_LOAD_IN_PROGRESS, as in Kafka,
        if there is none now: the client retries.
        """
        with self._changed:
            if not self._left:
                self._more()
            found, self._left = self._left[0], self._left[1:]
            return found

    def _more(self) -> None:
        if self._later is None:
            self._left = self._allocate()
        elif not self._ordered:  # else another request waits for it already: one thread is enough
            self._ordered = True
            self._later(self._take)
            self._changed.wait_for(lambda: not self._ordered, PATIENCE_S)
        if not self._left:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            raise failure(code, "producer ids", self._problem)

    def _take(self) -> None:
        block = range(0)
        try:
            block = self._allocate()
        except KafkalogError as problem:
            self._problem = str(problem)
        finally:
            with self._changed:
                self._ordered = False
                self._left = self._left or block
                self._changed.notify_all()
