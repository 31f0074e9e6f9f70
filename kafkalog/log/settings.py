"""A topic's settings as the data plane takes them."""

from typing import TYPE_CHECKING, Any

from kafkalog._native import check, ffi, lib
from kafkalog.config.topic import TopicConfig, compresses, timestamp_window

if TYPE_CHECKING:
    from kafkalog.log.log import Log

__all__ = ["configure", "log_config"]


def log_config(config: TopicConfig) -> Any:
    """A kl_log_config filled from `config`; kl_log_open and kl_log_configure copy it."""
    compacted = "compact" in config.cleanup_policy
    segment_ms = config.segment_ms
    if compacted:
        # Only closed segments are compacted: the lag also bounds how long one stays open.
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
        },
    )


def configure(log: "Log", config: TopicConfig) -> None:
    """Let an open log obey `config` from its next append on.

    Raises: Closed.
    """
    check(lib.kl_log_configure(log._c, log_config(config)))
    log.config = config
    log._max_decompressed = config.kafkalog_max_decompressed_bytes
    log._compresses = compresses(config)
