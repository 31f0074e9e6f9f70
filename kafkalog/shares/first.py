"""Where a share group begins in a partition in which it has no state: share.auto.offset.reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.config.consumer import duration_ms

if TYPE_CHECKING:
    from kafkalog.log.log import Log

__all__ = ["EARLIEST", "LATEST", "first_offset"]

LATEST, EARLIEST = "latest", "earliest"
BY_DURATION = "by_duration:"
"""Records up to an age; an ISO 8601 duration follows."""


def first_offset(reset: str, log: Log | None, now_ms: int) -> int:
    """The first offset that the group gets; `now_ms`: the wall clock.

    Raises: KafkalogError from the log.
    """
    if log is None:
        return 0
    if reset == EARLIEST:
        return log.start_offset
    if reset.startswith(BY_DURATION):
        age_ms = duration_ms(reset.removeprefix(BY_DURATION)) or 0
        found = log.offset_at(max(0, now_ms - age_ms))
        if found is not None:
            return found
    return log.high_watermark
