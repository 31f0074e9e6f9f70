"""A follower's reaction to its leader's answers.

Pure: the replica's state and an answer in, the next action out.  Leader epochs show where the two
logs diverge (KIP-101, KIP-279): the leader returns the largest epoch it knows up to the
follower's last one, and where that epoch ended at the leader.  The follower truncates to the point
up to which both agree on that epoch; then it asks about its new last epoch, until nothing diverges.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "BEYOND_US",
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
    "rest_s",
]

UNKNOWN = -1
FIRST_REST_S = 0.01
"""After the first refusal: a leader often hears of its role a moment after its follower."""
BEYOND_US = (
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
"""The leader has records that kafkalog cannot copy; asking again changes nothing."""


class EpochEnd(NamedTuple):
    """Where a leader epoch ended in a log, in the form of OffsetForLeaderEpoch."""

    epoch: int
    """The largest epoch of the log up to the requested one; -1: it knows none."""
    end_offset: int


NOTHING_KNOWN = EpochEnd(UNKNOWN, UNKNOWN)


class Copied(NamedTuple):
    """How far a replica is."""

    log_start: int
    log_end: int
    high_watermark: int
    last_epoch: int
    """The last epoch that it knows; -1: none."""


class Append(NamedTuple):
    """Append these batches (maybe none), then take over the leader's high watermark and start."""

    records: Any
    """Bytes-like; the last batch may be incomplete.  None: none."""
    high_watermark: int
    log_start: int


class Cut(NamedTuple):
    """Truncate to an offset, and remove epochs that begin there; ask again.

    Also at the end of the replica: its last epochs may have no records (it led, and nothing
    came), and while it names one that the leader never had, the two diverge forever.
    """

    offset: int


class Restart(NamedTuple):
    """Delete everything; continue, empty, at the leader's log start."""

    offset: int


class Place(NamedTuple):
    """The offset is out of range: ask where the leader's log begins and ends."""


class Rest(NamedTuple):
    """Ask again later: the obstacle is temporary."""

    code: int


class Await(NamedTuple):
    """Wait for the next command: ours is outdated, or this leader cannot be followed."""

    code: int


Action: TypeAlias = "Append | Cut | Restart | Place | Rest | Await"


def fetched(row: Any) -> Action | EpochEnd:
    """The action for a partition in a Fetch response; an EpochEnd is for `cut_to`."""
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Place()
    if row.error_code:
        return failed(row.error_code)
    diverging = getattr(row, "diverging_epoch", None)
    if diverging is not None and diverging.end_offset >= 0:
        return EpochEnd(diverging.epoch, diverging.end_offset)
    return Append(row.records or None, row.high_watermark, getattr(row, "log_start_offset", -1))


def failed(code: int) -> Rest | Await:
    """A partition's error that is not about its offset.

    A leader with a higher epoch than ours refuses us until the controller has sent us that epoch; a
    leader with a lower epoch (UNKNOWN_LEADER_EPOCH) gets ours soon.
    """
    return Await(code) if code in (ErrorCode.FENCED_LEADER_EPOCH, *BEYOND_US) else Rest(code)


def rest_s(refused: int, most_s: float) -> float:
    """How long to wait after so many refusals in a row: twice as long each time, up to `most_s`."""
    return min(FIRST_REST_S * 2.0 ** min(refused - 1, 30), most_s)


def cut_to(theirs: EpochEnd, ours: EpochEnd, copy: Copied) -> Action:
    """Where to truncate after the leader answered `theirs` for the replica's last epoch.

    `ours`: the replica's own end of `theirs.epoch`.  Never above its end.  If the leader knows no
    epoch, only committed records stay: nothing could prove the rest.
    """
    if theirs.end_offset < 0:
        end = copy.high_watermark
    elif ours.epoch == UNKNOWN:
        end = theirs.end_offset
    elif ours.epoch == theirs.epoch:
        end = min(theirs.end_offset, ours.end_offset)
    else:
        end = ours.end_offset  # the leader never had our records of later epochs
    return Cut(min(end, copy.log_end))


def placed(leader_start: int, leader_end: int, copy: Copied) -> Action:
    """After OFFSET_OUT_OF_RANGE: decide by where the leader's log begins and ends now.

    A leader that ends before us was elected out of sync: the records that it lacks are lost.
    """
    if leader_end < copy.log_end and leader_end >= leader_start:
        return Restart(leader_start) if leader_end < copy.log_start else Cut(leader_end)
    if leader_start > copy.log_end:
        return Restart(leader_start)
    return Rest(ErrorCode.OFFSET_OUT_OF_RANGE)  # it has moved since; never ask in a tight loop
