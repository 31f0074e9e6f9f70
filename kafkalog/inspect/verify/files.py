"""Is everything in this directory what was written?  A report; it never raises on damage.

Each batch of each segment is read and its checksum taken; order, counts and epochs are
compared, and every derived file (indexes, aborted transactions, producer snapshots, leader
epochs) with what the batches say.  `deep` also inflates and walks the records.  Nothing is
written, no lock is taken, and a writer may go on appending.  Batches cross from C by the
block; memory is bounded by the block, the indexes and the producers, not by the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kafkalog.disk.checkpoint import (
    CLEAN_MARKER,
    CLEANER,
    FLUSHED,
    HIGH_WATERMARK,
    LOCK,
    LOG_START,
    RECOVERY_POINT,
    parse_flushed,
    parse_offsets,
)
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import (
    META_PROPERTIES,
    PARTITION_METADATA,
    bare_folder,
    holds_segments,
    list_directory,
    parse_meta_properties,
)
from kafkalog.errors import KafkalogError
from kafkalog.inspect.rawfiles import SegmentFiles, list_segments, owner_of, segment_offset
from kafkalog.inspect.sidecar import INDEX_SUFFIXES, SIDECAR
from kafkalog.inspect.verify.partition import (
    EPOCHS_NAME,
    verify_partition,
    verify_segment_file,
)
from kafkalog.report import Report
from kafkalog.types import TopicPartition

__all__ = ["find_partitions", "is_partition", "partition_of", "verify"]


def is_partition(folder: Path) -> bool:
    """Whether a folder holds the files of one partition."""
    if holds_segments(os.fspath(folder)):
        return True
    names = set(os.listdir(folder))
    return bool(names & {PARTITION_METADATA, EPOCHS_NAME}) and META_PROPERTIES not in names


def find_partitions(folder: Path) -> list[Path]:
    """The partition folders of a data directory, or the folder itself when it is one.

    Folders that Kafka set aside (`-delete`, `-future`, `-stray`) are left out.
    Raises: OSError.
    """
    if is_partition(folder):
        return [folder]
    listing = list_directory(os.fspath(folder))
    return [folder / name for name in listing.partitions.values()]


def verify(
    path: os.PathLike[str] | str | Iterable[os.PathLike[str] | str], *, deep: bool = False
) -> Report:
    """Check files, partition folders or data directories; see the module.

    Raises: FileNotFoundError when a path does not exist, ValueError when it holds nothing
    that is Kafka's.
    """
    report = Report()
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
    # Read before the logs: what a writer notes later may lie past the end that is found.
    clean = (root / CLEAN_MARKER).exists()
    checkpoints = _read_checkpoints(root, report)
    starts = checkpoints.get(LOG_START, {})
    folders = {partition_of(path): path for path in partitions}
    with suppress(OSError):
        flushed = parse_flushed((root / FLUSHED).read_bytes())
        checkpoints[FLUSHED] = dict.fromkeys(folders, flushed)
    ends: dict[TopicPartition, int] = {}
    for tp, path in folders.items():
        start = starts.get(tp, 0)
        ends[tp] = verify_partition(path, report, deep, locked, start if clean else None)
        if 0 <= ends[tp] < start and not any(list_segments(path)):
            ends[tp] = start
    for tp, path in () if _is_copied(root) else folders.items():
        reached = _reached(checkpoints, tp, clean)
        if ends[tp] >= 0 and max(ends[tp], starts.get(tp, 0)) < reached:
            found, wanted = f"its end {ends[tp]}", f"{reached}, which was on disk"
            report.add("log-short", path, found, wanted, offset=reached)
            ends[tp] = reached
    _compare_checkpoints(root, checkpoints, ends, report)
    if partitions != [folder]:
        for marked in list_directory(os.fspath(folder)).marked:
            report.add("folder-skipped", folder / marked.name, marked.kind, "a partition in use")


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
    """Whether a process has the folder, or its data directory, open for writing."""
    for place in (folder, folder.absolute().parent):
        if (place / LOCK).exists():
            with Directory(place) as directory:
                if directory.locked():
                    return True
    return False


def partition_of(folder: Path) -> TopicPartition:
    """What the name of a partition's folder says."""
    name = bare_folder(folder.absolute().name)
    return TopicPartition(name.topic, name.partition)


def _is_copied(root: Path) -> bool:
    """Whether the directory is that of a cluster's node: a leader has what its copies lack."""
    try:
        return parse_meta_properties((root / META_PROPERTIES).read_bytes()).version == 0
    except (KafkalogError, OSError):
        return False


def _reached(
    checkpoints: dict[str, dict[TopicPartition, int]], tp: TopicPartition, clean: bool
) -> int:
    """The offset that a log had come to on disk, as far as two agree about it; -1: unknown."""
    point, shown, flushed = (
        checkpoints.get(name, {}).get(tp, -1) for name in (RECOVERY_POINT, HIGH_WATERMARK, FLUSHED)
    )
    if point < 0:
        point = shown if clean else -1
    elif shown >= 0:
        point = min(point, shown)
    return max(point, flushed)


def _read_checkpoints(folder: Path, report: Report) -> dict[str, dict[TopicPartition, int]]:
    found: dict[str, dict[TopicPartition, int]] = {}
    for name in (RECOVERY_POINT, LOG_START, HIGH_WATERMARK, CLEANER):
        path = folder / name
        try:
            found[name] = parse_offsets(path.read_bytes())
        except FileNotFoundError:
            continue
        except (KafkalogError, OSError) as problem:
            report.add("checkpoint-bytes", path, problem, "topic partition offset, by lines")
        report.counters["checkpoints"] += 1
    return found


def _compare_checkpoints(
    root: Path,
    checkpoints: dict[str, dict[TopicPartition, int]],
    ends: dict[TopicPartition, int],
    report: Report,
) -> None:
    starts = checkpoints.get(LOG_START, {})
    for name, entries in checkpoints.items():
        for tp, offset in entries.items():
            end = ends.get(tp, -1)
            # What is missing below the log's start is no loss.
            floor = end if name == LOG_START else max(end, starts.get(tp, 0))
            if end >= 0 and floor < offset:
                report.add(
                    "checkpoint-range",
                    root / name,
                    f"{tp.topic} {tp.partition} {offset}",
                    f"at most the log's end {end}",
                    offset=offset,
                )
