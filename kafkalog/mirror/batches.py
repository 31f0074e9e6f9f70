"""Selects what is copied from a fetched answer: whole batches, unchanged and not decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafkalog._native import lib
from kafkalog.batch.decode import batch_records
from kafkalog.batch.walk import whole_batches
from kafkalog.mirror.spans import Copied
from kafkalog.types import Record

__all__ = ["Part", "parts"]


class Part(NamedTuple):
    """Consecutive batches, or the end of one batch as records."""

    data: memoryview
    records: Sequence[Record]
    """Instead of `data`: a batch whose first records are not wanted."""
    batches: list[Copied]


def parts(data: bytes | memoryview, start: int, aborted: Sequence[tuple[int, int]]) -> list[Part]:
    """The records from offset `start` on, without control records and without those of `aborted`,
    the (producer id, first offset) of transactions.

    CRCs are not checked here, but where the batches are sent.

    Raises: CorruptMessage, UnsupportedForMessageFormat; errors of decoding a batch that is split.
    """
    view = memoryview(data)
    open_ = sorted(aborted, key=lambda one: one[1], reverse=True)
    gone: set[int] = set()
    found: list[Part] = []
    begin = at = 0
    batches: list[Copied] = []

    def cut() -> None:
        if batches:
            found.append(Part(view[begin:at], (), list(batches)))
            batches.clear()

    for batch, whole in whole_batches(data, check_crc=False):
        while open_ and open_[-1][1] <= batch.last_offset:
            gone.add(open_.pop()[0])
        control = batch.attributes & lib.KL_ATTR_CONTROL
        dropped = batch.attributes & lib.KL_ATTR_TRANSACTIONAL and batch.producer_id in gone
        if control:  # a dead producer's transaction ends with it
            gone.discard(batch.producer_id)
        if control or dropped or batch.last_offset < start or not batch.record_count:
            cut()
        elif batch.base_offset < start:
            cut()
            rest = [one for one in batch_records(batch, whole, "", -1) if one.offset >= start]
            if rest:
                copied = Copied(rest[0].offset, int(batch.last_offset), len(rest))
                found.append(Part(view[:0], rest, [copied]))
        else:
            if not batches:
                begin = at
            batches.append(
                Copied(int(batch.base_offset), int(batch.last_offset), int(batch.record_count))
            )
        at += len(whole)
    cut()
    return found
