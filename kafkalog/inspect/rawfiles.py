"""Kafka's files of a partition, read as they lie there, without opening the log.

For tools that look at directories which belong to somebody else or are damaged: nothing is
written, nothing is believed, and what cannot be read says where and why.  Formats:
docs/format.md.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._native import check, ffi, lib

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "LEFTOVERS",
    "AbortEntry",
    "BatchWalk",
    "HeaderBit",
    "Marker",
    "SegmentFiles",
    "SnapshotEntry",
    "Stop",
    "batch_dtype",
    "decode_records",
    "error_message",
    "find_batch",
    "find_header_bit",
    "is_zero",
    "list_segments",
    "read_aborts",
    "read_epochs",
    "read_marker",
    "read_snapshot",
    "segment_name",
    "segment_offset",
    "unpack_index",
    "unpack_time_index",
]

HEADER_BYTES = 61
WALK_BATCHES = 4096
SEARCH_BYTES = 1 << 22
LEFTOVERS = (".deleted", ".cleaned", ".swap")
ABORT_ENTRY = struct.Struct(">hqqqq")
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
NAME = re.compile(r"^(\d{20})(\.[a-z]+)$")


class SegmentFiles(NamedTuple):
    """The files of one segment, and between which offsets its batches must lie."""

    folder: Path
    base_offset: int
    limit: int
    """Base offset of the next segment; 2**63 - 1 for the last."""
    sealed: bool

    def path(self, suffix: str) -> Path:
        """Of the segment's file with this suffix, whether it exists or not."""
        return self.folder / f"{self.base_offset:020d}{suffix}"


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


class Stop(NamedTuple):
    """Why a walk ended before the end of its file."""

    status: int
    """A kl_status."""
    position: int
    """Of the batch that failed, bytes from the start of the file."""
    message: str


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


class Marker(NamedTuple):
    """The record of a control batch."""

    offset: int
    timestamp_ms: int
    kind: int
    """0 abort, 1 commit; others are KRaft's own."""
    coordinator_epoch: int
    """-1 when it is no transaction marker."""


def error_message() -> str:
    """The last failure of this thread, as the C core says it."""
    return str(ffi.string(lib.kl_error_message()).decode(errors="replace"))


def segment_name(base_offset: int, suffix: str) -> str:
    """`00000000000000000042.index` for 42 and `.index`."""
    return f"{base_offset:020d}{suffix}"


def segment_offset(name: str, suffix: str) -> int | None:
    """The offset in such a name with exactly this suffix; None when it is another."""
    match = NAME.match(name)
    return int(match[1]) if match and match[2] == suffix else None


def batch_dtype() -> np.dtype[Any]:
    """kl_batch as a NumPy type, field by field from the declaration."""
    import numpy as np

    ctype = ffi.typeof("kl_batch")
    names, formats, offsets = [], [], []
    for name, field in ctype.fields:
        kind = "u" if field.type.cname.startswith("u") else "i"
        names.append(name)
        formats.append(f"{kind}{ffi.sizeof(field.type)}")
        offsets.append(field.offset)
    layout = {"names": names, "formats": formats, "offsets": offsets}
    size = {"itemsize": ffi.sizeof(ctype)}
    return np.dtype({**layout, **size})  # type: ignore[call-overload, no-any-return]


class BatchWalk:
    """The batches of a file from `position` on, block by block; one thread at a time.

    After the last block `stop` tells why the walk ended before the file did, or is None.

    Raises: what kl_walk_open reports (OSError's kin as KafkalogError) for a file that
    cannot be opened.
    """

    def __init__(
        self, path: str | os.PathLike[str], position: int = 0, room: int = WALK_BATCHES
    ) -> None:
        out = ffi.new("kl_walk **")
        check(lib.kl_walk_open(os.fsencode(path), position, out))
        self._name = os.path.basename(os.fspath(path))
        self._c = ffi.gc(out[0], lib.kl_walk_free)
        self._room = ffi.new("kl_batch[]", room)
        self._room_batches = room
        self._count = ffi.new("int32_t *")
        self.stop: Stop | None = None

    @property
    def file_bytes(self) -> int:
        """Size of the file when it was opened."""
        return int(lib.kl_walk_file_bytes(self._c))

    @property
    def position(self) -> int:
        """Of the batch that comes next, or that failed."""
        return int(lib.kl_walk_pos(self._c))

    def blocks(self, check_crc: bool = True) -> Iterator[tuple[Any, int]]:
        """(array of kl_batch, how many of it): valid until the next block."""
        while True:
            status = lib.kl_walk_next(
                self._c, self._room, self._room_batches, self._count, int(check_crc)
            )
            message = error_message() if status else ""
            if self._count[0]:
                yield self._room, self._count[0]
            if status:
                # Whoever tells the stop names the place: once is enough.
                message = message.removeprefix(f"{self._name}, position {self.position}: ")
                self.stop = Stop(int(status), self.position, message)
                return
            if not self._count[0]:
                return

    def tables(self, check_crc: bool = True) -> Iterator[np.ndarray[Any, Any]]:
        """The blocks as NumPy records of `batch_dtype()`, copied."""
        import numpy as np

        dtype = batch_dtype()
        for room, count in self.blocks(check_crc):
            data = ffi.buffer(room, count * dtype.itemsize)
            yield np.frombuffer(data, dtype=dtype).copy()

    def batches(self, check_crc: bool = True) -> Iterator[Any]:
        """A pointer to one kl_batch after another; each is valid until the next."""
        for room, count in self.blocks(check_crc):
            for i in range(count):
                yield room + i

    def read(self, position: int, batch_bytes: int) -> bytes:
        """The whole batch at `position`, which a block named.  Raises: KafkalogError."""
        buffer = bytearray(batch_bytes)
        used = ffi.new("size_t *")
        view = ffi.from_buffer("uint8_t[]", buffer, require_writable=True)
        check(lib.kl_walk_read(self._c, position, view, batch_bytes, used))
        return bytes(buffer)


def decode_records(batch: Any, body: bytes) -> Iterator[Any]:
    """The kl_record structures of an inflated batch body, each valid until the next.

    Raises: KafkalogError for records that do not fill their lengths.
    """
    room = ffi.new("kl_record[]", 256)
    position = ffi.new("int64_t *", 0)
    count = ffi.new("int32_t *")
    data = ffi.from_buffer("uint8_t[]", body)
    while True:
        check(lib.kl_records_decode(batch, data, len(body), position, room, 256, count))
        if not count[0]:
            return
        for i in range(count[0]):
            yield room[i]


def read_marker(batch: Any, data: bytes) -> Marker | None:
    """The control record of a whole batch `data`; None for one that was emptied."""
    body = data[HEADER_BYTES:]
    for record in decode_records(batch, body):
        if record.key_bytes < 4:
            return None
        _, kind = struct.unpack_from(">hh", body, record.key_pos)
        epoch = -1
        if kind in (lib.KL_CONTROL_ABORT, lib.KL_CONTROL_COMMIT) and record.value_bytes >= 6:
            (epoch,) = struct.unpack_from(">i", body, record.value_pos + 2)
        return Marker(int(record.offset), int(record.timestamp_ms), int(kind), epoch)
    return None


def unpack_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(offset, position) of each whole entry of an `.index`, zero tail and all."""
    whole = memoryview(data)[: len(data) - len(data) % OFFSET_ENTRY.size]
    return [(base_offset + o, p) for o, p in OFFSET_ENTRY.iter_unpack(whole)]


def unpack_time_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp_ms, offset) of each whole entry of a `.timeindex`, zero tail and all."""
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
    """(epoch, start offset) of each line of a `leader-epoch-checkpoint`.

    Raises: ValueError with a sentence.
    """
    lines = data.decode("utf-8", "replace").splitlines()
    if lines[:1] != ["0"]:
        raise ValueError(f"version {lines[0][:20]!r}, wanted '0'" if lines else "no bytes")
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
    """Whether all bytes from `position` to the end are zero (no bytes: False)."""
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
    """One bit of a batch's header that makes it whole again when it is changed."""

    position: int
    """Of its byte in the file."""
    found: int
    wanted: int
    end: int
    """Behind the batch."""


def find_header_bit(path: Path, position: int) -> HeaderBit | None:
    """Which bit of the first 17 bytes of the batch at `position` spoils it; None: not one.

    The batch's checksum leaves those bytes out and is right about the rest, so that it tells
    a length or a magic that is not the one that was written.
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


# The sign of the base offset, the length, the magic: without them right there is no batch.
_CHECKED_BITS = [(0, 7), *((byte, bit) for byte in (8, 9, 10, 11, 16) for bit in range(8))]


def _header_parses(data: bytes, out: Any) -> bool:
    """Whether 61 bytes begin a batch, whose header is in `out` then."""
    status = lib.kl_batch_parse(data, len(data), out)
    return status == lib.KL_OK or (
        bool(status == lib.KL_E_BUFFER_TOO_SMALL) and out.batch_bytes > 0
    )


def _batch_at(path: Path, position: int, low: int, high: int) -> bool:
    """Whether a whole batch with offsets in [low, high) and a right checksum lies there."""
    for room, _ in BatchWalk(path, position, room=1).blocks():
        return bool(low <= room[0].base_offset and room[0].last_offset < high)
    return False


def find_batch(path: Path, position: int, low: int, high: int) -> int | None:
    """The first place after `position` where a good batch with offsets in [low, high) lies.

    The batch that failed at `position` is believed about its length first; if that leads
    nowhere, every byte is tried.  None: no more batches.
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
    """Places in `chunk` where a header could begin, `left` bytes before the file's end."""
    at = chunk.find(b"\x02", 16)
    while at >= 0:
        start = at - 16
        if start + HEADER_BYTES > len(chunk):
            return
        offset, length = struct.unpack_from(">qi", chunk, start)
        if low <= offset < high and HEADER_BYTES - 12 <= length <= left - start - 12:
            yield start
        at = chunk.find(b"\x02", at + 1)
