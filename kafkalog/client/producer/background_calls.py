"""A producer's other requests: a broker that does not answer one holds up no records of others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kafkalog.client.link.cluster import Cluster

__all__ = ["Line"]

Call = Callable[[Cluster], Any]
Then = Callable[[Any, "BaseException | None"], object]
"""(what the call returned, what it raised)."""


class Line:
    """A thread with a cluster of its own, which makes one call at a time.

    `begin` and `settle` are for the owner's thread alone.
    """

    def __init__(self, cluster: Cluster, ring: Callable[[], None]) -> None:
        """`ring`: called when a call has ended and can be settled."""
        cluster.openings.apart = True
        self.cluster = cluster
        self.free = True
        """True if a call may begin."""
        self._ring = ring
        self._condition = threading.Condition()  # guards what follows
        self._call: Call | None = None
        self._ended: tuple[Any, BaseException | None] | None = None
        self._over = False
        self._then: Then | None = None
        self._thread: threading.Thread | None = None

    def begin(self, call: Call, then: Then | None = None) -> None:
        """Make a call in the thread; `then` is called when it is settled."""
        self.free, self._then = False, then
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="kafkalog-producer-asks", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can start any more: the interpreter is shutting down
                self._make(call)
                return
            self._thread = thread
        with self._condition:
            self._call = call
            self._condition.notify_all()

    def settle(self) -> None:
        """Apply a call that has ended.  Raises: what `then` raises; without a `then`, what the call
        raised."""
        with self._condition:
            ended, self._ended = self._ended, None
        if ended is not None:
            then, self._then = self._then, None
            self.free = True
            if then is not None:
                then(*ended)
            elif ended[1] is not None:
                raise ended[1]

    def interrupt(self) -> None:
        """Wait for nothing any more, now or later.  From any thread."""
        self.cluster.openings.interrupt()

    def close(self) -> None:
        """End the thread, whatever it waits for."""
        with self._condition:
            self._over = True
            self._condition.notify_all()
        self.interrupt()
        if self._thread is not None:
            self._thread.join()
        self.cluster.close()

    # ---- the thread ----------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._call is not None or self._over)
                call, self._call = self._call, None
            if call is None:
                return
            self._make(call)

    def _make(self, call: Call) -> None:
        result: Any = None
        problem: BaseException | None = None
        try:
            result = call(self.cluster)
        except BaseException as found:  # passed to `then`, or raised by `settle`
            problem = found
        with self._condition:
            self._ended = result, problem
        self._ring()
