"""A thread that runs what it gets, one piece after another."""

import queue
import threading
from collections.abc import Callable

from kafkalog.logs.limit import limited

__all__ = ["SerialExecutor"]

_logger = limited(__name__)


class SerialExecutor:
    """Runs work in the order of its submission.  Safe to use from many threads."""

    def __init__(self, name: str) -> None:
        """`name`: the thread's, which starts immediately."""
        self._works: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many submitted pieces have not started."""
        return self._works.qsize()

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` in its turn; `work` handles its own failures."""
        self._works.put(work)

    def stop(self) -> None:
        """Stop after all submitted work has run."""
        self._works.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (work := self._works.get()) is not None:
            try:
                work()
            except Exception:
                _logger.exception("a failure of what was to run")  # the next has its turn
