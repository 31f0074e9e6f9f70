"""One thread for what is large: requests of many bytes, bodies that decompress to many.

So much memory is taken for only one of them at a time, and the I/O threads stay free for all
that is small.
"""

import logging
import queue
import threading
from collections.abc import Callable

__all__ = ["Bulk"]

_logger = logging.getLogger(__name__)


class Bulk:
    """Runs what it is given, one piece after another.  `submit` may be called by any thread."""

    def __init__(self, name: str) -> None:
        """`name`: of the thread, which begins at once."""
        self._works: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=f"{name} bulk", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How much was submitted whose turn has not come."""
        return self._works.qsize()

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` when its turn comes; it answers for its failures itself."""
        self._works.put(work)

    def stop(self) -> None:
        """End when all that was submitted has run."""
        self._works.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (work := self._works.get()) is not None:
            try:
                work()
            except Exception:
                _logger.exception("a failure of what was to run")  # the next has its turn
