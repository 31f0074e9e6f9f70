"""The last values of many series, in bounded memory: 16 bytes for each value."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from kafkalog.watch.view import View

__all__ = ["BYTES_PER_S", "LAG", "RECORDS_PER_S", "History", "Point", "Series"]

RECORDS_PER_S, BYTES_PER_S, LAG = "records_per_s", "bytes_per_s", "lag"


class Series(NamedTuple):
    """A series: of a topic, of a group, or of the whole cluster."""

    kind: str
    """cluster, topic or group."""
    name: str
    """Empty: the cluster."""
    value: str
    """RECORDS_PER_S, BYTES_PER_S or LAG."""


class Point(NamedTuple):
    """A value at a moment."""

    at_ms: int
    value: float


class _Ring:
    """The last points of one series."""

    def __init__(self) -> None:
        self.at_ms = array("q")
        self.values = array("d")

    def add(self, at_ms: int, value: float, most: int) -> None:
        self.at_ms.append(at_ms)
        self.values.append(value)
        del self.at_ms[:-most], self.values[:-most]


class History:
    """The last `length` points of at most `series_max` series.  One thread only.

    When there is no room for a new series, one that the last view did not have gives way; if there
    is none either, the new one is not kept.  The cluster's come first, then groups', then topics'.
    """

    def __init__(self, length: int = 360, series_max: int = 2_000) -> None:
        """At most 16 bytes × length × series_max, about 12 MB, and the names."""
        self._length = length
        self._series_max = series_max
        self._rings: dict[Series, _Ring] = {}
        self._stale: dict[Series, None] = {}
        """Series without a point of the last view, the longest without one first."""

    def __len__(self) -> int:
        return len(self._rings)

    def add(self, view: View) -> None:
        """Keep the values of a view."""
        stale = self._stale
        fresh = set()
        for series, value in _values(view):
            stale.pop(series, None)
            if series not in self._rings:
                if len(self._rings) >= self._series_max:
                    oldest = next(iter(stale), None)
                    if oldest is None:
                        continue
                    del stale[oldest], self._rings[oldest]
                self._rings[series] = _Ring()
            self._rings[series].add(view.at_ms, value, self._length)
            fresh.add(series)
        stale.update(dict.fromkeys(one for one in self._rings if one not in fresh))

    def points(self, kind: str, name: str, value: str) -> list[Point]:
        """A series, the oldest point first; empty if it is not kept."""
        ring = self._rings.get(Series(kind, name, value))
        return [] if ring is None else list(map(Point, ring.at_ms, ring.values))


def _values(view: View) -> Iterator[tuple[Series, float]]:
    """The known values of a view."""
    whole = (RECORDS_PER_S, view.totals.records_per_s), (BYTES_PER_S, view.totals.bytes_per_s)
    found: list[tuple[Series, float | None]] = [(Series("cluster", "", n), v) for n, v in whole]
    found.append((Series("cluster", "", LAG), view.totals.lag))
    for group in view.groups:
        found.append((Series("group", group.name, LAG), group.lag))
        found.append((Series("group", group.name, RECORDS_PER_S), group.per_s))
    for topic in view.topics:
        found.append((Series("topic", topic.name, RECORDS_PER_S), topic.records_per_s))
        found.append((Series("topic", topic.name, BYTES_PER_S), topic.bytes_per_s))
    return ((series, value) for series, value in found if value is not None)
