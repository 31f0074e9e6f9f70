"""The options of a Fetch, and one partition's data in its answer."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from kafkalog.batch.walk import whole_batches
from kafkalog.log.fetched import Decoder
from kafkalog.types import Record, TopicPartition

__all__ = ["Ends", "FetchOptions", "Fetched"]

CONTROL = 32


class FetchOptions(NamedTuple):
    """How much to fetch, and how long to wait for it."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    partition_bytes: int = 1 << 20
    committed: bool = False
    """Without records of open and aborted transactions."""
    out_of_range: str = "error"
    """Where to continue if the offset is out of range: as auto.offset.reset, or error."""
    check_crcs: bool = True
    rack: str = ""
    """The consumer's rack: a leader may name a nearer replica (KIP-392)."""
    nearer_s: float = 300.0
    """How long to fetch from that replica."""
    set_aside: bool = False
    """Partitions that the cluster does not have do not hold up others: see `FetchState.missing`."""
    sessions: bool = True
    """Use fetch sessions (KIP-227); not worth their place at the broker for a few requests."""


class Ends(NamedTuple):
    """The offsets of a partition in an answer."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Fetched(NamedTuple):
    """One partition's data in an answer."""

    tp: TopicPartition
    data: bytes | memoryview
    """Record batches as in the log; the last may be incomplete."""
    start: int
    """The requested offset: earlier records are dropped."""
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of aborted transactions, for read_committed."""
    committed: bool

    def records(self) -> list[Record]:
        """The data records from `start` on, without control and aborted records.

        Raises: CorruptMessage, naming partition and offset; others as in a scan.
        """
        blocks = Decoder().records(*self.tp, self.data, self.start, self.aborted)
        return list(chain.from_iterable(rows.records(0, len(rows)) for rows in blocks))

    def record_count(self) -> int:
        """The number of records, from the checked headers of the batches; for measurements."""
        return sum(
            int(batch.record_count)
            for batch, _ in whole_batches(self.data)
            if not batch.attributes & CONTROL
        )
