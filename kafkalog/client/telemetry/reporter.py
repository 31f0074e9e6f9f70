"""Sends a client's metrics, in the turns of its threads; errors are only logged."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from uuid import UUID

from kafkalog import errors
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code
from kafkalog.client.link.patience import NotYet
from kafkalog.client.telemetry.core import NO_ID, Ask, Push, Schedule
from kafkalog.client.telemetry.payload import Payloads, Reading
from kafkalog.wire import apis

__all__ = ["Reporter"]

_logger = logging.getLogger(__name__)

REQUEST_S = 3.0
"""The longest that a request keeps its thread from other work."""
SETTLE_S, SETTLE_SHARE = 1.0, 0.1
"""The longest that an answer delays a call whose connection waits for it, and the largest share of
the call's time."""
LAST_S = 1.0
"""The longest that the last push delays the client's end."""


class Reporter:
    """The metrics of one client.  Safe to use from several threads, each with a cluster of its
    own."""

    def __init__(self, cluster: Cluster, kind: str, reading: Reading) -> None:
        """`cluster`: for its settings and clock; as Payloads."""
        self._on = cluster.options.pushes_metrics
        self._clock = cluster.clock
        self._lock = threading.Lock()  # guards what follows, held during a request
        self._schedule = Schedule(random.uniform)
        self._sending: Cluster | None = None
        """The cluster of a thread that waits for an answer; read without the lock, too."""
        self._payloads = Payloads(kind, reading, self._clock.now_ms())

    def may_begin(self, cluster: Cluster) -> bool:
        """True if a broker that `cluster` is connected to takes metrics, and it may have them; also
        if one has asked for them and the connection is lost."""
        connected = self._schedule.subscribed or cluster.free(apis.GET_TELEMETRY_SUBSCRIPTIONS)
        return self._on and bool(connected)

    def wanted(
        self, cluster: Cluster, connection: Connection | None = None, most_s: float = 0.0
    ) -> bool:
        """True if a broker wants metrics, so that `run` has something to send.

        For a client without a thread of its own, during its polls: it asks over a connection that
        is open (`connection`: this one), and waits `most_s`: a later call takes the answer.
        Raises: WakeUp.
        """
        if not self._on or self.due_s > self._clock.monotonic_s():
            return self.ends
        with self._lock:
            what = self._schedule.next()
            connection = connection or cluster.free(apis.GET_TELEMETRY_SUBSCRIPTIONS)
            if connection is None or isinstance(what, Push):
                return isinstance(what, Push)
            try:
                with cluster.patience.errand_of("metrics", time.monotonic() + most_s):
                    self._send(connection, what)
            except NotYet:
                return False
            except errors.WakeUp:
                raise
            except errors.KafkalogError as problem:
                self._failed(problem)
        return self.ends

    def settle(self, cluster: Cluster, left_s: float) -> None:
        """Take the answer that `wanted` has left in flight, before a request whose own answer would
        come after it.  `left_s`: what the call has left.  Without an answer within SETTLE_S and
        SETTLE_SHARE of that, the connection is given up, and a broker is asked again later."""
        until_s = time.monotonic() + min(SETTLE_S, left_s * SETTLE_SHARE)
        due, cluster.patience.due = cluster.patience.due, []
        for connection in due:
            if not connection.closed:
                self.wanted(cluster, connection, until_s - time.monotonic())
        late, cluster.patience.due = cluster.patience.due, []
        for connection in late:
            connection.give_up()
            with self._lock:
                self._failed(errors.Timeout(f"{connection.address}: no answer about metrics"))

    @property
    def due_s(self) -> float:
        """When `run` has something to do, by the cluster's clock; infinite: never."""
        return self._schedule.due_s if self._on else math.inf

    def run(self, cluster: Cluster) -> None:
        """Send the request that is due, to any broker.  It raises nothing."""
        with self._lock:
            if self.due_s <= self._clock.monotonic_s():
                self._try(cluster, self._schedule.next(), REQUEST_S)

    def end(self, cluster: Cluster) -> None:
        """Send the last metrics, if a broker wants them, within LAST_S and the time of the call.
        It raises nothing."""
        most_s = min(LAST_S, cluster.patience.left_s())
        until_s = time.monotonic() + most_s
        if not self.ends or not self._lock.acquire(timeout=most_s):
            # A broker may not answer an earlier request, and the thread that waits is to end.
            if (sending := self._sending) is not None:
                sending.openings.interrupt()
            return
        try:
            last = self._schedule.last()
            if last is not None:
                self._try(cluster, last, until_s - time.monotonic())
        finally:
            self._lock.release()

    @property
    def ends(self) -> bool:
        """True if `end` would send something."""
        return self._on and isinstance(self._schedule.next(), Push)

    def instance_id(self, cluster: Cluster) -> UUID:
        """The id that the brokers know this client by; the first call may ask for it.

        Raises: ArgumentError: enable.metrics.push is false; UnsupportedVersion: the broker takes
        no metrics; as Cluster.any.
        """
        if not self._on:
            raise errors.ArgumentError("client_instance_id: enable.metrics.push is false")
        known = self._schedule.instance_id
        if known != NO_ID:  # it stays, and the lock is held during a push
            return known
        with self._lock:
            if self._schedule.instance_id == NO_ID:
                code = self._send(cluster.any(), Ask(NO_ID))
                check_code(code, "the subscription to a client's metrics")
            return self._schedule.instance_id

    def _try(self, cluster: Cluster, what: Ask | Push, most_s: float) -> None:
        self._sending = cluster
        try:
            with cluster.patience.within(most_s):
                self._send(cluster.any(), what)
        except Exception as problem:
            self._failed(problem)
        finally:
            self._sending = None

    def _failed(self, problem: Exception) -> None:
        if not isinstance(problem, errors.KafkalogError):
            _logger.exception("metrics cannot be sent")
        else:
            _logger.debug("metrics were not sent: %s", problem)
        self._schedule.failed(self._clock.monotonic_s())

    def _send(self, connection: Connection, what: Ask | Push) -> int:
        """The error of the answer."""
        if isinstance(what, Ask):
            asked = connection.call(
                apis.GET_TELEMETRY_SUBSCRIPTIONS, {"client_instance_id": what.instance_id}
            )
            self._schedule.asked(asked, self._clock.monotonic_s())
            return int(asked.error_code)
        body = {
            "client_instance_id": what.instance_id,
            "subscription_id": what.asked.subscription_id,
            "terminating": what.terminating,
            "compression_type": what.asked.codec,
            "metrics": self._payloads.make(what.asked, self._clock.now_ms()),
        }
        large = body["metrics"] is None
        code = 0 if large else int(connection.call(apis.PUSH_TELEMETRY, body).error_code)
        if large or code:
            self._payloads.refused()
        if not what.terminating:
            self._schedule.pushed(code, self._clock.monotonic_s())
        return code
