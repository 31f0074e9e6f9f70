"""How far a stream is behind, from its progress as Spark reports it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import BadOption
from .options import Key
from .stream.offsets import from_json


@dataclass(frozen=True)
class Lag:
    """Offsets that existed and were not read yet at the time of the progress."""

    each: Mapping[Key, int]
    """By topic and partition."""

    @property
    def total(self) -> int:
        """The sum over all partitions."""
        return sum(self.each.values())

    @property
    def largest(self) -> int:
        """The largest of a partition: the Kafka source's maxOffsetsBehindLatest."""
        return max(self.each.values(), default=0)

    @property
    def smallest(self) -> int:
        """minOffsetsBehindLatest."""
        return min(self.each.values(), default=0)

    @property
    def average(self) -> float:
        """avgOffsetsBehindLatest."""
        return self.total / len(self.each) if self.each else 0.0


def lag(progress: Any) -> Lag:
    """The lag from a progress: `query.lastProgress`, or that of a listener's event.

    Spark does not name the sources of a progress: those count whose offsets are of topics and
    partitions, the Kafka source's, too.  None, which is what a query has at first, is no lag.  A
    partition that the query has not begun counts from offset 0.
    """
    each: dict[Key, int] = {}
    for source in _sources(progress):
        latest, end = (_offsets(source, name) for name in ("latestOffset", "endOffset"))
        for key, offset in latest.items():
            each[key] = each.get(key, 0) + max(0, offset - end.get(key, 0))
    return Lag(each)


def _sources(progress: Any) -> list[Any]:
    return list(_field(progress, "sources") or ()) if progress is not None else []


def _offsets(source: Any, name: str) -> Mapping[Key, int]:
    found = _field(source, name)
    try:
        return from_json(json.loads(found) if isinstance(found, str) else found).at
    except (BadOption, ValueError):  # none yet, or of another kind
        return {}


def _field(one: Any, name: str) -> Any:
    return one.get(name) if isinstance(one, Mapping) else getattr(one, name)
