"""Producer ids: given out one by one, taken from the metadata by the block."""

import threading
from collections.abc import Callable

__all__ = ["ProducerIds"]


class ProducerIds:
    """Each id once, over all lives of the directory.  Safe to use from many threads."""

    def __init__(self, allocate: Callable[[], range]) -> None:
        """`allocate` takes a block durably."""
        self._allocate = allocate
        self._lock = threading.Lock()  # guards what follows
        self._left = iter(range(0))

    def next(self) -> int:
        """An id that nobody has or had.

        Raises: what taking a block raises.
        """
        with self._lock:
            for one in self._left:
                return one
            self._left = iter(self._allocate())
            return next(self._left)
