"""Snapshots of the metadata: `<offset>-<epoch>.checkpoint`, made of batches like the log.

The name's offset is that of the first record that is not in it.
"""

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkalog.batch.walk import BatchWalk
from kafkalog.errors import CorruptLog, KafkalogError
from kafkalog.kraft.batches import (
    KRAFT_VERSION,
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    VOTERS,
    Raw,
    control_batch,
    data_batches,
    kraft_version_value,
    raw_records,
    snapshot_footer_value,
    snapshot_header_value,
)

__all__ = ["SnapshotName", "list_snapshots", "read_snapshot", "render_snapshot"]

_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class SnapshotName(NamedTuple):
    """The parts of a snapshot's name."""

    offset: int
    epoch: int

    def file(self) -> str:
        """The file's name."""
        return f"{self.offset:020d}-{self.epoch:010d}.checkpoint"


def list_snapshots(folder: str) -> list[SnapshotName]:
    """The snapshots of a metadata log's folder, oldest first."""
    found = [match for name in os.listdir(folder) if (match := _NAME.fullmatch(name))]
    return sorted(SnapshotName(int(match[1]), int(match[2])) for match in found)


def read_snapshot(path: str) -> list[Raw]:
    """Every record of a complete snapshot.

    Raises: CorruptLog for a damaged or unfinished one.
    """
    found: list[Raw] = []
    try:
        walk = BatchWalk(path)
        for batch in walk.batches():
            found.extend(raw_records(batch, walk.read(batch.pos, batch.batch_bytes)))
    except CorruptLog:
        raise
    except KafkalogError as error:
        raise CorruptLog(f"{path}: {error}") from error
    if walk.stop is not None:
        raise CorruptLog(f"{path}: position {walk.stop.position}: {walk.stop.message}")
    kinds = [raw.control for raw in found]
    if not found or kinds[0] != SNAPSHOT_HEADER or kinds[-1] != SNAPSHOT_FOOTER:
        raise CorruptLog(f"{path}: found no header or no footer, wanted a whole snapshot")
    return found


def render_snapshot(
    values: Sequence[bytes],
    epoch: int,
    timestamps_ms: tuple[int, int],
    kraft_version: int = 0,
    voters: bytes | None = None,
) -> bytes:
    """The bytes of a snapshot of framed records.

    `timestamps_ms`: of the last record in it, and now.  `kraft_version`, `voters`: from the
    quorum's records; version 0 needs no record.
    """
    return b"".join(_batches(values, epoch, timestamps_ms, kraft_version, voters))


def _batches(
    values: Sequence[bytes],
    epoch: int,
    timestamps_ms: tuple[int, int],
    kraft_version: int,
    voters: bytes | None,
) -> Iterator[bytes]:
    last_ms, now_ms = timestamps_ms
    head = [(SNAPSHOT_HEADER, snapshot_header_value(last_ms))]
    if kraft_version:
        head.append((KRAFT_VERSION, kraft_version_value(kraft_version)))
    if voters is not None:
        head.append((VOTERS, voters))
    yield control_batch(head, 0, epoch, now_ms)
    yield from data_batches(values, len(head), epoch, now_ms)
    end = len(head) + len(values)
    yield control_batch([(SNAPSHOT_FOOTER, snapshot_footer_value())], end, epoch, now_ms)
