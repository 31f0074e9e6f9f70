"""Records that wait to be sent: an open batch per partition and closed ones, all bounded.

Application threads fill it, the sender thread empties it.  C does the work per record.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog._native import direct, lib
from kafkalog.arguments import text
from kafkalog.client.buffer.delivery import Batch, Future
from kafkalog.client.buffer.partitioners import cumulative
from kafkalog.types import TopicPartition

__all__ = ["HEADER_BYTES", "Accumulator", "Bounds", "Intake", "PartitionQueue"]

HEADER_BYTES: int = lib.KL_BATCH_HEADER_BYTES
TURNS_PAUSE_S = 0.05
"""How often a thread that waits for room checks, whether it was woken or not."""
LIMITED_S = 300.0
"""How long a topic's batches stay small after its brokers refused one as too large."""
FIRST_BYTES = 16_384
"""Bytes of a partition's first batch.  A full one makes the next GROWTH times as large, up to
batch.size or its share of buffer.memory: reserved room that stays empty makes others wait."""
GROWTH = 4
TURN_BYTES = 262_144
"""Bytes without a key that go to one partition before another is chosen, or batch.size if that is
less: a few records should not all end up in one partition."""
IDLE_S = 1.0
"""How long memory of full-size batches is kept for the next ones while nothing is sent."""
NUMBERS = 1 << 31
"""The step between the numbers of two batches: the parts of a split batch get those between."""
_new, _open, _load = direct("intake_new"), direct("intake_open"), direct("intake_load")
_memory, _let_go = direct("growing_new"), direct("growing_let_go")
_counts = direct("growing_told")


class Bounds(NamedTuple):
    """How many bytes may wait, and for how long."""

    batch_bytes: int
    buffer_bytes: int
    linger_s: float


class Intake(NamedTuple):
    """Where records of a topic enter."""

    topic: str
    partitions: int
    native: Any


class PartitionQueue:
    """The batches of a partition, in their order.  Under the accumulator's lock."""

    __slots__ = (
        "failed", "flying", "grown", "intake", "known", "open", "pause_ms", "ready", "reason",
        "retry_at_s", "sequence", "solo", "tp", "unstored_s",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition, intake: Intake) -> None:
        self.tp = tp
        self.intake = intake
        self.open: Batch | None = None
        """The batch that takes records."""
        self.grown = FIRST_BYTES
        """Bytes that its next batch may take."""
        self.ready: deque[Batch] = deque()
        """Closed, to be sent in this order."""
        self.failed: list[Batch] = []
        """To be sent again once nothing is in flight."""
        self.flying = 0
        """Batches in flight."""
        self.solo = False
        """Failed batches are being retried one by one."""
        self.known = False
        """Its leader has taken a batch of this producer id."""
        self.sequence = 0
        """Sequence number of the next record to be sealed."""
        self.retry_at_s = 0.0
        self.pause_ms = 0.0
        self.reason = ""
        """Why its records were refused last."""
        self.unstored_s = 0.0
        """Since when the leader answers KAFKA_STORAGE_ERROR; 0: it does not, as far as is known."""

    @property
    def empty(self) -> bool:
        """True if no batch is open, closed, failed or in flight."""
        return self.open is None and not self.ready and not self.failed and not self.flying


class Accumulator:
    """All records that wait.  Safe to use from many threads."""

    def __init__(
        self,
        bounds: Bounds,
        keyless: tuple[bool, bool],
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`keyless`: (an empty key is none, no key is an empty one); `wake`: the sender."""
        self.bounds = bounds
        self._keyless = keyless
        self._wake = wake
        self._clock = clock
        self._pid = os.getpid()
        self.emptier: threading.Thread | None = None
        """The only thread that can end a wait; it must not begin one."""
        self.lock = threading.Condition(threading.RLock())
        """Guards what follows; notified when there is room, or a topic is known."""
        self.many = threading.RLock()
        """One send_many at a time."""
        self.intakes: dict[str, Intake] = {}
        self.direct: dict[str, Any] = {}
        """The C side of `intakes`, while records may go there directly, without Python's checks."""
        self.plain = True
        """True if they may."""
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        """Those that are not empty."""
        self._idle: dict[TopicPartition, PartitionQueue] = {}
        self.unfinished: dict[int, Batch] = {}
        self._looks: dict[str, int] = {}
        """By topic: how often its partitions were reported."""
        self._used_s: dict[str, float] = {}
        """By topic: when a batch was last begun."""
        self.wanted: dict[str, errors.KafkalogError | None] = {}
        """Topics that a thread waits for, and why they are not known."""
        self.used = 0
        self._spare: list[bytearray] = []
        """Memory of finished batches of batch.size; together with `used` at most buffer.memory."""
        self._busy_s = 0.0
        """When a batch was last unfinished."""
        self.starved = False
        """A thread waits for room: nothing lingers."""
        self.refusal: errors.KafkalogError | None = None
        """Why no records are taken any more."""
        self.held = ""
        """Why no records are taken for now."""
        self.turn = 0
        """Rises with each `hold`: records of an earlier turn are refused."""
        self.failure: errors.KafkalogError | None = None
        """The first one since the last `take_failures`."""
        self.undelivered = 0
        """Records that were given up since then."""
        self._number = 0
        self._limits: dict[str, tuple[int, float]] = {}
        """By topic: the largest batch in bytes that its brokers take, and until when that holds."""

    # ---- topics --------------------------------------------------------------------------

    def know(self, topic: str, partitions: int) -> None:
        """Note a topic's number of partitions, and wake the threads that wait for it."""
        with self.lock:
            found = self.intakes.get(topic)
            if found is None or found.partitions != partitions:
                for queue in self.all_queues():
                    if queue.tp.topic == topic:
                        self.close(queue)
                # Idle queues keep their sequences: brokers still know the producer.
                self._enter(topic, partitions)
                self.be_plain(self.plain)
            self._looks[topic] = self._looks.get(topic, 0) + 1
            self.wanted.pop(topic, None)
            self.lock.notify_all()

    def _enter(self, topic: str, partitions: int) -> None:
        """Make a new intake for a topic; no batch is open in it."""
        turn_bytes = min(self.bounds.batch_bytes, TURN_BYTES)
        native = _new(partitions, Future, random.getrandbits(62), turn_bytes, *self._keyless)
        self.intakes[topic] = made = Intake(topic, partitions, native)
        self._used_s.setdefault(topic, self._clock())
        for queue in self.queues.values():
            if queue.tp.topic == topic:
                queue.intake = made

    def forget_idle(self, since_s: float) -> set[str]:
        """Forget topics that were not used since then; the topics that are left."""
        with self.lock:
            busy = {tp.topic for tp in self.queues}
            for topic in [t for t in self.intakes if self._used_s.get(t, 0) < since_s]:
                if topic not in busy:
                    del self.intakes[topic]
                    self.direct.pop(topic, None)
                    self._used_s.pop(topic, None)
                    self._looks.pop(topic, None)
            return {*self.intakes}

    def be_plain(self, plain: bool) -> None:
        """Set whether records of known topics may go to C directly, without Python's checks."""
        with self.lock:
            self.plain = plain
            self.direct.clear()
            if plain and self.refusal is None:
                self.direct.update((name, one.native) for name, one in self.intakes.items())

    def refuse(self, why: errors.KafkalogError) -> None:
        """Take no more records, and wake all waiting threads."""
        with self.lock:
            self.refusal = self.refusal or why
            self.direct.clear()
            self.lock.notify_all()

    def hold(self, why: str, turn: int | None = None) -> None:
        """Refuse new records, with `why`, until `resume`.  Those already taken are still sent.

        `turn`: the caller's; None: any.  Raises: as check_turn.
        """
        with self.lock:
            if turn is not None:
                self.check_turn(turn)
            self.held = why
            self.turn += 1
            self.be_plain(False)
            # Without an open batch C takes nothing either: a thread on its way into C finds none,
            # now or later.
            for queue in list(self.queues.values()):
                self.close(queue)
            for one in list(self.intakes.values()):
                self._enter(one.topic, one.partitions)
            self.lock.notify_all()
        self._wake()

    def resume(self, plain: bool) -> None:
        """Take records again; `plain`: as in `be_plain`."""
        with self.lock:
            self.held = ""
            self.be_plain(plain)

    def check_held(self) -> None:
        """Raises: InvalidTxnState while records are held off."""
        if self.held:
            raise errors.InvalidTxnState(self.held)

    def check_turn(self, turn: int) -> None:
        """Raises: InvalidTxnState if `hold` was called since that turn."""
        if turn != self.turn:
            ended = "the transaction in which this was sent has ended"
            raise errors.InvalidTxnState(self.held or ended)

    def intake(self, topic: str, until_s: float, turn: int | None = None) -> Intake:
        """Where a topic's records go; waits until its partitions are known.

        `turn`: the caller's; None: any.  Raises: ArgumentError; Timeout; why the topic is not
        known; the refusal; as check_turn.
        """
        if not isinstance(topic, str) or topic not in self.intakes:
            text("topic", topic)  # here, not in the thread that asks the brokers for it
        found = self.intakes.get(topic)
        if found is not None and self.refusal is None:
            if turn is not None:
                self.check_turn(turn)  # after the lookup: a later turn has another intake
            return found
        with self.lock:
            self.wanted[topic] = None
            while True:
                if self.refusal is not None:
                    self.wanted.pop(topic, None)
                    raise self.refusal
                if turn is not None:
                    self.check_turn(turn)
                found = self.intakes.get(topic)
                if found is not None:
                    return found
                problem = self.wanted.get(topic)
                left_s = until_s - time.monotonic()
                if problem is not None and (not problem.retriable or left_s <= 0):
                    self.wanted.pop(topic, None)
                    raise problem
                if left_s <= 0:
                    self.wanted.pop(topic, None)
                    raise errors.Timeout(f"topic {topic!r}: its partitions are not known yet")
                self.waitable()
                self._wake()
                self.lock.wait(min(left_s, TURNS_PAUSE_S))

    def look_again(self, topic: str, until_s: float) -> None:
        """Wait until a topic's partitions were reported once more, or `until_s`: it may have
        grown.  Raises: as `waitable`."""
        with self.lock:
            seen = self._looks.get(topic)
            self.wanted.setdefault(topic, None)
            while self._looks.get(topic) == seen and self.wanted.get(topic) is None:
                left_s = until_s - time.monotonic()
                if left_s <= 0 or self.refusal is not None:
                    break
                self.waitable()
                self._wake()
                self.lock.wait(min(left_s, TURNS_PAUSE_S))

    def here(self) -> None:
        """Raises: ForkedHandle: a child has no thread that would send anything."""
        if os.getpid() != self._pid:
            raise errors.ForkedHandle("the producer belongs to the parent process")

    def waitable(self) -> None:
        """Raises: ForkedHandle; ArgumentError in a callback, where a wait would never end."""
        self.here()
        if threading.current_thread() is self.emptier:
            raise errors.ArgumentError("a callback of the producer cannot wait for it")

    # ---- batches -------------------------------------------------------------------------

    def queue(self, intake: Intake, partition: int) -> PartitionQueue:
        """The queue of a partition."""
        tp = TopicPartition(intake.topic, partition)
        found = self.queues.get(tp) or self._idle.pop(tp, None) or PartitionQueue(tp, intake)
        self.queues[tp] = found
        found.intake = intake
        return found

    def room(
        self,
        intake: Intake,
        partition: int,
        need: int,
        until_s: float,
        turn: int,
        fill: Callable[[Any, Any], bool] | None = None,
    ) -> Batch | None:
        """Make sure that the partition has an open batch with room for `need` bytes.

        `fill` (intake, memory of a batch): puts records into a new batch before other threads see
        it; True: the batch is full, and is to be sent.  Returns the batch with these records.

        Raises: Timeout: there was no room until then; the refusal; as check_turn; what `fill` does.
        """
        with self.lock:
            self.check_turn(turn)
            intake = self.intakes.get(intake.topic, intake)
            queue = self.queue(intake, partition)
            if queue.open is not None:
                if queue.open.size + need <= queue.open.reserved:
                    return None  # another thread was quicker
                self._close_full(queue)
                self._wake()
            wanted = max(min(self._most(intake.topic), queue.grown), HEADER_BYTES + need)
            self._reserve(wanted, until_s, turn)
        try:
            with self.lock:
                memory = self._room(wanted)
            full = fill is not None and fill(intake.native, memory)
            with self.lock:
                self._check_taking(turn)
                return self._begin(intake, partition, memory, wanted, full)
        except BaseException:
            self.release(wanted)
            raise

    def _begin(
        self, intake: Intake, partition: int, memory: Any, reserved: int, full: bool
    ) -> Batch | None:
        """Open a batch; `full`: and close it.  Returns it if there are records in it."""
        filled = _counts(memory)[0] > 0
        queue = self.queue(self.intakes.get(intake.topic, intake), partition)
        if queue.open is not None:  # another thread was quicker
            if not filled:
                self.release(reserved)
                return None
            self.close(queue)
        self._number += NUMBERS
        self._used_s[intake.topic] = self._clock()
        batch = Batch(self, queue.tp, memory, self._number)
        batch.reserved = reserved
        _open(queue.intake.native, partition, batch, memory)  # first, as it may fail
        queue.open = self.unfinished[batch.number] = batch
        if full:
            self._close_full(queue)
        self._wake()
        return batch if filled else None

    def _close_full(self, queue: PartitionQueue) -> None:
        """Close a full batch; the next one may be larger."""
        queue.grown = min(queue.grown * GROWTH, self._share())
        self.close(queue)

    def _check_taking(self, turn: int) -> None:
        """Raises: the refusal; as check_held and check_turn."""
        if self.refusal is not None:
            raise self.refusal
        self.check_held()
        self.check_turn(turn)

    def _reserve(self, wanted: int, until_s: float, turn: int) -> None:
        limit = self.bounds.buffer_bytes
        while True:
            self._check_taking(turn)
            # Looked at after each wait, too: another thread may have taken what became free.
            if self.used + wanted > limit and self.used:
                self.starved = True
            # Once it was full, half of it must be free: not every batch should wake all threads.
            if not self.starved or self.used + wanted <= max(limit // 2, wanted):
                self.starved = False
                break
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise errors.Timeout(
                    f"buffer.memory: {self.used} of {limit} bytes wait for their acknowledgement, "
                    f"wanted room for {wanted} more in max.block.ms"
                )
            self.waitable()
            self._wake()
            self.lock.wait(min(left_s, TURNS_PAUSE_S))
        self.used += wanted

    def release(self, reserved: int) -> None:
        """Give reserved bytes back."""
        with self.lock:
            self.used -= reserved
            if self.starved and self.used <= self.bounds.buffer_bytes // 2:
                self.lock.notify_all()

    def _room(self, wanted: int) -> Any:
        """The memory of a batch, reused from an earlier one if that has batch.size."""
        whole = wanted == self.bounds.batch_bytes and self._spare
        return _memory(wanted, self._spare.pop() if whole else None)

    def _keep(self, batch: Batch) -> None:
        """Keep the memory of a batch that has ended, unless something still refers to it."""
        memory, batch.memory, batch.data = batch.memory, None, None
        whole = self.bounds.batch_bytes
        if memory is not None and batch.reserved == whole:
            bytes_kept = len(self._spare) * whole
            if self.used + bytes_kept <= self.bounds.buffer_bytes and (room := _let_go(memory)):
                self._spare.append(room)

    def close(self, queue: PartitionQueue) -> None:
        """Close the open batch: it is to be sent, or dropped if it has no records."""
        batch = queue.open
        if batch is None:
            return
        _open(queue.intake.native, queue.tp.partition, None, None)
        batch.freeze()
        queue.open = None
        if batch.count:
            queue.ready.append(batch)
        else:
            self.drop(batch)

    def _share(self) -> int:
        """How large a batch may grow: the buffer holds four for each partition with records."""
        share = self.bounds.buffer_bytes // (4 * max(len(self.queues), 1))
        return max(min(self.bounds.batch_bytes, share), FIRST_BYTES)

    def _most(self, topic: str) -> int:
        """The largest batch of a topic, in bytes."""
        most, until_s = self._limits.get(topic, (0, 0.0))
        if not most:
            return self.bounds.batch_bytes
        if until_s <= self._clock():
            del self._limits[topic]  # it may take more by now
            return self.bounds.batch_bytes
        return min(most, self.bounds.batch_bytes)

    def split(self, batch: Batch, now_s: float) -> tuple[Batch, Batch]:
        """Replace a batch that was too large by two; later ones are that small, too."""
        with self.lock:
            most = max(batch.size // 2, HEADER_BYTES)
            self._limits[batch.tp.topic] = most, now_s + LIMITED_S
            del self.unfinished[batch.number]
            parts = batch.split()
            self.unfinished.update((part.number, part) for part in parts)
        return parts

    def close_due(self, now_s: float, leaving: bool) -> float:
        """Close the batches that need not wait any longer; returns when the next is due.

        `leaving`: no thread can add to them.
        """
        bounds = self.bounds
        due_s = now_s + 3600
        with self.lock:
            if self.unfinished:
                self._busy_s = now_s
            elif now_s - self._busy_s > IDLE_S:
                self._spare.clear()
            for queue in list(self.queues.values()):
                batch = queue.open
                if batch is None:
                    if queue.empty:
                        self._idle[queue.tp] = self.queues.pop(queue.tp)
                    continue
                if (queue.ready or queue.failed) and not batch.hurry:
                    continue  # it could not be sent yet
                at_s = batch.begun_s + bounds.linger_s
                size = batch.size
                if size <= HEADER_BYTES:  # its first record is on its way, or went elsewhere
                    batch.begun_s = now_s
                    if leaving:
                        self.close(queue)
                    continue
                full = size >= min(bounds.batch_bytes, batch.reserved)
                if at_s <= now_s or batch.hurry or leaving or self.starved or full:
                    if size * GROWTH <= queue.grown > FIRST_BYTES:
                        queue.grown //= GROWTH  # it gets fewer records now
                    self.close(queue)
                else:
                    due_s = min(due_s, at_s)
        return due_s

    def hurry(self, batch: Batch) -> None:
        """Send a batch without linger, as a thread waits for it.  Raises: as `waitable`."""
        self.waitable()
        batch.hurry = True
        self._wake()

    def pending(self) -> list[Batch]:
        """All batches with records whose outcome is not known."""
        with self.lock:
            return [
                batch
                for batch in self.unfinished.values()
                if batch.count or batch.memory is None or batch.size > HEADER_BYTES
            ]

    def hurry_all(self) -> list[Batch]:
        """Send all records now; returns `pending`."""
        for batch in (pending := self.pending()):
            batch.hurry = True
        self._wake()
        return pending

    def drain(self, timeout: float | None) -> None:
        """Send all records, and wait for their outcome.

        Raises: Timeout (seconds); as `waitable`.
        """
        self.waitable()
        until_s = None if timeout is None else time.monotonic() + timeout
        for batch in self.hurry_all():
            left_s = None if until_s is None else max(until_s - time.monotonic(), 0)
            if not batch.wait(left_s):
                raise errors.Timeout(f"not all was acknowledged in {(timeout or 0) * 1000:g} ms")

    def weigh(self, unavailable: Callable[[str], Collection[int]]) -> None:
        """Let records without a key go to partitions where less waits (KIP-794).

        `unavailable`: the partitions of a topic that get none.
        """
        with self.lock:
            queued: dict[str, dict[int, int]] = {}
            for queue in self.queues.values():
                if count := len(queue.ready) + len(queue.failed) + (queue.open is not None):
                    queued.setdefault(queue.tp.topic, {})[queue.tp.partition] = count
            for name, intake in self.intakes.items():
                if intake.partitions > 1:
                    some = queued.get(name, {})
                    found = cumulative(intake.partitions, some, unavailable(name))
                    _load(intake.native, found)

    def all_queues(self) -> list[PartitionQueue]:
        """All queues, with the empty ones.  Under the lock."""
        return [*self.queues.values(), *self._idle.values()]

    def failed(self, problem: errors.KafkalogError, records: int) -> None:
        """Note that so many records were given up."""
        if records:
            with self.lock:
                self.failure = self.failure or problem
                self.undelivered += records

    def take_failure(self) -> errors.KafkalogError | None:
        """The first failure since the last call."""
        return self.take_failures()[0]

    def take_failures(self) -> tuple[errors.KafkalogError | None, int]:
        """As take_failure, and the number of records that were given up."""
        with self.lock:
            found = self.failure, self.undelivered
            self.failure, self.undelivered = None, 0
            return found

    def drop(self, batch: Batch) -> None:
        """Forget a batch that has ended."""
        with self.lock:
            # The first part of a split batch has its number.
            if self.unfinished.get(batch.number) is batch:
                del self.unfinished[batch.number]
                self._keep(batch)
                self.release(batch.reserved)
                batch.reserved = 0
