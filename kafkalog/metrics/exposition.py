"""Readings as Prometheus and OpenMetrics take them, through prometheus_client."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kafkalog.errors import MissingPackage
from kafkalog.metrics.metric import Histogram, Kind, Metric, Readings, Sample

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

__all__ = ["families", "page", "required"]

_TOTAL = "_total"
_UNREADABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
"""Clients choose names of groups, and more.  Prometheus's reader takes a NUL for the end of the
text, and surrogates have no UTF-8."""
_ESCAPED = re.compile(r"\\x[0-9a-f]{2}|\\ud[89a-f][0-9a-f]{2}")
"""Escapes as they are written for them."""


def required(wanted_for: str) -> Any:
    """prometheus_client; `wanted_for`: the thing that needs it.

    Raises: MissingPackage.
    """
    try:
        import prometheus_client
        import prometheus_client.core
        import prometheus_client.exposition
    except ImportError:
        raise MissingPackage(
            f'{wanted_for} needs prometheus-client: pip install "kafkalog[metrics]"'
        ) from None
    return prometheus_client


def families(readings: Readings) -> Iterator[Family]:
    """The readings as a collector of prometheus_client yields them."""
    for metric, samples in readings.families():
        yield _family(metric, samples)


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    from prometheus_client import core

    text, names = metric.text, metric.labels
    if metric.kind is Kind.COUNTER:
        counts = core.CounterMetricFamily(metric.name.removesuffix(_TOTAL), text, labels=names)
        for labels, value in samples:
            assert not isinstance(value, Histogram)
            counts.add_metric(_texts(labels), value)
        return counts
    if metric.kind is Kind.GAUGE:
        values = core.GaugeMetricFamily(metric.name, text, labels=names)
        for labels, value in samples:
            assert not isinstance(value, Histogram)
            values.add_metric(_texts(labels), value)
        return values
    histograms = core.HistogramMetricFamily(metric.name, text, labels=names)
    for labels, value in samples:
        assert isinstance(value, Histogram)
        buckets, count = [], 0
        for bound, more in zip((*map(str, value.bounds), "+Inf"), value.counts, strict=True):
            count += more
            buckets.append((bound, float(count)))
        histograms.add_metric(_texts(labels), buckets, value.total)
    return histograms


def _texts(labels: Mapping[str, str]) -> list[str]:
    """The values of labels, with escapes for what a reader could not take."""
    return [_escaped(text) for text in labels.values()]


def _escaped(text: str) -> str:
    """The text; with an escape, or what looks like one, its backslashes are doubled: no other text
    becomes the same."""
    if not _UNREADABLE.search(text) and not _ESCAPED.search(text):
        return text
    return _UNREADABLE.sub(lambda one: ascii(one[0])[1:-1], text.replace("\\", "\\\\"))


class _Once:
    """A registry with the readings of one moment."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Family]:
        """As of a collector."""
        return families(self._readings)


def page(readings: Readings, accept: str) -> tuple[str, bytes]:
    """The content type and the text that a client with this Accept header wants."""
    encode, content_type = required("/metrics").exposition.choose_encoder(accept)
    return content_type, encode(_Once(readings))
