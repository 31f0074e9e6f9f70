"""About how much memory is taken: what clients can make a coordinator keep is bounded in sum."""

from __future__ import annotations

__all__ = ["Weight"]


class Weight:
    """A sum of bytes, which counts in the sum above it."""

    __slots__ = ("bytes", "within")

    def __init__(self, within: Weight | None = None) -> None:
        self.bytes = 0
        self.within = within

    def add(self, count: int) -> None:
        """Take `count` bytes more; fewer if it is negative."""
        self.bytes += count
        if self.within is not None:
            self.within.add(count)

    def move(self, within: Weight | None) -> None:
        """Count in another sum from now on, or in none."""
        if self.within is not None:
            self.within.add(-self.bytes)
        self.within = within
        if within is not None:
            within.add(self.bytes)
