"""What a Fetch asks for, and what one partition of its answer holds."""

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
    """Without open and aborted transactions."""
    out_of_range: str = "error"
    """Where to go on when the offset is not there: as auto.offset.reset, or error."""
    check_crcs: bool = True
    rack: str = ""
    """Where the consumer stands: a leader may name a replica that is nearer (KIP-392)."""
    nearer_s: float = 300.0
    """How long that is believed."""
    set_aside: bool = False
    """Partitions that the cluster does not have hold up no others: see `Core.missing`."""
    sessions: bool = True
    """Let nodes remember what is fetched (KIP-227); a few requests are not worth the place."""


class Ends(NamedTuple):
    """What an answer says of a partition."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Fetched(NamedTuple):
    """What one answer holds of one partition."""

    tp: TopicPartition
    data: bytes | memoryview
    """Record batches as they lie in the log; the last may be cut off."""
    start: int
    """The offset that was asked for: records before it are not wanted."""
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of aborted transactions, for read_committed."""
    committed: bool

    def records(self) -> list[Record]:
        """The data records from `start` on, without control records and aborted ones.

        Raises: CorruptMessage, naming partition and offset; others as a scan does.
        """
        blocks = Decoder().records(*self.tp, self.data, self.start, self.aborted)
        return list(chain.from_iterable(rows.records(0, len(rows)) for rows in blocks))

    def record_count(self) -> int:
        """Records by the headers of the batches, which are checked; for measuring."""
        return sum(
            int(batch.record_count)
            for batch, _ in whole_batches(self.data)
            if not batch.attributes & CONTROL
        )
