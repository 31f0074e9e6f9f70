"""A cluster for many threads, one call at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kafkalog import arguments, errors
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.not_copied import Handle

__all__ = ["Locked"]

T = TypeVar("T")
Self = TypeVar("Self", bound="Locked")


class Locked(Handle):
    """Makes calls to its cluster under a lock, until it is closed.  A context manager."""

    def __init__(self, cluster: Cluster) -> None:
        """`cluster` belongs to this object from now on."""
        self._cluster = cluster
        self._lock = threading.RLock()  # held through a call: a cluster is for one thread
        self._closed = False
        self._pid = os.getpid()
        cluster.transport.attach(self)

    def _ask(
        self, call: Callable[..., T], *words: Any, timeout_ms: int | None = None, **named: Any
    ) -> T:
        """The result of `call` for the cluster.  It takes at most `timeout_ms` (None:
        default.api.timeout.ms), with the wait for other threads' calls."""
        kind = type(self).__name__
        if self._pid != os.getpid():
            raise errors.ForkedHandle(f"this {kind} belongs to the parent process: make another")
        patience_ms = arguments.patience("timeout_ms", timeout_ms)
        if patience_ms is None:
            patience_ms = self._cluster.options.api_timeout_ms
        until_s = time.monotonic() + patience_ms / 1000
        if not self._lock.acquire(timeout=min(patience_ms / 1000, threading.TIMEOUT_MAX)):
            raise errors.Timeout(f"this {kind} was used by other threads for {patience_ms} ms")
        try:
            if self._closed:
                raise errors.Closed(f"this {kind} is closed")
            with self._cluster.within((until_s - time.monotonic()) * 1000):
                self._begins()
                found = call(self._cluster, *words, **named)
            self._called()
            return found
        finally:
            self._lock.release()

    def _begins(self) -> None:
        """A call begins; the lock is held."""

    def _called(self) -> None:
        """A call has succeeded; the lock is held."""

    def __repr__(self) -> str:
        servers = ",".join(map(str, self._cluster.servers))
        return f"{type(self).__name__}({servers!r}{', closed' if self._closed else ''})"

    @property
    def closed(self) -> bool:
        """True if it was closed."""
        return self._closed

    def close(self) -> None:
        """Close the connections, after a call of another thread has ended.  Idempotent; a forked
        child only marks it closed."""
        if self._pid != os.getpid():
            self._closed = True
            return
        with self._lock:
            self._closed = True
            self._cluster.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
