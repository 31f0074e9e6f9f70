"""How a request names many topics and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from kafkalog.wire import api

__all__ = ["by_topic", "names_max", "portions", "topic_rows"]

T = TypeVar("T")


def names_max() -> int:
    """The limit; a broker of ours refuses a request with more names."""
    return api.REQUEST_NAMES_MAX


def portions(things: Sequence[T]) -> Iterator[Sequence[T]]:
    """Slices of at most `names_max` things; a single empty one if there are none."""
    most = names_max()
    for first in range(0, max(len(things), 1), most):
        yield things[first : first + most]


def by_topic(partitions: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """The numbers of partitions, or a row for each, by topic, in order."""
    topics: dict[str, list[T]] = {}
    for topic, one in partitions:
        topics.setdefault(topic, []).append(one)
    return topics


def topic_rows(
    partitions: Iterable[tuple[str, object]], topic: str = "name", rows: str = "partitions"
) -> list[dict[str, Any]]:
    """As `by_topic`, as rows of a request with these two fields."""
    return [{topic: name, rows: some} for name, some in by_topic(partitions).items()]
