"""How many things one request may name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from kafkalog.wire import api

__all__ = ["names_max", "portions"]

T = TypeVar("T")


def names_max() -> int:
    """So many; a broker of ours refuses a request that names more."""
    return api.REQUEST_NAMES_MAX


def portions(things: Sequence[T]) -> Iterator[Sequence[T]]:
    """The things, a request's at a time; once, without any, when there are none."""
    most = names_max()
    for first in range(0, max(len(things), 1), most):
        yield things[first : first + most]
