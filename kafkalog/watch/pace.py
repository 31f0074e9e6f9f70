"""How much of a cluster a round asks for.

Whole parts, such as the list of topics, take longer in a larger cluster: each is asked again only
after nine times as long as its last answer took.  Things that are asked one by one, such as the
offsets of partitions, are asked in slices: first those that the caller wants, then the others in
turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from kafkalog.types import TopicPartition

__all__ = ["IDLE_SHARE", "Budget", "next_at_s", "next_slice"]

T = TypeVar("T", str, TopicPartition)

IDLE_SHARE = 9
"""A part rests for this many times as long as it took."""


class Budget(NamedTuple):
    """The most that one round asks for, next to the parts that come whole."""

    partitions: int = 10_000
    """Partitions whose offsets are asked: a request for each leader."""
    groups: int = 50
    """Groups that are described: a request for each one's offsets, a few for all members."""
    transactions: int = 100
    """Ongoing transactions that are described."""


def next_at_s(asked_s: float, now_s: float) -> float:
    """When a part that was asked at `asked_s` and answered now is due again."""
    return now_s + IDLE_SHARE * max(0.0, now_s - asked_s)


def next_slice(
    every: Sequence[T], wanted: Iterable[T], last: T | None, most: int
) -> tuple[list[T], T | None]:
    """At most `most` things: those `wanted`, then those of `every`, which is sorted, after `last`.

    Also returns the new `last`, from which the next round continues.
    """
    chosen = dict.fromkeys(islice(wanted, most))
    first = 0 if last is None else bisect_right(every, last)
    for step in range(len(every)):
        if len(chosen) >= most:
            break
        last = every[(first + step) % len(every)]
        chosen[last] = None
    return list(chosen), last
