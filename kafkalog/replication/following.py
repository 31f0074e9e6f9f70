"""What a follower does with what its leader says.

Pure: facts of the copy and of an answer in, the next action out.  Where the two logs part is found
by leader epochs (KIP-101, KIP-279): the leader answers the largest epoch it knows up to the
follower's last one, and where that epoch ended with it.  The follower cuts to where both have the
same of the same epoch; what it then ends with is asked about again, until nothing diverges.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "NOTHING_KNOWN",
    "Action",
    "Append",
    "Await",
    "Copied",
    "Cut",
    "EpochEnd",
    "Place",
    "Rest",
    "Restart",
    "cut_to",
    "fetched",
    "placed",
]

UNKNOWN = -1


class EpochEnd(NamedTuple):
    """Where a leader epoch ended in a log, as OffsetForLeaderEpoch answers it."""

    epoch: int
    """The largest that the log knows up to the one that was asked for; -1: it knows none."""
    end_offset: int


NOTHING_KNOWN = EpochEnd(UNKNOWN, UNKNOWN)


class Copied(NamedTuple):
    """How far a copy is."""

    log_start: int
    log_end: int
    high_watermark: int
    last_epoch: int
    """The last that it knows to have begun; -1: none."""


class Append(NamedTuple):
    """Take these batches (maybe none), then show and keep what the leader does."""

    records: Any
    """Bytes-like; the last batch may be cut off.  None: none."""
    high_watermark: int
    log_start: int


class Cut(NamedTuple):
    """Drop what is at and above an offset, and epochs that begin there; ask again.

    At the end of the copy too: of its last epochs it may have no record (it led, and nothing
    came), and while it names one that the leader never had both part for ever.
    """

    offset: int


class Restart(NamedTuple):
    """Drop everything; go on, empty, at the leader's log start."""

    offset: int


class Place(NamedTuple):
    """The offset is not there: ask where the leader's log begins and ends."""


class Rest(NamedTuple):
    """Ask again later: what stands in the way passes."""

    code: int


class Await(NamedTuple):
    """Do not ask until a command names the leader and its epoch: ours is outdated."""

    code: int


Action: TypeAlias = "Append | Cut | Restart | Place | Rest | Await"


def fetched(row: Any) -> Action | EpochEnd:
    """What a partition's row of a Fetch response asks for; an EpochEnd is for `cut_to`."""
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Place()
    if row.error_code:
        return failed(row.error_code)
    diverging = getattr(row, "diverging_epoch", None)
    if diverging is not None and diverging.end_offset >= 0:
        return EpochEnd(diverging.epoch, diverging.end_offset)
    return Append(row.records or None, row.high_watermark, getattr(row, "log_start_offset", -1))


def failed(code: int) -> Rest | Await:
    """A partition's error that is none of its offset.

    A leader of a higher epoch than ours refuses us until the controller has sent us that one; a
    leader of a lower epoch (UNKNOWN_LEADER_EPOCH) gets ours in a while.
    """
    return Await(code) if code == ErrorCode.FENCED_LEADER_EPOCH else Rest(code)


def cut_to(theirs: EpochEnd, ours: EpochEnd, copy: Copied) -> Action:
    """Where to cut after the leader answered `theirs` for the copy's last epoch.

    `ours`: what the copy itself knows of `theirs.epoch`.  Never above its end.  Where the leader
    knows nothing, what is committed stays, and no more: it has nothing that could prove the rest.
    """
    if theirs.end_offset < 0:
        end = copy.high_watermark
    elif ours.epoch == UNKNOWN:
        end = theirs.end_offset
    elif ours.epoch == theirs.epoch:
        end = min(theirs.end_offset, ours.end_offset)
    else:
        end = ours.end_offset  # the leader never had what we have of later epochs
    return Cut(min(end, copy.log_end))


def placed(leader_start: int, leader_end: int, copy: Copied) -> Action:
    """After OFFSET_OUT_OF_RANGE: by where the leader's log begins and ends now.

    A leader that ends before us was elected without being in sync: what it has not is gone.
    """
    if leader_end < copy.log_end and leader_end >= leader_start:
        return Restart(leader_start) if leader_end < copy.log_start else Cut(leader_end)
    if leader_start > copy.log_end:
        return Restart(leader_start)
    return Rest(ErrorCode.OFFSET_OUT_OF_RANGE)  # it has moved since; never asked in a tight loop
