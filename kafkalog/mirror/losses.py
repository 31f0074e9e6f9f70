"""Decides whether a log still has the records that were copied, and where a mirror continues.

Pure: what was asked and answered comes as arguments.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalog.client.calls.offsets import EpochEnd
from kafkalog.mirror.spans import Span, cut_back, reached, thinned
from kafkalog.mirror.state import NEVER, Cut, Progress

__all__ = ["UNKNOWN", "Loss", "again", "copy_loss", "removed", "rewound", "source_loss"]

UNKNOWN = -1


class Loss(NamedTuple):
    """Records that were copied are gone."""

    at: int
    """The first offset of the source to copy again; UNKNOWN: not known."""
    epoch: int
    """The leader epoch of the record before it; -1: not known."""
    why: str


def source_loss(
    known: Progress, begin: int, end: int, epoch_end: EpochEnd | None, compacted: bool
) -> Loss | None:
    """Detect if the source's log has lost records that were copied; None: it has not.

    `begin`, `end`: of its log; `epoch_end`: the end of the leader epoch of the last record copied,
    None if that cannot be asked for; `compacted`: its records may be gone without a loss.
    """
    at = known.position
    if epoch_end is None:
        if end >= at:
            return None
        why = f"the source ends at offset {end}, it was copied up to {at}: it has lost records"
        return Loss(UNKNOWN, -1, why)
    if epoch_end.end < 0 or epoch_end.epoch < 0:
        if begin >= at:
            return None  # all that could be compared was removed
        why = (
            f"the source has lost records: the one before offset {at} was copied with leader epoch "
            f"{known.epoch}, which the source does not know"
        )
        return Loss(UNKNOWN, -1, why)
    if epoch_end.end < at:
        why = (
            f"the source has lost records: offsets {epoch_end.end} to {at - 1} were copied, the "
            f"last of leader epoch {known.epoch}, and its log diverges at offset {epoch_end.end}"
        )
        return Loss(epoch_end.end, epoch_end.epoch, why)
    if epoch_end.epoch < known.epoch and begin < at and not compacted:
        why = (
            f"the source has lost records: the one before offset {at} was copied with leader epoch "
            f"{known.epoch}, and its log has leader epoch {epoch_end.epoch} there"
        )
        return Loss(UNKNOWN, -1, why)
    return None


def copy_loss(known: Progress, end: int) -> Loss | None:
    """Detect if the copy, which ends at offset `end` of the target, has lost records."""
    if end >= known.copy_end:
        return None
    at = reached(known.spans, end)
    return Loss(at, -1, f"the copy ends at offset {end} of the target, wanted {known.copy_end} or "
                "more: the target has lost records")  # fmt: skip


def removed(known: Progress, begin: int) -> str:
    """The warning if the source's log begins behind the position; empty: it does not."""
    if begin <= known.position:
        return ""
    return f"the source removed offsets {known.position} to {begin - 1} before they were copied"


def rewound(known: Progress, loss: Loss, begin: int, end: int) -> Progress:
    """The progress once a loss is accepted: what the source has from there on is copied again.

    `begin`: of the source's log; `end`: of the copy, where the next record goes.
    """
    if loss.at == UNKNOWN:
        return again(known, begin, end)
    spans = thinned([*cut_back(known.spans, loss.at, end), Span(loss.at, end, 0)])
    cut = Cut(loss.at, known.epoch) if loss.at < known.position and loss.epoch >= 0 else known.cut
    return known._replace(position=loss.at, spans=tuple(spans), epoch=loss.epoch, cut=cut)


def again(known: Progress, begin: int, end: int) -> Progress:
    """The progress of a partition that is copied from its beginning."""
    return known._replace(position=begin, spans=(Span(begin, end, 0),), epoch=-1, cut=NEVER)
