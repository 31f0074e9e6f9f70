"""The share consumer for asyncio: the blocking one on its own thread (see kafkalog.aio)."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from inspect import signature
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from kafkalog import arguments, errors
from kafkalog.client.shares import consumer as _consumer
from kafkalog.client.turns import SLICE_MS, TURN_S, Turns, awaited, signed_as
from kafkalog.types import SharedRecord, TopicPartition

__all__ = ["ShareConsumer"]

T = TypeVar("T")


class _Wait:
    """A poll of the thread, and the await that it is for."""

    def __init__(self) -> None:
        self.wanted = True
        """False once the await was cancelled."""
        self.begun = self.over = False
        self.found: list[SharedRecord] = []
        self.problem: errors.KafkalogError | None = None


class ShareConsumer(Turns):
    """`kafkalog.ShareConsumer` for asyncio.  `async with`, `async for record in consumer`.

    Records that a cancelled await did not get come with the next poll, and are not accepted before.
    `on_acknowledged` is called on the thread.
    """

    Below = _consumer.ShareConsumer

    @signed_as(_consumer.ShareConsumer.__init__)
    def __init__(self, *words: Any, **named: Any) -> None:
        """As kafkalog.ShareConsumer.  Nothing is sent yet."""
        super().__init__(_consumer.ShareConsumer(*words, **named))
        self._below._cluster.openings.apart = True
        self._ended_waits: SimpleQueue[_Wait] = SimpleQueue()
        """Those whose await has got the records, or was cancelled after the poll."""
        self._mutex = threading.Lock()  # guards the next one, and `wanted` and `over` of waits
        self._polling: _Wait | None = None

    # ---- records -----------------------------------------------------------------------

    async def poll(
        self, timeout_ms: float | None = 1_000, max_records: int | None = None
    ) -> list[SharedRecord]:
        """Acquired records, as kafkalog.ShareConsumer.poll.

        If cancelled after it began, the records of the poll before were acknowledged; those of this
        one come with the next.
        """
        if max_records is not None:
            max_records = arguments.whole_number("max_records", max_records, 1)
        return await self._poll(timeout_ms, max_records, eager=True)

    def __aiter__(self) -> ShareConsumer:
        """Records, until the consumer is closed, by this task or another.  If an await for the
        next record is cancelled, the iteration can go on."""
        return self

    async def __anext__(self) -> SharedRecord:
        if self._closing or self._ended:
            raise StopAsyncIteration
        try:
            (record,) = await self._poll(None, 1, eager=False)
        except errors.Closed:
            if self._closing or self._below._closed:
                raise StopAsyncIteration from None
            raise
        return record

    async def _poll(
        self, timeout_ms: float | None, count: int | None, *, eager: bool
    ) -> list[SharedRecord]:
        self._here()
        wait_ms = arguments.wait_ms("timeout_ms", timeout_ms)
        until_s = math.inf if wait_ms is None else time.monotonic() + wait_ms / 1000
        while True:
            if self._closing or self._ended:
                raise errors.Closed("the consumer was closed")
            slice_s = min(until_s, time.monotonic() + SLICE_MS / 1000)
            found = await self._slice(until_s, slice_s, count, eager)
            if found or time.monotonic() >= until_s:
                return found

    async def _slice(
        self, until_s: float, slice_s: float, count: int | None, eager: bool
    ) -> list[SharedRecord]:
        """Records, or none by `slice_s`; if the thread is busy with other calls, by `until_s`."""
        one = _Wait()
        made = self._submit(self._read, one, slice_s, count, eager)
        waiting = asyncio.wrap_future(made)
        turn_s = None if until_s == math.inf else max(TURN_S, until_s - time.monotonic())
        try:
            await asyncio.wait([waiting], timeout=turn_s)
            if not one.begun and made.cancel():
                return []
            await asyncio.shield(waiting)
        except (asyncio.CancelledError, GeneratorExit):
            made.cancel()
            self._give_up(one)
            raise
        self._ended_waits.put(one)
        if one.problem is not None:
            raise one.problem
        return one.found

    def _give_up(self, one: _Wait) -> None:
        """The await of a poll was cancelled."""
        with self._mutex:
            one.wanted = False
            if self._polling is one:
                self._below.wakeup()
            if one.over:
                self._ended_waits.put(one)

    # ---- on the thread -----------------------------------------------------------------

    def _read(self, one: _Wait, until_s: float, count: int | None, eager: bool) -> None:
        self._settle()
        with self._mutex:
            if self._closing or not one.wanted:
                return
            one.begun, self._polling = True, one
        below = self._below
        most = below._config.max_poll_records if count is None else count
        try:
            with below._reads():
                one.found = below._next(max(until_s - time.monotonic(), 0), most, eager=eager)
                below._holding.hide(one.found)
        except errors.WakeUp:
            pass
        except errors.KafkalogError as problem:
            one.problem = problem
        finally:
            with self._mutex:
                self._polling, one.over = None, True
                below._waker.forget()
                if not one.wanted:
                    self._ended_waits.put(one)

    def _settle(self) -> None:
        """Tell the blocking consumer which records have reached a caller."""
        below = self._below
        while True:
            try:
                one = self._ended_waits.get_nowait()
            except Empty:
                return
            if one.wanted:
                below._holding.show(one.found)
                continue
            below._holding.put_back(one.found)
            if one.problem is not None and not isinstance(one.problem, errors.ArgumentError):
                below._state.problem = below._state.problem or one.problem

    def _settled(self, call: Callable[..., T], *words: Any, **named: Any) -> T:
        self._settle()
        return call(*words, **named)

    acknowledge = awaited(_consumer.ShareConsumer.acknowledge, around="_settled")
    client_instance_id = awaited(_consumer.ShareConsumer.client_instance_id)
    commit = awaited(_consumer.ShareConsumer.commit, around="_settled")
    subscribe = awaited(_consumer.ShareConsumer.subscribe)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions whose records it gets now, sorted; other members get some, too."""
        return list(self._below.assignment)

    @property
    def subscription(self) -> list[str]:
        """The subscribed topics."""
        return list(self._below.subscription)

    # ---- the end -----------------------------------------------------------------------

    @signed_as(_consumer.ShareConsumer.close)
    async def close(self, *words: Any, **named: Any) -> None:
        """As kafkalog.ShareConsumer.close.  Polls of other tasks raise Closed, iterations end.

        Raises: as there; Timeout: earlier calls took all of the time.
        """
        given = signature(self._below.close).bind(*words, **named)
        given.apply_defaults()
        limit_ms = arguments.wait_ms("timeout_ms", given.arguments["timeout_ms"])
        await self._close(self._leave, self._limit_ms(None) if limit_ms is None else limit_ms)

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _leave(self, left_ms: float | None) -> None:
        self._settled(self._below.close, left_ms)

    def _hurry(self) -> None:
        with self._mutex:
            if self._polling is not None:
                self._below.wakeup()

    def _interrupt(self) -> None:
        super()._interrupt()
        self._below.wakeup()
