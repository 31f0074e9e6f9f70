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
from collections.abc import Callable, Collection
from typing import Any

from kafkalog import errors
from kafkalog.client.buffer.accumulator import Accumulator, Lane
from kafkalog.client.buffer.adaptive_partitioning import Balance
from kafkalog.client.buffer.delivery import Batch, Delivery, SendOptions
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.metadata import places_of
from kafkalog.client.link.transport import Address
from kafkalog.client.link.wake_event import Bell
from kafkalog.client.metrics import Tally, producer_metrics
from kafkalog.client.producer.background_calls import Line
from kafkalog.client.producer.core import Answer, Core, Doubt, Ended, Refuse, Say
from kafkalog.client.producer.identity import Identity
from kafkalog.client.producer.in_flight import Flights, Request
from kafkalog.client.producer.producer_metadata import ProducerMetadata
from kafkalog.client.producer.tasks import Tasks
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["SendOptions", "Sender"]

_logger = logging.getLogger(__name__)
LONGEST_S = 1.0
"""The sender looks around so often at least."""


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
        self.identity = identity
        self.core = Core(options, cluster.options, identity, random.random)
        identity.changed = self.core.begin_sequences
        self._on_delivery = on_delivery
        self._waiting: Accumulator
        self.balance = Balance(options.adaptive, options.availability_s)
        self._metadata = ProducerMetadata(
            cluster, options.metadata_s, options.metadata_idle_s, self._fail_lane
        )
        self._bell = Bell()
        self.wake = self._bell.ring
        """There is something to do; from any thread."""
        self.tasks = Tasks(self.wake)
        self._line = Line(Cluster(cluster, cluster.options, cluster.clock), self.wake)
        self._flights = Flights(cluster, options.in_flight, options.acks != 0, self.wake)
        self._batch_bytes, self._request_records, self._latency_ms = Tally(), Tally(), Tally()
        self._retried = self._failed = 0
        self._over = self._leaving = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="kafkalog-producer", daemon=True)

    @property
    def options(self) -> SendOptions:
        """How batches are sent."""
        return self.core.options

    def start(self, waiting: Accumulator) -> None:
        """Send what comes into `waiting`."""
        self._waiting = self.core.waiting = waiting
        waiting.emptier = self._thread
        self._thread.start()

    def metrics(self) -> dict[str, float]:
        """What was sent, and what came of it.  From any thread."""
        counted = self._batch_bytes, self._request_records, self._latency_ms
        found = producer_metrics(*counted, self._retried, self._failed)
        return {**found, "requests-in-flight": float(self._flights.count)}

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
        self.cluster.openings.close_idle()
        if self._line.free:
            self._line.cluster.openings.close_idle()
        next_s = self.tasks.run(now_s, self._line)
        next_s = min(next_s, self._waiting.close_due(now_s, self._leaving))
        self.core.expire(now_s, self._flights.batches())
        self._do()
        next_s = min(next_s, self.identity.ensure(self._line, now_s, self._quiet))
        self.core.check_id()
        self._do()
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
        plan = self.core.plan(now_s, self._metadata.leader, self._flights.takes)
        found, next_s = plan.nodes, plan.next_s
        if plan.stalled:  # perhaps by a broker that is left alone for a moment
            next_s = min(next_s, self.cluster.openings.rests.soonest_s(now_s))
        if plan.lost and self._line.free:  # else it rings
            next_s = min(next_s, max(self._metadata.next_s, now_s + 0.001))
        if self.identity.ready:
            self.balance.stalled(plan.stalled, now_s)
        if found:
            for lane in self.identity.join(self._line, found):  # which rings
                for lanes in found.values():
                    if lane in lanes:
                        lanes.remove(lane)
            found = {node: lanes for node, lanes in found.items() if lanes}
        return found, next_s

    def _send_to(self, node: int, lanes: list[Lane], now_s: float) -> None:
        """One request of what is ready for a node."""
        batches = self.core.pack(lanes, now_s)
        self._do()
        if batches:
            self.balance.took(node)
            self._put(node, batches, now_s)

    def _put(self, node: int, batches: dict[TopicPartition, Batch], now_s: float) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for tp, batch in batches.items():
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
        if problem is None:
            self._count(request.batches.values())
        if problem is not None:
            self._lost(node, problem, request, posted=posted)
        elif self.options.acks == 0:  # that is all that will be known
            for batch in request.batches.values():
                self.core.answered(batch, Answer(ErrorCode.NONE), time.monotonic())
            self._do()

    def _count(self, batches: Collection[Batch]) -> None:
        """These are on their way."""
        self._request_records.add(sum(batch.count for batch in batches))
        for batch in batches:
            self._batch_bytes.add(len(batch.data or b""))
            if batch.posted:
                self._retried += batch.count
            batch.posted = True

    def _lost(
        self, node: int, problem: errors.KafkalogError, *more: Request, posted: bool = True
    ) -> None:
        """The connection failed: all that was on its way is to be sent again."""
        now_s = time.monotonic()
        for request in self._flights.lose(node):
            self.core.lost(request.batches.values(), problem, now_s)
        for request in more:
            self.core.lost(request.batches.values(), problem, now_s, posted)
        self._metadata.doubt_node(node)
        self._do()

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
        now_s = time.monotonic()
        patience_ms = self.cluster.options.request_timeout_ms
        self._latency_ms.add((now_s - request.until_s) * 1000 + patience_ms)
        left = dict(request.batches)
        places = places_of(answer)
        for topic in answer.responses:
            for row in topic.partition_responses:
                batch = left.pop(TopicPartition(topic.name, row.index), None)
                if batch is not None:
                    self.core.answered(batch, self._answer(batch.tp, row, places), now_s)
                    self._do()
        for tp, batch in left.items():
            told = f"Produce: node {node} says nothing of {tp.topic}-{tp.partition}"
            self.core.unanswered(batch, errors.BadAnswer(told))
            self._do()
        if answer.throttle_time_ms > 0:
            self.core.throttled(node, time.monotonic() + answer.throttle_time_ms / 1000)

    def _answer(self, tp: TopicPartition, row: Any, places: dict[int, Address]) -> Answer:
        """What an answer says of a partition; the leader that it names is believed."""
        to = getattr(row, "current_leader", None) if row.error_code else None
        moved = to is not None and self.cluster.learn_leader(
            tp, to.leader_id, to.leader_epoch, places.get(to.leader_id)
        )
        detail = getattr(row, "error_message", None)
        return Answer(row.error_code, row.base_offset, row.log_append_time_ms, detail, moved)

    # ---- what is to be done --------------------------------------------------------------

    def _do(self) -> None:
        """Do what the core wants done."""
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
            self._failed += batch.records
            self._waiting.failed(problem, batch.records)
        elif self._on_delivery is not None:
            latency_ms = (time.monotonic() - batch.first_sent_s) * 1000
            told = Delivery(batch.tp, base_offset, batch.count, batch.record_bytes, latency_ms)
            try:
                self._on_delivery(told)
            except Exception:
                _logger.exception("on_delivery failed")
        self._waiting.drop(batch)
        batch.end(problem, base_offset)

    def _fail_lane(self, lane: Lane, problem: errors.KafkalogError) -> None:
        self.core.fail(lane, problem)
        self._do()

    def drop_all(self, problem: errors.KafkalogError) -> None:
        """End all that is not on its way; the sender's thread."""
        self.core.drop_all(problem)
        self._do()
