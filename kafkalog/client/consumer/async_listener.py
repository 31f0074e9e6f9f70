"""A listener of asyncio, for which the consumer's own thread waits, and the calls it makes."""

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
"""How often the loop is looked at: one that has ended awaits nothing any more."""
_now: ContextVar[Visit | None] = ContextVar("kafkalog_visit", default=None)


class Visit:
    """One call of a listener.  Its calls of the consumer are made by the thread that waits for it:
    behind others' calls they would wait for themselves."""

    def __init__(self, owner: object) -> None:
        """`owner`: whose thread it is."""
        self.owner = owner
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()  # guards the end
        self._over = False

    def submit(self, call: Callable[[], Any]) -> Future[Any] | None:
        """What a call returns that the thread makes now; None: it has gone on.  From any thread."""
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

    def wait(self, loop: asyncio.AbstractEventLoop, told: Awaitable[Any], wait_s: float) -> Any:
        """On the thread: what `told` gives in the loop, in which it is cancelled after `wait_s`.

        Raises: what it raises; Timeout; Closed: the loop has ended.
        """

        async def work() -> Any:
            _now.set(self)
            return await told

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
            if left_s <= 0:
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
    """The call of a listener of this owner in which we are; None: in none."""
    found = _now.get()
    return found if found is not None and found.owner is owner else None
