"""Is everything in this directory what was written?  A report; damage raises no exception.

Each batch of each segment is read and its checksum computed; order, counts and epochs are
compared, and every derived file (indexes, aborted transactions, producer snapshots, leader
epochs) with the batches.  `deep` also decompresses and walks the records.  Nothing is written, no
lock is taken, and a writer may continue (see `look_beside`).  Batches cross from C by the block;
memory is bounded by the block, the indexes and the producers, not by the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from kafkalog.disk.checkpoint import LOCK
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import (
    META_PROPERTIES,
    PARTITION_METADATA,
    bare_folder,
    holds_segments,
    list_directory,
)
from kafkalog.inspect.rawfiles import SegmentFiles, list_segments, owner_of, segment_offset
from kafkalog.inspect.sidecar import INDEX_SUFFIXES, SIDECAR
from kafkalog.inspect.verify.beside import look_beside
from kafkalog.inspect.verify.checkpoints import (
    Checkpoints,
    compare_checkpoints,
    read_checkpoints,
)
from kafkalog.inspect.verify.partition import (
    EPOCHS_NAME,
    verify_partition,
    verify_segment_file,
)
from kafkalog.report import NOTE, Report
from kafkalog.types import TopicPartition

__all__ = ["find_partitions", "is_partition", "partition_of", "verify"]


def is_partition(folder: Path) -> bool:
    """True if a folder holds the files of one partition."""
    if holds_segments(os.fspath(folder)):
        return True
    names = set(os.listdir(folder))
    return bool(names & {PARTITION_METADATA, EPOCHS_NAME}) and META_PROPERTIES not in names


def find_partitions(folder: Path) -> list[Path]:
    """The partition folders of a data directory, or the folder itself if it is one.

    Folders that Kafka set aside (`-delete`, `-future`, `-stray`) are left out.
    Raises: OSError.
    """
    if is_partition(folder):
        return [folder]
    listing = list_directory(os.fspath(folder))
    # A link may lead nowhere.
    return [folder / name for name in listing.partitions.values() if (folder / name).is_dir()]


def verify(
    path: os.PathLike[str] | str | Iterable[os.PathLike[str] | str], *, deep: bool = False,
    watch: Callable[[int], None] | None = None,
) -> Report:  # fmt: skip
    """Check files, partition folders or data directories; see the module.  `watch`: see Report.

    Raises: FileNotFoundError if a path does not exist, ValueError if it has nothing that is
    Kafka's.
    """
    report = Report(watch=watch)
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    for one in map(Path, paths):
        if one.is_dir():
            _verify_folder(one, report, deep)
        else:
            _verify_file(one, report, deep)
    return report


def _verify_folder(folder: Path, report: Report, deep: bool) -> None:
    partitions = find_partitions(folder)
    if not partitions and not (folder / META_PROPERTIES).exists():
        raise ValueError(f"{folder}: no partition of a log in it")
    locked = _is_locked(folder)
    root = owner_of(folder) if partitions == [folder] else folder
    # Read before the logs: what a writer notes later may be past the end that is found.
    checkpoints = read_checkpoints(root, partitions == [root], report)
    for path in partitions:
        look = partial(_look, path, root, deep, locked, watch=report.watch)
        found = look(checkpoints)
        if locked and any(one.severity != NOTE for one in found.findings):
            found = look_beside(path, look)
        report.add_all(found)
    if partitions != [folder]:
        listing = list_directory(os.fspath(folder))
        for name in listing.partitions.values():
            if not (folder / name).is_dir():
                report.add("folder-away", folder / name, "a link to nothing", "a folder")
        for marked in listing.marked:
            report.add("folder-skipped", folder / marked.name, marked.kind, "a partition in use")


def _look(
    path: Path, root: Path, deep: bool, locked: bool, checkpoints: Checkpoints | None = None, *,
    watch: Callable[[int], None] | None = None,
) -> Report:  # fmt: skip
    """Check one partition, and what the checkpoints of `root` say of it; None: read them, whose
    own findings have been reported."""
    found = Report(watch=watch)
    if checkpoints is None:
        checkpoints = read_checkpoints(root, path == root, Report())
    tp = partition_of(path)
    start = checkpoints.start(tp)
    closed_from = start if checkpoints.clean else None
    end = verify_partition(path, found, deep, locked, closed_from, checkpoints.point(tp))
    if 0 <= end < start and not any(list_segments(path)):
        end = start
    compare_checkpoints(checkpoints, tp, path, end, found)
    return found


def _verify_file(path: Path, report: Report, deep: bool) -> None:
    path.stat()  # a missing file is the caller's mistake, not damage
    for suffix in (".log", *INDEX_SUFFIXES, SIDECAR, ".snapshot"):
        offset = segment_offset(path.name, suffix)
        if offset is not None:
            segments = {s.base_offset: s for s in list_segments(path.parent)}
            segment = segments.get(offset, SegmentFiles(path.parent, offset, (1 << 63) - 1, False))
            verify_segment_file(segment, suffix, report, deep)
            return
    raise ValueError(
        f"{path}: wanted a .log, .index, .timeindex, .txnindex, .chk or .snapshot of a segment"
    )


def _is_locked(folder: Path) -> bool:
    """True if a process has the folder, or its data directory, open for writing."""
    for place in (folder, folder.absolute().parent):
        if (place / LOCK).exists():
            with Directory(place) as directory:
                if directory.locked():
                    return True
    return False


def partition_of(folder: Path) -> TopicPartition:
    """The topic and the partition that a folder's name says."""
    name = bare_folder(folder.absolute().name)
    return TopicPartition(name.topic, name.partition)
