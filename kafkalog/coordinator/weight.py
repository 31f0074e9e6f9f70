"""Approximate memory: the total that clients can make a coordinator keep is bounded."""

from __future__ import annotations

from sys import getsizeof
from typing import Any
from uuid import UUID

from kafkalog.wire.values import Struct

__all__ = ["Weight", "kept_bytes", "text_bytes"]

ROUNDED_TO, SPARE_BYTES = 16, 8
"""An allocation takes a multiple of this many bytes; a named tuple has room for one item more than
it says."""
WIDE_BYTES, WIDER_BYTES = 4, 32
"""Memory of a character of a text that is not all ASCII, at most, and what else such a text takes
more than others."""


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


def text_bytes(text: str | None) -> int:
    """Memory of a text beyond that of an empty one, at most: one character that is not ASCII makes
    all of them wider.  It is always the same for the same text."""
    if not text:
        return 0
    return len(text) if text.isascii() else WIDE_BYTES * len(text) + WIDER_BYTES


def kept_bytes(*roots: Any) -> int:
    """Memory of decoded messages and what was made of them, with all that is in them."""
    found, left, seen = 0, list(roots), set()
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        found += (getsizeof(one) + SPARE_BYTES + ROUNDED_TO - 1) // ROUNDED_TO * ROUNDED_TO
        if isinstance(one, (str, bytes, int)):
            continue
        if isinstance(one, Struct):
            one = one.__dict__
            found += getsizeof(one)
        if isinstance(one, dict):
            left += one.keys()
            left += one.values()
        elif isinstance(one, (tuple, list, set, frozenset)):
            left += one
        elif isinstance(one, UUID):
            left.append(one.int)
    return found
