"""A client's metrics as the payload of a push, under the names that KIP-714 gives them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kafkalog.batch import codecs
from kafkalog.client.metrics import Tally, group_of
from kafkalog.client.telemetry.core import Asked
from kafkalog.telemetry.otlp import Kind, Point, encode
from kafkalog.telemetry.subscriptions import wants

__all__ = ["Figures", "Payloads", "Reading", "of_owner"]

PREFIX = "org.apache.kafka."
TOTAL, RATE = "-total", "-rate"
LATENCY = "node-request-latency"
CONNECTIONS = "connection-creation"
"""The one standard metric that is a rate, too."""


class Figures(NamedTuple):
    """The metrics of a client now."""

    values: Mapping[str, float]
    """As its metrics() has them."""
    nodes: Mapping[int, Tally]
    """Times from a request to its answer, in ms, by node."""


class Reading(NamedTuple):
    """How the metrics of a client are read."""

    figures: Callable[[], Figures]
    labels: Callable[[], Mapping[str, str]] = dict
    """Labels of all its metrics; those without a text are left out."""


def of_owner(owner: Any) -> Reading:
    """Read them by `_figures` and `_labels` of a client, which the thread that sends them does not
    keep alive."""
    here = weakref.ref(owner)

    def figures() -> Figures:
        one = here()
        found: Figures = Figures({}, {}) if one is None else one._figures()
        return found

    def labels() -> Mapping[str, str]:
        one = here()
        found: Mapping[str, str] = {} if one is None else one._labels()
        return found

    return Reading(figures, labels)


class Payloads:
    """The payloads of one client: counts are sent as increases.  One thread at a time."""

    def __init__(self, kind: str, reading: Reading, now_ms: int) -> None:
        """`kind`: producer, consumer, consumer-share or admin-client."""
        self._kind = kind
        self._reading = reading
        self._start_ms = self._last_ms = now_ms
        self._sent: dict[str, float] = {}
        self._before = self._sent, self._last_ms
        """Those before the last payload."""

    def make(self, asked: Asked, now_ms: int) -> bytes | None:
        """The payload, compressed; None: it is larger than the broker takes.  The next one has the
        increases since this one, even if nobody knows what became of it; see `refused`."""
        figures = self._reading.figures()
        seconds = max((now_ms - self._last_ms) / 1000, 0.001)
        points = [one for one in self._points(figures, seconds, asked.delta)
                  if wants(asked.metrics, one.name)]  # fmt: skip
        start_ms = self._last_ms if asked.delta else self._start_ms
        self._before = self._sent, self._last_ms
        self._last_ms = now_ms
        self._sent = {name: value for name, value in figures.values.items() if _counts(name)}
        resource = {name: text for name, text in self._reading.labels().items() if text}
        data = codecs.compress(asked.codec, encode(points, resource, start_ms, now_ms))
        return data if len(data) <= asked.max_bytes else None

    def refused(self) -> None:
        """The broker has not counted the last payload: the next one has its increases, too."""
        self._sent, self._last_ms = self._before

    def _points(self, figures: Figures, seconds: float, delta: bool) -> Iterator[Point]:
        for name, value in figures.values.items():
            full = self._name(name)
            if not _counts(name):
                yield Point(full, (), Kind.GAUGE, value)
                continue
            more = value - self._sent.get(name, 0.0)
            yield Point(full, (), Kind.DELTA if delta else Kind.TOTAL, more if delta else value)
            if name == CONNECTIONS + TOTAL:
                yield Point(self._name(CONNECTIONS + RATE), (), Kind.GAUGE, more / seconds)
        for node, times in sorted(figures.nodes.items()):
            labels = (("node_id", str(node)),)
            for name, value in ((f"{LATENCY}-avg", times.avg), (f"{LATENCY}-max", times.most)):
                yield Point(self._name(name), labels, Kind.GAUGE, value)

    def _name(self, name: str) -> str:
        """A metric's name: Kafka's group and name, joined by points."""
        group = group_of(self._kind, name).removesuffix("-metrics")
        return f"{PREFIX}{group}.{name}".replace("-", ".")


def _counts(name: str) -> bool:
    return name.endswith(TOTAL)
