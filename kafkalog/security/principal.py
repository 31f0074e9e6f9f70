"""The sender of requests."""

from typing import NamedTuple

__all__ = ["ANONYMOUS", "Principal"]


class Principal(NamedTuple):
    """A principal as Kafka names it: type and name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The sender on a listener without authentication."""
