"""What goes out: requests to those who lead, answers, retries in order, by a thread of its own.

Up to `in_flight` requests are on their way to a node.  What fails for a time is sent again in
order: nothing of its partition goes out until all of it that was on its way has come back, and
then one batch after another, until one is taken.  An idempotent producer neither loses nor repeats.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

from kafkalog import errors
from kafkalog._native import direct, lib
from kafkalog.batch import codecs
from kafkalog.client.accumulator import Accumulator, Lane
from kafkalog.client.balance import Balance
from kafkalog.client.bell import Bell
from kafkalog.client.cluster import Cluster, passing, places_of
from kafkalog.client.delivery import SEQUENCES, Batch, Delivery, SendOptions
from kafkalog.client.failures import failure, failure_class, in_doubt, is_retriable
from kafkalog.client.flights import Flights, Request
from kafkalog.client.identity import Identity
from kafkalog.client.line import Line
from kafkalog.client.portions import names_max
from kafkalog.client.producer_metadata import ProducerMetadata
from kafkalog.client.tasks import Tasks
from kafkalog.client.transport import Address
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["SendOptions", "Sender"]

_logger = logging.getLogger(__name__)
_seal, _records = direct("growing_seal"), direct("growing_records")
KNOWN_AGAIN = 5
"""So many batches of a producer a partition remembers, to tell what is sent twice."""
LONGEST_S = 1.0
"""The sender looks around so often at least."""
_MOVING = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""What passes in every cluster when a leader moves or a topic is new: nothing to tell."""


_NOT_STORED = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
"""After any other refusal that passes it may be: a leader that resigns ends the wait for copies."""


class Sender:
    """The thread, and all that only it touches."""

    def __init__(
        self,
        cluster: Cluster,
        options: SendOptions,
        identity: Identity,
        on_delivery: Callable[[Delivery], object] | None,
    ) -> None:
        """`cluster` is this thread's from now on.  Nothing runs before `start`."""
        self.cluster = cluster
        cluster.openings.apart = True
        self.options = options
        self.identity = identity
        self._on_delivery = on_delivery
        self._waiting: Accumulator
        self.balance = Balance(options.adaptive, options.availability_s)
        self._paused: dict[int, float] = {}  # nodes, and until when nothing goes there
        self._metadata = ProducerMetadata(
            cluster, options.metadata_s, options.metadata_idle_s, self._fail_lane
        )
        self._bell = Bell()
        self.wake = self._bell.ring
        """There is something to do; from any thread."""
        self.tasks = Tasks(self.wake)
        self._line = Line(Cluster(cluster, cluster.options, cluster.clock), self.wake)
        self._flights = Flights(cluster, options.in_flight, options.acks != 0, self.wake)
        self._over = self._leaving = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="kafkalog-producer", daemon=True)

    def start(self, waiting: Accumulator) -> None:
        """Send what comes into `waiting`."""
        self._waiting = waiting
        waiting.emptier = self._thread
        self._thread.start()

    def stop(self) -> None:
        """End, whatever waits; returns when the thread has."""
        self._over = True
        self.wake()
        if threading.current_thread() is not self._thread and self._pid == os.getpid():
            self.cluster.openings.interrupt()  # it may wait for a broker that answers nothing
            self._line.interrupt()
            self._thread.join()

    def leave(self) -> None:
        """End as soon as nothing waits any more: nobody can send."""
        self._leaving = True
        self.wake()

    @property
    def leaving(self) -> bool:
        """Whether its producer was dropped, and something waits still."""
        return self._leaving and self._thread.is_alive() and self._pid == os.getpid()

    def close(self, timeout: float | None = None) -> None:
        """The end of one that leaves: wait until nothing waits any more, at most `timeout` seconds,
        or delivery.timeout.ms."""
        if self.leaving and threading.current_thread() is not self._thread:
            try:
                self._thread.join(self.options.delivery_s if timeout is None else timeout)
            finally:  # also after a Ctrl-C: what is lost is told
                self.stop()

    def tell_undelivered(self, warn: bool = False) -> None:
        """Say how many records were given up where nobody is left who would be told."""
        problem, count = self._waiting.take_failures()
        if count:
            told = f"a producer has ended: {count} records were not delivered: {problem}"
            _logger.warning("%s", told)
            if warn:
                warnings.warn(told, ResourceWarning, stacklevel=2)

    # ---- the thread ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._over and (self._waiting.unfinished or not self._leaving):
                self._turn()
        except BaseException as problem:
            _logger.exception("the producer's thread failed")
            self._end(errors.Closed(f"the producer's thread failed: {problem!r}"))
        else:
            self._end(errors.Closed("the producer was closed before this was acknowledged"))
        if self._leaving:
            self.tell_undelivered(warn=True)

    def _end(self, why: errors.KafkalogError) -> None:
        self._waiting.refuse(why)
        with self._waiting.lock:  # or who had found a batch open would write to what is freed
            for lane in list(self._waiting.lanes.values()):
                self._waiting.close(lane)
        self._line.close()
        self.tasks.close(why)
        for batch in list(self._waiting.unfinished.values()):
            self._ended(batch, why)
        self._flights.close()
        self.cluster.close()
        self._bell.close()

    def _turn(self) -> None:
        now_s = time.monotonic()
        for node, request, problem, posted in self._flights.opened(now_s):
            self._went(node, request, problem, posted)
        self._line.settle()
        next_s = self.tasks.run(now_s, self._line)
        next_s = min(next_s, self._waiting.close_due(now_s, self._leaving))
        self._expire(now_s)
        next_s = min(next_s, self.identity.ensure(self._line, now_s, self._quiet))
        if self.identity.fatal is not None:
            self._waiting.refuse(self.identity.fatal)
        if why := self.identity.fatal or self.identity.error:
            self.drop_all(why)
        self._metadata.refresh(now_s, self._waiting, self._line)
        while True:
            nodes, at_s = self._plan(now_s)
            if not nodes:
                break
            for node, lanes in nodes.items():
                self._send_to(node, lanes, now_s)
            self._waiting.close_due(now_s, self._leaving)
        self.balance.weigh(now_s, self.cluster, self._waiting)
        self._wait(min(next_s, at_s))

    def _quiet(self) -> bool:
        """Whether nothing is on its way."""
        return self._flights.quiet

    def _wait(self, until_s: float) -> None:
        """Take the answers that are there; without any wait for one, or for the bell."""
        busy = bool(self._waiting.unfinished)
        longest_s = min(LONGEST_S, self.options.delivery_s / 4) if busy else LONGEST_S
        now_s = time.monotonic()

        def left_s(due_s: float) -> float:
            rung = self._bell.sleep()
            return 0.0 if rung or self._over else min(until_s - now_s, due_s - now_s, longest_s)

        found, rung = self._flights.wait(self._bell.fileno(), left_s)
        self._bell.awake()
        if rung:
            self._bell.heard()
        for node in found:
            self._receive_all(node)
        for node in self._flights.late(time.monotonic()):
            self._lost(node, errors.Timeout(f"node {node}: no answer to Produce in time"))

    # ---- what goes out -------------------------------------------------------------------

    def _plan(self, now_s: float) -> tuple[dict[int, list[Lane]], float]:
        """Lanes that can send now, by node; when others may."""
        found: dict[int, list[Lane]] = {}
        next_s = now_s + 3600
        stalled: set[int] = set()
        if not self.identity.ready:
            return found, next_s
        with self._waiting.lock:
            for lane in list(self._waiting.lanes.values()):
                if lane.failed and not lane.flying:
                    lane.ready.extendleft(sorted(lane.failed, key=lambda b: -b.number))
                    lane.failed = []
                    lane.solo = True
                if not lane.ready or lane.failed:
                    continue
                if lane.flying and self._alone(lane):
                    if (at := self._metadata.leader(lane.tp)) is not None:
                        stalled.add(at)
                    continue
                if lane.retry_at_s > now_s:
                    next_s = min(next_s, lane.retry_at_s)
                    continue
                node = self._metadata.leader(lane.tp)
                if node is None:
                    if self._line.free:  # else it rings
                        next_s = min(next_s, max(self._metadata.next_s, now_s + 0.001))
                    continue
                pause_s = self._paused.get(node, 0)
                if pause_s > now_s:
                    next_s = min(next_s, pause_s)
                elif self._flights.takes(node):
                    found.setdefault(node, []).append(lane)
                else:
                    stalled.add(node)
        self.balance.stalled(stalled, now_s)
        if found:
            for lane in self.identity.join(self._line, found):  # which rings
                for lanes in found.values():
                    if lane in lanes:
                        lanes.remove(lane)
            found = {node: lanes for node, lanes in found.items() if lanes}
        return found, next_s

    def _alone(self, lane: Lane) -> bool:
        """Whether a lane has to wait until nothing of it is on its way.

        A leader that has not seen the producer takes any sequence: should the first batch
        fail, and the second not, the first could never be sent again.  And a broker knows again
        only the last few batches of a producer.
        """
        if lane.solo or lane.flying >= KNOWN_AGAIN:
            return True
        return self.identity.producer_id >= 0 and not lane.known

    def _send_to(self, node: int, lanes: list[Lane], now_s: float) -> None:
        """One request of what is ready for a node."""
        batches: dict[TopicPartition, Batch] = {}
        size = 0
        with self._waiting.lock:
            for lane in lanes:
                if not lane.ready:
                    continue
                batch = lane.ready[0]
                try:
                    data = self._sealed(lane, batch)
                except errors.KafkalogError as problem:
                    lane.ready.popleft()
                    self._refused(batch, problem)
                    continue
                full = size + len(data) > self.options.request_bytes
                if batches and (full or len(batches) == names_max()):
                    break
                size += len(data)
                batches[lane.tp] = lane.ready.popleft()
                lane.flying += 1
                # The others' turn is before its next.
                self._waiting.lanes[lane.tp] = self._waiting.lanes.pop(lane.tp)
        if batches:
            self.balance.took(node)
            self._put(node, batches, now_s)

    def _sealed(self, lane: Lane, batch: Batch) -> bytes:
        """A batch's bytes, with the sequence that it has for this producer id."""
        identity = self.identity
        # What was sent keeps the id that it had: it may be there already, its answer lost.
        if batch.data is not None and (batch.attempts or batch.pid == identity.pair):
            return batch.data
        codec, small = self.options.codec, None
        if codec:
            records = _records(batch.memory)
            try:
                small = codecs.compress(codec, records, self.options.level)
            except MemoryError as problem:  # the codecs' own
                raise errors.NoMemory(f"{lane.tp.topic}-{lane.tp.partition}: {problem}") from None
            if len(small) >= len(records):  # it stays as it is, as librdkafka does it
                codec, small = 0, None
        # A part has the sequence of its whole, and where that may be there its id, too.
        if batch.pid != identity.pair and not batch.doubtful:
            batch.pid, batch.sequence = identity.pair, lane.sequence
            lane.sequence = (lane.sequence + batch.count) % SEQUENCES
        attributes = codec | (lib.KL_ATTR_TRANSACTIONAL if identity.transactional_id else 0)
        data: bytes = _seal(batch.memory, small, *batch.pid, batch.sequence, attributes)
        batch.data = data
        return data

    def _put(self, node: int, batches: dict[TopicPartition, Batch], now_s: float) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for tp, batch in batches.items():
            batch.attempts += 1
            batch.first_sent_s = batch.first_sent_s or now_s
            topics.setdefault(tp.topic, []).append({"index": tp.partition, "records": batch.data})
        body = {
            "transactional_id": self.identity.transactional_id or None,
            "acks": self.options.acks,
            "timeout_ms": self.cluster.options.request_timeout_ms,
            "topic_data": [{"name": name, "partition_data": rows} for name, rows in topics.items()],
        }
        until_s = now_s + self.cluster.options.request_timeout_ms / 1000
        request = Request(batches, body, self.identity.produce_version, until_s)
        try:
            # A broker that ends answers first: what it said must not go with the connection.
            self._receive_all(node)
            if not self._flights.send(node, request):
                return
        except errors.KafkalogError as problem:
            self._went(node, request, problem)
        else:
            self._went(node, request, None)

    def _went(
        self,
        node: int,
        request: Request,
        problem: errors.KafkalogError | None,
        posted: bool = True,
    ) -> None:
        """A request is on its way, or cannot be; `posted`: some of it may have gone."""
        if problem is not None:
            self._lost(node, problem, request, posted=posted)
        elif self.options.acks == 0:  # that is all that will be known
            for batch in request.batches.values():
                self._landed(batch)
                self._delivered(batch, -1)

    def _lost(
        self, node: int, problem: errors.KafkalogError, *more: Request, posted: bool = True
    ) -> None:
        """The connection failed: all that was on its way is to be sent again."""
        requests = (*self._flights.lose(node), *more)
        self._metadata.doubt_node(node)
        for request in requests:
            for batch in request.batches.values():
                self._landed(batch)
                if batch.ended:
                    self._came_late(batch, problem)
                elif passing(problem):
                    batch.doubtful = batch.doubtful or posted or request not in more
                    self._again(batch, str(problem))
                else:
                    self._refused(batch, problem)

    # ---- answers -------------------------------------------------------------------------

    def _receive_all(self, node: int) -> None:
        """Take the answers of a node that are there, and give it more of what waits for it."""
        while self._flights.speaks(node):
            self._receive(node)
        try:
            self._flights.pump(node)
        except errors.KafkalogError as problem:
            self._lost(node, problem)

    def _receive(self, node: int) -> None:
        """Take the oldest answer of a node."""
        try:
            request, answer = self._flights.receive(node)
        except errors.KafkalogError as problem:
            self._lost(node, problem)
            return
        left = dict(request.batches)
        places = places_of(answer)
        for topic in answer.responses:
            for row in topic.partition_responses:
                batch = left.pop(TopicPartition(topic.name, row.index), None)
                if batch is not None:
                    self._landed(batch)
                    self._answered(batch, row, places)
        for tp, batch in left.items():
            self._landed(batch)
            told = f"Produce: node {node} says nothing of {tp.topic}-{tp.partition}"
            refuse = self._came_late if batch.ended else self._refused
            refuse(batch, errors.BadAnswer(told))
        if answer.throttle_time_ms > 0:
            self._paused[node] = time.monotonic() + answer.throttle_time_ms / 1000

    def _landed(self, batch: Batch) -> None:
        with self._waiting.lock:
            lane = self._waiting.lanes.get(batch.tp)
            if lane is not None:
                lane.flying -= 1

    def _answered(self, batch: Batch, row: Any, places: dict[int, Address]) -> None:
        code = row.error_code
        taken = code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        if batch.ended:
            self._came_late(batch, None if taken else _refusal(batch, row))
            return
        if taken:
            batch.log_append_ms = row.log_append_time_ms
            self._delivered(batch, row.base_offset)
            return
        lane = self._waiting.lanes[batch.tp]
        problem = _refusal(batch, row)
        # A broker refuses what follows a refused batch; nothing of it was appended.
        late = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        behind = late and any(b.number < batch.number for b in lane.failed)
        renewed = late and not behind and self.identity.renewing
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            _logger.info("%s; its %d records go in two batches", problem, batch.count)
            lane.failed += self._waiting.split(batch)
        elif renewed or (not behind and self.identity.forgotten(batch.pid, code)):
            if batch.doubtful:  # a leader that knows it no more would store it a second time
                self._refused(batch, in_doubt(problem))
            else:
                batch.data = None  # with a new id it can be
                self._again(batch, str(problem), at_once=renewed)
        elif is_retriable(code) or behind:
            told = getattr(row, "current_leader", None)
            known = told is not None and self.cluster.learn_leader(
                batch.tp, told.leader_id, told.leader_epoch, places.get(told.leader_id)
            )
            if not known:
                self._metadata.doubt(batch.tp)
            if code == ErrorCode.KAFKA_STORAGE_ERROR:
                lane.unstored_s = lane.unstored_s or time.monotonic()
            batch.doubtful = batch.doubtful or code not in _NOT_STORED
            self._again(batch, str(problem), tell=code not in _MOVING, at_once=known)
        else:
            self._refused(batch, in_doubt(problem) if batch.doubtful else problem)

    def _again(self, batch: Batch, why: str, tell: bool = False, at_once: bool = False) -> None:
        """A batch failed for a time."""
        lane = self._waiting.lanes[batch.tp]
        if tell and lane.reason != why:  # once for each reason: patience may be long
            _logger.warning("%s; trying again for up to %g s", why, self._patience_s(lane))
        lane.reason = why
        if batch.attempts > self.options.retries:
            self._refused(batch, errors.Timeout(f"{why}; retries: {self.options.retries}"))
            return
        options = self.cluster.options
        pause_ms = lane.pause_ms or options.retry_backoff_ms
        if not at_once:
            lane.pause_ms = min(pause_ms * 2, options.retry_backoff_max_ms)
            # A fifth of it is left to chance (KIP-580).
            lane.retry_at_s = time.monotonic() + pause_ms * random.uniform(0.8, 1.2) / 1000
        lane.failed.append(batch)

    def _refused(self, batch: Batch, problem: errors.KafkalogError) -> None:
        """A batch will never be taken."""
        self.identity.failed(problem, sent=batch.sent or batch.data is not None)
        if self.identity.fatal is not None:
            self._waiting.refuse(self.identity.fatal)
        self._ended(batch, problem)

    def _came_late(self, batch: Batch, problem: errors.KafkalogError | None) -> None:
        """It is known what became of one that was given up on its way: whether its sequence, behind
        which others may be, is used up or missing."""
        if problem is None:
            lane = self._waiting.lanes[batch.tp]
            lane.known = lane.known or batch.pid == self.identity.pair
        elif not self.identity.transactional_id:  # else its transaction was spoilt then
            self.identity.failed(problem, sent=True)

    def _delivered(self, batch: Batch, base_offset: int) -> None:
        if batch.ended:
            return  # with acks=0, on its way to a connection for too long
        lane = self._waiting.lanes[batch.tp]
        lane.known = lane.known or batch.pid == self.identity.pair
        lane.reason, lane.pause_ms, lane.unstored_s = "", 0.0, 0.0
        if not lane.ready or not lane.ready[0].sent:
            lane.solo = False
        if self._on_delivery is not None:
            seconds = time.monotonic() - batch.first_sent_s
            told = Delivery(batch.tp, base_offset, batch.count, batch.record_bytes, seconds)
            try:
                self._on_delivery(told)
            except Exception:
                _logger.exception("on_delivery failed")
        self._waiting.drop(batch)
        batch.end(None, base_offset)

    def _ended(self, batch: Batch, problem: errors.KafkalogError) -> None:
        self._waiting.failed(problem, batch.records)
        self._waiting.drop(batch)
        batch.end(problem)

    # ---- what takes too long -------------------------------------------------------------

    def _patience_s(self, lane: Lane) -> float:
        """How long a lane's records may wait."""
        storage_s = self.cluster.options.storage_timeout_ms / 1000
        delivery_s = self.options.delivery_s
        return min(storage_s, delivery_s) if lane.unstored_s else delivery_s

    def _expire(self, now_s: float) -> None:
        """End what waits longer than its patience."""
        limit_s = now_s - self.options.delivery_s
        for batch in self._flights.batches():
            if batch.begun_s <= limit_s and not batch.ended:
                self._give_up(batch)
        with self._waiting.lock:
            lanes = list(self._waiting.lanes.values())
        for lane in lanes:
            patience_s = self._patience_s(lane)
            over = bool(lane.unstored_s) and now_s - lane.unstored_s >= patience_s
            late = [
                batch for batch in (*lane.failed, *lane.ready)
                if batch.begun_s <= limit_s or (over and batch.sent)
            ]  # fmt: skip
            if late:
                count = sum(batch.count for batch in late)
                reason = f": {lane.reason}" if lane.reason else ""
                problem = failure_class(ErrorCode.REQUEST_TIMED_OUT)(
                    f"{lane.tp.topic}-{lane.tp.partition}: {count} records not taken in "
                    f"{patience_s * 1000:g} ms{reason}"
                )
                self._take_out(lane, late, problem)

    def _give_up(self, batch: Batch) -> None:
        """Its time is over while it is on its way: see `_came_late`."""
        problem = failure_class(ErrorCode.REQUEST_TIMED_OUT)(
            f"{batch.tp.topic}-{batch.tp.partition}: {batch.count} records not acknowledged in "
            f"{self.options.delivery_s * 1000:g} ms; they may have been stored"
        )
        if self.identity.transactional_id:
            self.identity.failed(problem, sent=True)
        self._ended(batch, problem)

    def _fail_lane(self, lane: Lane, problem: errors.KafkalogError) -> None:
        with self._waiting.lock:
            self._waiting.close(lane)
            batches = [*lane.failed, *lane.ready]
        self._take_out(lane, batches, problem)

    def _take_out(self, lane: Lane, some: list[Batch], problem: errors.KafkalogError) -> None:
        with self._waiting.lock:
            lane.failed = [b for b in lane.failed if b not in some]
            lane.ready = deque(b for b in lane.ready if b not in some)
        for batch in some:
            self._refused(batch, in_doubt(problem) if batch.doubtful else problem)

    def drop_all(self, problem: errors.KafkalogError) -> None:
        """End all that is not on its way; the sender's thread."""
        with self._waiting.lock:
            lanes = list(self._waiting.lanes.values())
        for lane in lanes:
            with self._waiting.lock:
                self._waiting.close(lane)
                some = [*lane.failed, *lane.ready]
                lane.failed, lane.ready = [], deque()
            for batch in some:
                if batch.data is not None:
                    self.identity.failed(problem, sent=True)
                self._waiting.drop(batch)
                self._waiting.failed(problem, batch.records)
                batch.end(problem)

    def begin_sequences(self) -> None:
        """The producer has another id or epoch: every partition begins at 0 again."""
        with self._waiting.lock:
            for lane in self._waiting.all_lanes():
                lane.sequence, lane.known = 0, False


def _refusal(batch: Batch, row: Any) -> errors.KafkalogError:
    """Why a broker does not take a batch."""
    detail = getattr(row, "error_message", None)
    return failure(row.error_code, f"{batch.tp.topic}-{batch.tp.partition}", detail)
