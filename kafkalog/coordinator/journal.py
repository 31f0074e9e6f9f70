"""A coordinator's journal: what it needs from the partitions of its topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkalog._native import lib
from kafkalog.batch.control import read_marker
from kafkalog.batch.decode import body_of, decoded_records
from kafkalog.batch.walk import whole_batches
from kafkalog.coordinator.step import JournalRecord, Producer
from kafkalog.errors import CorruptMessage

if TYPE_CHECKING:
    from kafkalog.log.log import Log

__all__ = ["Journal", "JournalBatch", "StoredRecord", "journal_batches"]

READ_BYTES = 1 << 20


class StoredRecord(NamedTuple):
    """A record of the journal."""

    offset: int
    key: bytes | None
    value: bytes | None


class JournalBatch(NamedTuple):
    """A batch of the journal, with the fields that matter here."""

    producer_id: int
    """-1 if it has none."""
    transactional: bool
    """Its records wait for the producer's marker."""
    marker: int | None
    """For a control batch: KL_CONTROL_ABORT or KL_CONTROL_COMMIT; -1 for another kind."""
    records: list[StoredRecord]
    """Empty for a control batch."""


class Journal(Protocol):
    """The partitions of a coordinator's topic that this broker leads."""

    def append(
        self,
        partition: int,
        epoch: int,
        records: Sequence[JournalRecord],
        done: Callable[..., None],
        producer: Producer | None = None,
    ) -> None:
        """Append records as one batch (acks=all) and call `done` once with the outcome: its error
        code, and if it is known the offset of the first record.

        `epoch`: if the partition is led in another leader epoch, the outcome is
        NOT_LEADER_OR_FOLLOWER and nothing is appended.  `producer`: the batch belongs to its
        transaction, or is the marker that ends it.

        NONE: the records are committed, and as durable as the topic promises.  `done` may be
        called from any thread, also before this returns; for one partition in the order of the
        appends.  Raising a KafkalogError has the same effect as calling it.
        """

    def read(self, partition: int, epoch: int) -> Iterator[JournalBatch]:
        """All batches of a partition; none if there is no log yet.

        Called from its own thread, before anything is appended.  Raises:
        NotLeaderOrFollower: it is not yet, or no longer, led in this epoch.
        """


def journal_batches(log: Log) -> Iterator[JournalBatch]:
    """All batches of a log, including control batches and open transactions.

    Raises: CorruptMessage with the offset, IoFailed, StaleLog.
    """
    offset = log.start_offset
    while offset < log.end_offset:
        try:
            data = log.read_batches(offset, READ_BYTES, "log_end")
        except CorruptMessage as error:
            raise CorruptMessage(f"offset {offset}: {error}") from error
        if not data:
            return
        for batch, raw in whole_batches(data, check_crc=False):
            offset = batch.last_offset + 1
            yield _journal_batch(batch, raw)


def _journal_batch(batch: Any, raw: bytes | memoryview) -> JournalBatch:
    transactional = bool(batch.attributes & lib.KL_ATTR_TRANSACTIONAL)
    if batch.attributes & lib.KL_ATTR_CONTROL:
        marker = read_marker(batch, bytes(raw))
        kind = -1 if marker is None else marker.kind
        return JournalBatch(batch.producer_id, transactional, kind, [])
    records = [
        StoredRecord(record.offset, record.key, record.value)
        for record in decoded_records(batch, body_of(batch, raw))
    ]
    return JournalBatch(batch.producer_id, transactional, None, records)
