"""How a node's replicas fetch from their leaders."""

from __future__ import annotations

from typing import NamedTuple

from kafkalog.config.server import ServerConfig
from kafkalog.replication.throttle import Quota, Throttle

__all__ = ["FetcherOptions", "fetcher_options"]

IDS_VERSION_MAX = 17
"""The highest version of Fetch with topic ids that a leader is asked for."""


class FetcherOptions(NamedTuple):
    """How much to fetch, and how long to wait; Kafka's settings of replica.fetch.*."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    response_bytes: int = 10 << 20
    partition_bytes: int = 1 << 20
    backoff_ms: int = 1_000
    version_max: int = IDS_VERSION_MAX
    throttle: Throttle | None = None
    """The partitions that are throttled."""


def fetcher_options(config: ServerConfig) -> FetcherOptions:
    """The options that a broker's settings give."""
    return FetcherOptions(
        max_wait_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        response_bytes=config.replica_fetch_response_max_bytes,
        partition_bytes=config.replica_fetch_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
        throttle=Throttle(
            Quota(config.replication_quota_window_num, config.replication_quota_window_size_seconds)
        ),
    )
