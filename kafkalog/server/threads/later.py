"""A thread that runs work after a pause."""

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count

__all__ = ["Later"]
from kafkalog.logs.limit import limited

_logger = limited(__name__)


class Later:
    """Runs work when its pause is over.  Safe to use from many threads."""

    def __init__(self, name: str) -> None:
        """`name`: the thread's, which starts immediately."""
        self._wake = threading.Condition()  # guards what follows
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._stopped = False
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    @property
    def stopped(self) -> bool:
        """True once `stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """Run at once all that waits, and stop."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        self._thread.join()

    def run(self, pause_s: float, work: Callable[[], None]) -> bool:
        """Run `work` in the thread after a pause; False: this has stopped."""
        with self._wake:
            if self._stopped:
                return False
            heapq.heappush(self._queue, (time.monotonic() + pause_s, next(self._numbers), work))
            self._wake.notify_all()
        return True

    def _next(self) -> Callable[[], None] | None:
        with self._wake:
            while True:
                now_s = time.monotonic()
                if self._queue and (self._stopped or self._queue[0][0] <= now_s):
                    return heapq.heappop(self._queue)[2]
                if self._stopped:
                    return None
                self._wake.wait(self._queue[0][0] - now_s if self._queue else None)

    def _loop(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception:
                _logger.exception("a failure of what was to run")  # the next has its turn
