"""How many names one request may have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from kafkalog.wire import api

__all__ = ["names_max", "portions"]

T = TypeVar("T")


def names_max() -> int:
    """The limit; a broker of ours refuses a request with more names."""
    return api.REQUEST_NAMES_MAX


def portions(things: Sequence[T]) -> Iterator[Sequence[T]]:
    """Slices of at most `names_max` things; a single empty one if there are none."""
    most = names_max()
    for first in range(0, max(len(things), 1), most):
        yield things[first : first + most]
