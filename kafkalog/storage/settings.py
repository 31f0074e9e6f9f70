"""A topic's settings as the data plane takes them."""

from typing import Any

from kafkalog._native import ffi
from kafkalog.config import FOREVER, TopicConfig

__all__ = ["flush_period_ms", "log_config"]


def log_config(config: TopicConfig) -> Any:
    """A kl_log_config filled from `config`; kl_log_open and kl_log_configure copy it."""
    compacted = "compact" in config.cleanup_policy
    segment_ms = config.segment_ms
    if compacted:
        # Only closed segments are compacted: the lag also bounds how long one stays open.
        segment_ms = min(segment_ms, config.max_compaction_lag_ms)
    # The older setting speaks for both of its successors where they were left alone.
    before_ms, after_ms = (
        limit if limit != FOREVER else config.message_timestamp_difference_max_ms
        for limit in (
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )
    )
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


def flush_period_ms(config: TopicConfig) -> int:
    """The longest time that a log's records may stay only in memory; FOREVER: no limit."""
    if config.kafkalog_durability == "interval":
        return min(config.flush_ms, config.kafkalog_durability_interval_ms)
    return config.flush_ms
