"""The disk of a quorum's replica: `__cluster_metadata-0` with its snapshots, and quorum-state.

A leader's records become batches here; a follower has its leader's batches, byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kafkalog._native import lib
from kafkalog.batch.control import control_key, control_kind
from kafkalog.batch.walk import whole_batches
from kafkalog.config.topic import TopicConfig
from kafkalog.directory.topics import METADATA_BYTES_MAX
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import ArgumentError, CorruptLog, CorruptMessage
from kafkalog.kraft.batches import (
    KRAFT_VERSION,
    RECORD_BYTES_MAX,
    VOTERS,
    control_batch,
    data_batches,
    raw_records,
)
from kafkalog.kraft.directory import METADATA_TOPIC_ID, first_records
from kafkalog.kraft.format import FIRST
from kafkalog.kraft.loading import QUORUM_STATE
from kafkalog.kraft.records import decode
from kafkalog.kraft.snapshots import SnapshotName, list_snapshots, read_snapshot
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from kafkalog.quorum.replica.joining import values_at
from kafkalog.raft import log as raft_log
from kafkalog.raft.codec import control_of, control_record
from kafkalog.raft.log import Batch, Control, LogView, OffsetAndEpoch, VersionChange
from kafkalog.raft.quorum_state import parse_quorum_state, render_quorum_state

if TYPE_CHECKING:
    from kafkalog.config.quorum import QuorumConfig
    from kafkalog.directory.manager import Manager
    from kafkalog.quorum.writing import MetadataRecord
    from kafkalog.raft.messages import QuorumState
    from kafkalog.raft.replicas import Voters

__all__ = ["ReplicaDisk", "batches_of"]

READ_BYTES = 8 << 20
PART = ".part"
"""Kafka's suffix of a snapshot that is not complete."""
STATE_BYTES_MAX = 1 << 16
SNAPSHOTS_KEPT = 2


def batches_of(data: bytes | memoryview) -> Iterator[Batch]:
    """Whole batches with their bytes; an incomplete one at the end is left out.

    Raises: CorruptMessage, CorruptLog; InvalidRequest: a control record that is none.
    """
    for batch, whole in whole_batches(data):
        base, last, epoch = int(batch.base_offset), int(batch.last_offset), int(batch.leader_epoch)
        control: tuple[Control, ...] = ()
        if batch.attributes & lib.KL_ATTR_CONTROL:
            found = [
                control_of(control_key(raw.control or 0), raw.value)
                for raw in raw_records(batch, whole)
            ]
            control = tuple(one for one in found if one is not None)
            if len(control) < len(found):
                raise CorruptLog(f"offset {base}: found a control record that is not the quorum's")
        yield Batch(base, last, epoch, control, bytes(whole))


class ReplicaDisk:
    """All that a replica reads when it starts.  For one thread; `log` may be read by others."""

    def __init__(self, manager: Manager, settings: QuorumConfig, voters: Voters) -> None:
        """Open the log, created if it is missing.  `voters`: those of the settings, which a
        directory that was formatted without any has.

        Raises: CorruptLog, IoFailed.
        """
        manager.state.copied = True
        manager.make(METADATA_TOPIC, METADATA_TOPIC_ID, [0])
        self.log = manager.get(METADATA_TOPIC, 0)
        self.folder = str(self.log.path)
        self._handle = handle_of(self.log)
        self._manager, self._clock, self._config = manager, manager.clock, manager.config
        self._settings, self._voters = settings, voters
        self._handle.configure(TopicConfig({
            "max.message.bytes": METADATA_BYTES_MAX,
            "segment.bytes": settings.metadata_log_segment_bytes,
            "segment.ms": settings.metadata_log_segment_ms,
        }))  # fmt: skip
        self.settle()

    def settle(self) -> None:
        """Finish or undo what a crash, or a failed write, interrupted: before the log is read.

        Raises: IoFailed.
        """
        self.discard()
        kept = list_snapshots(self.folder)
        if not kept:
            return
        state, newest = self._handle.state(), kept[-1]
        behind = newest.offset > state.log_end_offset
        other = state.log_end_offset > state.log_start_offset and newest.epoch > state.last_epoch
        if behind or other:  # it was fetched, and the log not emptied yet
            truncate_fully(self._handle, newest.offset)

    # ---- at the start --------------------------------------------------------------------------

    def view(self) -> LogView:
        """The log as Raft's core sees it.

        Raises: CorruptLog: the log is damaged, or begins where no snapshot ends.
        """
        view = self._formatted()
        start = self.log.start_offset
        if start > 0:
            view = self._base(view, start)
        offset, end = view.start, self.log.end_offset
        while offset < end:
            data = self.log.read_batches(offset, READ_BYTES, "log_end")
            for batch in batches_of(data):
                if batch.last_offset >= view.start:
                    view = _continued(self.folder, view, batch)
            if view.end <= offset:
                raise CorruptLog(f"{self.folder}: found nothing at offset {offset}, wanted a batch")
            offset = view.end
        return self.with_snapshots(view)

    def with_snapshots(self, view: LogView) -> LogView:
        """A view with the snapshots that are there now."""
        ends = [None, None, *(OffsetAndEpoch(*one) for one in list_snapshots(self.folder))]
        return view._replace(snapshot=ends[-1], older=ends[-2])

    def _formatted(self) -> LogView:
        """An empty log, with the voters of formatting: in a snapshot of nothing, or else in the
        settings."""
        version, voters = 0, self._voters
        if FIRST in list_snapshots(self.folder):
            version, found = self._quorum_in(FIRST)
            voters = found if version else voters
        return LogView(voters=((raft_log.BEFORE, voters),), versions=((raft_log.BEFORE, version),))

    def _base(self, view: LogView, start: int) -> LogView:
        for name in list_snapshots(self.folder):
            if name.offset >= start:
                version, voters = self._quorum_in(name)
                return raft_log.at_snapshot(view, OffsetAndEpoch(*name), version, voters)
        raise CorruptLog(
            f"{self.folder}: the log begins at offset {start}, and no snapshot is at or above it"
        )

    def _quorum_in(self, name: SnapshotName) -> tuple[int, Voters]:
        """kraft.version and the voters in a snapshot."""
        version, voters = 0, ()
        for raw in read_snapshot(os.path.join(self.folder, name.file())):
            if raw.control in (KRAFT_VERSION, VOTERS):
                found = control_of(control_key(raw.control), raw.value)
                if isinstance(found, VersionChange):
                    version = found.version
                else:
                    voters = found  # type: ignore[assignment]
        return version, voters

    def first_records(self) -> Sequence[MetadataRecord]:
        """The records that a new cluster begins with: those of formatting.

        Raises: CorruptLog; ArgumentError: records or levels that are not known.
        """
        found: list[MetadataRecord] = []
        if FIRST in list_snapshots(self.folder):
            path = os.path.join(self.folder, FIRST.file())
            for raw in read_snapshot(path):
                entry = decode(raw.value) if raw.control is None else None
                if isinstance(entry, str):
                    raise ArgumentError(f"{path}: found {entry}")
                if entry is not None:
                    found.append((entry.name, dict(entry.fields)))
        return first_records(self._manager, found)

    @property
    def newest(self) -> OffsetAndEpoch | None:
        """The newest snapshot."""
        kept = list_snapshots(self.folder)
        return OffsetAndEpoch(*kept[-1]) if kept else None

    @property
    def committed(self) -> int:
        """The end of the newest snapshot: the records below it are committed."""
        newest = self.newest
        return newest.offset if newest else 0

    def stored(self) -> QuorumState | None:
        """The content of quorum-state.  Raises: CorruptLog, IoFailed."""
        with Directory(self.folder) as folder:
            data = folder.read(QUORUM_STATE, STATE_BYTES_MAX)
        return None if data is None else parse_quorum_state(data)

    # ---- effects -------------------------------------------------------------------------------

    def save(self, state: QuorumState, version: int, voters: Voters) -> None:
        """Write quorum-state; it is on disk on return.  Raises: IoFailed, NoSpace."""
        data = render_quorum_state(state, version, [one.key.id for one in voters])
        with Directory(self.folder) as folder:
            folder.replace(QUORUM_STATE, data)

    def append(self, batch: Batch, version: int) -> None:
        """Append a batch: a follower's as it is, a leader's encoded in this kraft.version.

        Raises: IoFailed, NoSpace: nothing was appended; StorageOffline.
        """
        data = batch.data
        if not isinstance(data, bytes):
            now_ms, at = self._clock.now_ms(), batch.base_offset
            if batch.control:
                pairs = [control_record(one, version) for one in batch.control]
                rows = [(control_kind(key) or 0, value) for key, value in pairs]
                data = control_batch(rows, at, batch.epoch, now_ms)
            else:
                values = values_at(data, at)
                (data,) = data_batches(values, at, batch.epoch, now_ms, 2 * RECORD_BYTES_MAX)
        self.log.append_as_follower(data)

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Batches from an offset on: at least one."""
        return self.log.read_batches(offset, bytes_max, "log_end")

    def show(self, offset: int) -> None:
        """Records below an offset are committed."""
        self._handle.show_until(offset)

    def truncate(self, offset: int) -> None:
        """Remove the records from an offset on, durably.  Raises: CorruptLog: no batch begins
        there; IoFailed."""
        self.log.truncate(offset)
        if self.log.end_offset != offset:
            raise CorruptLog(f"{self.folder}: found the end at {self.log.end_offset} after a "
                             f"truncation, wanted {offset}")  # fmt: skip

    def flush(self) -> None:
        """Return when everything appended before the call is on disk; from any thread.  Raises:
        StorageOffline, IoFailed, NoSpace."""
        self.log.flush()

    # ---- snapshots -----------------------------------------------------------------------------

    def superfluous(self, base: OffsetAndEpoch | None) -> OffsetAndEpoch | None:
        """Where the log may begin, by metadata.max.retention.bytes and .ms, now that there is a new
        snapshot; None: where it does.

        Two snapshots are kept, since a replica that finds the newest damaged uses the other, and
        `base`, at whose end the log begins.
        """
        kept = list_snapshots(self.folder)
        last = kept[-SNAPSHOTS_KEPT:]
        with Directory(self.folder) as folder:
            for name in kept[:-SNAPSHOTS_KEPT]:
                if base is None or name.offset != base.offset:
                    folder.unlink(name.file())
        begins = OffsetAndEpoch(*last[0])
        start = 0 if base is None else base.offset
        large = self.log.size_bytes > self._config.metadata_max_retention_bytes
        return begins if begins.offset > start and (large or self._is_old(start)) else None

    def _is_old(self, offset: int) -> bool:
        """True if the record at an offset is older than metadata.max.retention.ms."""
        most_ms = self._settings.metadata_max_retention_ms
        if most_ms < 0 or offset >= self.log.end_offset:
            return False
        first, _ = next(whole_batches(self.read(offset, 1)))
        return bool(first.base_timestamp < self._clock.now_ms() - most_ms)

    def trim(self, offset: int) -> None:
        """Let the log begin at the end of a snapshot, and remove older ones.  Raises: IoFailed."""
        self.log.roll()
        self.log.delete_before(offset)
        self._remove_below(offset)

    def _remove_below(self, offset: int) -> None:
        with Directory(self.folder) as folder:
            for name in list_snapshots(self.folder):
                if name.offset < offset:
                    folder.unlink(name.file())

    def read_snapshot(
        self, snapshot: OffsetAndEpoch, position: int, bytes_max: int
    ) -> tuple[int, bytes] | None:
        """The size of a snapshot, and bytes from a position on; None: there is none."""
        try:
            with open(self._path(snapshot), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(min(position, size))
                return size, file.read(bytes_max)
        except FileNotFoundError:
            return None

    def write_snapshot(self, snapshot: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Write bytes of a snapshot that is being fetched.  Raises: OSError."""
        path = self._path(snapshot) + PART
        with open(path, "r+b" if position else "wb") as file:
            file.truncate(position)
            file.seek(position)
            file.write(data)

    def finish_snapshot(self, snapshot: OffsetAndEpoch) -> tuple[int, Voters]:
        """Put a fetched snapshot in its place, and empty the log, which begins at its end; returns
        kraft.version and the voters.

        Raises: CorruptMessage: it is damaged, and was removed; IoFailed.
        """
        name = SnapshotName(*snapshot).file()
        try:
            read_snapshot(self._path(snapshot) + PART)
        except CorruptLog as problem:
            self.discard()
            raise CorruptMessage(str(problem)) from problem
        with Directory(self.folder) as folder:
            folder.sync([name + PART])
            folder.rename(name + PART, name)
        truncate_fully(self._handle, snapshot.offset)
        self._remove_below(snapshot.offset)
        return self._quorum_in(SnapshotName(*snapshot))

    def discard(self) -> None:
        """Remove what is left of snapshots that were being fetched."""
        for name in os.listdir(self.folder):
            if name.endswith(PART):
                with Directory(self.folder) as folder:
                    folder.unlink(name)

    def _path(self, snapshot: OffsetAndEpoch) -> str:
        return os.path.join(self.folder, SnapshotName(*snapshot).file())


def _continued(folder: str, view: LogView, batch: Batch) -> LogView:
    try:
        return raft_log.appended(view, batch._replace(data=None))
    except ValueError as problem:
        raise CorruptLog(f"{folder}: {problem}") from problem
