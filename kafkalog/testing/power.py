"""What a power cut leaves of a directory: of each log the bytes that were on disk, at least.

A disk may keep more than it promised: any of the writes that were not synced, in any order.  This
is the other end, on which no program may build more: all of them are gone.
"""

from collections.abc import Mapping
from pathlib import Path

from kafkalog.batch.walk import BatchWalk
from kafkalog.inspect.rawfiles import SegmentFiles, list_segments, segment_offset

__all__ = ["cut"]

DERIVED = (".index", ".timeindex", ".txnindex")
"""Of a segment that is written to; they are not synced before it is sealed."""


def cut(flushed: Mapping[str, int]) -> None:
    """Take from folders of logs, none of which is open, what lies at and above an offset.

    `flushed`: below which offset each was on disk, by the folder's path; a folder that is gone
    was a deleted topic's.
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
    """The segment in which the offset lies, or which is the first and begins there: its file's
    name was synced when it was made, as nothing else shows where the log begins."""
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
