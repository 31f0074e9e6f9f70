"""A blocking client on its own thread, for one event loop after another.

Its calls run one after another, in the order in which they were awaited.  The time limit of each
counts from its await, so that what waits for a silent broker waits together and not in turn; and
so does that of `close`, which then ends all waits at once.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from inspect import signature
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from kafkalog import errors
from kafkalog.client.consumer.async_listener import visiting
from kafkalog.client.link.not_copied import Handle

__all__ = ["SLICE_MS", "TURN_S", "Turns", "awaited", "signed_as"]

T = TypeVar("T")
P = ParamSpec("P")
Self = TypeVar("Self", bound="Turns")
SLICE_MS = 1_000
"""The longest single wait for records on the thread: an unlimited wait is many of these, so that no
thread is left in one."""
TURN_S = 0.05
"""The least time that a poll waits for the thread to begin it."""


class Turns(Handle):
    """Makes the calls of a blocking object, which no other thread uses."""

    Below: ClassVar[Any]
    """The class of the blocking object."""

    def __init__(self, below: Any) -> None:
        self._below = below
        name = self.Below.__name__.lower()
        self._thread = ThreadPoolExecutor(1, f"kafkalog-aio-{name}")
        self._lock = threading.Lock()  # guards the end
        self._closing = self._ended = self._cut = False
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop
        """The event loop of the last call."""

    # ---- calls -------------------------------------------------------------------------

    async def _run(self, call: Callable[..., T], *words: Any, **named: Any) -> T:
        """Make a blocking call on the thread; its result."""
        return await asyncio.wrap_future(self._submit(call, *words, **named))

    def _here(self) -> None:
        if self._pid != os.getpid():  # the thread is the parent's
            kind = f"aio.{type(self).__name__}"
            raise errors.ForkedHandle(f"this {kind} belongs to the parent process: make another")

    def _submit(self, call: Callable[..., T], *words: Any, **named: Any) -> Future[T]:
        self._here()
        self._loop = asyncio.get_running_loop()
        visit = visiting(self)
        made = None if visit is None else visit.submit(partial(call, *words, **named))
        if made is not None:
            return made
        with self._lock:
            if not self._ended:
                return self._thread.submit(call, *words, **named)
        return _now(call, *words, **named)  # the call reports that it is closed

    async def _whole(self, call: Callable[..., T], *words: Any, **named: Any) -> T:
        """As `_run`; but once awaited the call completes, even if the await is cancelled."""
        return await asyncio.shield(asyncio.wrap_future(self._submit(call, *words, **named)))

    def _limit_ms(self, given: Any) -> float | None:
        """The time limit of a call with this `timeout_ms`; None: it has none."""
        if given is None:
            return float(self._below._cluster.options.api_timeout_ms)
        return given if type(given) in (int, float) and given > 0 else None

    # ---- the end -----------------------------------------------------------------------

    def _gone(self) -> bool:
        """True if there is nothing to close; a forked child only marks it closed."""
        self._ended = self._ended or self._pid != os.getpid()
        return self._ended

    async def _close(self, call: Callable[[float | None], object], limit_ms: float | None) -> None:
        """Close the object in its turn; `call` gets the milliseconds that are left of `limit_ms`.
        When they are over, whatever waits ends.  Completes even if the await is cancelled."""
        if self._gone():
            return
        until_s = None if limit_ms is None else time.monotonic() + limit_ms / 1000
        self._closing = True
        timer = None
        if limit_ms is not None:
            timer = threading.Timer(min(limit_ms / 1000, threading.TIMEOUT_MAX), self._cut_off)
            timer.name, timer.daemon = "kafkalog-aio-close", True
            timer.start()
        self._hurry()
        await self._whole(self._end, call, until_s, timer)

    def _end(
        self,
        call: Callable[[float | None], object],
        until_s: float | None,
        timer: threading.Timer | None,
    ) -> None:
        """On the thread: close the object, and end the thread."""
        if timer is not None:
            timer.cancel()
        try:
            call(None if until_s is None else max(until_s - time.monotonic(), 0) * 1000)
        except errors.KafkalogError as problem:
            if self._cut:
                message = "close: earlier calls took all of its time, and were ended"
                raise errors.Timeout(message) from problem
            raise
        finally:
            with self._lock:
                self._ended = True
            self._thread.shutdown(wait=False)

    def _cut_off(self) -> None:
        self._cut = True
        self._interrupt()

    def _hurry(self) -> None:
        """`close` has begun: end waits that it need not wait for."""

    def _interrupt(self) -> None:
        """End all waits, now and later: nothing is asked of brokers any more.  In a thread of its
        own."""
        self._below._cluster.openings.interrupt()

    async def __aenter__(self: Self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"aio.{self._below!r}"


def _now(call: Callable[..., T], *words: Any, **named: Any) -> Future[T]:
    made: Future[T] = Future()
    try:
        made.set_result(call(*words, **named))
    except Exception as problem:
        made.set_exception(problem)
    return made


def awaited(
    method: Callable[Concatenate[Any, P], T], around: str = ""
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A blocking method as one that is awaited; `around`: the name of a method that makes the
    call."""
    wanted = signature(method)
    timed = "timeout_ms" in wanted.parameters

    @wraps(method)
    async def call(self: Any, /, *words: P.args, **named: P.kwargs) -> T:
        below: Callable[..., T] = getattr(self._below, method.__name__)
        if timed:
            below = _within(self, below, wanted.bind(self, *words, **named).arguments)
        if around:
            below = partial(getattr(self, around), below)
        found: T = await self._run(below, *words, **named)
        return found

    return call


def _within(self: Any, below: Callable[..., T], given: dict[str, Any]) -> Callable[..., T]:
    """The call with what is left of its time limit when its turn comes."""
    limit_ms = self._limit_ms(given.get("timeout_ms"))
    if limit_ms is None:  # or an argument that the call refuses
        return below
    until_s = time.monotonic() + limit_ms / 1000

    def call(*words: Any, **named: Any) -> T:
        left_ms = round((until_s - time.monotonic()) * 1000)
        if left_ms <= 0:
            raise errors.Timeout(
                f"{below.__name__}: earlier calls took all of its {limit_ms:g} ms: it was not made"
            )
        bound = signature(below).bind(*words, **named)
        bound.arguments["timeout_ms"] = left_ms
        return below(*bound.args, **bound.kwargs)

    return call


def signed_as(
    below: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Give a method the parameters of the blocking one; it keeps its own result type."""

    def give(method: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        method.__signature__ = signature(below)  # type: ignore[attr-defined]
        return method

    return give
