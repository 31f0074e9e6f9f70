"""About how much memory groups take."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "GROUP_BYTES",
    "expected_bytes",
    "member_bytes",
    "offset_bytes",
]

GROUP_BYTES, MEMBER_BYTES, EXPECTED_BYTES, OFFSET_BYTES = 2_500, 1_500, 700, 400
"""What one of each takes besides its texts, its timer included; an id that was given out and has
not joined yet is expected.  Measured, and rounded up."""


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
