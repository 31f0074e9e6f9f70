"""Forwards requests to the controller in threads of their own: the I/O threads continue if the
controller is silent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalog.errors import Timeout
from kafkalog.server.threads.serial_executor import SerialExecutor
from kafkalog.wire.api import Api

if TYPE_CHECKING:
    from kafkalog.replication.membership import Membership

__all__ = ["ControllerForwarder", "Send"]

WAITING_MAX = 1_000
WAITING_BYTES_MAX = 67_108_864
"""Clients' requests that may wait for a silent controller, and what they may take, decoded; once
they do, any more get a retriable error."""
Send = Callable[[Api, Any, int | None], Any]
"""Sends a request to the controller, in at most this version; returns its response."""


class ControllerForwarder:
    """Two threads, each with its own connection to the controller: a client's request waits for
    earlier clients' requests, but never delays this node's own."""

    def __init__(self, member: Membership, name: str) -> None:
        """`name`: the threads', which start immediately."""
        self._member = member
        self._line = member.controller_connection()
        self._clients = SerialExecutor(f"{name} forwarder")
        self._own = SerialExecutor(f"{name} own requests")
        self._lock = threading.Lock()  # guards what follows
        self._waiting_bytes = 0

    def stop(self) -> None:
        """Stop; requests that the controller has not answered are abandoned."""
        self._line.close()
        self._member.close_controller_connection()
        self._clients.stop()
        self._own.stop()

    def forward(self, work: Callable[[Send], None], size: int) -> None:
        """Run `work`, which sends a client's request, in its turn; `work` handles its own failures.
        `size`: the memory of its request, in bytes.

        Raises: Timeout: too many wait.
        """
        with self._lock:
            waiting, full = self._clients.waiting, self._waiting_bytes >= WAITING_BYTES_MAX
            if waiting >= WAITING_MAX or full:
                raise Timeout(f"the controller does not answer: {waiting} requests wait for it, of "
                              f"{self._waiting_bytes} bytes")  # fmt: skip
            self._waiting_bytes += size

        def run() -> None:
            try:
                work(self._line.ask)
            finally:
                with self._lock:
                    self._waiting_bytes -= size

        self._clients.submit(run)

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work`, which sends a request of this node's own, in its turn."""
        self._own.submit(work)
