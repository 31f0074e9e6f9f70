"""Waits for answers; another thread can end the wait."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress

from kafkalog import errors
from kafkalog.client.link.connection import Connection

__all__ = ["Waker"]


LONGEST_S = 86_400.0
"""The longest single wait, after which callers check again: poll accepts at most 24 days."""


class Waker:
    """One thread waits; any thread can end the wait."""

    def __init__(self) -> None:
        self._rung, self._bell = socket.socketpair()
        self._rung.setblocking(False)
        self._bell.setblocking(False)
        self._woken = False
        self._pid = os.getpid()
        self._lock = threading.RLock()  # guards the end; a signal may nudge within a nudge

    def nudge(self) -> None:
        """End the wait, now or the next one, as if nothing had arrived."""
        # A descriptor that is closed during the write may be another file's.
        with self._lock, suppress(OSError):  # full: the wait ends anyway; closed: none waits
            self._bell.send(b"\0")

    def wakeup(self) -> None:
        """End the wait, now or the next one, with WakeUp."""
        self._woken = True
        self.nudge()

    def forget(self) -> None:
        """Waits are not ended by earlier calls of `wakeup`."""
        self._woken = False

    def check(self) -> None:
        """Raises: WakeUp: `wakeup` was called since the last check."""
        if self._woken:
            self._woken = False
            raise errors.WakeUp("wakeup was called")

    def wait(self, connections: Iterable[Connection], wait_s: float) -> list[Connection]:
        """The connections where an answer, or the end, has begun to arrive, or unsent bytes can be
        sent; none after `wait_s`, or a nudge.

        Raises: WakeUp.
        """
        self.check()
        poll = select.poll()
        found, by_number = [], {}
        for connection in connections:
            if connection.closed or connection.decrypted:
                found.append(connection)
            else:
                by_number[connection.fileno()] = connection
        poll.register(self._rung.fileno(), select.POLLIN)
        for number, connection in by_number.items():
            poll.register(number, select.POLLIN | (select.POLLOUT if connection.unsent else 0))
        wait_s = 0 if found else min(max(wait_s, 0), LONGEST_S)
        for number, _ in poll.poll(wait_s * 1000):
            if number in by_number:
                found.append(by_number[number])
            else:
                with suppress(BlockingIOError):
                    self._rung.recv(4096)
        self.check()
        return found

    def close(self) -> None:
        """No thread waits any more."""
        if os.getpid() != self._pid:  # a child: a thread that held it at the fork is gone
            self._lock = threading.RLock()
        with self._lock:
            self._rung.close()
            self._bell.close()
