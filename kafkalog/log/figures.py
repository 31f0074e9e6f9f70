"""The metrics of one log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.log.handle import Handle

__all__ = ["log_metrics"]


def log_metrics(handle: Handle) -> dict[str, float]:
    """The figures of an open log, by name (docs/metrics.md).

    Raises: Closed, ForkedHandle.
    """
    state, recovery = handle.state(), handle.recovery
    found = {
        "size-bytes": state.size_bytes,
        "segment-count": state.segment_count,
        "log-start-offset": state.log_start_offset,
        "log-end-offset": state.log_end_offset,
        "high-watermark": state.high_watermark,
        "last-stable-offset": state.last_stable_offset,
        "unflushed-records": state.log_end_offset - state.flushed_offset,
        "leader-epoch": state.leader_epoch,
        "producer-id-count": state.producer_count,
        "offline": state.offline,
        "recovered-segments": recovery.segments_recovered,
        "recovered-truncated-bytes": recovery.truncated_bytes,
    }
    return {name: float(value) for name, value in found.items()}
