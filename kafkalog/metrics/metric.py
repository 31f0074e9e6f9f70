"""How a metric is declared, and the readings of metrics at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

__all__ = ["OTHERS", "Histogram", "Kind", "Metric", "Readings", "Sample", "counter", "gauge",
           "histogram"]  # fmt: skip

OTHERS = "(others)"
"""The label of whatever has no label of its own, summed; no topic and no partition has this
name."""


class Kind(Enum):
    """The values are Prometheus's names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric."""

    name: str
    """As in Prometheus's text; that of a counter ends with `_total`."""
    kind: Kind
    unit: str
    """The unit of its values; empty: a number of things."""
    labels: tuple[str, ...]
    """A sample has all of them or none; without labels it is the sum of all."""
    text: str
    """The meaning."""
    remedy: str
    """How to act on a bad value; empty: no value is bad in itself."""
    kafka: str
    """Kafka's MBean with the same meaning; empty: Kafka has none."""


def counter(name: str, unit: str, labels: Sequence[str], text: str, remedy: str = "",
            kafka: str = "") -> Metric:  # fmt: skip
    """A count since the start."""
    return Metric(name, Kind.COUNTER, unit, tuple(labels), text, remedy, kafka)


def gauge(name: str, unit: str, labels: Sequence[str], text: str, remedy: str = "",
          kafka: str = "") -> Metric:  # fmt: skip
    """A value as it is now."""
    return Metric(name, Kind.GAUGE, unit, tuple(labels), text, remedy, kafka)


def histogram(name: str, unit: str, labels: Sequence[str], text: str, remedy: str = "",
              kafka: str = "") -> Metric:  # fmt: skip
    """How many measurements since the start were up to which bound."""
    return Metric(name, Kind.HISTOGRAM, unit, tuple(labels), text, remedy, kafka)


class Histogram(NamedTuple):
    """The measurements of a histogram."""

    bounds: tuple[float, ...]
    """The upper bounds of the buckets, inclusive; one more bucket has none."""
    counts: tuple[int, ...]
    """Measurements in each bucket; not cumulative."""
    total: float
    """The sum of all measurements."""


class Sample(NamedTuple):
    """A value, and its labels by name."""

    labels: Mapping[str, str]
    value: float | Histogram


class Readings:
    """The samples of each metric, in the order of the table.  One thread at a time."""

    def __init__(self, table: Iterable[Metric]) -> None:
        """`table`: the metrics that there are; nothing is read yet."""
        self._metrics = {one.name: one for one in table}
        self._samples: dict[str, list[Sample]] = {}

    def add(self, name: str, value: float | Histogram, **labels: str) -> None:
        """Add a sample of a metric of the table."""
        metric = self._metrics[name]
        assert not labels or tuple(labels) == metric.labels, f"{name}: {tuple(labels)}"
        assert isinstance(value, Histogram) == (metric.kind is Kind.HISTOGRAM), name
        self._samples.setdefault(name, []).append(Sample(labels, value))

    def merge(self, other: Readings) -> None:
        """Add the samples of others of the same table; those with equal labels are summed."""
        for name, samples in other._samples.items():
            mine = {tuple(one.labels.values()): one for one in self._samples.get(name, ())}
            for one in samples:
                key = tuple(one.labels.values())
                known = mine.get(key)
                mine[key] = one if known is None else Sample(one.labels, _sum(known, one))
            self._samples[name] = [*mine.values()]

    def families(self) -> list[tuple[Metric, list[Sample]]]:
        """Each metric that was read, with its samples."""
        return [(one, self._samples[one.name]) for one in self._metrics.values()
                if one.name in self._samples]  # fmt: skip

    def flat(self) -> dict[str, float]:
        """Values by name and labels, as in Prometheus's text: `name{topic="t"}`; of a histogram its
        `_count` and `_sum`."""
        found: dict[str, float] = {}
        for metric, samples in self.families():
            for labels, value in samples:
                shown = ",".join(f'{name}="{text}"' for name, text in labels.items())
                end = f"{{{shown}}}" if shown else ""
                if isinstance(value, Histogram):
                    found[f"{metric.name}_count{end}"] = float(sum(value.counts))
                    found[f"{metric.name}_sum{end}"] = value.total
                else:
                    found[metric.name + end] = float(value)
        return found


def _sum(one: Sample, other: Sample) -> float | Histogram:
    a, b = one.value, other.value
    if isinstance(a, Histogram) and isinstance(b, Histogram):
        counts = tuple(x + y for x, y in zip(a.counts, b.counts, strict=True))
        return Histogram(a.bounds, counts, a.total + b.total)
    assert not isinstance(a, Histogram) and not isinstance(b, Histogram)
    return a + b
