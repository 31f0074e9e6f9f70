"""Decides where a producer's batches go, what an answer means, and when a batch is given up.

It only decides: no clock, no socket, no thread, no randomness of its own.  The sender reports what
has happened and carries out the effects; a simulation does the same
(tests/unit/client/producer/simulation.py).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafkalog import errors
from kafkalog._native import direct, lib
from kafkalog.batch import codecs
from kafkalog.client.buffer.accumulator import Accumulator, PartitionQueue
from kafkalog.client.buffer.delivery import SEQUENCES, Batch, SendOptions
from kafkalog.client.link.chunks import names_max
from kafkalog.client.link.failures import (
    failure,
    failure_class,
    in_doubt,
    passing,
    says_nothing,
)
from kafkalog.client.link.handling import Handling, handling
from kafkalog.client.link.transport import Options
from kafkalog.client.producer.producer_id import NEVER_S, ProducerId
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Answer", "Doubt", "Effect", "Ended", "Plan", "Refuse", "Say", "SenderState",
]  # fmt: skip

_seal, _records = direct("growing_seal"), direct("growing_records")
KNOWN_AGAIN = 5
"""Recent batches remembered per producer and partition, to detect duplicates."""
_NOT_STORED = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
"""After any other retriable code it may be stored: a resigning leader ends the wait for copies."""
_TAKEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class Answer(NamedTuple):
    """A leader's answer about a batch."""

    code: int
    base_offset: int = -1
    log_append_ms: int = -1
    detail: str | None = None
    moved: bool = False
    """It named the partition's new leader, which is known now."""


class Plan(NamedTuple):
    """The batches that can be sent now."""

    nodes: dict[int, list[PartitionQueue]]
    next_s: float
    """When more can be sent."""
    stalled: set[int]
    """Nodes that do not accept what is ready for them."""
    lost: bool
    """Something is ready whose leader is not known."""


# ---- effects ---------------------------------------------------------------------------------


class Ended(NamedTuple):
    """The outcome of a batch is known, as far as it ever will be."""

    batch: Batch
    problem: errors.KafkalogError | None
    """None: it was taken."""
    base_offset: int = -1


class Doubt(NamedTuple):
    """The leader of a partition may have changed."""

    tp: TopicPartition


class Refuse(NamedTuple):
    """Take no records any more."""

    problem: errors.KafkalogError


class Say(NamedTuple):
    """A line for the log."""

    level: int
    text: str


Effect = Ended | Doubt | Refuse | Say


class SenderState:
    """The life of batches.  Each event leaves its effects in `effects`, in order; they are carried
    out before the next event.  For the sender's thread only, except `begin_sequences`."""

    def __init__(
        self, options: SendOptions, client: Options, pid: ProducerId, chance: Callable[[], float]
    ) -> None:
        """`chance`: a random number from 0 to 1."""
        self.options = options
        self.client = client
        self.effects: list[Effect] = []
        self.waiting: Accumulator
        """Set before the first event."""
        self._pid = pid
        self._chance = chance
        self._paused: dict[int, float] = {}  # nodes, and until when nothing goes there

    # ---- what goes out -------------------------------------------------------------------

    def plan(
        self,
        now_s: float,
        leader: Callable[[TopicPartition], int | None],
        takes: Callable[[int], bool],
    ) -> Plan:
        """Queues that can send now, by node.  `leader`: None: not known; `takes`: whether a node
        accepts another request."""
        plan = Plan({}, now_s + NEVER_S, set(), False)
        if not self._pid.ready:
            return plan
        next_s, lost = plan.next_s, False
        with self.waiting.lock:
            for queue in list(self.waiting.queues.values()):
                if queue.failed and not queue.flying:
                    queue.ready.extendleft(sorted(queue.failed, key=lambda b: -b.number))
                    queue.failed = []
                    queue.solo = True
                if not queue.ready or queue.failed:
                    continue
                if queue.flying and self._alone(queue):
                    if (at := leader(queue.tp)) is not None:
                        plan.stalled.add(at)
                    continue
                if queue.retry_at_s > now_s:
                    next_s = min(next_s, queue.retry_at_s)
                    continue
                node = leader(queue.tp)
                if node is None:
                    lost = True
                    continue
                pause_s = self._paused.get(node, 0)
                if pause_s > now_s:
                    next_s = min(next_s, pause_s)
                elif takes(node):
                    plan.nodes.setdefault(node, []).append(queue)
                else:
                    plan.stalled.add(node)
        return plan._replace(next_s=next_s, lost=lost)

    def _alone(self, queue: PartitionQueue) -> bool:
        """True if a queue has to wait until none of its batches is in flight.

        A leader that has not seen the producer takes any sequence: if the first batch failed and
        the second did not, the first could never be sent again.  And a broker remembers only the
        last few batches of a producer.
        """
        if queue.solo or queue.flying >= KNOWN_AGAIN:
            return True
        return self._pid.producer_id >= 0 and not queue.known

    def pack(self, queues: Iterable[PartitionQueue], now_s: float) -> dict[TopicPartition, Batch]:
        """The batches of a node's queues that go in one request: in flight from now on."""
        batches: dict[TopicPartition, Batch] = {}
        size = 0
        with self.waiting.lock:
            for queue in queues:
                if not queue.ready:
                    continue
                batch = queue.ready[0]
                try:
                    data = self._sealed(queue, batch)
                except errors.KafkalogError as problem:
                    queue.ready.popleft()
                    self._refused(batch, problem)
                    continue
                full = size + len(data) > self.options.request_bytes
                if batches and (full or len(batches) == names_max()):
                    break
                size += len(data)
                batches[queue.tp] = queue.ready.popleft()
                batch.attempts += 1
                batch.first_sent_s = batch.first_sent_s or now_s
                queue.flying += 1
                # The next request of the node begins with the other queues.
                self.waiting.queues[queue.tp] = self.waiting.queues.pop(queue.tp)
        return batches

    def _sealed(self, queue: PartitionQueue, batch: Batch) -> bytes | memoryview:
        """A batch's bytes, with its sequence for this producer id."""
        pid = self._pid
        # A batch that was sent keeps its id: it may be stored, and its answer lost.
        if batch.data is not None and (batch.attempts or batch.pid == pid.pair):
            return batch.data
        codec, small = self.options.codec, None
        if codec:
            records = _records(batch.memory)
            try:
                small = codecs.compress(codec, records, self.options.level)
            except MemoryError as problem:  # from the codec
                raise errors.NoMemory(f"{queue.tp.topic}-{queue.tp.partition}: {problem}") from None
            if len(small) >= len(records):  # sent uncompressed, as in librdkafka
                codec, small = 0, None
        # A part keeps the sequence of its whole, and the id too if the whole may be stored.
        if batch.pid != pid.pair and not batch.doubtful:
            batch.pid, batch.sequence = pid.pair, queue.sequence
            queue.sequence = (queue.sequence + batch.count) % SEQUENCES
        attributes = codec | (lib.KL_ATTR_TRANSACTIONAL if pid.transactional_id else 0)
        data: bytes | memoryview = _seal(
            batch.memory, small, *batch.pid, batch.sequence, attributes
        )
        batch.data = data
        return data

    # ---- outcomes ------------------------------------------------------------------------

    def answered(self, batch: Batch, answer: Answer, now_s: float) -> None:
        """A leader answered a batch."""
        self._landed(batch)
        code = answer.code
        if code in _TAKEN:
            if batch.ended:
                self._came_late(batch, None)
            else:
                batch.log_append_ms = answer.log_append_ms
                self._taken(batch, answer.base_offset)
            return
        where = f"{batch.tp.topic}-{batch.tp.partition}"
        problem = failure(code, where, answer.detail, apis.PRODUCE)
        if batch.ended:
            self._came_late(batch, problem)
            return
        queue = self.waiting.queues[batch.tp]
        # A broker refuses what follows a refused batch, and appends none of it.
        late = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        # An earlier batch may still be in flight, perhaps to the old leader, and be refused later.
        behind = late and (queue.flying > 0 or any(b.number < batch.number for b in queue.failed))
        renewed = late and not behind and self._pid.renewing
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            text = f"{problem}; splitting its {batch.count} records into two batches"
            self.effects.append(Say(logging.INFO, text))
            queue.failed += self.waiting.split(batch, now_s)
        elif renewed or (not behind and self._pid.forgotten(batch.pid, code)):
            if batch.doubtful:  # a leader that has forgotten it would store it a second time
                self._refused(batch, problem)
            else:
                batch.data = None  # seal it again with a new id
                self._again(batch, str(problem), now_s, at_once=renewed)
        elif behind or passing(problem):
            if not answer.moved:
                self.effects.append(Doubt(batch.tp))
            if code == ErrorCode.KAFKA_STORAGE_ERROR:
                queue.unstored_s = queue.unstored_s or now_s
            batch.doubtful = batch.doubtful or code not in _NOT_STORED
            reported = handling(code, apis.PRODUCE) is not Handling.AWAIT
            # At once only the first time in a row: each answer may name another leader.
            at_once = answer.moved and not queue.pause_ms
            self._again(batch, str(problem), now_s, tell=reported, at_once=at_once)
        else:
            batch.doubtful = batch.doubtful or says_nothing(code)
            self._refused(batch, problem)

    def unanswered(self, batch: Batch, problem: errors.KafkalogError) -> None:
        """An answer lacks this batch."""
        self._landed(batch)
        batch.doubtful = True
        (self._came_late if batch.ended else self._refused)(batch, problem)

    def lost(
        self,
        batches: Iterable[Batch],
        problem: errors.KafkalogError,
        now_s: float,
        posted: bool = True,
    ) -> None:
        """No answer will come; `posted`: the batches may have arrived."""
        for batch in batches:
            self._landed(batch)
            batch.doubtful = batch.doubtful or posted
            if batch.ended:
                self._came_late(batch, problem)
            elif passing(problem):
                self._again(batch, str(problem), now_s)
            else:
                self._refused(batch, problem)

    def throttled(self, node: int, pause_ms: int, now_s: float) -> None:
        """A node throttles this client, which obeys for as long as a request may take."""
        self._paused = {one: until_s for one, until_s in self._paused.items() if until_s > now_s}
        self._paused[node] = now_s + min(pause_ms, self.client.request_timeout_ms) / 1000

    def _landed(self, batch: Batch) -> None:
        with self.waiting.lock:
            queue = self.waiting.queues.get(batch.tp)
            if queue is not None:
                queue.flying -= 1

    def _again(
        self, batch: Batch, why: str, now_s: float, tell: bool = False, at_once: bool = False
    ) -> None:
        """Retry a batch after a transient failure."""
        queue = self.waiting.queues[batch.tp]
        if tell and queue.reason != why:  # once per reason: it may be retried for long
            text = f"{why}; trying again for up to {self._patience_s(queue):g} s"
            self.effects.append(Say(logging.WARNING, text))
        queue.reason = why
        if batch.attempts > self.options.retries:
            self._refused(batch, errors.Timeout(f"{why}; retries: {self.options.retries}"))
            return
        pause_ms = queue.pause_ms or self.client.retry_backoff_ms
        if at_once:
            queue.pause_ms = pause_ms
        else:
            queue.pause_ms = min(pause_ms * 2, self.client.retry_backoff_max_ms)
            # Jitter: up to a fifth more or less (KIP-580).
            queue.retry_at_s = now_s + pause_ms * (0.8 + 0.4 * self._chance()) / 1000
        queue.failed.append(batch)

    def _refused(self, batch: Batch, problem: errors.KafkalogError) -> None:
        """A batch will never be taken; the error says if an attempt may have stored it."""
        problem = in_doubt(problem) if batch.doubtful else problem
        self._pid.failed(problem, sent=batch.sent or batch.data is not None)
        if self._pid.fatal is not None:
            self.effects.append(Refuse(self._pid.fatal))
        self.effects.append(Ended(batch, problem))

    def _came_late(self, batch: Batch, problem: errors.KafkalogError | None) -> None:
        """The outcome of a batch that was given up in flight is known: whether its sequence, which
        others may follow, is used up or missing."""
        if problem is None:
            queue = self.waiting.queues[batch.tp]
            queue.known = queue.known or batch.pid == self._pid.pair
        elif not self._pid.transactional_id:  # else its transaction failed when it was given up
            self._pid.failed(problem, sent=True)

    def _taken(self, batch: Batch, base_offset: int) -> None:
        queue = self.waiting.queues[batch.tp]
        queue.known = queue.known or batch.pid == self._pid.pair
        queue.reason, queue.pause_ms, queue.unstored_s = "", 0.0, 0.0
        if not queue.ready or not queue.ready[0].sent:
            queue.solo = False
        self.effects.append(Ended(batch, None, base_offset))

    # ---- timeouts and an unusable id -----------------------------------------------------

    def _patience_s(self, queue: PartitionQueue) -> float:
        """How long a queue's records may wait."""
        storage_s = self.client.storage_timeout_ms / 1000
        delivery_s = self.options.delivery_s
        return min(storage_s, delivery_s) if queue.unstored_s else delivery_s

    def expire(self, now_s: float, flying: Iterable[Batch]) -> None:
        """End what has waited longer than its patience; `flying`: all batches in flight."""
        limit_s = now_s - self.options.delivery_s
        for batch in flying:
            if batch.begun_s <= limit_s and not batch.ended:
                self._give_up(batch)
        with self.waiting.lock:
            queues = list(self.waiting.queues.values())
        for queue in queues:
            patience_s = self._patience_s(queue)
            over = bool(queue.unstored_s) and now_s - queue.unstored_s >= patience_s
            late = [
                batch
                for batch in (*queue.failed, *queue.ready)
                if batch.begun_s <= limit_s or (over and batch.sent)
            ]
            if late:
                count = sum(batch.count for batch in late)
                reason = f": {queue.reason}" if queue.reason else ""
                problem = failure_class(ErrorCode.REQUEST_TIMED_OUT)(
                    f"{queue.tp.topic}-{queue.tp.partition}: {count} records not taken in "
                    f"{patience_s * 1000:g} ms{reason}"
                )
                self._take_out(queue, late, problem)

    def _give_up(self, batch: Batch) -> None:
        """Its time is over while it is in flight: see `_came_late`."""
        problem = failure_class(ErrorCode.REQUEST_TIMED_OUT)(
            f"{batch.tp.topic}-{batch.tp.partition}: {batch.count} records not acknowledged in "
            f"{self.options.delivery_s * 1000:g} ms; they may have been stored"
        )
        if self._pid.transactional_id:
            self._pid.failed(problem, sent=True)
        self.effects.append(Ended(batch, problem))

    def fail(self, queue: PartitionQueue, problem: errors.KafkalogError) -> None:
        """End everything that waits in a queue: it cannot be sent."""
        with self.waiting.lock:
            self.waiting.close(queue)
            batches = [*queue.failed, *queue.ready]
        self._take_out(queue, batches, problem)

    def _take_out(
        self, queue: PartitionQueue, some: list[Batch], problem: errors.KafkalogError
    ) -> None:
        with self.waiting.lock:
            queue.failed = [b for b in queue.failed if b not in some]
            queue.ready = deque(b for b in queue.ready if b not in some)
        for batch in some:
            self._refused(batch, problem)

    def check_id(self) -> None:
        """End everything that waits if the producer's id is no longer usable."""
        if self._pid.fatal is not None:
            self.effects.append(Refuse(self._pid.fatal))
        if why := self._pid.fatal or self._pid.error:
            self.drop_all(why)

    def drop_all(self, problem: errors.KafkalogError) -> None:
        """End everything that is not in flight."""
        with self.waiting.lock:
            queues = list(self.waiting.queues.values())
        for queue in queues:
            with self.waiting.lock:
                self.waiting.close(queue)
                some = [*queue.failed, *queue.ready]
                queue.failed, queue.ready = [], deque()
            for batch in some:
                if batch.data is not None:
                    self._pid.failed(problem, sent=True)
                # Records in a transaction end with it, stored or not.
                doubtful = batch.doubtful and not self._pid.transactional_id
                self.effects.append(Ended(batch, in_doubt(problem) if doubtful else problem))

    def begin_sequences(self) -> None:
        """The producer has another id or epoch: the sequences of all partitions restart at 0."""
        with self.waiting.lock:
            for queue in self.waiting.all_queues():
                queue.sequence, queue.known = 0, False
