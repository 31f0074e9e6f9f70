"""The settings of metrics that clients send (KIP-714): a broker's, and those of a subscription."""

from __future__ import annotations

from kafkalog.config.declare import Flag, Long, Settings, Whole, Words

__all__ = ["SELECTORS", "ClientMetricsConfig", "SubscriptionSettings"]

SELECTORS = (
    "client_instance_id", "client_id", "client_software_name", "client_software_version",
    "client_source_address", "client_source_port",
)  # fmt: skip
"""The properties of a client that `match` can compare."""


class ClientMetricsConfig(Settings):
    """Those of a broker, which it takes with its own."""

    scope = "broker"

    telemetry_max_bytes = Whole(
        1_048_576,
        "Bytes of metrics in one push of a client, compressed as well as decompressed.",
        unit="bytes",
        low=1,
    )
    kafkalog_client_metrics_enable = Flag(
        True,
        "Receive the metrics that clients send. false: the requests for it are not announced, as "
        "by Kafka without a receiver.",
    )
    kafkalog_client_metrics_max_series = Whole(
        500, "Series kept of one client; more of them only count.", low=0, high=100_000
    )
    kafkalog_client_metrics_max_bytes = Long(
        32 << 20,
        "Approximate memory for the series of all clients; above it, new ones only count.",
        unit="bytes",
        low=0,
    )
    kafkalog_metrics_max_clients = Whole(
        20,
        "Clients whose own metrics are shown next to the broker's; 0: none.",
        low=0,
        high=16_384,
    )


class SubscriptionSettings(Settings):
    """Those of a subscription, a resource of Kafka's type CLIENT_METRICS."""

    scope = "client metrics"

    interval_ms = Whole(
        300_000, "Time between two pushes of a client.", unit="ms", low=100, high=3_600_000
    )
    match = Words(
        (),
        "The clients, by NAME=PATTERN: a client must fit each NAME. None: all clients.",
        pattern=rf"({'|'.join(SELECTORS)})\s*=[^=]*[^=\s][^=]*",
        repeats=True,
        example=f"NAME=PATTERN with one of {', '.join(SELECTORS)}",
    )
    metrics = Words(
        (),
        "The beginnings of the metrics' names; *: all metrics. None: no metrics.",
        pattern=r".+",
        repeats=True,
        example="beginnings of names",
    )
