"""A producer's identity at the brokers: none, or an id under which nothing is lost or repeated."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from kafkalog import errors
from kafkalog.client.buffer.accumulator import PartitionQueue
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import check_code, passing
from kafkalog.client.link.handling import Troubles
from kafkalog.client.producer.background_calls import Line
from kafkalog.client.producer.producer_id import NEVER_S, ProducerId
from kafkalog.wire import apis

__all__ = ["Identity"]

_logger = logging.getLogger(__name__)
DOUBLINGS_MAX = 30
PLAIN_VERSION_MAX = 11
"""Last version of Produce without transaction version 2."""


class Identity(ProducerId):
    """A producer id without transactions, which the brokers assign.  For the sender's thread only,
    except for reads, and calls in its line."""

    def __init__(self, wanted: bool) -> None:
        """As ProducerId."""
        super().__init__(wanted)
        self._troubles = Troubles[str]()

    @property
    def produce_version(self) -> int:
        """The highest version of Produce that may be used."""
        return PLAIN_VERSION_MAX

    def ensure(self, line: Line, now_s: float, quiet: Callable[[], bool]) -> float:
        """Get an id if one is wanted; returns when to call again."""
        if not line.free or not self._needed(line.cluster):
            return now_s + NEVER_S
        due_s = self.due_s(now_s, quiet)
        if due_s > now_s:
            return due_s
        line.begin(self._get)
        return now_s + NEVER_S  # the answer wakes the sender

    def _get(self, cluster: Cluster) -> None:
        """In the line."""
        try:
            self._ask(cluster)
        except errors.KafkalogError as problem:
            if isinstance(problem, errors.AuthorizationFailed):
                self.error = problem  # what waits fails; the right may be given later
            elif not passing(problem):
                self.doom(problem)
                return
            cluster.forget_coordinators()
            now_s = time.monotonic()
            if self._troubles.failed("id", problem, now_s):
                wait = "fail" if self.error is not None else "wait"
                _logger.warning("no producer id yet, records %s: %s", wait, problem)
            self.refused(now_s + self._pause_ms(cluster) / 1000)
            return
        self._troubles.ended("id")
        self.error = None
        self.serve()

    def _pause_ms(self, cluster: Cluster) -> int:
        """The time until the next attempt, which grows once every broker has refused."""
        options = cluster.options
        doubled = min(max(self.refusals - len(cluster.nodes), 0), DOUBLINGS_MAX)
        return min(options.retry_backoff_ms << doubled, options.retry_backoff_max_ms)

    def _needed(self, cluster: Cluster) -> bool:
        return cluster.reached  # nothing can have been sent before

    def _ask(self, cluster: Cluster) -> None:
        nodes = sorted(cluster.nodes)
        # A broker that gave none may be cut off from the one that assigns them: ask another.
        other = bool(self.refusals and nodes)
        connection = cluster.connect(nodes[self.refusals % len(nodes)]) if other else cluster.any()
        if not connection.knows(apis.INIT_PRODUCER_ID):
            return
        answer = connection.call(
            apis.INIT_PRODUCER_ID,
            {"transactional_id": None, "transaction_timeout_ms": 60_000},
            connection.version_of(apis.INIT_PRODUCER_ID, at_most=5),
        )
        check_code(answer.error_code, "InitProducerId", api=apis.INIT_PRODUCER_ID)
        self.take(answer.producer_id, answer.producer_epoch)

    def join(
        self, line: Line, queues: Mapping[int, Sequence[PartitionQueue]]
    ) -> list[PartitionQueue]:
        """The queues whose partitions may not be written to yet."""
        return []
