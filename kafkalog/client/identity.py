"""Who a producer is to the brokers: nobody, or an id under which nothing is lost or repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from kafkalog import errors
from kafkalog.client.accumulator import Lane
from kafkalog.client.cluster import Cluster, passing
from kafkalog.client.failures import check_code
from kafkalog.client.line import Line
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Identity"]

PLAIN_VERSION_MAX = 11
"""Of Produce; version 12 is for transactions of version 2."""
_FORGOTTEN = (
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""A broker's words for an id, or a sequence of it, that it does not know."""


class Identity:
    """A producer id without transactions.  The sender's thread only, but for reads, and for what
    its line asks."""

    def __init__(self, wanted: bool) -> None:
        """`wanted`: an id, where the brokers give any."""
        self.transactional_id = ""
        self.producer_id, self.epoch = -1, -1
        self.ready = not wanted
        """Whether records may be sent."""
        self.fatal: errors.KafkalogError | None = None
        """The producer is of no use any more: why."""
        self.error: errors.KafkalogError | None = None
        """What waits cannot be sent any more: why."""
        self.changed: Callable[[], None] = lambda: None
        """Called when there is another id or epoch."""
        self._wanted = wanted
        self._renew = False
        self._next_s = 0.0
        self._refused = 0  # how often no id was given

    @property
    def pair(self) -> tuple[int, int]:
        """Id and epoch; -1: none."""
        return self.producer_id, self.epoch

    @property
    def produce_version(self) -> int:
        """The highest of Produce that may be used."""
        return PLAIN_VERSION_MAX

    def take(self, producer_id: int, epoch: int) -> None:
        """The id and epoch from now on."""
        self.producer_id, self.epoch = producer_id, epoch
        self.changed()

    def renew(self) -> None:
        """The sequences are lost: get another id as soon as nothing is on its way."""
        if self._wanted:
            self._renew = True
            self.ready = False

    @property
    def renewing(self) -> bool:
        """Whether another id is wanted: what waits gets new sequences."""
        return self._renew

    def doom(self, problem: errors.KafkalogError) -> None:
        """The producer is of no use any more."""
        problem.fatal, problem.abortable = True, False
        self.fatal = self.fatal or problem

    def failed(self, problem: errors.KafkalogError, sent: bool) -> None:
        """A batch was given up; `sent`: its sequence is used up."""
        if sent and self.producer_id >= 0:
            self.renew()

    def forgotten(self, pair: tuple[int, int], code: int) -> bool:
        """Whether a batch with this id was not taken for its id's sake: another one may help."""
        if self.transactional_id:
            return False
        if pair != self.pair:  # of before; what was behind it was given up
            return code in _FORGOTTEN
        if code != ErrorCode.UNKNOWN_PRODUCER_ID:
            return False
        self.renew()
        return True

    def ensure(self, line: Line, now_s: float, quiet: Callable[[], bool]) -> float:
        """Get an id if one is wanted; when to call again."""
        if self.ready or not self._wanted or not line.free or not self._needed(line.cluster):
            return now_s + 3600
        if now_s < self._next_s:
            return self._next_s
        if not self._renew or quiet():
            line.begin(self._get)
        return now_s + 3600  # the answers wake us

    def _get(self, cluster: Cluster) -> None:
        """In the line."""
        try:
            self._ask(cluster)
        except errors.KafkalogError as problem:
            if not passing(problem):
                self.doom(problem)
                return
            cluster.forget_coordinators()
            self._refused += 1
            self._next_s = time.monotonic() + cluster.options.retry_backoff_ms / 1000
            return
        self._renew = False
        self.ready = True

    def _needed(self, cluster: Cluster) -> bool:
        return cluster.reached  # before, nobody has sent anything

    def _ask(self, cluster: Cluster) -> None:
        nodes = sorted(cluster.nodes)
        # Who could give none may be cut off from who hands them out: another one is asked.
        other = bool(self._refused and nodes)
        connection = cluster.connect(nodes[self._refused % len(nodes)]) if other else cluster.any()
        if not connection.knows(apis.INIT_PRODUCER_ID):
            return
        answer = connection.call(
            apis.INIT_PRODUCER_ID,
            {"transactional_id": None, "transaction_timeout_ms": 60_000},
            connection.version_of(apis.INIT_PRODUCER_ID, at_most=5),
        )
        check_code(answer.error_code, "InitProducerId")
        self.take(answer.producer_id, answer.producer_epoch)

    def join(self, line: Line, lanes: Mapping[int, Sequence[Lane]]) -> list[Lane]:
        """Those of the lanes whose partitions may not be written to yet."""
        return []
