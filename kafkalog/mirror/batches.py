"""Selects what is copied from a fetched answer: whole batches, unchanged and not decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafkalog._native import lib
from kafkalog.batch.decode import body_of, decoded_records
from kafkalog.batch.walk import whole_batches
from kafkalog.mirror.spans import Copied, noted
from kafkalog.types import Record

__all__ = ["Part", "parts"]

HOLED_MAX = 1_000
"""Batches with holes in one part: each is remembered until the transaction ends."""


class Part(NamedTuple):
    """Consecutive batches, or the end of one batch as records."""

    data: memoryview
    records: Callable[[], Iterator[Record]] | None
    """Instead of `data`: the records of a batch whose first ones are not wanted.  Only until the
    next part."""
    batches: list[Copied]


def parts(
    data: bytes | memoryview, start: int, aborted: Sequence[tuple[int, int]]
) -> Iterator[Part]:
    """The records from offset `start` on, without control records and without those of `aborted`,
    the (producer id, first offset) of transactions.

    CRCs are not checked here, but where the batches are sent.

    Raises: CorruptMessage, UnsupportedForMessageFormat; errors of decoding a batch that is split.
    """
    view = memoryview(data)
    open_ = sorted(aborted, key=lambda one: one[1], reverse=True)
    gone: set[int] = set()
    begin = at = 0
    batches: list[Copied] = []
    for batch, whole in whole_batches(data, check_crc=False):
        while open_ and open_[-1][1] <= batch.last_offset:
            gone.add(open_.pop()[0])
        control = batch.attributes & lib.KL_ATTR_CONTROL
        dropped = batch.attributes & lib.KL_ATTR_TRANSACTIONAL and batch.producer_id in gone
        if control:  # a dead producer's transaction ends with it
            gone.discard(batch.producer_id)
        skipped = control or dropped or batch.last_offset < start or not batch.record_count
        split = not skipped and batch.base_offset < start
        if batches and (skipped or split or len(batches) >= HOLED_MAX):
            yield Part(view[begin:at], None, batches)
            batches = []
        if split:
            rest = partial(_rest, batch, body_of(batch, whole), start)
            first = next(rest(), None)
            if first is not None:
                count = sum(1 for _ in rest())
                yield Part(view[:0], rest, [Copied(first.offset, int(batch.last_offset), count)])
        elif not skipped:
            if not batches:
                begin = at
            first_offset, last_offset = int(batch.base_offset), int(batch.last_offset)
            noted(batches, Copied(first_offset, last_offset, int(batch.record_count)))
        at += len(whole)
    if batches:
        yield Part(view[begin:at], None, batches)


def _rest(batch: Any, body: bytes, start: int) -> Iterator[Record]:
    return (one for one in decoded_records(batch, body) if one.offset >= start)
