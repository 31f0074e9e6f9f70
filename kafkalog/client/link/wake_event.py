"""Ends the wait of one thread, from any other."""

from __future__ import annotations

import os
import threading

from kafkalog.system import Wake

__all__ = ["Bell"]


class Bell:
    """One thread sleeps with it; any thread may ring, even after the end."""

    def __init__(self) -> None:
        self._wake = Wake()
        self._lock = threading.RLock()  # guards the end; a signal may ring within a ring
        self._pid = os.getpid()
        self._asleep = False
        self.rung = False
        """Since the last sleep."""

    def fileno(self) -> int:
        """For poll: readable when it rang during a sleep."""
        return self._wake.read_fd

    def ring(self) -> None:
        """Wake the thread: there is something to do."""
        self.rung = True
        if self._asleep and self._pid == os.getpid():
            self._asleep = False
            with self._lock:
                # After the end its descriptor may be another file's.
                if self._wake.write_fd >= 0:
                    self._wake.ring()

    def sleep(self) -> bool:
        """Begin a sleep, which rings end from now on; returns whether one came before."""
        self._asleep = True
        return self.rung

    def awake(self) -> None:
        """The sleep is over."""
        self._asleep = self.rung = False

    def heard(self) -> None:
        """Consume the ring that made it readable."""
        self._wake.clear()

    def close(self) -> None:
        """No thread sleeps any more."""
        with self._lock:
            self._wake.close()
