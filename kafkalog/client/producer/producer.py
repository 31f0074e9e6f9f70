"""`kafkalog.Producer`: sends records to topics, over any transport."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import current_thread
from typing import Any, Generic, NamedTuple, Protocol
from uuid import UUID

from kafkalog import arguments, errors
from kafkalog._native import direct, failure, lib
from kafkalog.batch.columns import Rows, encoded_headers
from kafkalog.client.buffer.accumulator import HEADER_BYTES, Accumulator, Intake
from kafkalog.client.buffer.delivery import Batch, Delivery, Future, ManyFuture, RecordMetadata
from kafkalog.client.buffer.partitioners import Partitioner, chooser, keyless, mistake
from kafkalog.client.buffer.rows import BatchRows, Put, RowSource, rows_of
from kafkalog.client.callbacks import logged
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Where
from kafkalog.client.login.tokens import TokenSource
from kafkalog.client.producer import at_exit
from kafkalog.client.producer.sender import Sender
from kafkalog.client.producer.settings import (
    bounds,
    client_options,
    identity_of,
    send_options,
    settings_of,
)
from kafkalog.client.producer.transaction_gate import Boundaries
from kafkalog.client.producer.transactor import Transactor
from kafkalog.clock import SystemClock
from kafkalog.serializers import KeyT, Serializer, ValueT, serializers
from kafkalog.types import Header

__all__ = ["Interceptor", "OutgoingRecord", "Producer"]

RECORD_BYTES = 40
"""More bytes than the lengths and deltas of a record take."""
NO_SERIALIZERS: Mapping[str, Serializer] = {}
_send, _place = direct("intake_send"), direct("intake_place")
_touched, _counts = direct("intake_touched"), direct("growing_told")


class OutgoingRecord(NamedTuple):
    """A record before it is sent, as interceptors see it."""

    topic: str
    value: Any
    """As the caller gave it: serializers turn it, and the key, into bytes later."""
    key: Any
    partition: int | None
    """None: not chosen yet."""
    timestamp_ms: int | None
    """None: now."""
    headers: tuple[Header, ...]


class Interceptor(Protocol):
    """Sees records before they are sent and after they are acknowledged; either method may be
    missing.  Exceptions are logged: the record goes on as it was, and the next interceptor runs."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record to send instead."""

    def on_ack(self, metadata: RecordMetadata | None, error: BaseException | None) -> object:
        """The outcome of a record; called in the producer's thread."""


class Producer(Transactor, Generic[ValueT, KeyT]):
    """Sends records to a cluster, or to a store of this process.

    A background thread sends the records in batches.  Safe to use from many threads; in a forked
    child it raises ForkedHandle.  Closed by `close`, or as a context manager, which waits until
    everything is acknowledged.
    """

    def __init__(
        self,
        where: Where,
        *,
        acks: int | str | None = None,
        compression: str | None = None,
        linger_ms: int | None = None,
        batch_bytes: int | None = None,
        buffer_bytes: int | None = None,
        max_block_ms: int | None = None,
        idempotent: bool | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int | None = None,
        partitioner: str | Partitioner | None = None,
        retries: int | None = None,
        delivery_timeout_ms: int | None = None,
        request_timeout_ms: int | None = None,
        in_flight: int | None = None,
        client_id: str | None = None,
        key_serializer: Callable[[KeyT], bytes | None] | None = None,
        value_serializer: Callable[[ValueT], bytes | None] | None = None,
        interceptors: Sequence[object] = (),
        on_delivery: Callable[[Delivery], object] | None = None,
        config: Mapping[str, object] | None = None,
        oauth_token: TokenSource | None = None,
    ) -> None:
        """The producer connects when the first record needs it.

        `where`: `host:port,...`, a list of such, a store or a broker of this process.  The rest:
        docs/client-options.md; None: what `config` says, by Kafka's names (`{"linger.ms": 5}`), or
        the default.  `partitioner`: a name, or a callable (topic, key, value, partitions).
        `key_serializer`, `value_serializer`: callables that turn the arguments of `send` and
        `send_many` into bytes, after interceptors; see kafkalog.serializers.  None stays None.
        `on_delivery`: called in the producer's thread for each batch that was taken.
        `oauth_token`: gives OAUTHBEARER's tokens, see docs/clients.md.

        Raises: UnknownSetting with the nearest known one, InvalidSetting, ArgumentError, Closed.
        """
        self.config = settings = settings_of(config, {
            "acks": acks, "compression.type": compression, "linger.ms": linger_ms,
            "batch.size": batch_bytes, "buffer.memory": buffer_bytes, "max.block.ms": max_block_ms,
            "enable.idempotence": idempotent, "transactional.id": transactional_id,
            "transaction.timeout.ms": transaction_timeout_ms,
            "partitioner": None if callable(partitioner) else partitioner, "retries": retries,
            "delivery.timeout.ms": delivery_timeout_ms, "request.timeout.ms": request_timeout_ms,
            "max.in.flight.requests.per.connection": in_flight, "client.id": client_id,
        })  # fmt: skip
        """In effect, by Kafka's names."""
        arguments.called("partitioner", partitioner if callable(partitioner) else None)
        arguments.called("on_delivery", on_delivery)
        self._choose = chooser(partitioner if callable(partitioner) else settings.partitioner)
        self._own_choice = callable(partitioner)
        self._interceptors: tuple[Any, ...] = tuple(interceptors)
        arguments.methods_called("interceptors", self._interceptors, "on_send", "on_ack")
        self._serializers = serializers("serializer", key_serializer, value_serializer)
        self._begin(Cluster(where, client_options(settings, oauth_token)), on_delivery)

    def _begin(self, cluster: Cluster, on_delivery: Callable[[Delivery], object] | None) -> None:
        settings = self.config
        self._block_s = settings.max_block_ms / 1000
        self._request_bytes = settings.max_request_size
        self._pid = os.getpid()
        self._closed = False
        self._identity = identity_of(settings)
        self._sender = Sender(cluster, send_options(settings), self._identity, on_delivery)
        self._waiting = Accumulator(
            bounds(settings), keyless(settings.partitioner), self._sender.wake
        )
        plain = self._choose is None and not (self._interceptors or self._serializers)
        self._usual = plain and isinstance(cluster.clock, SystemClock)
        self._waiting.be_plain(self._usual and not self._identity.transactional_id)
        self._boundaries = Boundaries(
            self._identity, self._sender, self._waiting, self._block_s, self._usual
        )
        self._direct = self._waiting.direct
        self._sender.start(self._waiting)
        # A producer dropped without close loses nothing: its thread ends once all is acknowledged.
        weakref.finalize(self, self._sender.leave).atexit = False
        cluster.transport.attach(self._sender)
        cluster.transport.attach(self)
        at_exit.note(self, self._sender)

    # ---- records -----------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: ValueT | None,
        key: KeyT | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[Header] = (),
    ) -> Future:
        """Queue a record; its batch is sent when it is full or old enough.

        `timestamp_ms`: since 1970; None: now.  Waits, at most max.block.ms, when the buffer is
        full or the topic is not known yet.

        Raises: ArgumentError, UnknownTopicOrPartition, MessageTooLarge, InvalidTxnState (no
        transaction is open), Timeout (max.block.ms), ProducerFenced, Closed.
        """
        turn = self._waiting.turn
        try:
            native = self._direct.get(topic)
        except TypeError:
            raise errors.ArgumentError(f"topic: found {topic!r}, wanted a str") from None
        if native is not None and partition is None and not headers:
            future: Future | None = _send(native, value, key, timestamp_ms, -1, None)
            if future is not None:
                return future
        record = OutgoingRecord(
            topic, value, key, partition, timestamp_ms, tuple(arguments.things("headers", headers))
        )
        return self._one(record, turn)

    def _one(self, record: OutgoingRecord, turn: int) -> Future:
        return self._intercepted(record, turn, self._serializers)

    def _send(self, record: OutgoingRecord, turn: int) -> Future:
        self._check()
        topic, value, key, partition, timestamp_ms, headers = record
        value, key = _bytes("value", value), _bytes("key", key)
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        elif not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms < 1 << 63:
            raise errors.ArgumentError(
                f"timestamp_ms: found {timestamp_ms!r}, wanted milliseconds since 1970"
            )
        head = encoded_headers(headers) if headers else None
        need = len(value or b"") + len(key or b"") + len(head or b"") + RECORD_BYTES
        if HEADER_BYTES + need > self._request_bytes:
            raise errors.MessageTooLarge(
                f"a record of about {need} bytes: max.request.size is {self._request_bytes}"
            )
        until_s = self._until_s()
        intake = self._intake(topic, partition, until_s, turn)
        chosen = self._place(intake, key, value, partition)  # once: a partitioner may keep state
        while True:
            if (now := self._waiting.intake(topic, until_s, turn)) is not intake:
                intake, chosen = now, self._place(now, key, value, partition)
            place = chosen
            future: Future | None = _send(intake.native, value, key, timestamp_ms, place, head)
            if future is not None:
                return future
            if place < 0:
                place = _place(intake.native, key)
            self._waiting.room(intake, place, need, until_s, turn)
            self._check()

    def _intake(self, topic: str, partition: int | None, until_s: float, turn: int) -> Intake:
        """The intake of a topic; for an unknown partition the brokers are asked once more."""
        found = self._waiting.intake(topic, until_s, turn)
        if isinstance(partition, int) and partition >= found.partitions:
            self._waiting.look_again(topic, until_s)
            found = self._waiting.intake(topic, until_s, turn)
        return found

    def _place(
        self, intake: Intake, key: bytes | None, value: bytes | None, partition: int | None
    ) -> int:
        """The partition; -1: C chooses."""
        count = intake.partitions
        if partition is not None:
            if not isinstance(partition, int) or not 0 <= partition < count:
                raise errors.UnknownTopicOrPartition(
                    f"topic {intake.topic!r} has no partition {partition}: it has {count}"
                )
            return partition
        if self._choose is None:
            return -1
        found = self._choose(intake.topic, key, value, count)
        if self._own_choice and (wrong := mistake(found, count)):
            raise errors.ArgumentError(wrong)
        return found

    def _until_s(self) -> float:
        """When a call that begins now has waited for max.block.ms."""
        return time.monotonic() + self._block_s

    def _now_ms(self) -> int:
        return self._sender.cluster.clock.now_ms()

    def _intercepted(
        self, record: OutgoingRecord, turn: int, made: Mapping[str, Serializer] = NO_SERIALIZERS
    ) -> Future:
        for one in self._interceptors:
            if hasattr(one, "on_send"):
                with logged("on_send"):
                    record = _instead(one.on_send(record))
        seen = [one.on_ack for one in self._interceptors if hasattr(one, "on_ack")]
        try:
            for name, serializer in made.items():
                found: Any = getattr(record, name)
                changed: dict[str, Any] = {} if found is None else {name: serializer(found)}
                record = record._replace(**changed)
            future = self._send(record, turn)
        except Exception as problem:
            for on_ack in seen:
                with logged("on_ack"):
                    on_ack(None, problem)
            raise

        def acknowledged(known: Future) -> None:
            problem = known.exception()
            for on_ack in seen:
                with logged("on_ack", own_thread=self._waiting.emptier is current_thread()):
                    on_ack(None if problem else known.result(), problem)

        if seen:
            future.add_done_callback(acknowledged)
        return future

    def send_many(
        self,
        topic: str,
        values: Rows,
        keys: Rows = None,
        *,
        partition: int | None = None,
        timestamps_ms: Any = None,
        headers: Sequence[Iterable[Header] | None] | None = None,
    ) -> ManyFuture:
        """Queue many records: lists of bytes and None, NumPy arrays, Arrow arrays.

        Like `send` for each row, but Python does no work per record, except for rows with headers,
        a partitioner other than murmur2, serializers and interceptors.  Atomic only within a
        transaction: after an error some rows may have been taken.

        Raises: as send.
        """
        turn = self._waiting.turn
        self._check()
        if headers is not None:
            headers = arguments.things("headers", headers)
        if headers is not None or not self._usual:
            return self._one_by_one(topic, values, keys, partition, timestamps_ms, headers, turn)
        rows = rows_of(values, keys, timestamps_ms, self._now_ms())
        return self._put_all(topic, rows, partition, turn)

    def send_batches(
        self, topic: str, batches: bytes | memoryview, *, partition: int | None = None
    ) -> ManyFuture:
        """Send the records of whole record batches, as `Log.read_batches` returns them: keys,
        values, times and headers stay, batches are rebuilt.

        `partition` None: by the keys.  As in send_many, Python does no work per record, except for
        a partitioner other than murmur2 and interceptors.  The caller must leave out aborted
        records.

        Raises: as send; ArgumentError for a control batch or half of one; CorruptMessage,
        UnsupportedForMessageFormat, UnsupportedCompressionType.  Earlier records were taken.
        """
        turn = self._waiting.turn
        self._check()
        if not isinstance(batches, (bytes, memoryview)):
            raise errors.ArgumentError(
                f"batches: found {type(batches).__name__}, wanted bytes or a memoryview"
            )
        rows = BatchRows(batches)
        if self._usual:
            return self._put_all(topic, rows, partition, turn)
        with self._boundaries.whole():
            records = (
                OutgoingRecord(
                    topic, one.value, one.key, partition, one.timestamp_ms, tuple(one.headers)
                )
                for one in rows.records()
            )
            return _together([self._intercepted(one, turn) for one in records])

    def _put_all(self, topic: str, rows: RowSource, partition: int | None, turn: int) -> ManyFuture:
        intake = self._intake(topic, partition, self._until_s(), turn)
        wanted = -1 if partition is None else self._place(intake, None, None, partition)
        parts: list[tuple[Batch, int, int]] = []
        with self._waiting.many:
            try:
                while rows.more():
                    if (now := self._waiting.intakes.get(topic, intake)) is not intake:
                        self._waiting.check_turn(turn)
                        parts += _taken(intake, range(intake.partitions))
                        intake = now
                    put = rows.put(intake.native, wanted)
                    if put.status in (lib.KL_E_BUFFER_TOO_SMALL, lib.KL_E_STALE):
                        parts += _taken(intake, [put.partition])
                        if put.status == lib.KL_E_BUFFER_TOO_SMALL:
                            parts += self._make_room(rows, put, intake, wanted, turn)
                    elif put.status:
                        raise failure(put.status)
            finally:
                parts += _taken(intake, range(intake.partitions))
        return _joined(parts)

    def _make_room(
        self, rows: RowSource, put: Put, intake: Intake, wanted: int, turn: int
    ) -> list[tuple[Batch, int, int]]:
        """Make room for the row that did not fit; returns what was put there at once."""
        need = put.size + RECORD_BYTES
        if HEADER_BYTES + need > self._request_bytes:
            raise errors.MessageTooLarge(
                f"{rows.next_row()}: about {need} bytes, max.request.size is {self._request_bytes}"
            )
        until_s = self._until_s()
        last = -1

        def fill(native: Any, memory: Any) -> bool:
            nonlocal last
            full = rows.fill(native, memory, put.partition, wanted)
            last = _counts(memory)[0] - 1
            return full

        batch = self._waiting.room(intake, put.partition, need, until_s, turn, fill)
        self._check()
        return [] if batch is None else [(batch, 0, last)]

    def _one_by_one(
        self, topic: str, values: Any, keys: Any, partition: int | None, times: Any, headers: Any,
        turn: int,
    ) -> ManyFuture:  # fmt: skip
        rows = [_listed(column) for column in (values, keys, times, headers)]
        count = len(rows[0] or ())
        for name, column in zip(("keys", "timestamps_ms", "headers"), rows[1:], strict=True):
            if column is not None and len(column) != count:
                raise errors.ArgumentError(f"{name}: found {len(column)} rows, wanted {count}")
        blank: list[None] = [None] * count
        with self._boundaries.whole():
            futures = [
                self._one(OutgoingRecord(topic, value, key, partition,
                                         None if at is None else int(at),
                                         tuple(arguments.things("headers", head or ()))), turn)
                for value, key, at, head in zip(*(row or blank for row in rows), strict=True)
            ]  # fmt: skip
        return _together(futures)

    def metrics(self) -> dict[str, float]:
        """Counts and averages so far, by the names of Kafka's metrics (docs/clients.md lists them).
        From any thread, also after `close`."""
        self._mine()
        there, used = self.config.buffer_memory, self._waiting.used
        room = {"buffer-total-bytes": float(there), "buffer-available-bytes": float(there - used)}
        return {**self._sender.metrics(), **room}

    def client_instance_id(self, timeout_ms: float | None = None) -> UUID:
        """As Consumer.client_instance_id; `timeout_ms` None: max.block.ms.  Raises: Closed, too."""
        self._check(transaction=False)
        most_s = _seconds(timeout_ms, None)
        return self._sender.instance_id(self._block_s if most_s is None else most_s)

    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic; the broker may create it now.

        Raises: UnknownTopicOrPartition, Timeout (max.block.ms), Closed.
        """
        self._check(transaction=False)
        return self._waiting.intake(topic, self._until_s()).partitions

    # ---- flush and close ---------------------------------------------------------------

    def flush(self, timeout: float | None = None, *, timeout_ms: float | None = None) -> None:
        """Send everything now, and wait for the outcome.

        `timeout`: older, in seconds.  Raises: Timeout (`timeout_ms`); the first failure since the
        last call, even if a future has already raised it.
        """
        self._check(transaction=False)
        self._waiting.drain(_seconds(timeout_ms, timeout))
        self.check()

    def check(self) -> None:
        """Raise failures without waiting.

        Raises: as flush, for what is known by now.
        """
        self._mine()
        if (problem := self._waiting.take_failure()) is not None:
            raise problem

    def close(self, timeout: float | None = None, *, timeout_ms: float | None = None) -> None:
        """Wait until everything is acknowledged, at most `timeout_ms`, and close; `timeout`: older,
        in seconds.

        An open transaction is aborted.  Records not acknowledged in time are given up: their
        futures fail.  Harmless when repeated; in a forked child it only marks the producer closed.

        Raises: as flush, after everything was closed; ArgumentError in a callback, which closes
        nothing.
        """
        most_s = _seconds(timeout_ms, timeout)
        if self._gone():
            return
        problem: errors.KafkalogError | None = None
        try:
            self._finish(most_s)
        except errors.KafkalogError as found:
            if not self._closed:
                raise
            problem = found
        problem = self._waiting.take_failure() if problem is None else problem
        if problem is not None:
            raise problem

    def _gone(self) -> bool:
        """True if there is nothing to close; a forked child has nothing."""
        self._closed = self._closed or self._pid != os.getpid()
        return self._closed

    def _finish(self, timeout: float | None) -> None:
        """Close it; the accumulator knows what was not delivered.

        Raises: ArgumentError in a callback, which closes nothing; Timeout, after everything was
        closed.
        """
        self._waiting.waitable()
        until_s = None if timeout is None else time.monotonic() + timeout
        try:
            if self._boundaries.open and not self._identity.fatal:
                self._boundaries.roll_back(until_s)
                self._waiting.take_failure()
            if self._waiting.refusal is None:
                self._waiting.drain(until_s and max(until_s - time.monotonic(), 0.0))
            self._sender.say_last(until_s)
        finally:
            self._closed = True
            self._waiting.refuse(errors.Closed("the producer is closed"))
            self._sender.stop()
            at_exit.forget(self)

    def _hurry(self) -> None:
        if not self._gone():
            self._waiting.hurry_all()

    def _forked(self) -> None:
        self._waiting.direct.clear()

    def _leave(self, timeout: float, warn: bool = False) -> None:
        """Close it where no caller would see an error of `close`: records are delivered, and those
        that are not are counted in the log."""
        if self._gone():
            return
        try:
            with suppress(errors.KafkalogError):
                self._finish(timeout)
        finally:
            if self._closed:
                self._sender.tell_undelivered(warn)

    def __enter__(self) -> Producer[ValueT, KeyT]:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._leave(self._sender.options.delivery_s)

    def _mine(self) -> None:
        if self._pid != os.getpid():
            raise errors.ForkedHandle("the producer belongs to the parent process: make another")

    def _check(self, transaction: bool = True) -> None:
        self._mine()
        if self._closed:
            raise errors.Closed("the producer is closed")
        if transaction:
            self._boundaries.check()
            if self._identity.error is not None:
                raise self._identity.error.with_traceback(None)

    def __repr__(self) -> str:
        state = "closed, " if self._closed else ""
        return f"Producer({state}id {self._identity.producer_id}, epoch {self._identity.epoch})"


def _instead(found: Any) -> OutgoingRecord:
    if not isinstance(found, OutgoingRecord):
        raise errors.ArgumentError(f"found {found!r}, wanted the OutgoingRecord to send")
    return found


def _seconds(timeout_ms: float | None, timeout: float | None) -> float | None:
    found_ms = arguments.time_of("timeout_ms", timeout_ms, timeout, "timeout")
    return None if found_ms is None else found_ms / 1000


def _bytes(name: str, found: Any) -> bytes | None:
    if found is None or type(found) is bytes:
        return found
    if isinstance(found, (bytes, bytearray, memoryview)):
        return bytes(found)
    hint = "; encode it first" if isinstance(found, str) else ""
    raise errors.ArgumentError(f"{name}: found {type(found).__name__}, wanted bytes or None{hint}")


def _taken(intake: Intake, places: Iterable[int]) -> list[tuple[Batch, int, int]]:
    """The rows that send_many put into the open batches of partitions since the last call."""
    found = (_touched(intake.native, place) for place in places)
    return [one for one in found if one is not None]


def _together(futures: Iterable[Future]) -> ManyFuture:
    return _joined((one._batch, one._index, one._index) for one in futures)


def _joined(parts: Iterable[tuple[Batch, int, int]]) -> ManyFuture:
    """One span per batch, from its first record to its last."""
    spans: dict[Batch, tuple[int, int]] = {}
    for batch, first, last in parts:
        spans[batch] = spans.get(batch, (first, 0))[0], last
    return ManyFuture([(batch, *span) for batch, span in spans.items()])


def _listed(column: Any) -> list[Any] | None:
    if column is None or isinstance(column, list):
        return column
    for method in ("to_pylist", "tolist"):
        if hasattr(column, method):
            found: list[Any] = getattr(column, method)()
            return found
    return list(column)
