"""Offsets with values, kept as ranges: neighbours with equal values are one range."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

__all__ = ["Range", "Ranges"]

V = TypeVar("V")


class Range(Generic[V]):
    """Offsets from `first` to `last`, both included, that have the same value; never changed.

    No NamedTuple, as that cannot be generic before CPython 3.11.
    """

    __slots__ = ("first", "last", "value")

    def __init__(self, first: int, last: int, value: V) -> None:
        self.first = first
        self.last = last
        self.value = value

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.last - self.first + 1


class Ranges(Generic[V]):
    """Disjoint ranges in the order of their offsets; offsets without a value are in none.

    A change costs the ranges that it touches, and a move of those behind them in memory.
    """

    __slots__ = ("_firsts", "_ranges", "offsets")

    def __init__(self) -> None:
        self.offsets = 0
        """How many offsets have a value."""
        self._firsts: list[int] = []
        self._ranges: list[Range[V]] = []

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[Range[V]]:
        return iter(self._ranges)

    def __getitem__(self, index: int) -> Range[V]:
        return self._ranges[index]

    def before(self, offset: int) -> Range[V] | None:
        """The last range that begins at `offset` or below."""
        at = bisect_right(self._firsts, offset)
        return self._ranges[at - 1] if at else None

    def between(self, first: int, last: int) -> list[Range[V]]:
        """The ranges that have offsets from `first` to `last`, whole."""
        low, high = self._touched(first, last)
        return self._ranges[low:high]

    def _touched(self, first: int, last: int) -> tuple[int, int]:
        low = bisect_right(self._firsts, first)
        if low and self._ranges[low - 1].last >= first:
            low -= 1
        return low, max(low, bisect_right(self._firsts, last))

    def change(self, first: int, last: int, change: Callable[[V], V]) -> list[Range[V]]:
        """Give the offsets from `first` to `last` that have a value another one; returns those
        that have another one now."""
        low, high = self._touched(first, last)
        found: list[Range[V]] = []
        changed: list[Range[V]] = []
        for one in self._ranges[low:high]:
            if one.first < first:
                found.append(Range(one.first, first - 1, one.value))
            new = Range(max(one.first, first), min(one.last, last), change(one.value))
            found.append(new)
            if new.value != one.value:
                changed.append(new)
            if one.last > last:
                found.append(Range(last + 1, one.last, one.value))
        if changed:
            self._splice(low, high, found)
        return changed

    def put(self, first: int, last: int, value: V) -> None:
        """Give all offsets from `first` to `last` this value."""
        low, high = self._touched(first, last)
        found: list[Range[V]] = []
        if low < high and self._ranges[low].first < first:
            found.append(Range(self._ranges[low].first, first - 1, self._ranges[low].value))
        found.append(Range(first, last, value))
        if low < high and self._ranges[high - 1].last > last:
            found.append(Range(last + 1, self._ranges[high - 1].last, self._ranges[high - 1].value))
        self._splice(low, high, found)

    def cut(self, offset: int) -> None:
        """Forget all offsets below this one."""
        at = bisect_left(self._firsts, offset)
        if at and self._ranges[at - 1].last >= offset:
            at -= 1
            self.offsets -= offset - self._firsts[at]
            one = self._ranges[at]
            self._ranges[at] = Range(offset, one.last, one.value)
            self._firsts[at] = offset
        self.offsets -= _size(self._ranges[:at])
        del self._ranges[:at], self._firsts[:at]

    def clear(self) -> None:
        """Forget all."""
        self.offsets = 0
        self._ranges.clear()
        self._firsts.clear()

    def _splice(self, low: int, high: int, found: list[Range[V]]) -> None:
        """Replace the ranges from `low` to before `high`, and join equal neighbours."""
        self.offsets += _size(found) - _size(self._ranges[low:high])
        begin, end = max(low - 1, 0), high + 1
        parts = [*self._ranges[begin:low], *found, *self._ranges[high:end]]
        joined: list[Range[V]] = []
        for one in parts:
            if joined and joined[-1].last + 1 == one.first and joined[-1].value == one.value:
                joined[-1] = Range(joined[-1].first, one.last, one.value)
            else:
                joined.append(one)
        self._ranges[begin:end] = joined
        self._firsts[begin:end] = [one.first for one in joined]


def _size(ranges: Iterable[Range[Any]]) -> int:
    size = 0
    for one in ranges:
        size += one.last - one.first + 1
    return size
