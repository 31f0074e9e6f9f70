"""The metrics of a broker's clients, as a program reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kafkalog.telemetry.instances import Kept

__all__ = ["PushedMetric", "PushedMetrics", "pushed_of"]


class PushedMetric(NamedTuple):
    """The last value of one series."""

    name: str
    """As the client calls it: org.apache.kafka.producer.record.send.total."""
    labels: Mapping[str, str]
    value: float
    grows: bool
    """True: a count, since this broker first heard of it; False: a value as it is now."""


class PushedMetrics(NamedTuple):
    """One client that sends metrics, and what it has sent."""

    client_instance_id: UUID
    client_id: str
    software_name: str
    software_version: str
    address: str
    interval_ms: int
    """Time between two pushes."""
    silent_ms: float
    """Time since its last request about metrics."""
    metrics: tuple[PushedMetric, ...]


def pushed_of(kept: Kept) -> PushedMetrics:
    """A client's metrics, in the order of their names and labels."""
    return PushedMetrics(
        kept.client.instance_id, kept.client.client_id, kept.client.software_name,
        kept.client.software_version, kept.client.address, kept.interval_ms, kept.silent_ms,
        tuple(PushedMetric(name, dict(labels), series.value, series.grows)
              for (name, labels), series in sorted(kept.series.items())),
    )  # fmt: skip
