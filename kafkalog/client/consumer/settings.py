"""A consumer's settings, and an administrator's, as their parts want them."""

from __future__ import annotations

from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.link.transport import Options, options_of
from kafkalog.config.admin import AdminConfig
from kafkalog.config.consumer import ConsumerConfig

__all__ = ["client_options", "fetch_options", "heartbeat_options"]

ATTEMPTS = 3
"""So many requests that nobody answers fit into a session."""


def client_options(config: AdminConfig | ConsumerConfig) -> Options:
    """How patient it is."""
    return options_of(config, config.default_api_timeout_ms)


def heartbeat_options(config: ConsumerConfig) -> Options:
    """How patient heartbeats are: there is time for another connection, to the next coordinator."""
    options = client_options(config)
    patience_ms = max(1, config.session_timeout_ms // ATTEMPTS)
    return options._replace(
        request_timeout_ms=min(options.request_timeout_ms, patience_ms),
        connect_timeout_ms=min(options.connect_timeout_ms, patience_ms),
    )


def fetch_options(config: ConsumerConfig) -> FetchOptions:
    """How much it fetches, and where it goes on."""
    reset = config.auto_offset_reset
    return FetchOptions(
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        partition_bytes=config.max_partition_fetch_bytes,
        committed=config.isolation_level == "read_committed",
        out_of_range="error" if reset == "none" else reset,
        check_crcs=config.check_crcs,
        rack=config.client_rack,
        nearer_s=config.metadata_max_age_ms / 1000,
    )
