"""Producer, Consumer and Admin for asyncio: the blocking classes, each on its own thread.

The event loop never waits for a socket or a lock.  Arguments, results and failures are those of
the blocking calls.  The calls of one object run one after another, in the order in which they
were awaited.  If an await is cancelled before the call's turn, the call is not made; otherwise it
runs to its end in the background.  `Consumer.poll` and `Producer.send` say what that means for
records.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial, wraps
from inspect import isawaitable, signature
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, get_origin, overload

from kafkalog import arguments, errors
from kafkalog.client import admin as _admin
from kafkalog.client.buffer.delivery import ManyFuture, RecordMetadata
from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.client.consumer import consumer as _consumer
from kafkalog.client.consumer.async_listener import Visit, visiting
from kafkalog.client.link.not_copied import Handle
from kafkalog.client.producer import producer as _producer
from kafkalog.errors import WakeUp
from kafkalog.log.scan.scan import ScanBatch
from kafkalog.serializers import KeyT, ValueT
from kafkalog.types import Record, TopicPartition

__all__ = ["Admin", "Consumer", "Producer"]

T = TypeVar("T")
P = ParamSpec("P")
Self = TypeVar("Self", bound="_Above")
Sending = TypeVar("Sending", bound="Producer[Any, Any]")
SLICE_MS = 1_000
"""The longest single wait for records on the thread: an unlimited wait is many of these, so that no
thread is left in one."""
TURN_S = 0.05
"""The least time that a poll waits for the thread to begin it."""


class _Above(Handle):
    """A blocking object on its own thread, for one event loop after another."""

    Below: ClassVar[Any]
    """The class of the blocking object."""

    def __init__(self, *where: Any, **options: Any) -> None:
        self._below = self.Below(*where, **options)
        self._thread = ThreadPoolExecutor(1, f"kafkalog-aio-{self.Below.__name__.lower()}")
        self._lock = threading.Lock()  # guards the end
        self._ended = False
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop
        """Of the last call."""

    async def _run(self, call: Callable[..., T], *words: Any, **named: Any) -> T:
        """Make a blocking call on the thread; its result."""
        return await asyncio.wrap_future(self._submit(call, *words, **named))

    def _submit(self, call: Callable[..., T], *words: Any, **named: Any) -> Future[T]:
        if self._pid != os.getpid():  # the thread is the parent's
            kind = f"aio.{type(self).__name__}"
            raise errors.ForkedHandle(f"this {kind} belongs to the parent process: make another")
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

    def _close(self, call: Callable[..., object], *words: Any, **named: Any) -> None:
        """On the thread: close the object, and end the thread."""
        try:
            call(*words, **named)
        finally:
            with self._lock:
                self._ended = True
            self._thread.shutdown(wait=False)

    async def __aenter__(self: Self) -> Self:
        return self

    def _gone(self) -> bool:
        """Whether there is nothing to close; a forked child only marks it closed."""
        self._ended = self._ended or self._pid != os.getpid()
        return self._ended

    async def __aexit__(self, *problem: object) -> None:
        if not self._gone():
            await self._whole(self._close, self._below.__exit__, *problem)

    def __repr__(self) -> str:
        return f"aio.{self._below!r}"


def _now(call: Callable[..., T], *words: Any, **named: Any) -> Future[T]:
    made: Future[T] = Future()
    try:
        made.set_result(call(*words, **named))
    except Exception as problem:
        made.set_exception(problem)
    return made


def _awaited(
    method: Callable[Concatenate[Any, P], T], afresh: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A blocking method as one that is awaited; `afresh`: what was read and not returned is given
    back first."""

    @wraps(method)
    async def call(self: Any, /, *words: P.args, **named: P.kwargs) -> T:
        below: Callable[P, T] = getattr(self._below, method.__name__)
        if afresh:
            below = partial(self._afresh, below)
        found: T = await self._run(below, *words, **named)
        return found

    return call


def _closing(
    method: Callable[Concatenate[Any, P], None],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, None]]:
    """The `close` of a blocking object as a method that is awaited.  Idempotent."""

    @wraps(method)
    async def close(self: Any, /, *words: P.args, **named: P.kwargs) -> None:
        if not self._gone():
            await self._whole(self._close, self._below.close, *words, **named)

    return close


def _as(
    below: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Give a method the parameters of the blocking one; it keeps its own result type."""

    def give(method: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        method.__signature__ = signature(below)  # type: ignore[attr-defined]
        return method

    return give


def _made(
    below: Callable[P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """As `_as`, for the constructor of a generic class."""

    kind: Any = get_origin(below)

    def give(method: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        method.__signature__ = signature(kind.__init__)  # type: ignore[attr-defined]
        return method

    return give


class Admin(_Above):
    """`kafkalog.Admin` for asyncio: every method is awaited.  `async with`."""

    Below = _admin.Admin

    @_as(_admin.Admin.__init__)
    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)

    close = _closing(_admin.Admin.close)
    abort_transaction = _awaited(_admin.Admin.abort_transaction)
    alter_configs = _awaited(_admin.Admin.alter_configs)
    alter_group_offsets = _awaited(_admin.Admin.alter_group_offsets)
    alter_partition_reassignments = _awaited(_admin.Admin.alter_partition_reassignments)
    create_partitions = _awaited(_admin.Admin.create_partitions)
    create_topic = _awaited(_admin.Admin.create_topic)
    create_topics = _awaited(_admin.Admin.create_topics)
    delete_group_offsets = _awaited(_admin.Admin.delete_group_offsets)
    delete_groups = _awaited(_admin.Admin.delete_groups)
    delete_records = _awaited(_admin.Admin.delete_records)
    delete_topic = _awaited(_admin.Admin.delete_topic)
    delete_topics = _awaited(_admin.Admin.delete_topics)
    describe_cluster = _awaited(_admin.Admin.describe_cluster)
    describe_configs = _awaited(_admin.Admin.describe_configs)
    describe_features = _awaited(_admin.Admin.describe_features)
    describe_groups = _awaited(_admin.Admin.describe_groups)
    describe_log_dirs = _awaited(_admin.Admin.describe_log_dirs)
    describe_producers = _awaited(_admin.Admin.describe_producers)
    describe_quorum = _awaited(_admin.Admin.describe_quorum)
    describe_topics = _awaited(_admin.Admin.describe_topics)
    describe_transactions = _awaited(_admin.Admin.describe_transactions)
    elect_leaders = _awaited(_admin.Admin.elect_leaders)
    fence_producers = _awaited(_admin.Admin.fence_producers)
    find_hanging_transactions = _awaited(_admin.Admin.find_hanging_transactions)
    list_config_resources = _awaited(_admin.Admin.list_config_resources)
    list_group_offsets = _awaited(_admin.Admin.list_group_offsets)
    list_groups = _awaited(_admin.Admin.list_groups)
    list_offsets = _awaited(_admin.Admin.list_offsets)
    list_partition_reassignments = _awaited(_admin.Admin.list_partition_reassignments)
    list_topics = _awaited(_admin.Admin.list_topics)
    list_transactions = _awaited(_admin.Admin.list_transactions)
    move_replicas = _awaited(_admin.Admin.move_replicas)
    remove_group_members = _awaited(_admin.Admin.remove_group_members)
    unregister_broker = _awaited(_admin.Admin.unregister_broker)
    update_features = _awaited(_admin.Admin.update_features)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        found: bool = self._below.closed
        return found


class Producer(_Above, Generic[ValueT, KeyT]):
    """`kafkalog.Producer` for asyncio.  `async with` waits until all records are acknowledged."""

    Below = _producer.Producer

    @_made(_producer.Producer[ValueT, KeyT])
    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)

    close = _closing(_producer.Producer.close)
    abort_transaction = _awaited(_producer.Producer.abort_transaction)
    begin_transaction = _awaited(_producer.Producer.begin_transaction)
    check = _awaited(_producer.Producer.check)
    commit_transaction = _awaited(_producer.Producer.commit_transaction)
    flush = _awaited(_producer.Producer.flush)
    init_transactions = _awaited(_producer.Producer.init_transactions)
    partitions = _awaited(_producer.Producer.partitions)
    send_offsets = _awaited(_producer.Producer.send_offsets)

    @property
    def producer_id(self) -> int:
        """The id that the brokers gave; -1: none yet."""
        found: int = self._below.producer_id
        return found

    @property
    def in_doubt(self) -> bool:
        """Whether a commit got no answer: another `commit_transaction` settles it, either way."""
        found: bool = self._below.in_doubt
        return found

    async def metrics(self) -> dict[str, float]:
        """As kafkalog.Producer.metrics; returns at once, even while the thread is busy."""
        found: dict[str, float] = self._below.metrics()
        return found

    @_as(_producer.Producer[ValueT, KeyT].send)
    async def send(self, *words: Any, **named: Any) -> RecordMetadata:
        """Send a record; returns its metadata (topic, partition, offset, time) once acknowledged.

        Many at once: `await asyncio.gather(*(producer.send(...) for ...))`, or `send_many`.
        If cancelled, the record is still sent, unless its turn had not come (for example, while
        others wait for room in the buffer); never in part, and never twice.

        Raises: as kafkalog.Producer.send and the future that it returns.
        """
        found: RecordMetadata = await self._known(
            await self._run(self._below.send, *words, **named)
        )
        return found

    @_as(_producer.Producer.send_many)
    async def send_many(self, *words: Any, **named: Any) -> ManyFuture:
        """Send many records; returns what `kafkalog.Producer.send_many` does, once they are
        acknowledged.  If cancelled: as `send`, all of them or none.

        Raises: as kafkalog.Producer.send_many and the future that it returns; failures of other
        calls' records are raised there.
        """
        return await self._many(self._below.send_many, *words, **named)

    @_as(_producer.Producer.send_batches)
    async def send_batches(self, *words: Any, **named: Any) -> ManyFuture:
        """Send the records of whole batches; returns what `kafkalog.Producer.send_batches` does,
        once they are acknowledged.  If cancelled: as `send`, all of them or none.

        Raises: as send_many.
        """
        return await self._many(self._below.send_batches, *words, **named)

    async def _many(self, send: Callable[..., ManyFuture], *words: Any, **named: Any) -> ManyFuture:
        def hurried() -> ManyFuture:
            """On the thread: a wait for this many records does not linger."""
            sent = send(*words, **named)
            sent.hurry()
            return sent

        sent = await self._run(hurried)
        await self._known(sent)
        return sent

    async def _known(self, sent: Any) -> Any:
        """The result of a producer's future, once it is known."""
        loop = asyncio.get_running_loop()
        known: asyncio.Future[None] = loop.create_future()

        def told() -> None:
            if not known.done():
                known.set_result(None)

        sent.add_done_callback(lambda _: _soon(loop, told))
        await known
        return sent.result()

    @asynccontextmanager
    async def transaction(self: Sending) -> AsyncIterator[Sending]:
        """A transaction: committed at the end of the block, aborted if an exception or a
        cancellation leaves it.

        Raises: as kafkalog.Producer.transaction.
        """
        begun = self._submit(self._below.begin_transaction)
        try:
            await asyncio.shield(asyncio.wrap_future(begun))
        except asyncio.CancelledError:
            await self._whole(self._unwanted, begun)
            raise
        try:
            yield self
            await self._whole(self._below.commit_transaction)
        except BaseException:
            await self._whole(self._below._roll_back)
            raise

    def _unwanted(self, begun: Future[None]) -> None:
        """On the thread: no caller is left to end the transaction."""
        if begun.exception() is None:
            self._below._roll_back()


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *words: Any) -> None:
    """Make the call in the loop, unless that is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call, *words)


class Consumer(_Above):
    """`kafkalog.Consumer` for asyncio.  `async with`, `async for record in consumer`.

    A cancelled await loses no record: what the thread had read comes with the next call, and a
    commit without offsets commits only what was returned.
    """

    Below = _consumer.Consumer

    @_as(_consumer.Consumer.__init__)
    def __init__(self, *words: Any, **named: Any) -> None:
        """As kafkalog.Consumer.  Nothing is sent yet."""
        super().__init__(*words, **named)
        self._handing = threading.Lock()  # guards what follows; never held during a wait
        self._unseen: deque[Record] = deque()  # read, not returned yet
        self._columns: deque[Any] = deque()
        self._filling: asyncio.Future[None] | None = None
        self._turn = False
        """Whether the thread has begun the call that fills."""

    close = _closing(_consumer.Consumer.close)
    beginning_offsets = _awaited(_consumer.Consumer.beginning_offsets)
    end_offsets = _awaited(_consumer.Consumer.end_offsets)
    group_metadata = _awaited(_consumer.Consumer.group_metadata)
    lag = _awaited(_consumer.Consumer.lag)
    list_topics = _awaited(_consumer.Consumer.list_topics)
    offsets_for_times = _awaited(_consumer.Consumer.offsets_for_times)
    partitions = _awaited(_consumer.Consumer.partitions)
    resume = _awaited(_consumer.Consumer.resume)
    store_offsets = _awaited(_consumer.Consumer.store_offsets)
    assign = _awaited(_consumer.Consumer.assign, afresh=True)
    incremental_assign = _awaited(_consumer.Consumer.incremental_assign, afresh=True)
    incremental_unassign = _awaited(_consumer.Consumer.incremental_unassign, afresh=True)
    pause = _awaited(_consumer.Consumer.pause, afresh=True)
    seek = _awaited(_consumer.Consumer.seek, afresh=True)
    seek_to_beginning = _awaited(_consumer.Consumer.seek_to_beginning, afresh=True)
    seek_to_committed = _awaited(_consumer.Consumer.seek_to_committed, afresh=True)
    seek_to_end = _awaited(_consumer.Consumer.seek_to_end, afresh=True)
    unsubscribe = _awaited(_consumer.Consumer.unsubscribe, afresh=True)

    @overload
    async def committed(
        self, tp: TopicPartition, timeout_ms: float | None = None
    ) -> CommittedOffset | None: ...

    @overload
    async def committed(
        self, tp: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]: ...

    async def committed(
        self, tp: TopicPartition | Collection[TopicPartition], timeout_ms: float | None = None
    ) -> CommittedOffset | dict[TopicPartition, CommittedOffset | None] | None:
        """As kafkalog.Consumer.committed."""
        call: Callable[..., Any] = self._below.committed
        return await self._run(call, tp, timeout_ms)

    async def poll(
        self, timeout_ms: float | None = 1_000, max_records: int | None = None
    ) -> list[Record]:
        """Records that have arrived, as kafkalog.Consumer.poll.

        If cancelled, it loses none: the next poll begins with them.
        """
        if max_records is not None:
            max_records = arguments.whole_number("max_records", max_records, 1)
        await self._fill(self._unseen, timeout_ms, self._below.poll, max_records)
        with self._handing:
            there = len(self._unseen)
            count = there if max_records is None else min(max_records, there)
            return [self._unseen.popleft() for _ in range(count)]

    async def poll_arrow(self, timeout_ms: float | None = 1_000) -> list[ScanBatch]:
        """All that has arrived as columns, as kafkalog.Consumer.poll_arrow; cancelled as `poll`."""
        await self._fill(self._columns, timeout_ms, self._below.poll_arrow)
        with self._handing:
            found = list(self._columns)
            self._columns.clear()
        return found

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records, until the consumer is closed."""
        while not self._ended:
            await self._fill(self._unseen, None, self._below.poll)
            while True:
                with self._handing:
                    if not self._unseen:
                        break
                    record = self._unseen.popleft()
                yield record

    async def _fill(
        self, into: deque[Any], timeout_ms: float | None, poll: Callable[..., Any], *words: Any
    ) -> None:
        """Wait until something has arrived, or for the timeout."""
        if visiting(self) is not None:
            raise errors.ArgumentError(
                "a listener cannot poll: the poll that called it waits for it"
            )
        timeout_ms = arguments.wait_ms("timeout_ms", timeout_ms)
        loop = asyncio.get_running_loop()
        until = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        while not into:
            left_ms = SLICE_MS if until is None else max(0.0, (until - loop.time()) * 1000)
            if (
                self._filling is None or self._filling.done()
                or self._filling.get_loop() is not loop  # that loop has ended
            ):  # fmt: skip
                wait_s = min(left_ms, SLICE_MS) / 1000
                self._turn = False
                self._filling = asyncio.wrap_future(
                    self._submit(self._take, into, poll, time.monotonic() + wait_s, *words)
                )
            try:
                turn_s = None if until is None else max(TURN_S, until - loop.time())
                await asyncio.wait([self._filling], timeout=turn_s)
                if not (self._turn or self._filling.done()):
                    return  # the thread is busy with another call: the next poll gets what comes
                await asyncio.shield(self._filling)
            except asyncio.CancelledError:
                self._below.wakeup()  # the next call need not wait for this one
                raise
            if until is not None and loop.time() >= until:
                return

    def _take(
        self, into: deque[Any], poll: Callable[..., Any], until_s: float, *words: Any
    ) -> None:
        """On the thread: keep what comes where no cancellation can lose it."""
        self._turn = True
        if self._columns if into is self._unseen else self._unseen:
            self._give_back()  # read for the other kind of call, and before what comes now
        try:
            into.extend(poll(max(until_s - time.monotonic(), 0.0) * 1000, *words))
        except WakeUp:
            return

    async def metrics(self) -> dict[str, float]:
        """As kafkalog.Consumer.metrics; returns at once, even while the thread is busy."""
        found: dict[str, float] = self._below.metrics()
        return found

    @_as(_consumer.Consumer.subscribe)
    async def subscribe(self, *words: Any, **named: Any) -> None:
        """As kafkalog.Consumer.subscribe.  A listener may be `async def`: it is awaited in the loop
        in which the consumer is used, for up to max_poll_interval_ms, and may await all of the
        consumer's methods except those that poll.  Any other listener is called on the thread.
        """
        await self._run(self._below.subscribe, *words, **self._awaiting(named))

    @_as(_consumer.Consumer.commit)
    async def commit(self, *words: Any, **named: Any) -> None:
        """As kafkalog.Consumer.commit; without offsets: up to what was returned.  `callback` may
        be `async def`, like a listener."""
        await self._run(self._commit, *words, **self._awaiting(named))

    def _awaiting(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """The same arguments; functions among them may be async, and are then awaited."""
        return {
            name: self._called(found) if callable(found) else found for name, found in named.items()
        }

    def _called(self, listener: Callable[..., Any]) -> Callable[..., None]:
        def call(*words: Any) -> None:
            told = listener(*words)
            if isawaitable(told):
                wait_s = self._below._config.max_poll_interval_ms / 1000
                Visit(self).wait(self._loop, told, wait_s)

        return call

    def _commit(self, offsets: Mapping[TopicPartition, Any] | None = None, **named: Any) -> None:
        if offsets is None and self._below._sharing.stored is None and self._firsts():
            mine = self._below.assignment
            epoch = self._below._sharing.reading.epoch
            offsets = {tp: (at := self._position(tp), epoch(tp, at)) for tp in mine}
        self._below.commit(offsets, **named)

    def _firsts(self) -> dict[TopicPartition, int]:
        """On the thread: the first offset per partition that was read and not returned."""
        firsts: dict[TopicPartition, int] = {}
        with self._handing:
            for record in self._unseen:
                firsts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
            for batch in self._columns:
                firsts.setdefault(*_first_of(batch))
        return firsts

    def _give_back(self) -> None:
        """On the thread: seek back to read again what was not returned."""
        firsts = self._firsts()
        with self._handing:
            self._unseen.clear()
            self._columns.clear()
        for tp, offset in firsts.items():
            if tp in self._below.assignment:
                self._below.seek(tp, (offset, self._below._sharing.reading.epoch(tp, offset)))

    def _close(self, call: Callable[..., object], *words: Any, **named: Any) -> None:
        self._give_back()
        super()._close(call, *words, **named)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now, sorted."""
        return list(self._below.assignment)

    @property
    def subscription(self) -> list[str]:
        """The topics that are subscribed to."""
        return list(self._below.subscription)

    @property
    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return list(self._below.paused)

    async def position(self, tp: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset after the last record that was returned, as kafkalog.Consumer.position."""
        return await self._run(self._position, arguments.partition("tp", tp), timeout_ms)

    def _position(self, tp: TopicPartition, timeout_ms: float | None = None) -> int:
        first = self._firsts().get(tp)
        return int(self._below.position(tp, timeout_ms)) if first is None else first

    def _afresh(self, call: Callable[..., None], *words: Any, **named: Any) -> None:
        self._give_back()
        call(*words, **named)


def _first_of(batch: Any) -> tuple[TopicPartition, int]:
    """Where a batch of columns begins."""
    topic, partition, offset = (batch.numpy(name)[0] for name in ("topic", "partition", "offset"))
    return TopicPartition(str(topic), int(partition)), int(offset)
