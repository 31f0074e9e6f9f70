"""A thread that works in parallel with its owner's, from the first task until it is stopped."""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from kafkalog import errors
from kafkalog.client.link.cluster import Cluster

__all__ = ["Background"]

_logger = logging.getLogger(__name__)
LOOK_S = 60.0
"""How often idle connections are looked for."""
END_S = 1.0
"""How long `stop` waits for the thread, which ends by itself after its current request."""


class Background(ABC):
    """One thread with its own connections; it shares with its owner what the condition guards."""

    def __init__(self, cluster: Cluster, name: str, nudge: Callable[[], None]) -> None:
        """`cluster`: its own, which it closes.  `nudge`: makes the owner look for results."""
        self.cluster = cluster
        self.clock = cluster.clock
        self._name = name
        self._nudge = nudge
        self._condition = threading.Condition()  # guards what follows, and members of subclasses
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._pid = os.getpid()

    def stop(self) -> None:
        """End the thread; tasks that it has not begun are dropped.  A forked child, which has not
        got the thread, does nothing."""
        if self._pid != os.getpid():
            return
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(END_S)
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        """Close its connections."""
        self.cluster.close()

    def _wake(self) -> None:
        """There may be something to do; the condition is held."""
        if self._thread is None and not self._stopping:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()  # it may fail: then the next call tries again
            self._thread = thread
        self._condition.notify_all()

    @abstractmethod
    def _due(self) -> Callable[[], None] | float | None:
        """The next task, else when there will be one; None: not before a `_wake`.  The condition
        is held."""

    @abstractmethod
    def _failed(self, problem: errors.KafkalogError) -> None:
        """The thread ends with a failure of its own: report it.  The condition is held."""

    def _run(self) -> None:
        try:
            while (step := self._wait()) is not None:
                step()
        except BaseException as problem:
            _logger.exception("%s failed", self._name)
            self._hang_up()
            with self._condition:  # a new thread starts when there is more to do
                self._thread = None
                self._failed(errors.Closed(f"the thread {self._name} failed: {problem!r}"))
                self._condition.notify_all()
            self._nudge()
        else:
            self._hang_up()

    def _wait(self) -> Callable[[], None] | None:
        """The next task; None: the thread must end."""
        with self._condition:
            while not self._stopping:
                due = self._due()
                if callable(due):
                    return due
                self.cluster.openings.close_idle()
                look_s = self.clock.monotonic_s() + LOOK_S
                self.clock.wait_until(self._condition, look_s if due is None else min(due, look_s))
        return None
