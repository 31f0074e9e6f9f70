"""All files of one partition, checked in one pass over its batches."""

from __future__ import annotations

import os
from pathlib import Path

from kafkalog.disk.layout import PARTITION_METADATA, parse_partition_metadata, segment_name
from kafkalog.errors import KafkalogError
from kafkalog.inspect.rawfiles import (
    LEFTOVERS,
    SegmentFiles,
    list_segments,
    read_epochs,
    read_snapshot,
    segment_offset,
)
from kafkalog.inspect.sidecar import INDEX_SUFFIXES, SIDECAR
from kafkalog.inspect.verify.batches import BatchCheck, Consumer
from kafkalog.inspect.verify.indexes import OffsetIndexCheck, TimeIndexCheck
from kafkalog.inspect.verify.sidecar import SidecarCheck
from kafkalog.inspect.verify.state import EpochCheck, Replay, load_aborts
from kafkalog.report import Report

__all__ = ["EPOCHS_NAME", "verify_partition", "verify_segment_file"]

EPOCHS_NAME = "leader-epoch-checkpoint"
INT32_MAX = (1 << 31) - 1


def verify_partition(
    folder: Path,
    report: Report,
    deep: bool,
    locked: bool,
    closed_from: int | None = None,
    point: int = -1,
) -> int:
    """Check one partition's folder; returns the log's end offset according to its batches, -1 if
    some batches could not be read.

    `closed_from`: where the log began when it was closed cleanly; None: it was not.  `point`: its
    recovery point; -1: unknown.
    """
    report.counters["partitions"] += 1
    unchecked = report.counters["unchecked"]
    sidecars = report.counters["sidecars"], report.counters["sidecars_missing"]
    segments = list_segments(folder)
    _check_leftovers(folder, {s.base_offset for s in segments}, report, closed_from)
    _check_metadata(folder, report)
    if not segments:
        report.add("segment-none", folder, "no .log file", "at least one segment")
        return 0
    check = BatchCheck(report, deep, locked)
    growing_from = segments[-1].base_offset if locked else None
    replay = Replay(folder, segments[0].base_offset, report, growing_from)
    listed = _load_epochs(folder / EPOCHS_NAME, report)
    epochs = EpochCheck(folder / EPOCHS_NAME, listed, report, locked)
    for files in segments:
        growing = locked and not files.sealed
        aborts = load_aborts(files, report)
        try:
            _verify_segment(files, check, [replay.feed, epochs.feed], report)
            known = report.counters["unchecked"] == unchecked
            if known and files.sealed and files.base_offset <= point < files.limit:
                after = segments[segments.index(files) + 1 :]
                _check_point(files, after, check, point, report)
        except FileNotFoundError:  # retention runs at the same time
            report.add("segment-gone", files.path(".log"), "no file", "the segment")
            replay.forget(files.limit)
            continue
        replay.whole = replay.whole and check.complete
        replay.end_segment(files, aborts, growing)
    end = max(check.last_offset + 1, segments[-1].base_offset)
    check.finish()
    there = report.counters["sidecars"] - sidecars[0]
    missing = report.counters["sidecars_missing"] - sidecars[1]
    if there and missing:  # Kafka writes none, and its folders need no remark
        report.add("sidecar-missing", folder, f"{there} and {missing} without", "one for each")
    if report.counters["unchecked"] > unchecked:
        return -1  # batches that were not read may reach further
    replay.finish(end)
    epochs.finish(end)
    return end


def _check_point(
    files: SegmentFiles, after: list[SegmentFiles], check: BatchCheck, point: int, report: Report
) -> None:
    """Report if recovery, which begins in this segment, finds an end that is too early for the
    segments `after` it to stay."""
    end = max(check.last_offset + 1, files.base_offset)
    wide = files.limit - files.base_offset > INT32_MAX  # a follower rolled at its leader's gap
    if end >= point or check.thin or wide:
        return
    goes_on = (s for s in after if not s.sealed or s.path(".log").stat().st_size)
    found, wanted = f"its end {end}", f"{point}, which was on disk"
    report.add("point-gap", files.path(".log"), found, wanted, offset=next(goes_on).base_offset)


def _verify_segment(
    files: SegmentFiles, check: BatchCheck, consumers: list[Consumer], report: Report
) -> None:
    before, check.complete = check.complete, True
    # The indexes are loaded first: a writer's entries never point past what it has written.
    growing = check.locked and not files.sealed
    offsets = OffsetIndexCheck(files, report, growing)
    times = TimeIndexCheck(files, report, growing)
    sidecar = SidecarCheck(files, report)
    check.segment(files, [offsets.feed, times.feed, sidecar.feed, *consumers])
    sidecar.finish(check.complete)
    offsets.finish(check.complete)
    times.finish(check.complete)
    check.complete = check.complete and before


def verify_segment_file(files: SegmentFiles, suffix: str, report: Report, deep: bool) -> None:
    """Check one file of a segment; an index together with its `.log`."""
    path = files.path(suffix)
    if suffix == ".snapshot":
        try:
            read_snapshot(path.read_bytes())
        except (KafkalogError, OSError) as problem:
            report.add("snapshot-bytes", path, problem, "a producer snapshot")
        report.counters["snapshots"] += 1
    elif suffix == ".txnindex":
        load_aborts(files, report)
    elif suffix in (".log", SIDECAR):
        sidecar, check = SidecarCheck(files, report), BatchCheck(report, deep, locked=False)
        check.segment(files, [sidecar.feed])
        sidecar.finish(check.complete)
    else:
        _verify_index_file(files, suffix, report)


def _verify_index_file(files: SegmentFiles, suffix: str, report: Report) -> None:
    kind = OffsetIndexCheck if suffix == ".index" else TimeIndexCheck
    if not files.path(".log").exists():
        report.add("orphan", files.path(suffix), "no .log next to it", "the segment's .log")
        return
    index = kind(files, report)
    quiet = BatchCheck(Report(), deep=False, locked=False)
    quiet.segment(files, [index.feed])
    index.finish(quiet.complete)


def _check_leftovers(
    folder: Path, bases: set[int], report: Report, closed_from: int | None
) -> None:
    """Note what deletions and swaps left, and index files without their segment."""
    first = min(bases, default=-1)
    for name in sorted(os.listdir(folder)):
        path = folder / name
        if path.suffix in LEFTOVERS:
            what = "leftover-swap" if path.suffix == ".swap" else "leftover"
            report.add(what, path, path.suffix, "nothing")
            continue
        for suffix in (*INDEX_SUFFIXES, SIDECAR):
            base = segment_offset(name, suffix)
            if base is not None and base not in bases:
                if (folder / segment_name(base)).exists():
                    continue  # a writer has begun it since
                # Below the first segment it is left over from an interrupted deletion.
                missing = bool(bases) and base > first
                if closed_from is not None and path.stat().st_size:
                    missing = missing or first > closed_from
                what = "segment-missing" if missing else "orphan"
                report.add(what, path, f"offset {base}", "a .log of that offset", offset=base)


def _check_metadata(folder: Path, report: Report) -> None:
    path = folder / PARTITION_METADATA
    if not path.exists():
        return
    try:
        data = path.read_bytes()
        if data.strip(b"\0"):  # otherwise a power cut came before any flush: see Folders
            parse_partition_metadata(data)
    except (KafkalogError, OSError) as problem:
        report.add("metadata-bytes", path, problem, "version: 0 and a topic_id")


def _load_epochs(path: Path, report: Report) -> list[tuple[int, int]] | None:
    if not path.exists():
        return None
    try:
        return read_epochs(path.read_bytes())
    except (ValueError, OSError) as problem:
        report.add("epochs-bytes", path, problem, "epoch and start offset, by lines")
        return None
