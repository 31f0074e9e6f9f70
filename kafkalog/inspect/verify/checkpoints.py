"""Compares a directory's checkpoints with the ends that its logs were found to have."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kafkalog.disk.checkpoint import (
    CLEAN_MARKER,
    CLEANER,
    FLUSHED,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    parse_flushed,
    parse_offsets,
)
from kafkalog.disk.layout import META_PROPERTIES, parse_meta_properties
from kafkalog.errors import KafkalogError
from kafkalog.report import Report
from kafkalog.types import TopicPartition

__all__ = ["Checkpoints", "compare_checkpoints", "name_in", "read_checkpoints"]


def name_in(
    entries: Mapping[TopicPartition, int], tp: TopicPartition, alone: bool
) -> TopicPartition:
    """The name under which a checkpoint lists a log; that of one that stands alone may be any."""
    return next(iter(entries)) if alone and tp not in entries and len(entries) == 1 else tp


class Checkpoints(NamedTuple):
    """The checkpoints of one directory."""

    root: Path
    alone: bool
    """True if it is the folder of a log that stands alone."""
    clean: bool
    """True if it was closed cleanly."""
    copied: bool
    """True if it is a cluster node's: a leader has what its replicas lack."""
    offsets: dict[str, dict[TopicPartition, int]]
    """By the checkpoint's name."""
    flushed: int
    """Flushed offset of a log without a data directory; -1: unknown."""

    def of(self, name: str, tp: TopicPartition) -> int:
        """A log's offset in one of them; -1: it has none."""
        entries = self.offsets.get(name, {})
        return entries.get(name_in(entries, tp, self.alone), -1)

    def start(self, tp: TopicPartition) -> int:
        """A log's start offset."""
        return max(self.of(LOG_START, tp), 0)

    def point(self, tp: TopicPartition) -> int:
        """Where a recovery begins; -1: unknown."""
        return max(self.of(RECOVERY_POINT, tp), self.flushed)

    def reached(self, tp: TopicPartition) -> int:
        """The end that a log once had on disk, as far as two agree about it; -1: unknown."""
        point, shown = self.of(RECOVERY_POINT, tp), self.of(HIGH_WATERMARK, tp)
        if point < 0:
            point = shown if self.clean else -1
        elif shown >= 0:
            point = min(point, shown)
        return max(point, self.flushed)


def read_checkpoints(root: Path, alone: bool, report: Report) -> Checkpoints:
    """Reads the checkpoints of a data directory, or of a log that has none."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for name in (RECOVERY_POINT, LOG_START, HIGH_WATERMARK, CLEANER):
        path = root / name
        try:
            found[name] = parse_offsets(path.read_bytes())
        except FileNotFoundError:
            continue
        except (KafkalogError, OSError) as problem:
            report.add("checkpoint-bytes", path, problem, "topic partition offset, by lines")
        report.counters["checkpoints"] += 1
    flushed = -1
    with suppress(OSError):
        flushed = parse_flushed((root / FLUSHED).read_bytes())
    clean = (root / CLEAN_MARKER).exists()
    return Checkpoints(root, alone, clean, _is_copied(root), found, flushed)


def _is_copied(root: Path) -> bool:
    try:
        return parse_meta_properties((root / META_PROPERTIES).read_bytes()).version == 0
    except (KafkalogError, OSError):
        return False


def compare_checkpoints(
    checkpoints: Checkpoints, tp: TopicPartition, folder: Path, end: int, report: Report
) -> None:
    """Report what a log whose end was found lacks of what its directory's checkpoints say."""
    if end < 0:
        return
    start, reached = checkpoints.start(tp), checkpoints.reached(tp)
    if not checkpoints.copied and max(end, start) < reached:
        found, wanted = f"its end {end}", f"{reached}, which was on disk"
        report.add("log-short", folder, found, wanted, offset=reached)
        end = reached
    said = {name: checkpoints.of(name, tp) for name in checkpoints.offsets}
    for name, offset in {**said, FLUSHED: checkpoints.flushed}.items():
        # Missing records below the log's start are no loss.
        floor = end if name == LOG_START else max(end, start)
        if floor < offset:
            entry = name_in(checkpoints.offsets.get(name, {}), tp, checkpoints.alone)
            report.add(
                "checkpoint-range",
                checkpoints.root / name,
                f"{entry.topic} {entry.partition} {offset}",
                f"at most the log's end {end}",
                offset=offset,
            )
