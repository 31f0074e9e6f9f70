"""The metrics of clients that send theirs (KIP-714)."""

from __future__ import annotations

from kafkalog.metrics.metric import counter, gauge

__all__ = ["CLIENTS"]

_KAFKA = "kafka.server:type=client-metrics,name="
_NAME = "kafka_server_client_metrics_"
_LABELS = ["client_instance_id", "client_id", "software", "metric", "attributes"]
_WHICH = "The client chooses the texts; kafkalog.metrics.max.clients limits the clients, " \
         "kafkalog.client.metrics.max.series the series of each."  # fmt: skip

CLIENTS = (
    gauge(
        f"{_NAME}instance_count",
        "",
        [],
        "Clients that asked for subscriptions or sent metrics, and are not forgotten yet.",
        "",
        f"{_KAFKA}instance-count",
    ),
    counter(
        f"{_NAME}unknown_subscription_request_total",
        "",
        [],
        "Pushes for a subscription that has changed; the client asks for the new one.",
        "",
        f"{_KAFKA}unknown-subscription-request-count",
    ),
    counter(
        f"{_NAME}throttle_total",
        "",
        [],
        "Requests that came before the client's interval was over. Kafka has it by client.",
        "Grows fast: a client does not obey; its address is in broker.client_metrics().",
    ),
    counter(
        f"{_NAME}plugin_export_total",
        "",
        [],
        "Pushes whose metrics were kept. Kafka has it by client.",
        "",
    ),
    counter(
        f"{_NAME}plugin_error_total",
        "",
        [],
        "Pushes whose metrics could not be read, or were too large once decompressed. Kafka "
        "has it by client.",
        "See the broker's log.",
    ),
    counter(
        "kafkalog_client_series_left_out_total",
        "",
        [],
        "Values that clients sent and that are not kept: there are too many series, a text is "
        "too long, or it is a histogram or an impossible count.",
        "Subscribe to fewer metrics, or raise kafkalog.client.metrics.max.series or max.bytes.",
    ),
    gauge("kafkalog_client_value", "", _LABELS, f"The last value of a client's metric. {_WHICH}"),
    counter(
        "kafkalog_client_count_total",
        "",
        _LABELS,
        "A client's count, since this broker first heard of it.",
    ),
)
"""In the order of their page."""
