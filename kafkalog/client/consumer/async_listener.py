"""An asyncio listener that the consumer's own thread waits for, and the calls that it makes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Any

from kafkalog import errors

__all__ = ["Visit", "visiting"]

LOOK_S = 1.0
"""How often the loop is checked: one that has ended awaits nothing any more."""
_now: ContextVar[Visit | None] = ContextVar("kafkalog_visit", default=None)


class Visit:
    """One call of a listener.  The waiting thread makes the calls of the consumer in the listener:
    queued after other calls they would deadlock."""

    def __init__(self, owner: object) -> None:
        """`owner`: the consumer."""
        self.owner = owner
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()  # guards the end
        self._over = self._cut = False

    def cut(self) -> None:
        """Wait no more: the time of the call is over.  From any thread."""
        self._cut = True
        self._calls.put(None)

    def submit(self, call: Callable[[], Any]) -> Future[Any] | None:
        """The result of a call that the thread makes; None: it waits no more.  From any thread."""
        made: Future[Any] = Future()

        def run() -> None:
            if made.set_running_or_notify_cancel():
                try:
                    made.set_result(call())
                except BaseException as problem:
                    made.set_exception(problem)

        with self._lock:
            if self._over:
                return None
            self._calls.put(run)
        return made

    def wait(
        self, loop: asyncio.AbstractEventLoop, awaitable: Awaitable[Any], wait_s: float
    ) -> Any:
        """On the thread: await `awaitable` in the loop, and cancel it after `wait_s`; its result.

        Raises: what `awaitable` raises; Timeout; Closed: the loop has ended.
        """

        async def work() -> Any:
            _now.set(self)
            return await awaitable

        coroutine = work()
        try:
            task = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError as problem:  # closed
            coroutine.close()
            raise errors.Closed(f"a listener cannot be awaited: {problem}") from None
        task.add_done_callback(lambda _: self._calls.put(None))
        try:
            self._serve(task, loop, time.monotonic() + wait_s)
        except TimeoutError:
            task.cancel()
            raise errors.Timeout(
                f"a listener has not ended in max_poll_interval_ms ({wait_s * 1000:g} ms): it was "
                "cancelled"
            ) from None
        finally:
            self._end()
        return task.result()

    def _serve(self, task: Future[Any], loop: asyncio.AbstractEventLoop, until_s: float) -> None:
        """Raises: TimeoutError; Closed."""
        while not task.done():
            left_s = until_s - time.monotonic()
            if left_s <= 0 or self._cut:
                raise TimeoutError
            try:
                call = self._calls.get(timeout=min(left_s, LOOK_S))
            except Empty:
                if not loop.is_running():
                    raise errors.Closed("a listener was not awaited: its loop has ended") from None
                continue
            if call is not None:
                call()

    def _end(self) -> None:
        with self._lock:
            self._over = True
        while not self._calls.empty():
            if (call := self._calls.get()) is not None:
                call()


def visiting(owner: object) -> Visit | None:
    """The listener call of this owner that is running here; None: there is none."""
    found = _now.get()
    return found if found is not None and found.owner is owner else None
