"""The settings of a consumer or an administrator as their parts take them."""

from __future__ import annotations

from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.link.transport import Options, options_of
from kafkalog.client.login.security import security_of
from kafkalog.client.login.tokens import TokenSource
from kafkalog.config.admin import AdminConfig
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.config.share_consumer import ShareConsumerConfig

__all__ = ["client_options", "fetch_options", "heartbeat_options"]

ATTEMPTS = 3
"""How many unanswered requests fit into a session."""


def client_options(
    config: AdminConfig | ConsumerConfig | ShareConsumerConfig, token: TokenSource | None = None
) -> Options:
    """Timeouts, backoffs and security.  `token`: gives OAUTHBEARER's tokens.

    Raises: InvalidSetting.
    """
    return options_of(config, config.default_api_timeout_ms, security_of(config, token))


def heartbeat_options(config: ConsumerConfig) -> Options:
    """Timeouts of heartbeats, which leave time to connect to a new coordinator; no security."""
    options = options_of(config, config.default_api_timeout_ms)
    patience_ms = max(1, config.session_timeout_ms // ATTEMPTS)
    return options._replace(
        request_timeout_ms=min(options.request_timeout_ms, patience_ms),
        connect_timeout_ms=min(options.connect_timeout_ms, patience_ms),
    )


def fetch_options(config: ConsumerConfig) -> FetchOptions:
    """How much to fetch, and where to continue if the offset is out of range."""
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
