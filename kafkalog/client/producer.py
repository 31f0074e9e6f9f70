"""Records into partitions: batches, several requests on their way, retries in order.

Blocking, without a thread of its own: a batch goes out when it is full, or at `flush`.  What
fails for a time is sent again, in order; an idempotent producer neither loses nor repeats.
"""

from __future__ import annotations

import logging
import random
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog._native import ffi, lib
from kafkalog.batch import codecs
from kafkalog.batch.columns import Columns
from kafkalog.batch.encode import sealed
from kafkalog.batch.partitioner import partition_for_key
from kafkalog.client.cluster import Cluster, passing
from kafkalog.client.connection import Connection, answering
from kafkalog.client.failures import check_code, failure_class, is_retriable
from kafkalog.types import Header, TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["PARTITIONERS", "Delivery", "ProduceOptions", "Producer"]

HEADER_BYTES: int = lib.KL_BATCH_HEADER_BYTES
RECORD_BYTES = 40
"""More than the lengths and deltas of a record take, and of a header."""
VERSION_MAX = 11
"""Version 12 is for transactions of version 2."""
SEQUENCES = 1 << 31
_MOVING = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""What passes in every cluster when a leader moves or a topic is new: nothing to tell."""
_logger = logging.getLogger(__name__)
PARTITIONERS = ("murmur2", "crc32", "random")
"""Where a key goes: as Java's clients decide it, as librdkafka's, or anywhere."""


class ProduceOptions(NamedTuple):
    """How records are sent; times in milliseconds."""

    acks: int = -1
    """0: nobody answers; 1: the leader has them; -1: all replicas in sync have them."""
    compression: str = "none"
    batch_bytes: int = 1 << 16
    """Of a batch before compression."""
    request_bytes: int = 1 << 20
    """Of the batches of one request; a larger batch goes alone."""
    in_flight: int = 5
    """Requests on their way to one node."""
    idempotent: bool = True
    """With acks -1, where the broker offers it."""
    delivery_timeout_ms: int = 120_000
    partitioner: str = "murmur2"
    create: bool = True
    """Let the broker make a topic that does not exist, if it does so at all."""


class Delivery(NamedTuple):
    """A batch that was acknowledged, or sent, with acks 0."""

    tp: TopicPartition
    base_offset: int
    """-1: not told."""
    count: int  # type: ignore[assignment]  # a tuple's count() is of no use here
    record_bytes: int
    """Of keys and values."""
    seconds: float
    """From its first sending to its acknowledgement."""


class _Rows:
    """The records of a partition that wait for their batch."""

    __slots__ = ("bytes", "headers", "keyed", "keys", "sized", "times", "values")

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.times: list[int] = []
        self.headers: list[Sequence[Header]] = []
        self.bytes = 0
        self.keyed = False
        self.sized = HEADER_BYTES  # of the batch, at most


class _Batch(NamedTuple):
    """A batch that is ready to go."""

    tp: TopicPartition
    data: bytes
    count: int  # type: ignore[assignment]
    record_bytes: int
    sequence: int
    number: int
    """In the order in which batches were made."""


class _Request(NamedTuple):
    """Batches on their way, and when they were sent (monotonic seconds)."""

    batches: dict[TopicPartition, _Batch]
    sent_s: float


class Producer:
    """Sends records; one thread at a time; a context manager that flushes at its end."""

    def __init__(
        self,
        cluster: Cluster,
        options: ProduceOptions = ProduceOptions(),  # noqa: B008
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        """`on_delivery` is called from within send, poll and flush.

        Raises: ArgumentError, UnsupportedCompressionType.
        """
        if options.partitioner not in PARTITIONERS:
            raise errors.ArgumentError(
                f"partitioner {options.partitioner!r}: wanted one of {', '.join(PARTITIONERS)}"
            )
        if options.acks not in (-1, 0, 1):
            raise errors.ArgumentError(f"acks {options.acks}: wanted 0, 1 or -1 (all)")
        self.cluster = cluster
        self.options = options
        self.on_delivery = on_delivery
        self.producer_id, self.producer_epoch = -1, -1
        self._codec = codecs.codec_id(options.compression)
        self._rows: dict[TopicPartition, _Rows] = {}
        self._ready: dict[TopicPartition, deque[_Batch]] = {}
        self._connections: dict[int, Connection] = {}
        self._flying: dict[int, deque[_Request]] = {}
        self._failed: list[_Batch] = []
        self._reasons: dict[TopicPartition, str] = {}  # why the last one was not taken
        self._unstored: set[TopicPartition] = set()  # for want of a disk that takes it
        self._failure: errors.KafkalogError | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._first_sent_s: dict[int, float] = {}
        self._known: set[TopicPartition] = set()
        """Partitions whose leader has taken a batch of this producer."""
        self._turns: dict[str, int] = {}
        self._made = 0
        self._identified = options.acks != -1 or not options.idempotent

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        """Close the connections; what was not flushed is lost.  The cluster stays."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._flying.clear()

    # ---- records -----------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> TopicPartition:
        """Take a record; where it goes.  It may be sent later: see `flush`.

        Raises: UnknownTopicOrPartition, MessageTooLarge; the failure of an earlier one.
        """
        tp = self._place(topic, key, partition)
        rows = self._rows.get(tp)
        if rows is None:
            rows = self._rows[tp] = _Rows()
        size = len(key or b"") + len(value or b"")
        sized = size + RECORD_BYTES
        for name, data in headers:
            sized += 3 * len(name) + len(data or b"") + RECORD_BYTES
        if rows.values and rows.sized + sized > self.options.batch_bytes:
            self._close_batch(tp)
            # Records without a key go on to another partition with each batch (KIP-480).
            if key is None and partition is None:
                self._turns.pop(topic, None)
                return self.send(topic, value, timestamp_ms=timestamp_ms, headers=headers)
            rows = self._rows.setdefault(tp, _Rows())
        rows.values.append(value)
        rows.keys.append(key)
        rows.keyed = rows.keyed or key is not None
        rows.times.append(self.cluster.clock.now_ms() if timestamp_ms is None else timestamp_ms)
        rows.headers.append(headers)
        rows.bytes += size
        rows.sized += sized
        return tp

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; the broker may make it now."""
        info = self.cluster.topics.get(topic)
        if info is None or not info.partitions:
            info = self.cluster.topic(topic, self.options.create)
        return len(info.partitions)

    def _place(self, topic: str, key: bytes | None, partition: int | None) -> TopicPartition:
        count = self.partitions(topic)
        if partition is not None:
            if not 0 <= partition < count:
                raise errors.UnknownTopicOrPartition(
                    f"topic {topic!r} has no partition {partition}: it has {count}"
                )
            return TopicPartition(topic, partition)
        kind = self.options.partitioner
        if key is None or kind == "random":
            if topic not in self._turns:
                self._turns[topic] = random.randrange(count)
            return TopicPartition(topic, self._turns[topic] % count)
        if kind == "crc32":
            return TopicPartition(topic, zlib.crc32(key) % count)
        return TopicPartition(topic, partition_for_key(key, count))

    # ---- batches -----------------------------------------------------------------------

    def _close_batch(self, tp: TopicPartition) -> None:
        """The waiting records of a partition as a batch that goes out."""
        rows = self._rows.pop(tp, None)
        if rows is None or not rows.values:
            return
        self._identify()
        ready = self._ready.setdefault(tp, deque())
        ready.extend(self._batches(tp, rows))
        self._pump()

    def _batches(self, tp: TopicPartition, rows: _Rows) -> Iterator[_Batch]:
        columns = Columns(
            rows.values,
            keys=rows.keys if rows.keyed else None,
            timestamps_ms=rows.times,
            headers=rows.headers if any(rows.headers) else None,
        )
        while columns.row < columns.count:
            body = bytearray(rows.sized)
            before = columns.row
            encoded = columns.encode(body, rows.sized)
            records = bytes(memoryview(body)[HEADER_BYTES:][: encoded.records_bytes])
            small = codecs.compress(self._codec, records) if self._codec else records
            # What would not become smaller stays as it is, as librdkafka does it.
            codec = self._codec if len(small) < len(records) else 0
            count = columns.row - before
            sequence = self._sequence(tp, count)
            stamp = ffi.new("kl_stamp *", {
                "producer_id": self.producer_id, "producer_epoch": self.producer_epoch,
                "base_sequence": sequence, "attributes": codec})  # fmt: skip
            self._made += 1
            data = sealed(small if codec else records, encoded, stamp)
            yield _Batch(tp, data, count, rows.bytes, sequence, self._made)

    def _sequence(self, tp: TopicPartition, count: int) -> int:
        if self.producer_id == -1:
            return -1
        first = self._sequences.get(tp, 0)
        self._sequences[tp] = (first + count) % SEQUENCES
        return first

    def _identify(self) -> None:
        """Get a producer id, once, where the broker offers it."""
        if self._identified:
            return

        def step() -> None:
            connection = self.cluster.any()
            if not connection.knows(apis.INIT_PRODUCER_ID):
                return
            answer = connection.call(
                apis.INIT_PRODUCER_ID,
                {"transactional_id": None, "transaction_timeout_ms": 60_000},
                connection.version_of(apis.INIT_PRODUCER_ID, at_most=5),
            )
            check_code(answer.error_code, "InitProducerId")
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

        self.cluster.retrying(step)
        self._identified = True

    # ---- sending -----------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what is ready, as far as there is room; then what failed, again."""
        while nodes := self._nodes_ready():
            for node, partitions in nodes.items():
                self._send_to(node, partitions)
        self.poll(0)

    def _nodes_ready(self) -> dict[int, list[TopicPartition]]:
        ready = [tp for tp, batches in self._ready.items() if batches]
        return self.cluster.retrying(lambda: self.cluster.by_leader(ready)) if ready else {}

    def _send_to(self, node: int, partitions: list[TopicPartition]) -> None:
        """One request of what is ready for a node; waits when too many are on their way."""
        while len(self._flying.get(node, ())) >= self.options.in_flight:
            self._receive(node)
        if self._failed:
            self._recover()
        if self._failure is not None:
            raise self._failure
        batches: dict[TopicPartition, _Batch] = {}
        size = 0
        for tp in partitions:
            waiting = self._ready[tp]
            if self._unsure(node, tp):
                continue
            if batches and size + len(waiting[0].data) > self.options.request_bytes:
                break
            size += len(waiting[0].data)
            batches[tp] = waiting.popleft()
        if batches:
            self._put(node, batches)
        else:  # each of them waits for its first answer
            self._receive(node)

    def _unsure(self, node: int, tp: TopicPartition) -> bool:
        """Whether the first batch of a partition is on its way still.

        A leader that has not seen the producer takes any sequence: should the first batch
        fail, and the second not, the first could never be sent again.
        """
        if self.producer_id == -1 or tp in self._known:
            return False
        return any(tp in request.batches for request in self._flying.get(node, ()))

    def _put(self, node: int, batches: dict[TopicPartition, _Batch]) -> None:
        """Put one request on its way; on failure its batches wait for `_recover`."""
        request = _Request(batches, time.monotonic())
        for batch in batches.values():
            self._first_sent_s.setdefault(batch.number, request.sent_s)
        topics: dict[str, list[dict[str, Any]]] = {}
        for tp, batch in batches.items():
            topics.setdefault(tp.topic, []).append({"index": tp.partition, "records": batch.data})
        body = {
            "acks": self.options.acks,
            "timeout_ms": self.cluster.options.request_timeout_ms,
            "topic_data": [{"name": name, "partition_data": rows} for name, rows in topics.items()],
        }
        answered = self.options.acks != 0
        try:
            connection = self._connect(node)
            version = connection.version_of(apis.PRODUCE, at_most=VERSION_MAX)
            connection.send(apis.PRODUCE, body, version, answered)
        except errors.KafkalogError as problem:
            if not passing(problem):
                raise
            self._lost(node, request)
            return
        if answered:
            self._flying.setdefault(node, deque()).append(request)
        else:
            for batch in batches.values():
                self._delivered(batch, -1)

    def _connect(self, node: int) -> Connection:
        connection = self._connections.get(node)
        if connection is None or connection.closed:
            connection = self._connections[node] = self.cluster.another(node)
        return connection

    def _lost(self, node: int, *more: _Request) -> None:
        """The connection failed: all that was on its way is to be sent again."""
        for request in (*self._flying.pop(node, ()), *more):
            self._failed += request.batches.values()
        if connection := self._connections.pop(node, None):
            connection.close()

    # ---- answers -----------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0) -> None:
        """Take the answers that come within `timeout_ms`, the first of them at most.

        Raises: the failure of a record that was sent.
        """
        waiting = {self._connections[node]: node for node, sent in self._flying.items() if sent}
        if waiting:
            wait_s = timeout_ms / 1000
            while True:
                readable = answering(waiting, wait_s)
                for connection in readable:
                    self._receive(waiting[connection])
                wait_s = 0
                waiting = {c: n for c, n in waiting.items() if self._flying.get(n)}
                if not readable or not waiting:
                    break
        if self._failed:
            self._recover()
        if self._failure is not None:
            raise self._failure

    def flush(self) -> None:
        """Send everything and wait until it is acknowledged.

        Raises: the first failure of a record that was sent.
        """
        for tp in list(self._rows):
            self._close_batch(tp)
        while any(self._ready.values()) or any(self._flying.values()) or self._failed:
            if self._failure is None:
                self._pump()
            for node in [n for n, sent in self._flying.items() if sent]:
                self._receive(node)
            if self._failed:
                self._recover()
            if self._failure is not None and not any(self._flying.values()):
                break
        if self._failure is not None:
            raise self._failure

    def _receive(self, node: int) -> None:
        """Take the oldest answer of a node."""
        try:
            answer = self._connections[node].receive()
        except errors.KafkalogError as problem:
            if not passing(problem):
                raise
            self._lost(node)
            return
        request = self._flying[node].popleft()
        left = dict(request.batches)
        for topic in answer.responses:
            for row in topic.partition_responses:
                batch = left.pop(TopicPartition(topic.name, row.index), None)
                if batch is not None:
                    self._answered(batch, row)
        if left:
            tp = next(iter(left))
            raise errors.BadAnswer(f"Produce: node {node} says nothing of {tp.topic}-{tp[1]}")

    def _answered(self, batch: _Batch, row: Any) -> None:
        code = row.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._delivered(batch, row.base_offset)
            return
        behind = any(b.tp == batch.tp and b.number < batch.number for b in self._failed)
        if is_retriable(code) or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and behind):
            self._failed.append(batch)
            if code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._unstored.add(batch.tp)
            if code not in _MOVING:
                self._tell(batch, row)
        elif self._failure is None:
            self._failure = _refusal(batch, row)

    def _tell(self, batch: _Batch, row: Any) -> None:
        """Say why records are not taken, once for each reason: patience may be long."""
        why = str(_refusal(batch, row))
        if self._reasons.get(batch.tp) != why:
            self._reasons[batch.tp] = why
            patience_ms = self.options.delivery_timeout_ms
            if batch.tp in self._unstored:
                patience_ms = min(patience_ms, self.cluster.options.storage_timeout_ms)
            _logger.warning("%s; trying again for up to %g s", why, patience_ms / 1000)

    def _delivered(self, batch: _Batch, base_offset: int) -> None:
        sent_s = self._first_sent_s.pop(batch.number)
        self._known.add(batch.tp)
        self._unstored.discard(batch.tp)
        if self.on_delivery is not None:
            self.on_delivery(
                Delivery(
                    batch.tp,
                    base_offset,
                    batch.count,
                    batch.record_bytes,
                    time.monotonic() - sent_s,
                )
            )

    # ---- again -------------------------------------------------------------------------

    def _recover(self) -> None:
        """Send again what failed for a time: batch by batch, each partition in order.

        All that is on its way is waited for first, so that no batch overtakes another.
        """
        backoff = self.cluster.backoff(self.options.delivery_timeout_ms)
        while True:
            for node in [n for n, sent in self._flying.items() if sent]:
                while self._flying.get(node):
                    self._receive(node)
            if not self._failed or self._failure is not None:
                return
            if any(batch.tp in self._unstored for batch in self._failed):
                backoff.at_most(self.cluster.options.storage_timeout_ms)
            if backoff.over():
                raise _expired(self._failed, backoff.patience_ms, self._reasons)
            backoff.wait()
            self.cluster.forget()
            try:
                self._resend()
            except errors.KafkalogError as problem:
                if not passing(problem) or backoff.over():
                    raise

    def _resend(self) -> None:
        """Each partition's failed batches, one at a time; stops at the next failure."""
        queue = deque(sorted(self._failed, key=lambda batch: batch.number))
        self._failed = []
        try:
            while queue and not self._failed:
                batch = queue[0]
                node = self.cluster.leader(batch.tp)
                queue.popleft()
                self._put(node, {batch.tp: batch})
                while self._flying.get(node):
                    self._receive(node)
        finally:
            self._failed += queue


def _refusal(batch: _Batch, row: Any) -> errors.KafkalogError:
    """Why a broker does not take a batch."""
    try:
        detail = row.error_message
        check_code(row.error_code, f"{batch.tp.topic}-{batch.tp.partition}", detail)
    except errors.KafkalogError as problem:
        return problem
    raise AssertionError("no error")


def _expired(
    batches: Iterable[_Batch], patience_ms: int, reasons: Mapping[TopicPartition, str]
) -> errors.KafkalogError:
    some = list(batches)
    tp = some[0].tp
    return failure_class(ErrorCode.REQUEST_TIMED_OUT)(
        f"{tp.topic}-{tp.partition}: {sum(b.count for b in some)} records not taken in "
        f"{patience_ms} ms" + (f": {reasons[tp]}" if tp in reasons else "")
    )
