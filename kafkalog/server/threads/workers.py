"""The I/O threads: each takes a request, has it answered, and takes the next."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kafkalog._native import lib
from kafkalog.errors import KafkalogError
from kafkalog.logs.limit import limited
from kafkalog.server.request import Request
from kafkalog.wire import apis

if TYPE_CHECKING:
    from kafkalog.server.network.raw_request import RawRequest
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.server.threads.serial_executor import SerialExecutor

__all__ = ["Workers"]

_logger = limited(__name__)

TAKE_MS = 1000
"""How long a worker waits for a request before it checks whether to stop."""

LARGE_BYTES = 262_144
"""Requests above this size, except Produce, are answered one at a time: decoded, they may take a
hundred times as much memory."""
LARGE_PRODUCE_BYTES = 4 << 20
"""The same for Produce, most of whose bytes are records that are not decoded."""


class Workers:
    """The I/O threads (num.io.threads): each takes a request, answers it, and takes the next.

    Large requests are left to `bulk`.
    """

    def __init__(
        self,
        reactor: "Reactor",
        route: Callable[[Request], None],
        name: str,
        bulk: "SerialExecutor",
        resolve: Callable[["RawRequest"], None],
    ) -> None:
        """`route` answers a request; if it raises, that request's connection is closed.
        `resolve`: tells C the quotas of a request's client."""
        self._resolve = resolve
        self._reactor = reactor
        self._bulk = bulk
        self._route = route
        self._name = name
        self._threads: dict[int, threading.Thread] = {}
        self._wanted = 0

    def reroute(self, route: Callable[[Request], None]) -> None:
        """Use `route` from the next request on."""
        self._route = route

    def resize(self, count: int) -> None:
        """Run `count` threads: new ones start immediately, surplus ones end after their request."""
        self._wanted = count
        for index in range(count):
            thread = self._threads.get(index)
            if thread is None or not thread.is_alive():
                name = f"{self._name} io {index}"
                thread = threading.Thread(target=self._loop, args=(index,), name=name, daemon=True)
                thread.start()
                self._threads[index] = thread

    def join(self) -> None:
        """Wait for the threads to end, after the reactor was stopped."""
        for thread in self._threads.values():
            thread.join()
        self._threads.clear()

    def _loop(self, index: int) -> None:
        while not self._reactor.stopped and index < self._wanted:
            raw = self._reactor.take(TAKE_MS)
            if raw is None:
                continue
            if raw.not_fast == lib.KL_UP_QUOTA:
                self._tell_quotas(raw)
                continue
            small = LARGE_PRODUCE_BYTES if raw.api_key == apis.PRODUCE.key else LARGE_BYTES
            if raw.body_bytes > small:
                self._bulk.submit(partial(self._large, raw))
            else:
                self._one(Request(self._reactor, raw))

    def _tell_quotas(self, raw: "RawRequest") -> None:
        try:
            self._resolve(raw)
        except Exception:
            _logger.exception("%r: its client's quotas are unknown; it is closed", raw)
            with suppress(KafkalogError):
                raw.drop()

    def _large(self, raw: "RawRequest") -> None:
        if not self._reactor.stopped:
            self._one(Request(self._reactor, raw))

    def _one(self, request: Request) -> None:
        try:
            self._route(request)
        except Exception:
            # One request must not end the thread that serves all others.
            _logger.exception("%r failed; its connection is closed", request)
            with suppress(KafkalogError):  # it may have been answered before it failed
                request.drop()
