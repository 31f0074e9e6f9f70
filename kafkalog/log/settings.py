"""A topic's settings as the data plane takes them."""

from typing import TYPE_CHECKING, Any

from kafkalog._native import check, ffi, lib
from kafkalog.config.settings import FOREVER, TopicConfig

if TYPE_CHECKING:
    from kafkalog.log.log import Log

__all__ = ["compresses", "configure", "flush_period_ms", "log_config", "timestamp_window"]


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


def timestamp_window(config: TopicConfig) -> tuple[int, int]:
    """How far before and after now a producer's time may lie, in ms; FOREVER: no limit."""
    # The older setting speaks for both of its successors where they were left alone.
    before_ms, after_ms = (
        limit if limit != FOREVER else config.message_timestamp_difference_max_ms
        for limit in (
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )
    )
    return before_ms, after_ms


def flush_period_ms(config: TopicConfig) -> int:
    """The longest time that a log's records may stay only in memory; FOREVER: no limit."""
    if config.kafkalog_durability == "interval":
        return min(config.flush_ms, config.kafkalog_durability_interval_ms)
    return config.flush_ms


def compresses(config: TopicConfig) -> bool:
    """Whether the topic has a codec of its own for what is appended."""
    return config.compression_type not in ("producer", "uncompressed")


def configure(log: "Log", config: TopicConfig) -> None:
    """Let an open log obey `config` from its next append on.

    Raises: Closed.
    """
    check(lib.kl_log_configure(log._c, log_config(config)))
    log.config = config
    log._max_decompressed = config.kafkalog_max_decompressed_bytes
    log._compresses = compresses(config)
