"""A metadata log as the core sees it: where it begins and ends, its epochs, its voters.

The records themselves stay with the driver.  Control records matter to the quorum, so a batch
carries them decoded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from kafkalog.raft.replicas import ReplicaKey, Voters

__all__ = [
    "Batch",
    "Control",
    "Diverging",
    "LeaderChange",
    "LogView",
    "OffsetAndEpoch",
    "SnapshotNeeded",
    "Valid",
    "Validated",
    "VersionChange",
    "appended",
    "at_snapshot",
    "end_of_epoch",
    "last_epoch",
    "trimmed",
    "truncated",
    "truncation_offset",
    "validated",
    "version_of",
    "voters_in",
]

BEFORE = -1
"""The offset of the voters and the version that a replica was formatted with."""


class OffsetAndEpoch(NamedTuple):
    """The end of a log or a snapshot: the offset after its last record, and that record's epoch."""

    offset: int
    epoch: int


class LeaderChange(NamedTuple):
    """The first record of an epoch."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]


class VersionChange(NamedTuple):
    """KRaftVersionRecord."""

    version: int


Control: TypeAlias = "LeaderChange | VersionChange | Voters"


class Batch(NamedTuple):
    """Consecutive records of one epoch: control records or data, never both."""

    base_offset: int
    last_offset: int
    epoch: int
    control: tuple[Control, ...] = ()
    """Decoded control records, one per offset; empty: data."""
    data: Any = None
    """The driver's; the core never looks at it."""


class LogView(NamedTuple):
    """A log, as far as the core knows it."""

    start: int = 0
    end: int = 0
    flushed: int = 0
    """Records below it are on disk."""
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, first offset), ascending."""
    voters: tuple[tuple[int, Voters], ...] = ((BEFORE, ()),)
    """(offset of the record, voters): the last one is in force, committed or not."""
    versions: tuple[tuple[int, int], ...] = ((BEFORE, 0),)
    """(offset of the record, kraft.version)."""
    snapshot: OffsetAndEpoch | None = None
    """The latest snapshot."""
    older: OffsetAndEpoch | None = None
    """The one before it: a follower that began to fetch it may go on."""
    base: OffsetAndEpoch | None = None
    """The snapshot at whose end the log starts; None: it starts at 0."""


def last_epoch(log: LogView) -> int:
    """The epoch of the last record; 0 if there never was one."""
    if log.epochs:
        return log.epochs[-1][0]
    return log.base.epoch if log.base else 0


def voters_in(log: LogView) -> Voters:
    """The voters in force."""
    return log.voters[-1][1]


def version_of(log: LogView) -> int:
    """The kraft.version in force."""
    return log.versions[-1][1]


def end_of_epoch(log: LogView, epoch: int) -> OffsetAndEpoch:
    """The largest epoch of the log up to `epoch`, and where it ends."""
    epochs = log.epochs
    number = bisect_right(epochs, epoch, key=itemgetter(0))
    if not number:
        return OffsetAndEpoch(log.start, log.base.epoch if log.base else 0)
    after = epochs[number][1] if number < len(epochs) else log.end
    return OffsetAndEpoch(after, epochs[number - 1][0])


# ---- changes ---------------------------------------------------------------------------------


def appended(log: LogView, batch: Batch) -> LogView:
    """The log with a batch at its end.

    Raises: ValueError: the batch begins elsewhere, its epoch is earlier than the last one, or it
    has not one offset for each control record.
    """
    if batch.base_offset != log.end or batch.epoch < last_epoch(log):
        raise ValueError(
            f"found a batch at {batch.base_offset} of epoch {batch.epoch}, wanted one at {log.end} "
            f"of epoch {last_epoch(log)} or later"
        )
    count = batch.last_offset + 1 - batch.base_offset
    if count < 1 or (batch.control and len(batch.control) != count):
        raise ValueError(
            f"found {count} offsets in a batch at {batch.base_offset} with {len(batch.control)} "
            "control records, wanted as many, or one or more without any"
        )
    epochs = log.epochs
    if not epochs or epochs[-1][0] < batch.epoch:
        epochs = (*epochs, (batch.epoch, batch.base_offset))
    voters, versions = log.voters, log.versions
    for offset, record in _controls(batch):
        if isinstance(record, VersionChange):
            versions = (*versions, (offset, record.version))
        elif not isinstance(record, LeaderChange):
            voters = (*voters, (offset, record))
    return log._replace(end=batch.last_offset + 1, epochs=epochs, voters=voters, versions=versions)


def _controls(batch: Batch) -> Iterator[tuple[int, Control]]:
    yield from enumerate(batch.control, batch.base_offset)


def truncated(log: LogView, offset: int) -> LogView:
    """The log without its records from `offset` on; the voters are those of the records left."""
    return log._replace(
        end=min(log.end, offset),
        flushed=min(log.flushed, offset),
        epochs=tuple(one for one in log.epochs if one[1] < offset),
        voters=tuple(one for one in log.voters if one[0] < offset),
        versions=tuple(one for one in log.versions if one[0] < offset),
    )


def trimmed(log: LogView, base: OffsetAndEpoch) -> LogView:
    """The log without its records below a snapshot's end."""
    later = [one for one in log.epochs if one[1] >= base.offset]
    below = [epoch for epoch, first in log.epochs if first < base.offset]
    if below and base.offset < log.end and not (later and later[0][1] == base.offset):
        later.insert(0, (below[-1], base.offset))
    return log._replace(
        start=base.offset,
        flushed=max(log.flushed, base.offset),
        epochs=tuple(later),
        voters=_from(log.voters, base.offset),
        versions=_from(log.versions, base.offset),
        older=log.older if log.older is not None and log.older.offset >= base.offset else None,
        base=base,
    )


def _from(history: tuple[tuple[int, Any], ...], offset: int) -> tuple[tuple[int, Any], ...]:
    """The history from the value in force just below `offset` on."""
    below = [one for one in history if one[0] < offset]
    return (*below[-1:], *(one for one in history if one[0] >= offset))


def at_snapshot(log: LogView, found: OffsetAndEpoch, version: int, voters: Voters) -> LogView:
    """An empty log that starts at the end of a snapshot with that version and these voters."""
    return LogView(
        start=found.offset,
        end=found.offset,
        flushed=found.offset,
        voters=((found.offset - 1, voters),) if voters else log.voters[:1],
        versions=((found.offset - 1, version),),
        snapshot=found,
        base=found,
    )


# ---- where two logs diverge ------------------------------------------------------------------


class Valid(NamedTuple):
    """The follower's log is a prefix of the leader's."""


class Diverging(NamedTuple):
    """The logs part: the leader's largest epoch up to the follower's, and where it ends."""

    end: OffsetAndEpoch


class SnapshotNeeded(NamedTuple):
    """The follower is below the leader's log start."""

    snapshot: OffsetAndEpoch


Validated: TypeAlias = "Valid | Diverging | SnapshotNeeded"


def validated(log: LogView, offset: int, epoch: int) -> Validated:
    """Compare the end of a follower's log, `offset` and the epoch of its last record, with a
    leader's log."""
    if offset == 0 and epoch == 0 and log.start == 0:
        return Valid()
    if log.base is not None and log.snapshot is not None:
        at_base = offset == log.start and epoch != log.base.epoch
        if offset < log.start or at_base or epoch < log.base.epoch:
            return SnapshotNeeded(log.snapshot)
    end = end_of_epoch(log, epoch)
    if end.epoch != epoch or end.offset < offset:
        return Diverging(end)
    return Valid()


def truncation_offset(log: LogView, leaders: OffsetAndEpoch) -> int:
    """Where a follower truncates: up to there both logs agree on the leader's epoch, or the
    follower has none of its records."""
    own = end_of_epoch(log, leaders.epoch)
    return min(own.offset, leaders.offset) if own.epoch == leaders.epoch else own.offset
