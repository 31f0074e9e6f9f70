"""The figures of a leader's share groups, for its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.shares.partition import Acknowledgement, AckType

__all__ = ["Figures", "PartitionFigures", "Place", "count_acks"]


class Place(NamedTuple):
    """A share partition, as people name it."""

    group: str
    topic: str
    partition: int


class PartitionFigures(NamedTuple):
    """A share partition."""

    offsets: int
    """In flight."""
    ranges: int
    expired: int
    """Records whose locks have ended."""


class Figures(NamedTuple):
    """The state at one moment, and counts since the start."""

    sessions: int
    partitions: int
    """Those of all sessions."""
    bytes: int
    acks: Mapping[AckType, int]
    places: Mapping[Place, PartitionFigures]


def count_acks(counts: Counter[AckType], one: Acknowledgement) -> None:
    """Count the records of an acknowledgement."""
    size = one.last - one.first + 1
    for kind in one.types:
        counts[AckType(kind)] += size if len(one.types) == 1 else 1
