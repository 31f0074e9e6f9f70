"""Creates the topics of dead letters while letters to other topics are written."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from kafkalog.wire.error_codes import ErrorCode

__all__ = ["LetterTopics", "Outcome"]

CREATIONS_MAX = 16
"""Topics that are created at the same time, each by a thread; others wait for one of them."""

Outcome = ErrorCode | Exception
"""The code of a creation, or why there is none."""
Told = Callable[[Outcome], None]


class LetterTopics:
    """Topics in creation, each once.  Safe to use from many threads; ended by `stop`."""

    def __init__(self, create: Callable[[str], ErrorCode], name: str) -> None:
        """`create`: creates a topic, and may take as long as a controller does; `name`: of the
        threads."""
        self._create = create
        self._name = name
        self._lock = threading.Lock()  # guards what follows
        self._told: dict[str, list[Told]] = {}
        """Those that wait for a topic."""
        self._waiting: deque[str] = deque()
        """Topics for which there is no thread yet."""
        self._threads: set[threading.Thread] = set()
        self._stopped = False

    def create(self, topic: str, told: Told) -> None:
        """Create a topic, unless that has begun; `told` gets the outcome, in another thread, or
        never after `stop`."""
        with self._lock:
            if self._stopped:
                return
            if topic in self._told:
                self._told[topic].append(told)
                return
            self._told[topic] = [told]
            self._waiting.append(topic)
            if len(self._threads) >= CREATIONS_MAX:
                return
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started now
                if self._threads:
                    return  # one of these will do it
                self._waiting.remove(topic)
                del self._told[topic]
            else:
                self._threads.add(thread)
                return
        told(ErrorCode.REQUEST_TIMED_OUT)

    def stop(self) -> None:
        """Begin no more, and wait for those that have begun."""
        with self._lock:
            self._stopped = True
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        """A thread: it ends once there is nothing to create."""
        while (topic := self._next()) is not None:
            outcome: Outcome
            try:
                outcome = self._create(topic)
            except Exception as problem:
                outcome = problem
            with self._lock:
                told = self._told.pop(topic)
            for one in told:
                one(outcome)

    def _next(self) -> str | None:
        with self._lock:
            if self._waiting and not self._stopped:
                return self._waiting.popleft()
            self._threads.discard(threading.current_thread())
            return None
