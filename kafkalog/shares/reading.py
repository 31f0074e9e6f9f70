"""Reads whole batches of a log for share groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkalog._native import lib
from kafkalog.batch.walk import whole_batches
from kafkalog.log.isolation import COMMITTED, UNCOMMITTED
from kafkalog.shares.acquiring import Batch

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.shares.partition import Acquired

__all__ = ["NOTHING", "Limits", "Read", "covering", "read"]

FIRST_BYTES = 65_536
"""Read first, unless more is expected."""


class Read(NamedTuple):
    """Batches of a log."""

    data: bytes
    """Whole batches, as they are on disk."""
    batches: Sequence[Batch]
    ends: Sequence[int]
    """The position in `data` after each batch."""
    aborted: Sequence[Batch]
    """Those of aborted transactions."""


NOTHING = Read(b"", (), (), ())


class Limits(NamedTuple):
    """How much is read."""

    max_bytes: int
    """At most, but one batch in any case."""
    min_bytes: int
    """At least, if the log has so much."""
    until: int
    """The end of the offsets that are wanted."""
    expected: int = 0
    """How many bytes these are, about."""


def read(log: Log, offset: int, limits: Limits, committed: bool) -> Read:
    """The batches from the one with `offset` on, at least one unless the log ends there.

    `committed`: none of open transactions, and tell those of aborted ones.

    Raises: OffsetOutOfRange, StorageOffline, Closed.
    """
    isolation = COMMITTED if committed else UNCOMMITTED
    parts: list[memoryview] = []
    batches: list[Batch] = []
    ends, of_producers, position = [], [], 0
    while offset < limits.until or position < limits.min_bytes:
        left = limits.max_bytes - position
        if batches and left <= 0:
            break
        # More at once the more there is: the size of what is wanted is unknown.
        room = max(FIRST_BYTES, limits.expected) + position
        data = log.read_batches(offset, min(left, room), isolation, False)
        if not data or (batches and len(data) > left):
            break  # the log ends, or its next batch is too large
        for batch, view in whole_batches(data, check_crc=False):
            one = Batch(batch.base_offset, batch.last_offset)
            batches.append(one)
            parts.append(view)
            position += len(view)
            ends.append(position)
            kind = batch.attributes & (lib.KL_ATTR_TRANSACTIONAL | lib.KL_ATTR_CONTROL)
            if committed and kind == lib.KL_ATTR_TRANSACTIONAL:
                of_producers.append((batch.producer_id, one))
        offset = batches[-1].last + 1
    aborted: list[Batch] = []
    if of_producers:
        ended = log.aborted(batches[0].first, batches[-1].last + 1)
        aborted = [
            one for producer, one in of_producers
            if any(producer == txn.producer_id and txn.first_offset <= one.first <= txn.last_offset
                   for txn in ended)
        ]  # fmt: skip
    return Read(b"".join(parts), batches, ends, aborted)


def covering(found: Read, acquired: Sequence[Acquired]) -> bytes:
    """The batches with the acquired offsets, and those between them."""
    if not acquired:
        return b""
    first, last = acquired[0].first, acquired[-1].last
    begin = 0
    for batch, end in zip(found.batches, found.ends, strict=True):
        if batch.last < first:
            begin = end
        if batch.last >= last:
            return found.data[begin:end]
    return found.data[begin:]
