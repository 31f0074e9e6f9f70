"""What ends the wait of one thread, whoever rings."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

__all__ = ["Bell"]


class Bell:
    """One thread sleeps with it; any thread rings, also after the end."""

    def __init__(self) -> None:
        self._number = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.RLock()  # guards the end; a signal may ring within a ring
        self._pid = os.getpid()
        self._asleep = False
        self.rung = False
        """Since the last sleep."""

    def fileno(self) -> int:
        """For poll: readable when it rang in a sleep."""
        return self._number

    def ring(self) -> None:
        """There is something to do."""
        self.rung = True
        if self._asleep and self._pid == os.getpid():
            self._asleep = False
            with self._lock:
                # Its number may be another file's by the end.
                if self._number >= 0:
                    os.eventfd_write(self._number, 1)

    def sleep(self) -> bool:
        """From now on a ring has to be heard; whether there was one before."""
        self._asleep = True
        return self.rung

    def awake(self) -> None:
        """The sleep is over."""
        self._asleep = self.rung = False

    def heard(self) -> None:
        """Take the ring that made it readable."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._number)

    def close(self) -> None:
        """Nobody sleeps any more."""
        with self._lock:
            number, self._number = self._number, -1
            if number >= 0:
                os.close(number)
