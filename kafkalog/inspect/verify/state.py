"""Producers, transactions and leader epochs, replayed from the batches.

They are compared with `.txnindex`, `.snapshot` and `leader-epoch-checkpoint`.  If the log's start
was deleted or compacted, less is known, and less is claimed.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalog._native import lib
from kafkalog.batch.control import read_marker
from kafkalog.batch.walk import BatchWalk
from kafkalog.disk.layout import segment_name
from kafkalog.errors import KafkalogError
from kafkalog.inspect.rawfiles import (
    AbortEntry,
    SegmentFiles,
    SnapshotEntry,
    read_aborts,
    read_snapshot,
    segment_offset,
)
from kafkalog.report import Report

if TYPE_CHECKING:
    import numpy as np

    Table = np.ndarray[Any, Any]

__all__ = ["EpochCheck", "ProducerState", "Replay", "load_aborts", "load_snapshots"]

MAX_SEQUENCE = (1 << 31) - 1


@dataclass
class ProducerState:
    """A log's state of one producer after some offset."""

    producer_epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    txn_start_offset: int = -1
    marker_offset: int = -1
    """The offset of the producer's latest marker."""


def load_snapshots(
    folder: Path, report: Report | None, growing_from: int | None = None
) -> dict[int, list[SnapshotEntry]]:
    """offset -> producers, of every snapshot that can be decoded; findings for the others.

    A running writer may be writing those at `growing_from` and above.
    """
    found = {}
    for name in sorted(os.listdir(folder)):
        offset = segment_offset(name, ".snapshot")
        if offset is None:
            continue
        try:
            found[offset] = read_snapshot((folder / name).read_bytes())
        except FileNotFoundError:  # retention runs at the same time
            continue
        except (KafkalogError, OSError) as problem:
            if report and (growing_from is None or offset < growing_from):
                report.add("snapshot-bytes", folder / name, problem, "a producer snapshot")
    return found


def load_aborts(files: SegmentFiles, report: Report) -> list[AbortEntry] | None:
    """The entries of a segment's `.txnindex`; [] without one, None if it is damaged."""
    path = files.path(".txnindex")
    try:
        entries = read_aborts(path.read_bytes())
    except FileNotFoundError:
        return []
    except (ValueError, OSError) as problem:
        report.add("aborts-bytes", path, problem, "34-byte entries of version 0")
        return None
    report.counters["aborted_transactions"] += len(entries)
    return entries


class Replay:
    """Producer state, replayed from the batches of a partition, in order."""

    def __init__(
        self, folder: Path, first_offset: int, report: Report, growing_from: int | None = None
    ) -> None:
        self.report = report
        self.folder = folder
        self.first_offset = first_offset
        """Nothing is known of the batches below it."""
        self.snapshots = load_snapshots(folder, report, growing_from)
        self.waiting = sorted(self.snapshots)
        self.producers: dict[int, ProducerState] = {}
        self.open: dict[int, int] = {}
        """producer id -> first offset of its open transaction."""
        self.aborted: list[AbortEntry] = []
        """The expected entries of the current segment's `.txnindex`."""
        self.markers: dict[int, int] = {}
        """offset of each abort marker of the current segment -> producer id."""
        self.last_offset = first_offset - 1
        self.sure = first_offset == 0 or first_offset in self.snapshots
        """Every producer is known: the log or a snapshot has everything from the start."""
        self.whole = True
        """No offset is missing: nothing was compacted or damaged."""
        for entry in self.snapshots.get(first_offset, ()):
            self._load(entry)

    def _load(self, entry: SnapshotEntry) -> None:
        self.producers[entry.producer_id] = ProducerState(
            entry.producer_epoch, entry.last_sequence, entry.last_offset, entry.txn_start_offset
        )
        if entry.txn_start_offset >= 0:
            self.open[entry.producer_id] = entry.txn_start_offset

    def forget(self, next_offset: int) -> None:
        """Begin again at `next_offset`: the batches below are gone."""
        self.first_offset, self.last_offset = next_offset, next_offset - 1
        self.producers, self.open, self.aborted, self.markers = {}, {}, [], {}
        self.sure = self.whole = False

    def feed(self, table: Table, walk: BatchWalk) -> None:
        """Replay a block of batches."""
        import numpy as np

        previous = np.concatenate(([self.last_offset], table["last_offset"][:-1]))
        holes = (table["base_offset"] != previous + 1) | (
            table["record_count"] != table["last_offset_delta"].astype("i8") + 1
        )
        first_hole = int(table["base_offset"][holes.argmax()]) if holes.any() else None
        for i in (table["producer_id"] >= 0).nonzero()[0]:
            row = table[i]
            base = int(row["base_offset"])
            if first_hole is not None and base >= first_hole:
                self.whole = False
            self._compare_up_to(base)
            if int(row["attributes"]) & lib.KL_ATTR_CONTROL:
                self._control(row, walk)
            else:
                self._data(row, base)
        self.whole = self.whole and first_hole is None
        self.last_offset = int(table["last_offset"][-1])

    def _data(self, row: Any, base: int) -> None:
        state = self._state(int(row["producer_id"]), int(row["producer_epoch"]))
        state.last_sequence = int(row["last_sequence"])
        state.last_offset = int(row["last_offset"])
        if int(row["attributes"]) & lib.KL_ATTR_TRANSACTIONAL and state.txn_start_offset < 0:
            state.txn_start_offset = base
            self.open[int(row["producer_id"])] = base

    def _control(self, row: Any, walk: BatchWalk) -> None:
        from kafkalog._native import ffi

        if not row["record_count"]:
            return
        batch = ffi.new("kl_batch *")
        ffi.memmove(batch, row.tobytes(), ffi.sizeof("kl_batch"))
        try:
            marker = read_marker(batch, walk.read(batch.pos, batch.batch_bytes))
        except KafkalogError:
            self.whole = False  # the deep check reports what is wrong with it
            return
        if marker is None or marker.kind not in (lib.KL_CONTROL_ABORT, lib.KL_CONTROL_COMMIT):
            return
        pid = int(row["producer_id"])
        state = self._state(pid, int(row["producer_epoch"]))
        first = self.open.pop(pid, -1)
        if marker.kind == lib.KL_CONTROL_ABORT:
            self.markers[marker.offset] = pid
            if first >= 0:
                stable = min(self.open.values(), default=marker.offset + 1)
                self.aborted.append(AbortEntry(pid, first, marker.offset, stable))
        state.txn_start_offset = -1
        state.marker_offset = marker.offset

    def _state(self, producer_id: int, producer_epoch: int) -> ProducerState:
        """A producer's state; a new epoch restarts its sequences."""
        state = self.producers.setdefault(producer_id, ProducerState())
        if state.producer_epoch != producer_epoch:
            state.producer_epoch = producer_epoch
            state.last_sequence = state.last_offset = -1
        return state

    def end_segment(
        self, files: SegmentFiles, entries: list[AbortEntry] | None, growing: bool
    ) -> None:
        """Compare the entries of the segment's `.txnindex`, and begin the next one.

        `growing`: a writer was at work, and the batches may say more than the entries.
        """
        if entries is not None:
            self._compare_aborts(files.path(".txnindex"), entries, growing)
        self.aborted, self.markers = [], {}

    def _compare_aborts(self, path: Path, entries: list[AbortEntry], growing: bool) -> None:
        wanted = {entry.last_offset: entry for entry in self.aborted}
        listed = set()
        for i, entry in enumerate(entries):
            listed.add(entry.last_offset)
            expected = wanted.get(entry.last_offset)
            place = {"position": i * 34, "offset": entry.last_offset, "length": 34}
            if self.markers.get(entry.last_offset) != entry.producer_id:
                # A damaged log may have lost the marker: the entry is not to blame.
                if self.whole:
                    self.report.add("aborts-extra", path, _show(entry), "its marker", **place)
            elif expected is not None and not self._agrees(entry, expected):
                self.report.add("aborts-entry", path, _show(entry), _show(expected), **place)
        for offset, expected in wanted.items():
            if offset not in listed and not growing:
                self.report.add("aborts-missing", path, "no entry", _show(expected), offset=offset)

    def _agrees(self, entry: AbortEntry, expected: AbortEntry) -> bool:
        if self.whole and self.sure:
            return entry == expected
        # Batches before the surviving ones may have belonged to this transaction, too.
        return (
            entry.first_offset <= expected.first_offset
            and entry.last_stable_offset <= expected.last_offset + 1
        )

    def finish(self, end_offset: int) -> None:
        """Compare the remaining snapshots."""
        self._compare_up_to(end_offset)
        for offset in self.waiting:
            path = self.folder / segment_name(offset, ".snapshot")
            self.report.add(
                "snapshot-ahead", path, f"offset {offset}", f"at most {end_offset}", offset=offset
            )

    def _compare_up_to(self, base_offset: int) -> None:
        while self.waiting and self.waiting[0] <= base_offset:
            offset = self.waiting.pop(0)
            self.report.counters["snapshots"] += 1
            if offset <= self.first_offset:
                continue
            for entry in self.snapshots[offset]:
                self._compare_entry(offset, entry)
            listed = {entry.producer_id for entry in self.snapshots[offset]}
            for pid in sorted(set(self.open) - listed):
                if self.whole:
                    self._tell(
                        offset, f"no producer {pid}", f"its transaction from {self.open[pid]} on"
                    )

    def _compare_entry(self, offset: int, entry: SnapshotEntry) -> None:
        state = self.producers.get(entry.producer_id)
        if not self.whole or (state is None and not self.sure):
            return
        if state is None:
            if entry.last_offset >= self.first_offset:
                self._tell(offset, _show_producer(entry), "no such producer")
            return
        if entry.last_offset < self.first_offset and not self.sure:
            return
        found = (entry.producer_epoch, entry.last_offset, entry.txn_start_offset)
        wanted = (state.producer_epoch, state.last_offset, state.txn_start_offset)
        if found != wanted or entry.last_sequence != state.last_sequence:
            self._tell(
                offset,
                _show_producer(entry),
                f"epoch {wanted[0]}, last sequence {state.last_sequence}, "
                f"last offset {wanted[1]}, transaction from {wanted[2]}",
            )

    def _tell(self, offset: int, found: str, wanted: str) -> None:
        path = self.folder / segment_name(offset, ".snapshot")
        self.report.add("snapshot-entry", path, found, wanted, offset=offset)


def _show(entry: AbortEntry) -> str:
    return (
        f"producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset}, "
        f"last stable {entry.last_stable_offset}"
    )


def _show_producer(entry: SnapshotEntry) -> str:
    return (
        f"producer {entry.producer_id}: epoch {entry.producer_epoch}, last sequence "
        f"{entry.last_sequence}, last offset {entry.last_offset}, transaction from "
        f"{entry.txn_start_offset}"
    )


class EpochCheck:
    """Checks `leader-epoch-checkpoint` against the epochs of the batches."""

    def __init__(
        self, path: Path, entries: list[tuple[int, int]] | None, report: Report, growing: bool
    ) -> None:
        """`growing`: a writer may begin another epoch after `entries` were read."""
        import numpy as np

        self.path = path
        self.growing = growing
        self.report = report
        self.entries = entries
        """(epoch, start offset), or None: there is no list, or it cannot be read."""
        self.carried = False
        self.told = 0
        pairs = entries or []
        self.epochs: Table = np.array([e for e, _ in pairs], "i8")
        self.starts: Table = np.array([s for _, s in pairs], "i8")
        self.usable = bool(pairs)
        for (e, s), (after, start) in itertools.pairwise(pairs):
            if after <= e or start <= s:
                self.usable = False
                report.add("epochs-order", path, f"{after} {start} after {e} {s}", "greater ones")

    def feed(self, table: Table, walk: BatchWalk) -> None:
        """Compare a block of batches."""
        import numpy as np

        del walk
        carries = table["leader_epoch"] >= 0
        self.carried = self.carried or bool(carries.any())
        if not self.usable:
            return
        at = np.searchsorted(self.starts, table["base_offset"], "right") - 1
        wrong = carries & (at >= 0)
        if self.growing:
            wrong &= table["leader_epoch"] <= self.epochs[-1]
        wrong[wrong] = self.epochs[at[wrong]] != table["leader_epoch"][wrong]
        for i in wrong.nonzero()[0]:
            if self.told >= 8:
                return
            self.told += 1
            self.report.add(
                "epochs-batch",
                self.path,
                f"epoch {self.epochs[at[i]]} from {self.starts[at[i]]} on",
                f"epoch {table['leader_epoch'][i]} at {table['base_offset'][i]}",
                offset=int(table["base_offset"][i]),
            )

    def finish(self, end_offset: int) -> None:
        """Check I3, and that a list is not missing."""
        if not self.entries and self.carried:
            if not self.path.exists():
                self.report.add("epochs-missing", self.path, "no file", "the leader epochs")
            elif not self.path.stat().st_size:
                self.report.add("epochs-bytes", self.path, "no bytes", "the leader epochs")
        if self.usable and int(self.starts[-1]) > end_offset:
            self.report.add(
                "epochs-ahead",
                self.path,
                f"epoch {self.epochs[-1]} from {self.starts[-1]} on",
                f"at most {end_offset}",
                offset=int(self.starts[-1]),
            )
