"""About how much memory groups take: what clients can make a coordinator keep is bounded in sum."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "GROUP_BYTES",
    "Weight",
    "expected_bytes",
    "member_bytes",
    "offset_bytes",
]

GROUP_BYTES, MEMBER_BYTES, EXPECTED_BYTES, OFFSET_BYTES = 2_500, 1_500, 700, 400
"""What one of each takes beside its texts, its timer included; an id that was given out and has
not joined yet is expected.  Measured, and rounded up."""


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


def member_bytes(
    names: Iterable[str | None], said: Iterable[tuple[str, bytes]], assignment: bytes
) -> int:
    """What a member takes of these names that said this of its protocols."""
    texts = sum(len(name) for name in names if name)
    texts += sum(len(name) + len(data) for name, data in said)
    return MEMBER_BYTES + texts + len(assignment)


def expected_bytes(member_id: str) -> int:
    """What an id takes that was given out."""
    return EXPECTED_BYTES + len(member_id)


def offset_bytes(metadata: str) -> int:
    """What a committed offset with this text takes."""
    return OFFSET_BYTES + len(metadata)
