"""Logs of any apparent size for lookups: real indexes, and real bytes only where a lookup reads.

Every segment has its full offset and time index, as an appended log of the same batches would
have them, and a `.log` of its full length, which is a hole (ftruncate) except for

- the header of its first and of its last batch, which opening and the first lookup by time
  read to learn the segment's times;
- for each offset to look up, the whole batch that holds it and the one before,
  because the floor in a sparse index is the entry of the batch before;
- the whole first and last batch of the log, which opening checks.

All batches are copies of one that kafkalog encoded, with offsets, times and checksum of their
place.  Checkpoints, snapshot and clean marker are kafkalog's own, so that the log opens like one
that was closed cleanly.  A scan of it would fail at the first hole; lookups do not notice.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import kafkalog
from kafkalog._native import ffi, lib
from kafkalog.disk.checkpoint import DirectoryState
from kafkalog.types import TopicPartition

__all__ = ["BATCH_BYTES", "SparseLog", "build"]

BATCH_BYTES = 16 << 10
"""About, as producers send them by default."""
_VALUE = b"x" * 100
_CRC_POS, _ATTRIBUTES_POS = 17, 21
_BASE_TIMESTAMP_POS = 27


class SparseLog(NamedTuple):
    """The log that was built."""

    path: Path
    wanted: np.ndarray
    """Offsets to look up, int64, in random order; the time of a record in ms is its offset."""
    batch_bytes: int
    batch_count: int
    batch_records: int
    apparent_bytes: int


class _Template:
    """One encoded batch, and its copies at other places."""

    def __init__(self, scratch: Path) -> None:
        with kafkalog.Log(scratch) as log:
            values = [_VALUE] * 1000
            log.append_many(values, timestamps_ms=list(range(1000)), batch_bytes=BATCH_BYTES)
            self.bytes = log.read_batches(0, 1)
        self.records = struct.unpack_from(">i", self.bytes, 23)[0] + 1

    def at(self, number: int) -> bytes:
        """The batch with this number, counted from the first of the log."""
        data = bytearray(self.bytes)
        first = number * self.records
        struct.pack_into(">q", data, 0, first)
        struct.pack_into(">qq", data, _BASE_TIMESTAMP_POS, first, first + self.records - 1)
        checked = data[_ATTRIBUTES_POS:]
        crc = lib.kl_crc32c(ffi.from_buffer("uint8_t[]", checked), len(checked))
        struct.pack_into(">I", data, _CRC_POS, crc)
        return bytes(data)


def build(
    path: Path, segment_count: int, segment_bytes: int, wanted_count: int, seed: int
) -> SparseLog:
    """A log of `segment_count` segments of about `segment_bytes` each in the folder `path`."""
    scratch = path.with_name("scratch-0")
    batch = _Template(scratch)
    size, records = len(batch.bytes), batch.records
    per_segment = max(2, segment_bytes // size)
    total = per_segment * segment_count
    wanted = np.random.default_rng(seed).choice(total * records, wanted_count, replace=False)
    wanted = np.ascontiguousarray(wanted, np.int64)

    path.mkdir()
    whole: dict[int, set[int]] = {0: {0}, segment_count - 1: {total - 1}}
    for number in np.unique(wanted // records).tolist():
        here = whole.setdefault(number // per_segment, set())
        here.update(n for n in (number - 1, number) if n // per_segment == number // per_segment)
    relative = np.arange(1, per_segment, dtype=np.int64)
    for segment in range(segment_count):
        name = path / f"{segment * per_segment * records:020d}"
        _write_log(name, batch, segment, per_segment, whole.get(segment, ()))
        _write_indexes(name, relative, segment * per_segment * records, records, size)
    _finish(path, scratch, total * records)
    return SparseLog(path, wanted, size, total, records, total * size)


def _write_log(
    name: Path, batch: _Template, segment: int, per_segment: int, whole: Sequence[int] | set[int]
) -> None:
    size, first = len(batch.bytes), segment * per_segment
    fd = os.open(name.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(fd, per_segment * size)
    for number in (first, first + per_segment - 1):
        header = batch.at(number)[: lib.KL_BATCH_HEADER_BYTES]
        os.pwrite(fd, header, (number - first) * size)
    for number in whole:
        os.pwrite(fd, batch.at(number), (number - first) * size)
    os.close(fd)


def _write_indexes(name: Path, relative: np.ndarray, base: int, records: int, size: int) -> None:
    """An entry for each batch except the first: one is due after every 4 KiB."""
    last = relative * records + records - 1
    by_offset = np.empty(len(relative), [("offset", ">i4"), ("pos", ">i4")])
    by_offset["offset"], by_offset["pos"] = last, relative * size
    by_offset.tofile(name.with_suffix(".index"))
    by_time = np.empty(len(relative), [("timestamp", ">i8"), ("offset", ">i4")])
    by_time["timestamp"], by_time["offset"] = base + last, last
    by_time.tofile(name.with_suffix(".timeindex"))


def _finish(path: Path, scratch: Path, end_offset: int) -> None:
    """The files of a clean close: snapshot, epochs, checkpoints, marker."""
    snapshot = next(scratch.glob("*.snapshot"))
    shutil.copy(snapshot, path / f"{end_offset:020d}.snapshot")
    shutil.copy(scratch / "leader-epoch-checkpoint", path)
    shutil.rmtree(scratch)
    state = DirectoryState(path, "w", own=True)
    topic, _, partition = path.name.rpartition("-")
    state.note(TopicPartition(topic, int(partition)), end_offset, None, end_offset)
    state.save({}, {}, {})
    state.mark_clean()
    state.close()
