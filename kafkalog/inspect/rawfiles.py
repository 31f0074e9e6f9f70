"""Reads Kafka's files of a partition as they are, without opening the log.

For tools that look at directories that another process owns or that are damaged: nothing is
written, nothing is trusted, and what cannot be read is reported with its place and reason.
Formats: docs/format.md.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.batch.encode import HEADER_BYTES
from kafkalog.batch.walk import BatchWalk
from kafkalog.disk.layout import META_PROPERTIES, segment_name

__all__ = [
    "LEFTOVERS",
    "AbortEntry",
    "HeaderBit",
    "SegmentFiles",
    "SnapshotEntry",
    "find_batch",
    "find_header_bit",
    "is_zero",
    "list_segments",
    "owner_of",
    "read_aborts",
    "read_epochs",
    "read_snapshot",
    "segment_offset",
    "unpack_index",
    "unpack_time_index",
]

SEARCH_BYTES = 1 << 22
LEFTOVERS = (".deleted", ".cleaned", ".swap")
ABORT_ENTRY = struct.Struct(">hqqqq")
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
NAME = re.compile(r"^(\d{20})(\.[a-z]+)$")


class SegmentFiles(NamedTuple):
    """The files of one segment, and the offsets between which its batches must be."""

    folder: Path
    base_offset: int
    limit: int
    """Base offset of the next segment; 2**63 - 1 for the last."""
    sealed: bool

    def path(self, suffix: str) -> Path:
        """The path of the segment's file with this suffix, whether it exists or not."""
        return self.folder / segment_name(self.base_offset, suffix)


def owner_of(folder: Path) -> Path:
    """The directory whose lock covers a partition's folder."""
    parent = folder.absolute().parent
    return parent if (parent / META_PROPERTIES).exists() else folder


def list_segments(folder: Path) -> list[SegmentFiles]:
    """The segments of a partition's folder, by the names of its `.log` files."""
    bases = sorted(
        base for name in os.listdir(folder) if (base := segment_offset(name, ".log")) is not None
    )
    limits = [*bases[1:], (1 << 63) - 1][: len(bases)]
    last = len(bases) - 1
    return [
        SegmentFiles(folder, base, limit, i < last)
        for i, (base, limit) in enumerate(zip(bases, limits, strict=True))
    ]


class AbortEntry(NamedTuple):
    """One entry of a `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class SnapshotEntry(NamedTuple):
    """One producer of a `.snapshot`."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int


def segment_offset(name: str, suffix: str) -> int | None:
    """The offset in a file name with exactly this suffix; None if it is another name."""
    match = NAME.match(name)
    return int(match[1]) if match and match[2] == suffix else None


def unpack_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(offset, position) of each whole entry of an `.index`, including a tail of zeros."""
    whole = memoryview(data)[: len(data) - len(data) % OFFSET_ENTRY.size]
    return [(base_offset + o, p) for o, p in OFFSET_ENTRY.iter_unpack(whole)]


def unpack_time_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp_ms, offset) of each whole entry of a `.timeindex`, including a tail of zeros."""
    whole = memoryview(data)[: len(data) - len(data) % TIME_ENTRY.size]
    return [(t, base_offset + o) for t, o in TIME_ENTRY.iter_unpack(whole)]


def read_aborts(data: bytes) -> list[AbortEntry]:
    """The entries of a `.txnindex`.  Raises: ValueError with a sentence."""
    if len(data) % ABORT_ENTRY.size:
        raise ValueError(f"{len(data)} bytes, not a multiple of {ABORT_ENTRY.size}")
    entries = []
    for version, *fields in ABORT_ENTRY.iter_unpack(data):
        if version != 0:
            raise ValueError(f"entry version {version}, wanted 0")
        entries.append(AbortEntry(*fields))
    return entries


def read_snapshot(data: bytes) -> list[SnapshotEntry]:
    """The producers of a `.snapshot`.  Raises: KafkalogError (checksum, version, size)."""
    room = max(len(data) // 46, 1)
    out = ffi.new("kl_producer[]", room)
    count = ffi.new("size_t *")
    view = ffi.from_buffer("uint8_t[]", data)
    check(lib.kl_snapshot_decode(view, len(data), out, room, count))
    return [
        SnapshotEntry(
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            p.last_offset,
            p.offset_delta,
            p.last_timestamp_ms,
            p.coordinator_epoch,
            p.txn_start_offset,
        )
        for p in (out[i] for i in range(count[0]))
    ]


def read_epochs(data: bytes) -> list[tuple[int, int]]:
    """(epoch, start offset) of each line of a `leader-epoch-checkpoint`.  Apache Kafka creates it
    empty, and writes it with the first epoch.

    Raises: ValueError with a sentence.
    """
    if not data:
        return []
    lines = data.decode("utf-8", "replace").splitlines()
    if lines[:1] != ["0"]:
        raise ValueError(f"version {lines[0][:20] if lines else ''!r}, wanted '0'")
    entries = []
    for number, line in enumerate(lines[2:], 3):
        match = re.fullmatch(r"(\d{1,10}) (\d{1,19})", line)
        if not match:
            raise ValueError(f"line {number} is {line[:80]!r}, wanted an epoch and an offset")
        entries.append((int(match[1]), int(match[2])))
    if len(lines) < 2 or lines[1] != str(len(entries)):
        count = lines[1][:20] if len(lines) > 1 else ""
        raise ValueError(f"line 2 is {count!r}, wanted '{len(entries)}'")
    return entries


def is_zero(path: Path, position: int) -> bool:
    """True if all bytes from `position` to the end are zero, and there are any."""
    zeros = bytes(SEARCH_BYTES)
    seen = False
    with open(path, "rb") as file:
        file.seek(position)
        while chunk := file.read(SEARCH_BYTES):
            if chunk != zeros[: len(chunk)]:
                return False
            seen = True
    return seen


class HeaderBit(NamedTuple):
    """One bit of a batch's header that makes the batch whole again when it is flipped."""

    position: int
    """The position of its byte in the file."""
    found: int
    wanted: int
    end: int
    """The position after the batch."""


def find_header_bit(path: Path, position: int) -> HeaderBit | None:
    """The one wrong bit in the first 17 bytes of the batch at `position`; None: there is none.

    The batch's checksum does not cover those bytes, and is right about the rest: so it shows
    whether a length or a magic is the one that was written.
    """
    out = ffi.new("kl_batch *")
    size = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(position)
        head = file.read(HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return None
        for byte, bit in _CHECKED_BITS:
            changed = bytearray(head)
            changed[byte] ^= 1 << bit
            if not _header_parses(bytes(changed), out):
                continue
            end = position + int(out.batch_bytes)
            # A batch or the end must follow, so that no long body is read for nothing.
            file.seek(end)
            after = file.read(HEADER_BYTES)
            if end > size or (end < size and not _header_parses(after, out)):
                continue
            file.seek(position + HEADER_BYTES)
            changed += file.read(end - position - HEADER_BYTES)
            if lib.kl_batch_check(bytes(changed), len(changed), out) == lib.KL_OK:
                return HeaderBit(position + byte, head[byte], changed[byte], end)
    return None


# The sign of the base offset, the length, the magic: unless they are right there is no batch.
_CHECKED_BITS = [(0, 7), *((byte, bit) for byte in (8, 9, 10, 11, 16) for bit in range(8))]


def _header_parses(data: bytes, out: Any) -> bool:
    """True if 61 bytes begin a batch; if so, `out` has its header."""
    status = lib.kl_batch_parse(data, len(data), out)
    return status == lib.KL_OK or (
        bool(status == lib.KL_E_BUFFER_TOO_SMALL) and out.batch_bytes > 0
    )


def _batch_at(path: Path, position: int, low: int, high: int) -> bool:
    """True if a whole batch with offsets in [low, high) and a correct checksum is there."""
    for room, _ in BatchWalk(path, position, room=1).blocks():
        return bool(low <= room[0].base_offset and room[0].last_offset < high)
    return False


def find_batch(path: Path, position: int, low: int, high: int) -> int | None:
    """The first position after `position` of a good batch with offsets in [low, high).

    The length of the batch that failed at `position` is tried first; if that leads nowhere, every
    byte is tried.  None: no more batches.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(position + 8)
        head = file.read(4)
        if len(head) == 4:
            after = position + 12 + int.from_bytes(head, "big", signed=True)
            if position < after <= size - HEADER_BYTES and _batch_at(path, after, low, high):
                return after
        start = position + 1
        while start <= size - HEADER_BYTES:
            file.seek(start)
            chunk = file.read(SEARCH_BYTES)
            for at in _candidates(chunk, low, high, size - start):
                if _batch_at(path, start + at, low, high):
                    return start + at
            if len(chunk) < SEARCH_BYTES:
                return None
            start += len(chunk) - HEADER_BYTES + 1
    return None


def _candidates(chunk: bytes, low: int, high: int, left: int) -> Iterator[int]:
    """Positions in `chunk` where a header could begin; it starts `left` bytes before the end."""
    at = chunk.find(b"\x02", 16)
    while at >= 0:
        start = at - 16
        if start + HEADER_BYTES > len(chunk):
            return
        offset, length = struct.unpack_from(">qi", chunk, start)
        if low <= offset < high and HEADER_BYTES - 12 <= length <= left - start - 12:
            yield start
        at = chunk.find(b"\x02", at + 1)
