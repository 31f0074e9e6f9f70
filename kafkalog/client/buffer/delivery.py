"""The outcome of records: the batch that they share, and the future that the application holds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog import errors
from kafkalog._native import direct
from kafkalog.arguments import called
from kafkalog.client.callbacks import logged
from kafkalog.types import TopicPartition

__all__ = [
    "SEQUENCES",
    "Batch",
    "Delivery",
    "Future",
    "ManyFuture",
    "RecordMetadata",
    "SendOptions",
    "SentRange",
]

SEQUENCES = 1 << 31
"""The number of sequence numbers: after the last one comes 0."""
_counts, _part = direct("growing_told"), direct("growing_part")


class RecordMetadata(NamedTuple):
    """A record's topic, partition, offset and timestamp."""

    topic: str
    partition: int
    offset: int
    """-1: unknown (acks 0)."""
    timestamp_ms: int
    """The record's own, or the log's if the topic sets it."""


class Delivery(NamedTuple):
    """A batch that was acknowledged, or with acks 0 sent."""

    tp: TopicPartition
    base_offset: int
    """-1: unknown."""
    count: int  # type: ignore[assignment]  # a tuple's count() is of no use here
    record_bytes: int
    """Bytes of keys and values."""
    latency_ms: float
    """From its first attempt to its acknowledgement."""

    @property
    def seconds(self) -> float:
        """`latency_ms` in seconds, its older name."""
        return self.latency_ms / 1000


class SendOptions(NamedTuple):
    """How batches are sent."""

    acks: int
    codec: int
    level: int | None
    """The codec's; None: it has none."""
    in_flight: int
    request_bytes: int
    delivery_s: float
    retries: int
    metadata_s: float
    metadata_idle_s: float
    adaptive: bool
    """Records without a key go to partitions where less waits."""
    availability_s: float
    """A leader that accepts nothing for this long gets no records without a key; 0: never."""


class SentRange(NamedTuple):
    """Records of a `send_many` in one batch, perhaps with others between them."""

    topic: str
    partition: int
    first_offset: int
    """-1: unknown (acks 0)."""
    last_offset: int


class Batch:
    """Records of one partition; filled by application threads, ended by the sender thread."""

    __slots__ = (
        "__weakref__", "_callbacks", "_ended", "_lock", "_waiters", "attempts", "base_offset",
        "begun_s", "count", "data", "doubtful", "error", "first_sent_s", "hurry", "log_append_ms",
        "memory", "number", "owner", "parts", "pid", "posted", "record_bytes", "reserved",
        "sequence", "tp", "whole",
    )  # fmt: skip

    def __init__(self, owner: Any, tp: TopicPartition, memory: Any, number: int) -> None:
        """`owner`: the accumulator; `memory`: the C side's."""
        self.owner = owner
        self.tp = tp
        self.memory = memory
        self.number = number
        """Ascending in the order in which batches were made."""
        self.begun_s = time.monotonic()
        self.reserved = 0
        """Bytes reserved of the producer's buffer."""
        self.count = 0
        """Set, with what follows, when the batch takes no more records."""
        self.record_bytes = 0
        self.data: bytes | memoryview | None = None
        """The bytes to send; None: not sealed yet for the current producer id."""
        self.pid = (-1, -1)
        """Producer id and epoch in `data`."""
        self.sequence = -1
        self.parts: tuple[Batch, Batch] | None = None
        """The two batches that are sent instead: it ends with them."""
        self.whole: Batch | None = None
        """The batch that this is a part of."""
        self.attempts = 0
        self.posted = False
        """True if it was ever sent."""
        self.doubtful = False
        """True if an attempt may have stored it without an acknowledgement."""
        self.hurry = False
        """A thread waits for it: no linger."""
        self.first_sent_s = 0.0
        self.base_offset = -1
        self.log_append_ms = -1
        self.error: errors.KafkalogError | None = None
        self._ended = False
        self._lock: threading.Condition | None = None
        self._callbacks: list[Callable[[], object]] | None = None
        self._waiters: dict[tuple[Any, Any], None] | None = None
        """Futures and their waiters, as in concurrent.futures."""

    @property
    def ended(self) -> bool:
        """True if its outcome is known."""
        return self._ended

    @property
    def size(self) -> int:
        """Its bytes now, before compression."""
        found: int = _counts(self.memory)[1]
        return found

    @property
    def records(self) -> int:
        """The number of records in it now."""
        return self.count or (int(_counts(self.memory)[0]) if self.memory is not None else 0)

    @property
    def sent(self) -> bool:
        """True if it was sent, on its own or as part of another: its sequence is used up."""
        return self.first_sent_s > 0

    def split(self) -> tuple[Batch, Batch]:
        """Its records as two batches, which keep its sequences; nothing may be added any more."""
        half = self.count // 2
        made = []
        for first, count in ((0, half), (half, self.count - half)):
            part = Batch(self.owner, self.tp, _part(self.memory, first, count), self.number + first)
            part.freeze()
            part.begun_s, part.first_sent_s = self.begun_s, self.first_sent_s
            part.attempts = self.attempts - 1  # the one that was too large does not count
            part.pid, part.hurry, part.whole = self.pid, True, self
            part.doubtful = self.doubtful
            if self.sequence >= 0:
                part.sequence = (self.sequence + first) % SEQUENCES
            made.append(part)
        first_part, second_part = made
        first_part.reserved = self.reserved // 2
        second_part.reserved = self.reserved - first_part.reserved
        self.reserved = 0
        self.parts = first_part, second_part
        self.memory = self.data = None
        return self.parts

    def pieces(self, first: int, last: int) -> list[tuple[Batch, int, int]]:
        """The batches that its records were sent in, and which of theirs they are."""
        if self.parts is None:
            return [(self, first, last)]
        one, other = self.parts
        found = one.pieces(first, min(last, one.count - 1)) if first < one.count else []
        if last >= one.count:
            found += other.pieces(max(first - one.count, 0), last - one.count)
        return found

    def freeze(self) -> None:
        """Take no more records."""
        self.count, _, self.record_bytes = _counts(self.memory)

    def end(self, error: errors.KafkalogError | None, base_offset: int = -1) -> None:
        """Set the outcome: wake the waiting threads, call the callbacks."""
        with _guard:
            _guard.wait_for(lambda: not _looking.count)
            if self._ended:
                return
            self.error = error
            self.base_offset = base_offset
            self._ended = True
            self.memory = self.data = None
            callbacks, self._callbacks = self._callbacks, None
            waiters, self._waiters = self._waiters, None
            lock, whole = self._lock, self.whole
        # First the whole: a thread that waited for all parts must find it ended, too.
        if whole is not None and whole.parts and all(part.ended for part in whole.parts):
            whole.end(whole.parts[0].error or whole.parts[1].error, whole.parts[0].base_offset)
            self.whole = None
        if lock is not None:
            with lock:
                lock.notify_all()
        for callback in callbacks or ():
            with logged("a callback of a delivery", own_thread=True):
                callback()
        for future, waiter in waiters or ():
            _tell(waiter, future)

    def wait(self, timeout: float | None) -> bool:
        """Wait until it has ended; False: it has not within `timeout` seconds."""
        if self._ended:
            return True
        with _guard:
            if self._lock is None:
                self._lock = threading.Condition()
        self.owner.hurry(self)
        with self._lock:
            return self._lock.wait_for(lambda: self._ended, timeout)

    def then(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the batch has ended, perhaps at once.  Raises: ForkedHandle."""
        with _guard:
            if not self._ended:
                self.owner.here()
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        _call(callback)

    def add_waiter(self, future: Future, waiter: Any) -> None:
        """Notify `waiter` of this future once the batch has ended, but not if it has already.
        Raises: ForkedHandle."""
        with _guard:
            if not self._ended:
                self.owner.here()
                self._waiters = self._waiters or {}
                self._waiters[future, waiter] = None

    def remove_waiter(self, future: Future, waiter: Any) -> None:
        """Remove a waiter."""
        with _guard:
            if self._waiters:
                self._waiters.pop((future, waiter), None)


_guard = threading.Condition(threading.RLock())
"""Guards the end of every batch; held for a moment."""


class _Looking:
    """The condition of every future, as concurrent.futures expects one: while a thread holds it, no
    batch ends.  Any number of threads may hold it: a thread may hold the condition of an executor's
    future at the same time, and must not wait for another one here."""

    def __init__(self) -> None:
        self.count = 0

    def acquire(self) -> bool:
        with _guard:
            self.count += 1
        return True

    def release(self) -> None:
        with _guard:
            self.count -= 1
            if not self.count:
                _guard.notify_all()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


_looking = _Looking()


def _new_guard() -> None:
    global _guard, _looking
    _guard = threading.Condition(threading.RLock())
    _looking = _Looking()


os.register_at_fork(after_in_child=_new_guard)


def _call(callback: Callable[[], object]) -> None:
    """In the thread that asks."""
    with logged("a callback of a delivery"):
        callback()


def _tell(waiter: Any, future: Any) -> None:
    """Notify a waiter of concurrent.futures of a future's outcome."""
    if future.exception() is None:
        waiter.add_result(future)
    else:
        waiter.add_exception(future)


class _Waiters:
    """The waiters of a future; to concurrent.futures they look like a list."""

    __slots__ = ("_future",)

    def __init__(self, future: Any) -> None:
        self._future = future

    def append(self, waiter: Any) -> None:
        """Add a waiter, which is notified once the outcome is known."""
        self._future.add_waiter(waiter)

    def remove(self, waiter: Any) -> None:
        """Remove a waiter."""
        self._future.remove_waiter(waiter)


def _snapshot(self: Any) -> tuple[bool, bool, Any, BaseException | None]:
    """(done, cancelled, result, exception), as asyncio asks since CPython 3.15."""
    if not self.done():
        return False, False, None, None
    problem = self.exception()
    return True, False, None if problem else self.result(), problem


class Future:
    """The outcome of one record, now or later.  Safe to use from many threads.

    `concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future` take it.  Unlike `result`,
    they do not hurry its batch.
    """

    # There is one per record, so it has no state of a concurrent.futures.Future: it passes for one
    # by its class, as isinstance sees it, and by the attributes that those functions read.
    if not TYPE_CHECKING:
        _stands_for = futures.Future  # C's __class__
        _condition = property(lambda self: _looking)
        _waiters = property(_Waiters)
        _state = property(lambda self: "FINISHED" if self._batch.ended else "RUNNING")
        _get_snapshot = _snapshot

    if TYPE_CHECKING:
        _batch: Batch
        _timestamp_ms: int
        _index: int

    def done(self) -> bool:
        """True if the outcome is known."""
        return self._batch.ended

    def running(self) -> bool:
        """True if the outcome is not known yet."""
        return not self._batch.ended

    def cancel(self) -> bool:
        """False: a queued record cannot be taken back."""
        return False

    def cancelled(self) -> bool:
        """False."""
        return False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The record's partition and offset; waits, at most `timeout` seconds.

        Raises: Timeout (not known yet); the record's failure.
        """
        batch = self._batch
        if not batch.ended and not batch.wait(timeout):
            raise errors.Timeout(f"{_name(batch.tp)}: not acknowledged in {timeout:g} s")
        ((batch, index, _),) = batch.pieces(self._index, self._index)
        if batch.error is not None:
            raise batch.error
        offset = batch.base_offset
        return RecordMetadata(
            *batch.tp,
            offset if offset < 0 else offset + index,
            self._timestamp_ms if batch.log_append_ms < 0 else batch.log_append_ms,
        )

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The record's failure; None: it was taken.  Raises: Timeout."""
        batch = self._batch
        if not batch.ended and not batch.wait(timeout):
            raise errors.Timeout(f"{_name(batch.tp)}: not acknowledged in {timeout:g} s")
        ((batch, _, _),) = batch.pieces(self._index, self._index)
        return batch.error

    def add_done_callback(self, callback: Callable[[Future], object]) -> None:
        """Call `callback` with this future when it is done: at once, or in the producer's thread,
        which sends nothing until it returns.  Exceptions that it raises are logged, in that thread
        SystemExit and KeyboardInterrupt, too.

        Raises: ArgumentError: it is async.
        """
        called("callback", callback)
        self._batch.then(lambda: callback(self))

    def add_waiter(self, waiter: Any) -> None:
        """Notify `waiter` once this is done, but not if it is done already: for
        concurrent.futures."""
        self._batch.add_waiter(self, waiter)

    def remove_waiter(self, waiter: Any) -> None:
        """Remove a waiter."""
        self._batch.remove_waiter(self, waiter)

    @property
    def partition(self) -> int:
        """The record's partition."""
        return self._batch.tp.partition

    def __repr__(self) -> str:
        state = "waits" if not self.done() else "failed" if self.exception() else "done"
        return f"Future({_name(self._batch.tp)}, {state})"


if not TYPE_CHECKING:
    # C's own class gets the methods: for each object of a class made in Python, of which there is
    # one per record, the garbage collector does work.
    _Ticket = direct("Ticket")
    for _name_of, _value in vars(Future).items():
        if _name_of not in ("__dict__", "__weakref__", "__module__", "__annotations__"):
            setattr(_Ticket, _name_of, _value)
    Future = _Ticket


class ManyFuture:
    """The outcome of the records of one `send_many`; you can wait for it as for a Future."""

    __slots__ = ("_listeners", "_parts")

    if not TYPE_CHECKING:
        __class__ = property(lambda self: futures.Future)
        _condition = property(lambda self: _looking)
        _waiters = property(_Waiters)
        _state = property(lambda self: "FINISHED" if self.done() else "RUNNING")

    def __init__(self, parts: list[tuple[Batch, int, int]]) -> None:
        """`parts`: batches, and the first and last of the records in each."""
        self._parts = parts
        self._listeners: dict[Any, None] | None = None

    def add_waiter(self, waiter: Any) -> None:
        """Notify `waiter` once all are done, but not if they are done already."""
        with _guard:
            if self.done():
                return
            if self._listeners is None:
                self._listeners = {}
                self.add_done_callback(ManyFuture._tell_all)
            self._listeners[waiter] = None

    def remove_waiter(self, waiter: Any) -> None:
        """Remove a waiter."""
        with _guard:
            if self._listeners:
                self._listeners.pop(waiter, None)

    def _tell_all(self) -> None:
        with _guard:
            listeners = list(self._listeners or ())
        for waiter in listeners:
            _tell(waiter, self)

    def done(self) -> bool:
        """True if the outcome of all of them is known."""
        return all(batch.ended for batch, _, _ in self._parts)

    def running(self) -> bool:
        """True if the outcome of some is not known yet."""
        return not self.done()

    def cancel(self) -> bool:
        """False: queued records cannot be taken back."""
        return False

    def cancelled(self) -> bool:
        """False."""
        return False

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The first failure among the records; None: all were taken.  Raises: Timeout."""
        try:
            self.result(timeout)
        except errors.KafkalogError as problem:
            pieces = [one for part in self._parts for one in part[0].pieces(*part[1:])]
            if all(batch.error is not problem for batch, _, _ in pieces):
                raise  # the outcome is not known in time
            return problem
        return None

    _get_snapshot = _snapshot

    def result(self, timeout: float | None = None) -> list[SentRange]:
        """The records' partitions and offsets, batch by batch; waits, at most `timeout` seconds.

        Raises: Timeout (not known yet); the first failure among the records.
        """
        until = None if timeout is None else time.monotonic() + timeout
        for batch, _, _ in self._parts:
            left = None if until is None else max(until - time.monotonic(), 0)
            if not batch.ended and not batch.wait(left):
                raise errors.Timeout(f"{_name(batch.tp)}: not acknowledged in {timeout:g} s")
        pieces = [one for part in self._parts for one in part[0].pieces(*part[1:])]
        for batch, _, _ in pieces:
            if batch.error is not None:
                raise batch.error
        return [
            SentRange(*batch.tp, *((batch.base_offset + first, batch.base_offset + last)
                               if batch.base_offset >= 0 else (-1, -1)))
            for batch, first, last in pieces
        ]  # fmt: skip

    def add_done_callback(self, callback: Callable[[ManyFuture], object]) -> None:
        """As in Future; called once, when all are done."""
        called("callback", callback)
        left = [len(self._parts)]

        def one() -> None:
            with _guard:
                left[0] -= 1
                last = left[0] == 0
            if last:
                callback(self)

        for batch, _, _ in self._parts:
            batch.then(one)
        if not self._parts:
            _call(lambda: callback(self))

    def hurry(self) -> None:
        """Send them now, because another thread waits.  Raises: ArgumentError in a callback."""
        for batch, _, _ in self._parts:
            if not batch.ended:
                batch.owner.hurry(batch)


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
