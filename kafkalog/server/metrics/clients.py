"""Reads the metrics that clients have sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalog.disk.layout import uuid_text

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalog.metrics.metric import Readings
    from kafkalog.server.client_telemetry import ClientTelemetry
    from kafkalog.server.metrics.labels import Labels

__all__ = ["read_clients"]

_COUNTS = {
    "unknown-subscription-request": "unknown_subscription_request_total",
    "throttle": "throttle_total",
    "plugin-export": "plugin_export_total",
    "plugin-error": "plugin_error_total",
}
_SEPARATORS = re.compile(r"[\\,=]")
_METRICS = "kafka_server_client_metrics_"


def read_clients(readings: Readings, telemetry: ClientTelemetry, labels: Labels[UUID]) -> None:
    """Read the receiver's counts, and the last values of some clients."""
    counts = telemetry.counts()
    readings.add(f"{_METRICS}instance_count", counts["instance-count"])
    for key, name in _COUNTS.items():
        readings.add(_METRICS + name, counts.get(key, 0))
    readings.add("kafkalog_client_series_left_out_total", counts.get("series-left-out", 0))
    shown = labels.shown(telemetry.senders())
    for one in telemetry.clients(shown):
        software = f"{one.software_name} {one.software_version}"
        for metric in one.metrics:
            readings.add(
                "kafkalog_client_count_total" if metric.grows else "kafkalog_client_value",
                metric.value, client_instance_id=uuid_text(one.client_instance_id),
                client_id=one.client_id, software=software, metric=metric.name,
                attributes=_attributes(metric.labels),
            )  # fmt: skip


def _attributes(labels: Mapping[str, str]) -> str:
    """A series' own labels as one text, which differs for different labels."""
    return ",".join(f"{_escaped(name)}={_escaped(text)}" for name, text in labels.items())


def _escaped(text: str) -> str:
    return _SEPARATORS.sub(r"\\\g<0>", text)
