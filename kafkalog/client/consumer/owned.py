"""An object that one thread at a time uses, in the process that made it, until it is closed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kafkalog import arguments, errors
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.not_copied import Handle

__all__ = ["Owned"]


class Owned(Handle):
    """The guards of a consumer's methods."""

    _cluster: Cluster
    _pid: int
    _lock: threading.RLock
    _closed: bool

    @contextmanager
    def _used(self, timeout_ms: float | None = None) -> Iterator[None]:
        """Used by one thread, not closed and not forked; `timeout_ms` None:
        default.api.timeout.ms."""
        wait_ms = arguments.wait_ms("timeout_ms", timeout_ms)
        if wait_ms is None:
            wait_ms = self._cluster.options.api_timeout_ms
        with self._own(), self._cluster.patience.whole(wait_ms / 1000):
            yield

    def _here(self) -> None:
        """Raises: ForkedHandle.  Before any lock: a thread that the child lacks may hold it."""
        if os.getpid() != self._pid:
            raise errors.ForkedHandle("the consumer belongs to the parent process: make another")

    @contextmanager
    def _own(self) -> Iterator[None]:
        self._here()
        if not self._lock.acquire(blocking=False):
            raise errors.WrongThread(
                "another thread is using the consumer: only wakeup may be called at the same time"
            )
        try:
            if self._closed:
                raise errors.Closed("the consumer was closed")
            yield
        finally:
            self._lock.release()
