"""The settings that every client has, by the names of Kafka's clients."""

from kafkalog.config.declare import Flag, Whole, Word
from kafkalog.config.login import LoginSettings
from kafkalog.config.ssl import SslSettings

__all__ = ["SECURITY_PROTOCOLS", "ClientConfig"]

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class ClientConfig(SslSettings, LoginSettings):
    """How a client reaches brokers, and how patient it is."""

    scope = "client"

    client_id = Word("kafkalog", "The name in the brokers' logs.")
    connections_max_idle_ms = Whole(
        540_000,
        "Time after which an unused connection is closed; -1: never.",
        unit="ms",
        low=-1,
    )
    enable_metrics_push = Flag(
        True, "Producers and consumers send their metrics to brokers that ask for them (KIP-714)."
    )
    metadata_recovery_strategy = Word(
        "rebootstrap",
        "rebootstrap: a client that reaches none of the brokers it knows starts "
        "again with bootstrap.servers; none: it fails.",
        choices=("rebootstrap", "none"),
    )
    metadata_recovery_rebootstrap_trigger_ms = Whole(
        300_000, "Time without metadata after which it starts again, too.", unit="ms", low=0
    )
    reconnect_backoff_ms = Whole(
        50, "The first wait before connecting again to a broker that could not be reached.",
        unit="ms", low=0,
    )  # fmt: skip
    reconnect_backoff_max_ms = Whole(1_000, "The longest.", unit="ms", low=0)
    request_timeout_ms = Whole(30_000, "For one answer.", unit="ms", low=1)
    retry_backoff_ms = Whole(100, "The first wait before a retry.", unit="ms", low=0)
    retry_backoff_max_ms = Whole(1_000, "The longest.", unit="ms", low=0)
    socket_connection_setup_timeout_ms = Whole(10_000, "For a connection.", unit="ms", low=1)
    security_protocol = Word(
        "PLAINTEXT",
        "How connections are protected: PLAINTEXT, SSL (TLS), SASL_PLAINTEXT (a login), SASL_SSL "
        "(both).",
        choices=SECURITY_PROTOCOLS,
        fold=str.upper,
    )
