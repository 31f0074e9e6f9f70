"""Opens a log: converts what its owner remembers of it, and its settings, for the data
plane."""

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.clock import Clock, SystemClock
from kafkalog.config.topic import TopicConfig, compresses, timestamp_window
from kafkalog.disk.checkpoint import DirectoryState
from kafkalog.disk.layout import segment_name
from kafkalog.errors import CorruptLog
from kafkalog.types import Recovery, TopicPartition

__all__ = ["LogOpen", "log_config", "open_native", "open_plan"]


_last: tuple[TopicConfig | None, Any] = None, None
"""The last settings, and their struct: a topic's logs share them."""


class LogOpen(NamedTuple):
    """How a log is to be opened."""

    mode: str
    clean: bool
    """The clean-shutdown marker vouches for it: batches need not be read."""
    recovery_point: int
    """Each of these four is -1 if unknown."""
    log_start_offset: int
    high_watermark: int
    reached: int
    """The log ended there or above; if it is shorter now, records were lost."""
    derived_sum: int
    """From a clean close, see DirectoryState; -1: unknown."""
    alone: bool
    """It is not in a data directory: nobody else remembers how far it is on disk."""
    marker: Any
    """A kl_marker, or None."""
    again: Callable[[], "LogOpen"]
    """The same, from the current files."""
    config: TopicConfig
    tp: TopicPartition
    clock: Clock


def open_plan(
    state: DirectoryState,
    tp: TopicPartition,
    config: TopicConfig,
    clock: Clock | None = None,
    clean: bool | None = None,
) -> LogOpen:
    """How to open a log, from what its owner's state remembers of it.

    `clean`: whether its batches need no reading; None: as the state says.
    """
    recovery_point = state.recovery_point(tp)
    if clean is None:
        # The marker does not vouch for a folder that was put here later.
        clean = state.clean and recovery_point >= 0
    return LogOpen(
        mode=state.mode,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=state.log_start(tp),
        # With a single replica, all records in the log are committed.
        high_watermark=max(state.high_watermark(tp), 0) if state.copied else -1,
        reached=state.reached(tp),
        derived_sum=state.derived_sum(tp) if clean else -1,
        alone=state.own,
        marker=state.marker,
        again=partial(_plan_again, state, tp, config, clock),
        config=config,
        tp=tp,
        clock=clock or SystemClock(),
    )


def _plan_again(
    state: DirectoryState, tp: TopicPartition, config: TopicConfig, clock: Clock | None
) -> LogOpen:
    with closing(DirectoryState(state.path, "r", own=state.own)) as now:
        now.copied = state.copied
        return open_plan(now, tp, config, clock)


def log_config(config: TopicConfig) -> Any:
    """A kl_log_config filled from `config`; kl_log_open and kl_log_configure copy it."""
    global _last
    last = _last  # another thread may replace it
    if last[0] is not config:
        _last = last = config, _log_config(config)
    return last[1]


def _log_config(config: TopicConfig) -> Any:
    compacted = "compact" in config.cleanup_policy
    segment_ms = config.segment_ms
    if compacted:
        # Only closed segments are compacted: the lag also limits how long one stays open.
        segment_ms = min(segment_ms, config.max_compaction_lag_ms)
    before_ms, after_ms = timestamp_window(config)
    return ffi.new(
        "kl_log_config *",
        {
            "segment_bytes": config.segment_bytes,
            "segment_ms": segment_ms,
            "segment_jitter_ms": config.segment_jitter_ms,
            "timestamp_before_max_ms": before_ms,
            "timestamp_after_max_ms": after_ms,
            "flush_messages": config.flush_messages,
            "segment_index_bytes": config.segment_index_bytes,
            "index_interval_bytes": config.index_interval_bytes,
            "max_message_bytes": config.max_message_bytes,
            "log_append_time": config.message_timestamp_type == "LogAppendTime",
            "preallocate": config.preallocate,
            "compacted": compacted,
            "compressed": compresses(config),
        },
    )


def open_native(path: str, how: LogOpen) -> tuple[Any, Recovery]:
    """The kl_log of a folder, freed with its last reference, and what recovery did.

    Raises: UnsupportedForMessageFormat, NotFound, IoFailed; CorruptLog if a log that was
    closed cleanly, or flushed, is damaged or too short.
    """
    try:
        return _open(path, how)
    except CorruptLog:
        # Its writer may have started, or truncated it, since the marker and checkpoints were read.
        if how.mode == "w":
            raise
        return _open(path, how.again())


def _open(path: str, how: LogOpen) -> tuple[Any, Recovery]:
    options = ffi.new("kl_open *", {
        "mode": lib.KL_WRITE if how.mode == "w" else lib.KL_READ,
        "clean": how.clean,
        "recovery_point": how.recovery_point,
        "log_start_offset": how.log_start_offset,
        "high_watermark": how.high_watermark,
        "reached": how.reached,
        "end_is_high_watermark": how.high_watermark < 0,
        "leader_epoch": -1,
        "first_offset": 0,
        "derived_sum": how.derived_sum,
        "keeps_point": how.alone,
    })  # fmt: skip
    out, found = ffi.new("kl_log **"), ffi.new("kl_recovery *")
    marker = how.marker if how.marker is not None else ffi.NULL
    config = log_config(how.config)
    check(lib.kl_log_open(os.fsencode(path), config, options, marker, out, found))
    handle = ffi.gc(out[0], lib.kl_log_free)
    recovery = Recovery(
        found.truncated_bytes, found.truncated_pos, found.truncated_segment,
        found.segments_recovered, found.segments_dropped, found.indexes_rebuilt,
        ffi.string(found.kept).decode(),
    )  # fmt: skip
    if recovery.kept:
        _tell(path, recovery)
    if how.mode == "w" and recovery.truncated_bytes:
        _tell_left(path, recovery)
    return handle, recovery


def _tell_left(path: str, recovery: Recovery) -> None:
    """Warn that bytes to be cut are still there: there is no space for their backup."""
    name = segment_name(recovery.truncated_segment)
    file = os.path.join(path, name)
    # It may be gone: a log that ends below its start begins again.
    if os.path.exists(file) and os.path.getsize(file) > recovery.truncated_pos:
        from kafkalog.logs.limit import limited

        limited(__name__).warning(
            "%s: was not closed cleanly, and there is no room to back up what must be cut from "
            "byte %d of %s on: it stays where it is; reads and retention go on, appends when "
            "there is room", path, recovery.truncated_pos, name,
        )  # fmt: skip


def _tell(path: str, recovery: Recovery) -> None:
    from kafkalog.logs.limit import limited  # logging takes 10 ms to import

    limited(__name__).warning(
        "%s: was not closed cleanly; %d bytes that were not flushed and are no whole batches, or "
        "lie behind such, were cut from byte %d of segment %d on, and are kept in %s",
        path, recovery.truncated_bytes, recovery.truncated_pos, recovery.truncated_segment,
        recovery.kept,
    )  # fmt: skip
