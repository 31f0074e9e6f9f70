"""A producer's settings as its parts take them."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog.arguments import mapping
from kafkalog.batch import codecs
from kafkalog.client.buffer.accumulator import Bounds
from kafkalog.client.link.transport import Options, options_of
from kafkalog.client.login.security import security_of
from kafkalog.client.login.tokens import TokenSource
from kafkalog.client.producer.identity import Identity
from kafkalog.client.producer.sender import SendOptions
from kafkalog.client.producer.transaction_calls import Transactional
from kafkalog.config.producer import ACKS, ProducerConfig

__all__ = ["bounds", "client_options", "identity_of", "send_options", "settings_of"]

REQUEST_BYTES = 1 << 20
"""Bytes of batches in a request; a larger batch goes alone."""


def settings_of(
    config: Mapping[str, object] | None, named: Mapping[str, object | None]
) -> ProducerConfig:
    """`config`, overridden by the named arguments (None: not given).

    Raises: UnknownSetting, InvalidSetting, ArgumentError.
    """
    given = {name: value for name, value in named.items() if value is not None}
    if "acks" in given:
        given["acks"] = str(given["acks"])
    return ProducerConfig.of({**mapping("config", config or {}), **given})


def identity_of(settings: ProducerConfig) -> Identity:
    """The identity that the settings give a producer."""
    if settings.transactional_id:
        return Transactional(settings.transactional_id, settings.transaction_timeout_ms)
    return Identity(wanted=settings.enable_idempotence and ACKS[settings.acks] == -1)


def client_options(settings: ProducerConfig, token: TokenSource | None = None) -> Options:
    """Timeouts, backoffs and security.  `token`: gives OAUTHBEARER's tokens.

    Raises: InvalidSetting.
    """
    options = options_of(settings, settings.max_block_ms, security_of(settings, token))
    return options._replace(storage_timeout_ms=settings.kafkalog_storage_timeout_ms)


def send_options(settings: ProducerConfig) -> SendOptions:
    """How batches are sent."""
    codec = codecs.codec_id(settings.compression_type)
    levels = {
        1: settings.compression_gzip_level,
        3: settings.compression_lz4_level,
        4: settings.compression_zstd_level,
    }
    return SendOptions(
        acks=ACKS[settings.acks],
        codec=codec,
        level=levels.get(codec),
        in_flight=settings.max_in_flight_requests_per_connection,
        request_bytes=min(settings.max_request_size, REQUEST_BYTES),
        delivery_s=settings.delivery_timeout_ms / 1000,
        retries=settings.retries,
        metadata_s=settings.metadata_max_age_ms / 1000,
        metadata_idle_s=settings.metadata_max_idle_ms / 1000,
        adaptive=settings.partitioner_adaptive_partitioning_enable,
        availability_s=settings.partitioner_availability_timeout_ms / 1000,
    )


def bounds(settings: ProducerConfig) -> Bounds:
    """How much may wait."""
    return Bounds(
        batch_bytes=min(settings.batch_size, settings.max_request_size),
        buffer_bytes=settings.buffer_memory,
        linger_s=settings.linger_ms / 1000,
    )
