"""The coordinators' journals: the partitions of `__consumer_offsets`, of `__transaction_state`."""

from collections.abc import Callable, Iterator, Sequence

from kafkalog._native import lib
from kafkalog.batch.control import marker_batch
from kafkalog.batch.encode import rows_batch
from kafkalog.clock import Clock
from kafkalog.coordinator.journal import JournalBatch, journal_batches
from kafkalog.coordinator.partitions import partition_for
from kafkalog.coordinator.step import Producer
from kafkalog.directory.manager import Manager
from kafkalog.errors import KafkalogError, NotLeaderOrFollower, Timeout
from kafkalog.server.codes import code_of
from kafkalog.server.network.reactor import Reactor
from kafkalog.server.partitions import Partitions
from kafkalog.server.threads.acknowledger import Acknowledger
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["OFFSETS_TOPIC", "TRANSACTIONS_TOPIC", "Journal", "offsets_partition"]

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
WAIT_MS = 60_000
"""The coordinator has timeouts of its own; this one only ends what nobody waits for."""
_TRANSACTIONAL: int = lib.KL_ATTR_TRANSACTIONAL

Row = tuple[bytes, bytes | None]


def offsets_partition(group_id: str, count: int) -> TopicPartition | None:
    """The partition of a group's offsets, of `count` partitions; None: there is none."""
    return TopicPartition(OFFSETS_TOPIC, partition_for(group_id, count)) if count else None


class Journal:
    """Where a coordinator writes what it must not forget.  Any thread."""

    def __init__(
        self,
        topic: str,
        manager: Manager,
        partitions: Partitions,
        reactor: Reactor,
        acknowledger: Acknowledger,
    ) -> None:
        """Nothing is opened, and no partition's files are made, before they are wanted."""
        self._topic = topic
        self._partitions = partitions
        self._reactor = reactor
        self._acknowledger = acknowledger
        self._clock: Clock = manager.clock

    def append(
        self,
        partition: int,
        epoch: int,
        records: Sequence[Row],
        done: Callable[[ErrorCode], None],
        producer: Producer | None = None,
    ) -> None:
        """Append records as one batch; `done(NONE)` when they are as durable as acks=all is.

        `epoch`: the only leader epoch of the partition in which they may be; `producer`: the batch
        is part of its transaction, or the marker that ends it.

        `done` is called in another thread, or in this one before this returns: when nothing was
        appended, and when nothing is to be waited for.
        """
        try:
            self._partitions.log(self._topic, partition)
            now_ms = self._clock.now_ms()
            found = self._reactor.append(
                self._topic, partition, _batch(records, now_ms, producer), acks=-1, now_ms=now_ms,
                leader_epoch=epoch, coordinator=True,
                raised=producer is not None and producer.raised,
            )  # fmt: skip
        except (KafkalogError, OSError) as problem:
            done(code_of(problem))
            return
        self._acknowledger.wait(
            self._topic, partition, found.last_offset + 1, WAIT_MS,
            lambda problem: done(_outcome(problem)), on_disk=found.sync_due,
            cuts=found.cuts,
        )  # fmt: skip

    def read(self, partition: int, epoch: int) -> Iterator[JournalBatch]:
        """All batches of a partition; none where nothing was ever written.

        Raises: NotLeaderOrFollower: it is not led in `epoch`; what opening and reading a log
        raises.
        """
        log = self._partitions.look(self._topic, partition)
        if log is None:
            return
        if log.leader_epoch != epoch:
            raise NotLeaderOrFollower(
                f"{self._topic}-{partition}: found leader epoch {log.leader_epoch}, wanted {epoch}"
            )
        yield from journal_batches(log)


def _outcome(problem: Exception | None) -> ErrorCode:
    if problem is None:
        return ErrorCode.NONE
    return ErrorCode.REQUEST_TIMED_OUT if isinstance(problem, Timeout) else code_of(problem)


def _batch(rows: Sequence[Row], now_ms: int, producer: Producer | None) -> bytes:
    if producer is not None and producer.commit is not None:
        return marker_batch(producer.producer_id, producer.epoch, producer.commit,
                            producer.coordinator_epoch, now_ms)  # fmt: skip
    if producer is not None:
        return rows_batch(rows, now_ms, producer.producer_id, producer.epoch, _TRANSACTIONAL)
    return rows_batch(rows, now_ms)
