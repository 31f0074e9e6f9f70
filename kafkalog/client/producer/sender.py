"""Sends batches to their leaders, reads answers and retries in order, in a thread of its own.

Up to `in_flight` requests are in flight to each node.  After a transient failure nothing of the
partition is sent until all its requests have come back; then batches are retried one by one until
one is taken.  An idempotent producer neither loses nor duplicates records.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any
from uuid import UUID

from kafkalog import errors
from kafkalog.client.buffer.accumulator import Accumulator, PartitionQueue
from kafkalog.client.buffer.adaptive_partitioning import Balance
from kafkalog.client.buffer.delivery import Batch, Delivery, SendOptions
from kafkalog.client.callbacks import logged
from kafkalog.client.link.chunks import topic_rows
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.metadata import places_of
from kafkalog.client.link.transport import Address
from kafkalog.client.link.wake_event import Bell
from kafkalog.client.metrics import Sent, Tally, producer_metrics
from kafkalog.client.producer.background_calls import Line
from kafkalog.client.producer.core import Answer, Doubt, Ended, Refuse, Say, SenderState
from kafkalog.client.producer.identity import Identity
from kafkalog.client.producer.in_flight import Flights, Request
from kafkalog.client.producer.producer_metadata import ProducerMetadata
from kafkalog.client.producer.tasks import Tasks
from kafkalog.client.telemetry.payload import Figures, Reading
from kafkalog.client.telemetry.reporter import LAST_S, Reporter
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["SendOptions", "Sender"]

_logger = logging.getLogger(__name__)
LONGEST_S = 1.0
"""The longest time that the sender sleeps."""


class Sender:
    """The thread, and everything that only it touches."""

    def __init__(
        self,
        cluster: Cluster,
        options: SendOptions,
        identity: Identity,
        on_delivery: Callable[[Delivery], object] | None,
    ) -> None:
        """`cluster` belongs to this thread from now on.  Nothing runs before `start`."""
        self.cluster = cluster
        cluster.openings.apart = True
        self.identity = identity
        self.core = SenderState(options, cluster.options, identity, random.random)
        identity.changed = self.core.begin_sequences
        self._on_delivery = on_delivery
        self._waiting: Accumulator
        self.balance = Balance(options.adaptive, options.availability_s)
        self._metadata = ProducerMetadata(
            cluster, options.metadata_s, options.metadata_idle_s, self._fail_queue
        )
        self._bell = Bell()
        self.wake = self._bell.ring
        """Wake the sender; from any thread."""
        self.tasks = Tasks(self.wake)
        self._line = Line(Cluster(cluster, cluster.options, cluster.clock), self.wake)
        self._flights = Flights(cluster, options.in_flight, options.acks != 0, self.wake)
        self._sent = Sent()
        self.reporter = Reporter(cluster, "producer", Reading(self._figures, self._labels))
        self._over = self._leaving = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="kafkalog-producer", daemon=True)

    @property
    def options(self) -> SendOptions:
        """How batches are sent."""
        return self.core.options

    def start(self, waiting: Accumulator) -> None:
        """Start to send what is put into `waiting`."""
        self._waiting = self.core.waiting = waiting
        waiting.emptier = self._thread
        self._thread.start()

    def metrics(self) -> dict[str, float]:
        """Counts of what was sent, and its outcome.  From any thread."""
        return {**producer_metrics(self._sent), "requests-in-flight": float(self._flights.count)}

    def _figures(self) -> Figures:
        opened = self.cluster.openings.count + self._line.cluster.openings.count
        values = {**self.metrics(), "connection-creation-total": float(opened)}
        return Figures(values, dict(self._sent.nodes))

    def _labels(self) -> dict[str, str]:
        return {"transactional_id": self.identity.transactional_id}

    def instance_id(self, most_s: float) -> UUID:
        """As Reporter.instance_id, within `most_s`.  From any thread."""
        found: UUID = self.tasks.ask(self.reporter.instance_id, most_s, aside=True)
        return found

    def say_last(self, until_s: float | None) -> None:
        """Send the last metrics, if a broker wants them, within LAST_S and by `until_s`, in
        time.monotonic; from the thread that closes."""
        if self.reporter.ends and self._pid == os.getpid():
            most_s = LAST_S if until_s is None else min(LAST_S, until_s - time.monotonic())
            with suppress(errors.KafkalogError):
                self.tasks.ask(self.reporter.end, most_s, aside=True)

    def stop(self) -> None:
        """End now, whatever still waits; returns once the thread has ended."""
        self._over = True
        self.wake()
        if threading.current_thread() is not self._thread and self._pid == os.getpid():
            self.cluster.openings.interrupt()  # it may wait for a broker that does not answer
            self._line.interrupt()
            self._thread.join()

    def leave(self) -> None:
        """End as soon as nothing waits any more: the application has dropped the producer."""
        self._leaving = True
        self.wake()

    @property
    def leaving(self) -> bool:
        """True if its producer was dropped while something still waits."""
        return self._leaving and self._thread.is_alive() and self._pid == os.getpid()

    def close(self, timeout: float | None = None) -> None:
        """Wait, after `leave`, until nothing waits any more, at most `timeout` seconds or
        delivery.timeout.ms; then end."""
        if self.leaving and threading.current_thread() is not self._thread:
            try:
                self._thread.join(self.options.delivery_s if timeout is None else timeout)
            finally:  # also after a Ctrl-C: lost records are reported
                self.stop()

    def tell_undelivered(self, warn: bool = False) -> None:
        """Log how many records were given up, since the application no longer asks."""
        problem, count = self._waiting.take_failures()
        if count:
            text = f"a producer has ended: {count} records were not delivered: {problem}"
            _logger.warning("%s", text)
            if warn:
                warnings.warn(text, ResourceWarning, stacklevel=2)

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
        with self._waiting.lock:  # or a thread that found a batch open would write to freed memory
            for queue in list(self._waiting.queues.values()):
                self._waiting.close(queue)
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
        self.cluster.openings.close_idle()
        if self._line.free:
            self._line.cluster.openings.close_idle()
        next_s = self.tasks.run(now_s, self._line)
        next_s = min(next_s, self._waiting.close_due(now_s, self._leaving))
        self.core.expire(now_s, self._flights.batches())
        self._do()
        next_s = min(next_s, self.identity.ensure(self._line, now_s, self._quiet))
        next_s = min(next_s, self._report(now_s))
        self.core.check_id()
        self._do()
        self._metadata.refresh(now_s, self._waiting, self._line)
        while True:
            nodes, at_s = self._plan(now_s)
            if not nodes:
                break
            for node, queues in nodes.items():
                self._send_to(node, queues, now_s)
            self._waiting.close_due(now_s, self._leaving)
        self.balance.weigh(now_s, self.cluster, self._waiting)
        self._wait(min(next_s, at_s))

    def _report(self, now_s: float) -> float:
        """Send metrics if it is time, and a broker that is connected takes them; returns when it
        will be."""
        reporter, line = self.reporter, self._line
        left_s = reporter.due_s - self.cluster.clock.monotonic_s()
        if left_s <= 0 and line.free and reporter.may_begin(line.cluster):
            line.begin(reporter.run)
        return now_s + max(left_s, 0.0) if left_s > 0 else now_s + LONGEST_S

    def _quiet(self) -> bool:
        """True if nothing is in flight."""
        return self._flights.quiet

    def _wait(self, until_s: float) -> None:
        """Read the answers that have come; without any, wait for one or for the bell."""
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

    def _plan(self, now_s: float) -> tuple[dict[int, list[PartitionQueue]], float]:
        """Queues that can send now, by node, and when others can."""
        plan = self.core.plan(now_s, self._metadata.leader, self._flights.takes)
        found, next_s = plan.nodes, plan.next_s
        if plan.stalled:  # perhaps by a broker in its reconnect backoff
            next_s = min(next_s, self.cluster.openings.rests.soonest_s(now_s))
        if plan.lost and self._line.free:  # a busy line rings when it is done
            next_s = min(next_s, max(self._metadata.next_s, now_s + 0.001))
        if self.identity.ready:
            self.balance.stalled(plan.stalled, now_s)
        if found:
            for queue in self.identity.join(self._line, found):  # the line rings when they joined
                for queues in found.values():
                    if queue in queues:
                        queues.remove(queue)
            found = {node: queues for node, queues in found.items() if queues}
        return found, next_s

    def _send_to(self, node: int, queues: list[PartitionQueue], now_s: float) -> None:
        """Send a node one request with what is ready for it."""
        batches = self.core.pack(queues, now_s)
        self._do()
        if batches:
            self.balance.took(node)
            self._put(node, batches, now_s)

    def _put(self, node: int, batches: dict[TopicPartition, Batch], now_s: float) -> None:
        rows = (
            (tp.topic, {"index": tp.partition, "records": batch.data})
            for tp, batch in batches.items()
        )
        body = {
            "transactional_id": self.identity.transactional_id or None,
            "acks": self.options.acks,
            "timeout_ms": self.cluster.options.request_timeout_ms,
            "topic_data": topic_rows(rows, rows="partition_data"),
        }
        until_s = now_s + self.cluster.options.request_timeout_ms / 1000
        request = Request(batches, body, self.identity.produce_version, until_s)
        try:
            # A broker that stops answers first: read its answers before the connection is gone.
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
        """A request was sent, or could not be; `posted`: part of it may have been sent."""
        if problem is None:
            self._count(request.batches.values())
        if problem is not None:
            self._lost(node, problem, request, posted=posted)
        elif self.options.acks == 0:  # nothing more will be known
            for batch in request.batches.values():
                self.core.answered(batch, Answer(ErrorCode.NONE), time.monotonic())
            self._do()

    def _count(self, batches: Collection[Batch]) -> None:
        """Count batches that were sent."""
        sent, now_s = self._sent, time.monotonic()
        sent.request_records.add(sum(batch.count for batch in batches))
        for batch in batches:
            sent.batch_bytes.add(len(batch.data or b""))
            if batch.posted:
                sent.retried += batch.count
            else:
                sent.queue_ms.add((now_s - batch.begun_s) * 1000)
            batch.posted = True

    def _lost(
        self, node: int, problem: errors.KafkalogError, *more: Request, posted: bool = True
    ) -> None:
        """The connection failed: all requests in flight are to be sent again."""
        now_s = time.monotonic()
        for request in self._flights.lose(node):
            self.core.lost(request.batches.values(), problem, now_s)
        for request in more:
            self.core.lost(request.batches.values(), problem, now_s, posted)
        self._metadata.doubt_node(node)
        self._do()

    # ---- answers -------------------------------------------------------------------------

    def _receive_all(self, node: int) -> None:
        """Read the answers of a node that have come, and send more of what waits for it."""
        while self._flights.speaks(node):
            self._receive(node)
        try:
            self._flights.pump(node)
        except errors.KafkalogError as problem:
            self._lost(node, problem)

    def _receive(self, node: int) -> None:
        """Read the oldest answer of a node."""
        try:
            request, answer = self._flights.receive(node)
        except errors.KafkalogError as problem:
            self._lost(node, problem)
            return
        now_s = time.monotonic()
        patience_ms = self.cluster.options.request_timeout_ms
        latency_ms = (now_s - request.until_s) * 1000 + patience_ms
        for times in (self._sent.latency_ms, self._sent.nodes.setdefault(node, Tally())):
            times.add(latency_ms)
        self._sent.throttle_ms.add(answer.throttle_time_ms)
        left = dict(request.batches)
        places = places_of(answer)
        for topic in answer.responses:
            for row in topic.partition_responses:
                batch = left.pop(TopicPartition(topic.name, row.index), None)
                if batch is not None:
                    self.core.answered(batch, self._answer(batch.tp, row, places), now_s)
                    self._do()
        for tp, batch in left.items():
            text = f"Produce: the answer of node {node} lacks {tp.topic}-{tp.partition}"
            self.core.unanswered(batch, errors.BadAnswer(text))
            self._do()
        if answer.throttle_time_ms > 0:
            self.core.throttled(node, answer.throttle_time_ms, time.monotonic())

    def _answer(self, tp: TopicPartition, row: Any, places: dict[int, Address]) -> Answer:
        """The part of an answer about a partition; the leader that it names is noted."""
        to = getattr(row, "current_leader", None) if row.error_code else None
        moved = to is not None and self.cluster.learn_leader(
            tp, to.leader_id, to.leader_epoch, places.get(to.leader_id)
        )
        detail = getattr(row, "error_message", None)
        return Answer(row.error_code, row.base_offset, row.log_append_time_ms, detail, moved)

    # ---- effects -------------------------------------------------------------------------

    def _do(self) -> None:
        """Carry out the effects of the core."""
        effects, self.core.effects = self.core.effects, []
        for one in effects:
            match one:
                case Ended(batch, problem, base_offset):
                    self._ended(batch, problem, base_offset)
                case Doubt(tp):
                    self._metadata.doubt(tp)
                case Refuse(problem):
                    self._waiting.refuse(problem)
                case Say(level, text):
                    _logger.log(level, "%s", text)

    def _ended(
        self, batch: Batch, problem: errors.KafkalogError | None, base_offset: int = -1
    ) -> None:
        if problem is not None:
            self._sent.failed += batch.records
            self._waiting.failed(problem, batch.records)
        elif self._on_delivery is not None:
            latency_ms = (time.monotonic() - batch.first_sent_s) * 1000
            delivery = Delivery(batch.tp, base_offset, batch.count, batch.record_bytes, latency_ms)
            with logged("on_delivery", own_thread=True):
                self._on_delivery(delivery)
        self._waiting.drop(batch)
        batch.end(problem, base_offset)

    def _fail_queue(self, queue: PartitionQueue, problem: errors.KafkalogError) -> None:
        self.core.fail(queue, problem)
        self._do()

    def drop_all(self, problem: errors.KafkalogError) -> None:
        """End all batches that are not in flight.  In the sender's thread."""
        self.core.drop_all(problem)
        self._do()
