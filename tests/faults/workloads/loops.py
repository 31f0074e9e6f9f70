"""A client is a thread that starts again after each failure, until it is asked to end."""

from __future__ import annotations

import collections
import threading
import traceback

import kafkalog

END_S = 300.0


class Loop(threading.Thread):
    """Does `turn` again and again."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._end = threading.Event()
        self.lives = 0
        self.failures: collections.Counter[str] = collections.Counter()
        self._broken = ""

    @property
    def ending(self) -> bool:
        return self._end.is_set()

    def turn(self) -> None:
        """One life, until `ending` or a failure."""
        raise AssertionError("a subclass must define this")

    def run(self) -> None:
        while not self.ending:
            self.lives += 1
            try:
                self.turn()
            except (kafkalog.KafkalogError, OSError) as failed:
                self.failures[type(failed).__name__] += 1
                self._end.wait(0.1)
            except BaseException:
                self._broken = traceback.format_exc()
                return

    def pause(self, seconds: float) -> None:
        self._end.wait(seconds)

    def ask_to_end(self) -> None:
        self._end.set()

    def end(self) -> None:
        """Wait for the end; the loop must have no bug of its own.  Raises: AssertionError."""
        self._end.set()
        self.join(END_S)
        assert not self.is_alive(), f"{self.name} does not end"
        assert not self._broken, f"{self.name}: {self._broken}"
