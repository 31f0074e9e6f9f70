"""The identity of a node's directory in a KRaft cluster."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

__all__ = ["Identity"]


class Identity(NamedTuple):
    """A node's directory."""

    cluster_id: str
    node: int
    directory_id: UUID
