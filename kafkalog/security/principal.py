"""The sender of requests."""

from typing import NamedTuple

__all__ = ["ANONYMOUS", "Principal", "parse_principal"]


class Principal(NamedTuple):
    """A principal as Kafka names it: type and name."""

    type: str
    name: str
    by_token: bool = False
    """True if it authenticated by a delegation token.  ACLs do not see the difference."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The sender on a listener without authentication."""


def parse_principal(text: str) -> Principal:
    """A principal as records have it: `User:alice`; what has no type is a user's name."""
    kind, colon, name = text.partition(":")
    return Principal(kind, name) if colon else Principal("User", text)
