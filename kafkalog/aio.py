"""The clients for asyncio: the blocking classes, each on its own thread.

The event loop never waits for a socket or a lock.  Arguments, results and failures are those of
the blocking calls.  The calls of one object run one after another, in the order in which they
were awaited; the time limit of each counts from its await.  If an await is cancelled before the
call's turn, the call is not made; otherwise it runs to its end in the background.
`poll` and `Producer.send` say what that means for records.

`close` lets the calls before it end, except for polls, which end at once with Closed.  When its
time limit is over, all that still wait end at once.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from inspect import isawaitable, signature
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_origin, overload

from kafkalog import arguments, errors
from kafkalog.client import admin as _admin
from kafkalog.client.buffer.delivery import ManyFuture, RecordMetadata
from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.client.consumer import consumer as _consumer
from kafkalog.client.consumer.async_listener import Visit, visiting
from kafkalog.client.consumer.prefetched import Prefetched
from kafkalog.client.producer import producer as _producer
from kafkalog.client.shares.awaited import ShareConsumer
from kafkalog.client.turns import SLICE_MS, TURN_S, Turns, awaited, signed_as
from kafkalog.errors import WakeUp
from kafkalog.log.scan.scan import ScanBatch
from kafkalog.serializers import KeyT, ValueT
from kafkalog.types import Record, TopicPartition

__all__ = ["Admin", "Consumer", "Producer", "ShareConsumer"]

T = TypeVar("T")
P = ParamSpec("P")
Sending = TypeVar("Sending", bound="Producer[Any, Any]")


def _made(
    below: Callable[P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """As `signed_as`, for the constructor of a generic class."""

    kind: Any = get_origin(below)

    def give(method: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        method.__signature__ = signature(kind.__init__)  # type: ignore[attr-defined]
        return method

    return give


class Admin(Turns):
    """`kafkalog.Admin` for asyncio: every method is awaited.  `async with`."""

    Below = _admin.Admin

    @signed_as(_admin.Admin.__init__)
    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(_admin.Admin(*words, **named))
        self._below._cluster.openings.apart = True

    @signed_as(_admin.Admin.close)
    async def close(self) -> None:
        """As kafkalog.Admin.close; the calls before it have default.api.timeout.ms to end."""
        await self._close(lambda _: self._below.close(), self._limit_ms(None))

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    abort_transaction = awaited(_admin.Admin.abort_transaction)
    add_raft_voter = awaited(_admin.Admin.add_raft_voter)
    alter_client_quotas = awaited(_admin.Admin.alter_client_quotas)
    alter_configs = awaited(_admin.Admin.alter_configs)
    alter_group_offsets = awaited(_admin.Admin.alter_group_offsets)
    alter_partition_reassignments = awaited(_admin.Admin.alter_partition_reassignments)
    alter_user_scram_credentials = awaited(_admin.Admin.alter_user_scram_credentials)
    alter_share_group_offsets = awaited(_admin.Admin.alter_share_group_offsets)
    client_instance_id = awaited(_admin.Admin.client_instance_id)
    create_acls = awaited(_admin.Admin.create_acls)
    create_delegation_token = awaited(_admin.Admin.create_delegation_token)
    create_partitions = awaited(_admin.Admin.create_partitions)
    create_topic = awaited(_admin.Admin.create_topic)
    create_topics = awaited(_admin.Admin.create_topics)
    delete_acls = awaited(_admin.Admin.delete_acls)
    delete_group_offsets = awaited(_admin.Admin.delete_group_offsets)
    delete_groups = awaited(_admin.Admin.delete_groups)
    delete_records = awaited(_admin.Admin.delete_records)
    delete_share_group_offsets = awaited(_admin.Admin.delete_share_group_offsets)
    delete_topic = awaited(_admin.Admin.delete_topic)
    delete_topics = awaited(_admin.Admin.delete_topics)
    describe_acls = awaited(_admin.Admin.describe_acls)
    describe_client_quotas = awaited(_admin.Admin.describe_client_quotas)
    describe_cluster = awaited(_admin.Admin.describe_cluster)
    describe_configs = awaited(_admin.Admin.describe_configs)
    describe_delegation_tokens = awaited(_admin.Admin.describe_delegation_tokens)
    describe_features = awaited(_admin.Admin.describe_features)
    describe_groups = awaited(_admin.Admin.describe_groups)
    describe_log_dirs = awaited(_admin.Admin.describe_log_dirs)
    describe_producers = awaited(_admin.Admin.describe_producers)
    describe_quorum = awaited(_admin.Admin.describe_quorum)
    describe_streams_groups = awaited(_admin.Admin.describe_streams_groups)
    describe_topics = awaited(_admin.Admin.describe_topics)
    describe_transactions = awaited(_admin.Admin.describe_transactions)
    describe_user_scram_credentials = awaited(_admin.Admin.describe_user_scram_credentials)
    elect_leaders = awaited(_admin.Admin.elect_leaders)
    expire_delegation_token = awaited(_admin.Admin.expire_delegation_token)
    fence_producers = awaited(_admin.Admin.fence_producers)
    find_hanging_transactions = awaited(_admin.Admin.find_hanging_transactions)
    list_config_resources = awaited(_admin.Admin.list_config_resources)
    list_group_offsets = awaited(_admin.Admin.list_group_offsets)
    list_share_group_offsets = awaited(_admin.Admin.list_share_group_offsets)
    list_groups = awaited(_admin.Admin.list_groups)
    list_offsets = awaited(_admin.Admin.list_offsets)
    list_partition_reassignments = awaited(_admin.Admin.list_partition_reassignments)
    list_topics = awaited(_admin.Admin.list_topics)
    list_transactions = awaited(_admin.Admin.list_transactions)
    move_replicas = awaited(_admin.Admin.move_replicas)
    remove_group_members = awaited(_admin.Admin.remove_group_members)
    remove_raft_voter = awaited(_admin.Admin.remove_raft_voter)
    renew_delegation_token = awaited(_admin.Admin.renew_delegation_token)
    unregister_broker = awaited(_admin.Admin.unregister_broker)
    unregister_controller = awaited(_admin.Admin.unregister_controller)
    update_features = awaited(_admin.Admin.update_features)

    @property
    def closed(self) -> bool:
        """True if it was closed."""
        found: bool = self._below.closed
        return found


class _Timed(_producer.Producer[ValueT, KeyT]):
    """A producer whose calls may have waited for their turn."""

    due_s = math.inf
    """When max.block.ms is over."""

    def _until_s(self) -> float:
        return min(super()._until_s(), self.due_s)


class Producer(Turns, Generic[ValueT, KeyT]):
    """`kafkalog.Producer` for asyncio.  `async with` waits until all records are acknowledged."""

    Below = _producer.Producer

    @_made(_producer.Producer[ValueT, KeyT])
    def __init__(self, *words: Any, **named: Any) -> None:
        self._timed: _Timed[ValueT, KeyT] = _Timed(*words, **named)
        super().__init__(self._timed)

    @signed_as(_producer.Producer.close)
    async def close(self, *words: Any, **named: Any) -> None:
        """As kafkalog.Producer.close.  Sends whose turn has not come in `timeout_ms` raise Closed.

        Raises: as there; Timeout: earlier calls took all of the time.
        """
        given = signature(self._below.close).bind(*words, **named).arguments
        limit_ms = arguments.time_of(
            "timeout_ms", given.get("timeout_ms"), given.get("timeout"), "timeout"
        )
        await self._close(lambda left_ms: self._below.close(timeout_ms=left_ms), limit_ms)

    async def __aexit__(self, *problem: object) -> None:
        await self._close(lambda _: self._below.__exit__(*problem), None)

    def _limit_ms(self, given: Any) -> float | None:
        return None if given is None else super()._limit_ms(given)

    def _interrupt(self) -> None:
        self._below._waiting.refuse(errors.Closed("the producer is closed"))
        self._below._sender.stop()

    async def _due(self, send: Callable[..., T], *words: Any, **named: Any) -> T:
        """Make the call on the thread; max.block.ms counts from now."""
        until_s = time.monotonic() + self._timed._block_s

        def call() -> T:
            self._timed.due_s = until_s
            try:
                return send(*words, **named)
            finally:
                self._timed.due_s = math.inf

        return await self._run(call)

    abort_transaction = awaited(_producer.Producer.abort_transaction)
    begin_transaction = awaited(_producer.Producer.begin_transaction)
    check = awaited(_producer.Producer.check)
    client_instance_id = awaited(_producer.Producer.client_instance_id)
    commit_transaction = awaited(_producer.Producer.commit_transaction)
    flush = awaited(_producer.Producer.flush)
    init_transactions = awaited(_producer.Producer.init_transactions)
    partitions = awaited(_producer.Producer.partitions)
    send_offsets = awaited(_producer.Producer.send_offsets)

    @property
    def producer_id(self) -> int:
        """The id that the brokers gave; -1: none yet."""
        found: int = self._below.producer_id
        return found

    @property
    def in_doubt(self) -> bool:
        """True if a commit got no answer: another `commit_transaction` settles it, either way."""
        found: bool = self._below.in_doubt
        return found

    async def metrics(self) -> dict[str, float]:
        """As kafkalog.Producer.metrics; returns at once, even while the thread is busy."""
        found: dict[str, float] = self._below.metrics()
        return found

    @signed_as(_producer.Producer[ValueT, KeyT].send)
    async def send(self, *words: Any, **named: Any) -> RecordMetadata:
        """Send a record; returns its metadata (topic, partition, offset, time) once acknowledged.

        Many at once: `await asyncio.gather(*(producer.send(...) for ...))`, or `send_many`.
        If cancelled, the record is still sent, unless its turn had not come (for example, while
        others wait for room in the buffer); never in part, and never twice.

        Raises: as kafkalog.Producer.send and the future that it returns.
        """
        found: RecordMetadata = await self._known(
            await self._due(self._below.send, *words, **named)
        )
        return found

    @signed_as(_producer.Producer.send_many)
    async def send_many(self, *words: Any, **named: Any) -> ManyFuture:
        """Send many records; returns what `kafkalog.Producer.send_many` does, once they are
        acknowledged.  If cancelled: as `send`, all of them or none.

        Raises: as kafkalog.Producer.send_many and the future that it returns; failures of other
        calls' records are raised there.
        """
        return await self._many(self._below.send_many, *words, **named)

    @signed_as(_producer.Producer.send_batches)
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

        sent = await self._due(hurried)
        await self._known(sent)
        return sent

    async def _known(self, sent: Any) -> Any:
        """The result of a producer's future, once it is known."""
        loop = asyncio.get_running_loop()
        known: asyncio.Future[None] = loop.create_future()

        def notify() -> None:
            if not known.done():
                known.set_result(None)

        sent.add_done_callback(lambda _: _soon(loop, notify))
        await known
        return sent.result()

    @asynccontextmanager
    async def transaction(self: Sending) -> AsyncIterator[Sending]:
        """A transaction: committed at the end of the block, aborted if an exception or a
        cancellation leaves it.

        Raises: as kafkalog.Producer.transaction.
        """
        started = self._submit(self._below.begin_transaction)
        try:
            await asyncio.shield(asyncio.wrap_future(started))
        except asyncio.CancelledError:
            await self._whole(self._unwanted, started)
            raise
        try:
            yield self
            await self._whole(self._below.commit_transaction)
        except BaseException:
            await self._whole(self._below._roll_back)
            raise

    def _unwanted(self, started: Future[None]) -> None:
        """On the thread: no caller is left to end the transaction."""
        if started.exception() is None:
            self._below._roll_back()


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *words: Any) -> None:
    """Make the call in the loop, unless that is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call, *words)


class Consumer(Turns):
    """`kafkalog.Consumer` for asyncio.  `async with`, `async for record in consumer`.

    A cancelled await loses no record: what the thread had read comes with the next call, and a
    commit without offsets commits only what was returned.
    """

    Below = _consumer.Consumer

    @signed_as(_consumer.Consumer.__init__)
    def __init__(self, *words: Any, **named: Any) -> None:
        """As kafkalog.Consumer.  Nothing is sent yet."""
        super().__init__(_consumer.Consumer(*words, **named))
        self._below._cluster.openings.apart = True
        self._ahead = Prefetched(self._below)
        self._filling: asyncio.Future[None] | None = None
        self._turn = False
        """True once the thread has begun the call that fills."""
        self._visit: Visit | None = None

    @signed_as(_consumer.Consumer.close)
    async def close(self, *words: Any, **named: Any) -> None:
        """As kafkalog.Consumer.close.  Polls of other tasks raise Closed, iterations end.

        Raises: as there; Timeout: earlier calls took all of the time.
        """
        given = signature(self._below.close).bind(*words, **named)
        given.apply_defaults()
        limit_ms = arguments.wait_ms("timeout_ms", given.arguments["timeout_ms"])
        await self._leave(given.arguments["commit"], limit_ms)

    async def __aexit__(self, kind: object, *_: object) -> None:
        # After an exception the last records may not have been processed.
        await self._leave(kind is None, _consumer.CLOSE_MS)

    async def _leave(self, commit: bool, limit_ms: float | None) -> None:
        def close(left_ms: float | None) -> None:
            self._ahead.change(lambda: self._below.close(commit, left_ms), over=True)

        await self._close(close, self._limit_ms(None) if limit_ms is None else limit_ms)

    def _hurry(self) -> None:
        self._below.wakeup()

    def _interrupt(self) -> None:
        super()._interrupt()
        self._below.wakeup()
        if (visit := self._visit) is not None:
            visit.cut()

    beginning_offsets = awaited(_consumer.Consumer.beginning_offsets)
    client_instance_id = awaited(_consumer.Consumer.client_instance_id)
    end_offsets = awaited(_consumer.Consumer.end_offsets)
    group_metadata = awaited(_consumer.Consumer.group_metadata)
    lag = awaited(_consumer.Consumer.lag)
    list_topics = awaited(_consumer.Consumer.list_topics)
    offsets_for_times = awaited(_consumer.Consumer.offsets_for_times)
    partitions = awaited(_consumer.Consumer.partitions)
    resume = awaited(_consumer.Consumer.resume)
    store_offsets = awaited(_consumer.Consumer.store_offsets)
    assign = awaited(_consumer.Consumer.assign, around="_changing")
    incremental_assign = awaited(_consumer.Consumer.incremental_assign, around="_changing")
    incremental_unassign = awaited(_consumer.Consumer.incremental_unassign, around="_changing")
    pause = awaited(_consumer.Consumer.pause, around="_changing")
    seek = awaited(_consumer.Consumer.seek, around="_changing")
    seek_to_beginning = awaited(_consumer.Consumer.seek_to_beginning, around="_changing")
    seek_to_committed = awaited(_consumer.Consumer.seek_to_committed, around="_changing")
    seek_to_end = awaited(_consumer.Consumer.seek_to_end, around="_changing")
    unsubscribe = awaited(_consumer.Consumer.unsubscribe, around="_changing")

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
        return await self._next(False, timeout_ms, max_records, max_records)

    async def poll_arrow(self, timeout_ms: float | None = 1_000) -> list[ScanBatch]:
        """All that has arrived as columns, as kafkalog.Consumer.poll_arrow; cancelled as `poll`."""
        return await self._next(True, timeout_ms)

    def __aiter__(self) -> Consumer:
        """Records, until the consumer is closed, by this task or another.  If an await for the
        next record is cancelled, the iteration can go on."""
        return self

    async def __anext__(self) -> Record:
        if self._closing or self._ended:
            raise StopAsyncIteration
        if self._pid == os.getpid() and (record := self._ahead.next()) is not None:
            return record
        try:
            (found,) = await self._next(False, None, 1)
        except errors.Closed:
            if self._closing or self._below._closed:
                raise StopAsyncIteration from None
            raise
        first: Record = found
        return first

    async def _next(
        self,
        columns: bool,
        timeout_ms: float | None,
        most: int | None = None,
        read: int | None = None,
    ) -> list[Any]:
        """Wait until something has arrived, or for the timeout; returns up to `most`, of up to
        `read` records that the thread reads at a time (None: max.poll.records)."""
        self._here()
        if visiting(self) is not None:
            raise errors.ArgumentError(
                "a listener cannot poll: the poll that called it waits for it"
            )
        timeout_ms = arguments.wait_ms("timeout_ms", timeout_ms)
        loop = asyncio.get_running_loop()
        until = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        while not (found := self._ahead.take(columns, most)):
            if self._closing or self._ended:
                raise errors.Closed("the consumer was closed")
            left_ms = SLICE_MS if until is None else max(0.0, (until - loop.time()) * 1000)
            if (
                self._filling is None
                or self._filling.done()
                or self._filling.get_loop() is not loop  # that loop has ended
            ):
                wait_s = min(left_ms, SLICE_MS) / 1000
                self._turn = False
                self._filling = asyncio.wrap_future(
                    self._submit(self._read, columns, time.monotonic() + wait_s, read)
                )
            try:
                turn_s = None if until is None else max(TURN_S, until - loop.time())
                await asyncio.wait([self._filling], timeout=turn_s)
                if not (self._turn or self._filling.done()):
                    return []  # the thread is busy with another call: the next poll gets what comes
                await asyncio.shield(self._filling)
            except asyncio.CancelledError:
                self._below.wakeup()  # the next call need not wait for this one
                raise
            if until is not None and loop.time() >= until:
                return self._ahead.take(columns, most)
        return found

    def _read(self, columns: bool, until_s: float, most: int | None) -> None:
        """On the thread: keep what comes where no cancellation can lose it."""
        self._turn = True

        def poll() -> list[Any]:
            wait_ms = max(until_s - time.monotonic(), 0.0) * 1000
            try:
                if columns:
                    return list(self._below.poll_arrow(wait_ms))
                return list(self._below.poll(wait_ms, most))
            except WakeUp:
                return []

        if not self._closing:  # else the end comes next
            self._ahead.read(columns, poll)

    async def metrics(self) -> dict[str, float]:
        """As kafkalog.Consumer.metrics; returns at once, even while the thread is busy."""
        found: dict[str, float] = self._below.metrics()
        return found

    @signed_as(_consumer.Consumer.subscribe)
    async def subscribe(self, *words: Any, **named: Any) -> None:
        """As kafkalog.Consumer.subscribe.  A listener may be `async def`: it is awaited in the loop
        in which the consumer is used, for up to max_poll_interval_ms, and may await all of the
        consumer's methods except those that poll.  Any other listener is called on the thread.
        """
        await self._run(self._changing, self._below.subscribe, *words, **self._awaiting(named))

    @signed_as(_consumer.Consumer.commit)
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
            result = listener(*words)
            if isawaitable(result):
                wait_s = self._below._config.max_poll_interval_ms / 1000
                self._visit = Visit(self)
                self._visit.wait(self._loop, result, wait_s)

        return call

    def _commit(self, offsets: Mapping[TopicPartition, Any] | None = None, **named: Any) -> None:
        if offsets is None and self._below._state.stored is None:
            offsets = self._ahead.committable()
        self._below.commit(offsets, **named)

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
        first = self._ahead.first(tp)
        return int(self._below.position(tp, timeout_ms)) if first is None else first

    def _changing(self, call: Callable[..., None], *words: Any, **named: Any) -> None:
        self._ahead.change(lambda: call(*words, **named))
