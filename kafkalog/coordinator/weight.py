"""Approximate memory: the total that clients can make a coordinator keep is bounded."""

from __future__ import annotations

__all__ = ["Weight"]


class Weight:
    """A sum of bytes, which is part of the sum above it."""

    __slots__ = ("bytes", "within")

    def __init__(self, within: Weight | None = None) -> None:
        self.bytes = 0
        self.within = within

    def add(self, count: int) -> None:
        """Add `count` bytes; negative: remove them."""
        self.bytes += count
        if self.within is not None:
            self.within.add(count)

    def move(self, within: Weight | None) -> None:
        """Become part of another sum from now on, or of none."""
        if self.within is not None:
            self.within.add(-self.bytes)
        self.within = within
        if within is not None:
            within.add(self.bytes)
