"""A replica's disk: its log, snapshots and quorum-state; a power cut takes what is not synced."""

from __future__ import annotations

import uuid
from random import Random
from typing import Any, NamedTuple

from kafkalog.raft import log
from kafkalog.raft.log import Batch, LeaderChange, LogView, OffsetAndEpoch, VersionChange
from kafkalog.raft.messages import QuorumState
from kafkalog.raft.replicas import Voters

__all__ = ["Disk", "Snapshot"]


class Snapshot(NamedTuple):
    """The state machine's values and the quorum's records up to an offset."""

    end: OffsetAndEpoch
    version: int
    voters: Voters
    values: tuple[Any, ...]

    def content(self) -> tuple[Any, ...]:
        """The snapshot in pieces, as FetchSnapshot takes it over the network."""
        return ((self.version, self.voters), *self.values)


class Disk:
    """All that a replica reads when it starts."""

    def __init__(self, directory_id: uuid.UUID, version: int, voters: Voters) -> None:
        """Formatted with these voters."""
        self.directory_id = directory_id
        self.formatted = version, voters
        self.stored: QuorumState | None = None
        self.writing: QuorumState | None = None
        """A write of quorum-state in progress."""
        self.snapshot: Snapshot | None = None
        """The log begins at its end."""
        self.later: list[Snapshot] = []
        """Snapshots of more records, the latest last."""
        self.fetched: list[Any] = []
        """The pieces of a snapshot that is being fetched."""
        self.batches: dict[int, Batch] = {}
        """By base offset, ascending."""
        self.voters: dict[int, Voters] = {}
        """By the offset of the batch with their record, ascending."""
        self.end = 0
        self.synced = 0
        self.flushes: dict[int, int] = {}
        """Flushes in progress, and the end of what each covers."""

    @property
    def start(self) -> int:
        """The log's first offset."""
        return self.snapshot.end.offset if self.snapshot else 0

    def append(self, batch: Batch) -> None:
        """Into the page cache."""
        assert batch.base_offset == self.end, f"{batch.base_offset} after {self.end}"
        self.batches[batch.base_offset] = batch
        for one in batch.control:
            if not isinstance(one, LeaderChange | VersionChange):
                self.voters[batch.base_offset] = one
        self.end = batch.last_offset + 1

    def truncate(self, offset: int) -> None:
        """Remove batches, durably."""
        for one in [one for one in self.batches if one >= offset]:
            del self.batches[one]
            self.voters.pop(one, None)
        self.end = min(self.end, offset)
        self.synced = min(self.synced, self.end)
        self.flushes = {number: min(end, offset) for number, end in self.flushes.items()}

    def flushed(self, number: int) -> None:
        """A flush ended: what was there when it began, and still is, is on disk."""
        self.synced = max(self.synced, self.flushes.pop(number))

    @property
    def snapshots(self) -> list[Snapshot]:
        """All of them, the latest last."""
        return [*([self.snapshot] if self.snapshot else []), *self.later]

    def begin_at(self, snapshot: Snapshot) -> None:
        """The log begins at the end of a snapshot; what is below it goes."""
        self.snapshot = snapshot
        self.synced = max(self.synced, snapshot.end.offset)
        self.later = [one for one in self.later if one.end.offset > snapshot.end.offset]
        for one in [one for one in self.batches if one < snapshot.end.offset]:
            del self.batches[one]
            self.voters.pop(one, None)

    def voters_in_force(self) -> Voters:
        """Those of the last record of them, committed or not."""
        if self.voters:
            return self.voters[next(reversed(self.voters))]
        return (self.snapshot.voters if self.snapshot else ()) or self.formatted[1]

    def replace(self, snapshot: Snapshot) -> None:
        """A fetched snapshot and an empty log at its end."""
        self.truncate(0)
        self.later = []
        self.begin_at(snapshot)
        self.end = self.synced = snapshot.end.offset
        self.fetched = []

    def cut_power(self, dice: Random) -> None:
        """Lose what is not synced, or a part of it; a write in progress took place or not."""
        if self.writing is not None and dice.random() < 0.5:
            self.stored = self.writing
        ends = [
            one.last_offset + 1 for one in self.batches.values() if one.last_offset >= self.synced
        ]
        kept = dice.choice([self.synced, self.synced, *ends])
        self.truncate(kept)
        self.synced = kept
        if self.snapshots and self.snapshots[-1].end.offset > kept:
            self.replace(self.snapshots[-1])

    def stop(self) -> None:
        """The process is gone; the page cache is not."""
        self.writing, self.flushes, self.fetched = None, {}, []

    def has(self, batch: Batch) -> bool:
        """True if a batch is on disk, in the log or below the snapshot's end."""
        if batch.last_offset < self.start:
            return True
        found = self.batches.get(batch.base_offset)
        return found is not None and found.epoch == batch.epoch and batch.last_offset < self.synced

    def view(self) -> LogView:
        """The log as the core sees it."""
        version, voters = self.formatted
        view = LogView(voters=((-1, voters),), versions=((-1, version),))
        if self.snapshot is not None:
            view = log.at_snapshot(
                view, self.snapshot.end, self.snapshot.version, self.snapshot.voters
            )
        for batch in self.batches.values():
            view = log.appended(view, batch)
        ends = [None, None, *(one.end for one in self.snapshots)]
        return view._replace(snapshot=ends[-1], older=ends[-2])
