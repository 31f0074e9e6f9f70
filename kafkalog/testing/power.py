"""A directory after a power cut: of each log only the bytes that were on disk.

A disk may keep more than it promised: any of the writes that were not synced, in any order.  This
is the other extreme, on which no program may count either: all of them are lost.
"""

from collections.abc import Mapping
from pathlib import Path

from kafkalog.batch.walk import BatchWalk
from kafkalog.inspect.rawfiles import SegmentFiles, list_segments, segment_offset

__all__ = ["cut"]

DERIVED = (".index", ".timeindex", ".txnindex")
"""Files of the active segment; they are not synced before it is sealed."""


def cut(flushed: Mapping[str, int]) -> None:
    """Remove from folders of logs, none of which is open, the batches at and above an offset.

    `flushed`: by the folder's path, the offset below which each was on disk; a folder that is gone
    belonged to a deleted topic.
    """
    for folder, offset in flushed.items():
        if Path(folder).is_dir():
            _cut_log(Path(folder), offset)


def _cut_log(folder: Path, offset: int) -> None:
    segments = list_segments(folder)
    for number, files in enumerate(segments):
        if files.base_offset >= offset and number > 0:
            files.path(".log").unlink()
            _remove(files)
        elif files.limit > offset:
            _cut_segment(files, offset)
    for path in folder.iterdir():
        at = segment_offset(path.name, ".snapshot")
        if at is not None and at > offset:
            path.unlink()


def _cut_segment(files: SegmentFiles, offset: int) -> None:
    """Truncate the segment that holds the offset, or the first one if it begins there: its file
    name was synced at its creation, because nothing else shows where the log begins."""
    walk = BatchWalk(files.path(".log"))
    end = 0
    for batch in walk.batches(check_crc=False):
        if batch.last_offset >= offset:
            break
        end = int(batch.pos) + int(batch.batch_bytes)
    with files.path(".log").open("r+b") as log:
        log.truncate(end)
    _remove(files)


def _remove(files: SegmentFiles) -> None:
    for suffix in (*DERIVED, ".chk"):
        files.path(suffix).unlink(missing_ok=True)
