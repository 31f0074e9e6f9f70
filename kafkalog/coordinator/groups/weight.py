"""Estimates how much memory groups take."""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = [
    "GROUP_BYTES",
    "expected_bytes",
    "member_bytes",
    "offset_bytes",
    "topics_bytes",
]

GROUP_BYTES, MEMBER_BYTES, EXPECTED_BYTES, OFFSET_BYTES = 2_500, 1_500, 700, 400
PROTOCOL_BYTES, TOPIC_BYTES = 200, 140
"""Memory of one item besides its strings, including its timer and any handed-out id that has not
joined yet.  Measured, and rounded up."""


def member_bytes(
    names: Iterable[str | None], said: Iterable[tuple[str, bytes]], assignment: bytes
) -> int:
    """Memory of a member with these names and this metadata for its protocols."""
    texts = sum(len(name) for name in names if name)
    texts += sum(PROTOCOL_BYTES + len(name) + len(data) for name, data in said)
    return MEMBER_BYTES + texts + len(assignment)


def topics_bytes(topics: Collection[str] | None) -> int:
    """Memory of the topics to which a group's members subscribe."""
    return sum(TOPIC_BYTES + len(topic) for topic in topics or ())


def expected_bytes(member_id: str) -> int:
    """Memory of a handed-out id."""
    return EXPECTED_BYTES + len(member_id)


def offset_bytes(metadata: str) -> int:
    """Memory of a committed offset with this metadata string."""
    return OFFSET_BYTES + len(metadata)
