"""The metrics of one log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkalog._native import ffi, lib

if TYPE_CHECKING:
    from kafkalog.log.handle import Handle

__all__ = ["TIME_BOUNDS_MS", "Times", "log_metrics", "sync_times"]

TIME_BOUNDS_MS = tuple(
    lib.kl_server_time_bound_us(bucket) / 1000 for bucket in range(lib.KL_TIME_BUCKETS - 1)
)
"""The upper bounds of the buckets of times; one more has none."""


class Times(NamedTuple):
    """A number of measurements, by their time."""

    buckets: tuple[int, ...]
    """Up to each of TIME_BOUNDS_MS, and above the last; not cumulative."""
    sum_ms: float


def sync_times() -> Times:
    """The rounds of syncs of all logs of this process so far."""
    out = ffi.new("kl_phase_times *")
    lib.kl_log_get_sync_times(out)
    return Times(tuple(out.buckets), out.sum_ns / 1e6)


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
