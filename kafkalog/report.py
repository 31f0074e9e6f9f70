"""Findings of a check of a log's files: their kinds, each defined once, and the report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["DAMAGE", "KINDS", "NOTE", "UNCHECKED", "WARNING", "Finding", "Report"]

DAMAGE, UNCHECKED, WARNING, NOTE = "damage", "unchecked", "warning", "note"

# what -> (severity, sentence).  Damage: a reader that trusts this file gets a wrong answer or
# an error.  Unchecked: could not be read.  Warning: the next open for writing repairs it
# without loss.  Note: worth knowing.
KINDS: dict[str, tuple[str, str]] = {
    "batch-checksum": (DAMAGE, "the batch's bytes are not what was written"),
    "batch-bytes": (DAMAGE, "bytes between good batches are not a batch"),
    "batch-order": (DAMAGE, "offsets do not increase from batch to batch (I2)"),
    "batch-place": (DAMAGE, "a batch of the last segment does not belong where it is"),
    "batch-range": (DAMAGE, "the offsets lie outside of the segment"),
    "batch-header": (DAMAGE, "the header contradicts itself"),
    "batch-epoch": (DAMAGE, "the leader epoch is older than an earlier batch's"),
    "batch-records": (DAMAGE, "the records inside are not what the header says"),
    "header-bit": (DAMAGE, "one bit of a batch's header is not what was written"),
    "header-sum": (DAMAGE, "headers of batches are not what was sealed"),
    "log-size": (DAMAGE, "a sealed segment has another size than when it was sealed"),
    "sidecar-identity": (DAMAGE, "the files are another segment's or another partition's"),
    "sidecar-bytes": (WARNING, "the side-car cannot be read; it can be rebuilt"),
    "sidecar-stale": (WARNING, "the segment was rewritten and the side-car was not"),
    "sidecar-missing": (
        NOTE,
        "some sealed segments have no side-car: their headers are not checked",
    ),
    "index-changed": (WARNING, "not what was sealed, though its entries are possible"),
    "aborts-changed": (WARNING, "not what was sealed"),
    "tail-bytes": (DAMAGE, "the bytes at the end are no whole batch"),
    "tail-zeros-sealed": (DAMAGE, "a sealed segment ends in zeros: batches may be missing"),
    "tail-zeros": (NOTE, "preallocated zeros after the last batch"),
    "offset-gap": (NOTE, "offsets without a record (compaction leaves them)"),
    "segment-gap": (WARNING, "a segment, or the end of one, is missing before this one"),
    "point-gap": (DAMAGE, "the segment ends before records that were on disk"),
    "segment-missing": (DAMAGE, "its segment's .log is missing"),
    "log-short": (DAMAGE, "the log ends before records that were on disk"),
    "old-format": (UNCHECKED, "message format 0 or 1, which is not read yet"),
    "unreadable": (UNCHECKED, "the file cannot be read"),
    "segment-gone": (NOTE, "removed by its owner during the check"),
    "segment-none": (NOTE, "nothing was ever written to the partition"),
    "index-missing": (WARNING, "the segment has no such file; it can be rebuilt"),
    "index-size": (DAMAGE, "the size is not a multiple of an entry's"),
    "index-zeros": (NOTE, "preallocated zeros after the last entry"),
    "index-zeros-sealed": (WARNING, "zeros after the last entry of a sealed segment"),
    "index-order": (DAMAGE, "entries do not increase"),
    "index-entry": (DAMAGE, "the entry does not point at its batch"),
    "time-promise": (DAMAGE, "a record before the entry's offset is later than it says"),
    "time-entry": (DAMAGE, "the entry's offset is not in the segment"),
    "time-short": (DAMAGE, "a sealed segment's last entry is earlier than its records"),
    "aborts-bytes": (DAMAGE, "the file is not a list of aborted transactions"),
    "aborts-missing": (DAMAGE, "an aborted transaction is not listed"),
    "aborts-extra": (DAMAGE, "a transaction is listed that was not aborted there"),
    "aborts-entry": (DAMAGE, "the entry differs from what the batches say"),
    "snapshot-bytes": (DAMAGE, "the snapshot cannot be decoded"),
    "snapshot-entry": (DAMAGE, "the producer's state differs from what the batches say"),
    "snapshot-ahead": (WARNING, "the snapshot is above the log's end"),
    "epochs-bytes": (DAMAGE, "the file is not a list of leader epochs"),
    "epochs-order": (DAMAGE, "epochs or their start offsets do not increase"),
    "epochs-batch": (DAMAGE, "a batch carries another epoch than the list says"),
    "epochs-ahead": (WARNING, "an epoch starts above the log's end (I3)"),
    "epochs-missing": (WARNING, "batches have epochs, but there is no list of them"),
    "leftover": (NOTE, "left over from a deletion or a swap"),
    "leftover-swap": (WARNING, "a swap was not finished"),
    "orphan": (WARNING, "belongs to no segment"),
    "metadata-bytes": (DAMAGE, "the file is not of its format"),
    "checkpoint-bytes": (WARNING, "the checkpoint is not of its format"),
    "checkpoint-range": (DAMAGE, "the checkpoint's offset is past the log's end"),
    "folder-away": (UNCHECKED, "a link that leads nowhere: its disk is missing"),
    "folder-skipped": (NOTE, "a folder that is not a partition in use"),
}


class Finding(NamedTuple):
    """One thing that verify noticed."""

    severity: str
    """damage, unchecked, warning or note."""
    file: str
    """Path of the file or folder."""
    position: int
    """Bytes from the start of the file; -1: all of it."""
    offset: int
    """Log offset; -1: none."""
    what: str
    """A key of KINDS."""
    found: str
    wanted: str
    length: int = 0
    """How many bytes from `position` on are affected; 0: not known."""


@dataclass
class Report:
    """The findings of verify, and how much it checked."""

    findings: list[Finding] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    watch: Callable[[int], None] | None = field(default=None, repr=False, compare=False)
    """Called with the bytes of batches that were checked, again and again."""

    @property
    def clean(self) -> bool:
        """No damage, and nothing that could not be checked."""
        return not any(f.severity in (DAMAGE, UNCHECKED) for f in self.findings)

    def add(
        self,
        what: str,
        file: os.PathLike[str] | str,
        found: object,
        wanted: object,
        *,
        position: int = -1,
        offset: int = -1,
        length: int = 0,
    ) -> None:
        """Add a finding; KINDS gives its severity."""
        severity = KINDS[what][0]
        self.counters[severity] += 1
        self.findings.append(
            Finding(
                severity, os.fspath(file), position, offset, what, str(found), str(wanted), length
            )
        )

    def add_all(self, other: Report) -> None:
        """Add all of another report."""
        self.counters.update(other.counters)
        self.findings += other.findings

    def only(self, wanted: Callable[[Finding], bool]) -> Report:
        """The same report, with only the findings for which `wanted` is true."""
        dropped = Counter(one.severity for one in self.findings if not wanted(one))
        return Report([one for one in self.findings if wanted(one)], self.counters - dropped)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: clean, counters, findings as objects."""
        return {
            "clean": self.clean,
            "counters": dict(self.counters),
            "findings": [f._asdict() for f in self.findings],
        }
