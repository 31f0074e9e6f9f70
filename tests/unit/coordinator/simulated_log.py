"""A partition as transactions see it: epochs, sequences, open transactions and their ends."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog.coordinator.transactions.shard import Marker
from kafkalog.coordinator.transactions.transaction import EPOCH_MAX
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Partition"]

OK = ErrorCode.NONE


@dataclass
class Known:
    """A partition's state of a producer id."""

    epoch: int
    last: int = -1
    """The last sequence in the epoch."""
    open: list[str] | None = None
    """Tags of the batches in its open transaction."""
    coordinator_epoch: int = -1
    """The highest one of its markers."""


class Partition:
    """Treats transactional batches and markers as a log does."""

    def __init__(self) -> None:
        self.known: dict[int, Known] = {}
        self.ended: list[tuple[frozenset[str], bool]] = []
        """Tags that a marker ended together, and whether it was a commit."""
        self.markers: list[Marker] = []
        """All that were written."""

    def is_open(self, producer: tuple[int, int]) -> bool:
        known = self.known.get(producer[0])
        return known is not None and known.open is not None and known.epoch == producer[1]

    def append(self, producer: tuple[int, int], sequence: int, tag: str) -> tuple[ErrorCode, bool]:
        """The error, and whether the batch was written."""
        known = self.known.setdefault(producer[0], Known(producer[1]))
        if producer[1] < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, False
        if producer[1] > known.epoch:
            known.epoch, known.last = producer[1], -1
        if sequence <= known.last:
            return OK, False
        if sequence != known.last + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False
        known.last = sequence
        known.open = [*(known.open or []), tag]
        return OK, True

    @staticmethod
    def is_fenced(marker: Marker, known: Known) -> bool:
        """True if the marker is of an earlier coordinator."""
        return marker.coordinator_epoch < known.coordinator_epoch

    def mark(self, marker: Marker) -> ErrorCode:
        known = self.known.setdefault(marker.producer_id, Known(marker.epoch))
        if marker.epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        late = marker.producer.raised and marker.epoch == known.epoch != EPOCH_MAX
        if late and known.open is not None:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.is_fenced(marker, known):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        known.coordinator_epoch = marker.coordinator_epoch
        self.markers.append(marker)
        if marker.epoch > known.epoch:
            known.epoch, known.last = marker.epoch, -1
        if known.open is not None:
            self.ended.append((frozenset(known.open), marker.commit))
            known.open = None
        return OK
