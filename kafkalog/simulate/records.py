"""Records that can be told apart: each is its own batch, known by its checksum."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kafkalog._native import ffi, lib
from kafkalog.batch.columns import Columns
from kafkalog.batch.encode import HEADER_BYTES, sealed
from kafkalog.log.log import Log

__all__ = ["Kept", "batch", "checksum", "kept", "walk"]

_HEADER = struct.Struct(">qiibI")
ROOM = 1 << 16
TIME_MS = 1_700_000_000_000


class Kept(NamedTuple):
    """A batch in a log."""

    offset: int
    epoch: int
    """Epoch of the leader that appended it."""
    checksum: int
    """Over everything that its producer wrote."""


def batch(value: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
    """One record, as a producer sends it."""
    columns = Columns([value], None, [TIME_MS], None)
    body = bytearray(HEADER_BYTES + len(value) + 64)
    encoded = columns.encode(body, len(body))
    records = bytes(memoryview(body)[HEADER_BYTES : HEADER_BYTES + encoded.records_bytes])
    stamp = ffi.new("kl_stamp *", {
        "producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence,
        "attributes": 0})  # fmt: skip
    return sealed(records, encoded, stamp)


def checksum(data: bytes) -> int:
    """The checksum of a batch."""
    return int(_HEADER.unpack_from(data)[4])


def walk(data: bytes) -> Iterator[Kept]:
    """The complete batches in some bytes."""
    pos = 0
    while pos + HEADER_BYTES <= len(data):
        offset, length, epoch, _, crc = _HEADER.unpack_from(data, pos)
        pos += 12 + length
        if pos <= len(data):
            yield Kept(offset, epoch, crc)


def kept(log: Log, start: int, stop: int) -> Iterator[Kept]:
    """The batches of [start, stop), as far as the log has them."""
    at, stop = max(start, log.start_offset), min(stop, log.end_offset)
    while at < stop:
        before = at
        for one in walk(log.read_batches(at, ROOM, "log_end", check_crcs=False)):
            if at <= one.offset < stop:
                yield one
            at = one.offset + 1
        if at == before:
            return


assert lib.KL_BATCH_HEADER_BYTES == HEADER_BYTES
