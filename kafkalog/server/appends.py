"""Appends by the broker itself: the coordinators' records, and the markers of transactions."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from kafkalog._native import lib
from kafkalog.batch.control import marker_batch
from kafkalog.batch.encode import rows_batch
from kafkalog.clock import Clock
from kafkalog.coordinator.step import JournalRecord, Producer
from kafkalog.server.network.reactor import Reactor
from kafkalog.server.partitions import Partitions
from kafkalog.server.threads.acknowledger import Acknowledger
from kafkalog.types import TopicPartition

__all__ = ["Appends"]

WAIT_MS = 60_000
"""The coordinators have their own timeouts; this one only ends appends nobody waits for."""
_TRANSACTIONAL: int = lib.KL_ATTR_TRANSACTIONAL


class Appends:
    """Appends one batch at a time for a coordinator.  Safe to call from any thread."""

    def __init__(
        self, partitions: Partitions, reactor: Reactor, acknowledger: Acknowledger, clock: Clock
    ) -> None:
        """Logs are opened, and partitions' files created, only when they are needed."""
        self._partitions = partitions
        self._reactor = reactor
        self._acknowledger = acknowledger
        self._clock = clock

    def append(
        self,
        where: TopicPartition,
        epoch: int,
        records: Sequence[JournalRecord],
        producer: Producer | None,
        done: Callable[[Exception | None], None],
        *,
        allowed: AbstractContextManager[bool] | None = None,
        placed: Callable[[int], None] = lambda _offset: None,
    ) -> bool:
        """Append records as one batch; `done(None)` when they are as durable as acks=all promises.

        `epoch`: append only in this leader epoch; `producer`: the transaction that the batch
        belongs to, or that the marker ends; `allowed`: held for the append; `placed` gets the
        offset of the first record, before `done` is called.
        Returns False if `allowed` forbids it: nothing was appended, and `done` is not called.

        `done` is called in another thread or in this one before this returns: with the error if
        nothing was appended, and immediately if there is nothing to wait for.
        """
        try:
            now_ms = self._clock.now_ms()
            batch = _batch(records, now_ms, producer)
            self._partitions.log(*where)
            with allowed or nullcontext(True) as free:
                if not free:
                    return False
                found = self._reactor.append(
                    *where, batch, now_ms=now_ms, leader_epoch=epoch, coordinator=True,
                    raised=producer is not None and producer.raised,
                )  # fmt: skip
        except Exception as problem:
            done(problem)
            return True
        placed(found.base_offset)
        self._acknowledger.wait_for(where, found, WAIT_MS, done)
        return True

    def append_batch(
        self,
        where: TopicPartition,
        epoch: int,
        batch: bytes,
        done: Callable[[Exception | None], None],
    ) -> None:
        """Append a batch as a client's; `epoch` and `done` as of `append`."""
        try:
            self._partitions.log(*where)
            found = self._reactor.append(
                *where, batch, now_ms=self._clock.now_ms(), leader_epoch=epoch, one_batch=True
            )
        except Exception as problem:
            done(problem)
            return
        self._acknowledger.wait_for(where, found, WAIT_MS, done)


def _batch(records: Sequence[JournalRecord], now_ms: int, producer: Producer | None) -> bytes:
    if producer is None:
        return rows_batch(records, now_ms)
    if producer.commit is None:
        return rows_batch(records, now_ms, producer.producer_id, producer.epoch, _TRANSACTIONAL)
    return marker_batch(
        producer.producer_id, producer.epoch, producer.commit, producer.coordinator_epoch, now_ms
    )
