"""The ends of transactions, written to the partitions that they are about."""

import logging
from collections.abc import Callable
from functools import partial

from kafkalog.batch.control import marker_batch
from kafkalog.clock import Clock
from kafkalog.coordinator.groups.core import GroupCore
from kafkalog.coordinator.step import Producer
from kafkalog.coordinator.thread import Coordinator
from kafkalog.errors import Timeout
from kafkalog.server.codes import code_of
from kafkalog.server.guards import Guards
from kafkalog.server.journal import OFFSETS_TOPIC
from kafkalog.server.partitions import Partitions
from kafkalog.server.reactor import Reactor
from kafkalog.server.threads.acknowledger import Acknowledger
from kafkalog.server.threads.bulk import Bulk
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Markers"]

WAIT_MS = 60_000
Done = Callable[[ErrorCode], None]
_logger = logging.getLogger(__name__)


class Markers:
    """Writes markers, in a thread of its own: a log may have to be opened first."""

    def __init__(
        self,
        partitions: Partitions,
        reactor: Reactor,
        acknowledger: Acknowledger,
        groups: Coordinator[GroupCore],
        guards: Guards,
        clock: Clock,
        name: str,
    ) -> None:
        self._partitions = partitions
        self._reactor = reactor
        self._acknowledger = acknowledger
        self._groups = groups
        self._guards = guards
        self._clock = clock
        self._thread = Bulk(f"{name} markers")

    def write(self, where: TopicPartition, producer: Producer, done: Done) -> None:
        """Append the marker that `producer` says; `done` with the outcome, once it is as durable as
        acks=all is.  From any thread; `done` is called in another."""
        self._thread.submit(partial(self._write, where, producer, done))

    def stop(self) -> None:
        """End when all that was asked for was begun."""
        self._thread.stop()

    def _write(self, where: TopicPartition, producer: Producer, done: Done) -> None:
        if where.topic == OFFSETS_TOPIC:
            # The groups' coordinator writes there, and knows then what becomes of offsets.
            if not self._partitions.has(*where):
                done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # deleted: it would say it is elsewhere
                return
            end = partial(self._groups.core.end_transaction, where.partition, producer)
            self._groups.post(lambda step: end(self._guarded(where, producer), done, step))
            return
        try:
            self._partitions.log(*where)
            now_ms = self._clock.now_ms()
            batch = marker_batch(producer.producer_id, producer.epoch, bool(producer.commit),
                                 producer.coordinator_epoch, now_ms)  # fmt: skip
            with self._guards.ending(where, producer.producer_id):
                found = self._reactor.append(*where, batch, now_ms=now_ms, coordinator=True)
        except Exception as problem:
            done(code_of(problem))
            return
        self._acknowledger.wait(
            *where, found.last_offset + 1, WAIT_MS, lambda problem: done(_outcome(problem)),
            on_disk=found.sync_due,
        )  # fmt: skip

    def _guarded(self, where: TopicPartition, producer: Producer) -> Callable[[], None]:
        """Takes away what was allowed before."""

        def close() -> None:
            with self._guards.ending(where, producer.producer_id):
                pass

        return close


def _outcome(problem: Exception | None) -> ErrorCode:
    if problem is None:
        return ErrorCode.NONE
    return ErrorCode.REQUEST_TIMED_OUT if isinstance(problem, Timeout) else code_of(problem)
