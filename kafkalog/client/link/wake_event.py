"""Ends the wait of one thread, from any other."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

__all__ = ["Bell"]


class Bell:
    """One thread sleeps with it; any thread may ring, even after the end."""

    def __init__(self) -> None:
        self._number = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.RLock()  # guards the end; a signal may ring within a ring
        self._pid = os.getpid()
        self._asleep = False
        self.rung = False
        """Since the last sleep."""

    def fileno(self) -> int:
        """For poll: readable when it rang during a sleep."""
        return self._number

    def ring(self) -> None:
        """Wake the thread: there is something to do."""
        self.rung = True
        if self._asleep and self._pid == os.getpid():
            self._asleep = False
            with self._lock:
                # After the end its descriptor may be another file's.
                if self._number >= 0:
                    os.eventfd_write(self._number, 1)

    def sleep(self) -> bool:
        """Begin a sleep, which rings end from now on; returns whether one came before."""
        self._asleep = True
        return self.rung

    def awake(self) -> None:
        """The sleep is over."""
        self._asleep = self.rung = False

    def heard(self) -> None:
        """Consume the ring that made it readable."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._number)

    def close(self) -> None:
        """No thread sleeps any more."""
        with self._lock:
            number, self._number = self._number, -1
            if number >= 0:
                os.close(number)
