"""The arguments of a request, checked, and its refusal."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["Asked", "Refused", "text_of", "whole_of"]

NAME_CHARS_MAX = 1_000
INT64_MAX = (1 << 63) - 1


class Refused(Exception):
    """A request that gets an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        """The status of HTTP."""


class Asked:
    """The fields of a query."""

    def __init__(self, fields: Mapping[str, str], gone: threading.Event | None = None) -> None:
        """`gone`: set when nobody waits for the answer any more."""
        self._fields = fields
        self._gone = gone

    @property
    def abandoned(self) -> bool:
        """True if nobody waits for the answer any more: work that takes long ends."""
        return self._gone is not None and self._gone.is_set()

    def text(self, name: str, default: str | None = None, most: int = NAME_CHARS_MAX) -> str:
        """A text of at most so many characters.  Raises: Refused."""
        return text_of(self._fields, name, default, most)

    def one_of(self, name: str, words: Collection[str], default: str) -> str:
        """One of these words.  Raises: Refused."""
        found = self.text(name, default)
        if found not in words:
            raise Refused(400, f"{name}: found {found[:40]!r}, wanted one of {', '.join(words)}")
        return found

    def whole(self, name: str, default: int, low: int = 0, high: int = INT64_MAX) -> int:
        """An integer.  Raises: Refused."""
        found = self._fields.get(name, "")
        if not found:
            return default
        try:
            number = int(found) if len(found) <= 20 else None
        except ValueError:
            number = None
        return whole_of({name: number if number is not None else found[:40]}, name, low, high)

    def flag(self, name: str) -> bool:
        """True for 1.  Raises: Refused."""
        return self.one_of(name, ("0", "1"), "0") == "1"


def text_of(
    given: Mapping[str, Any], name: str, default: str | None = None, most: int = NAME_CHARS_MAX
) -> str:
    """A text of a request.  Raises: Refused: it is missing (and has no default), too long,
    or has half a character (a lone surrogate, which JSON allows)."""
    found = given.get(name, default)
    if not isinstance(found, str):
        raise Refused(400, f"{name}: wanted a text")
    if len(found) > most:
        raise Refused(400, f"{name}: found {len(found)} characters, wanted up to {most}")
    if any("\ud800" <= one <= "\udfff" for one in found):
        raise Refused(400, f"{name}: found a lone surrogate, wanted whole characters")
    return found


def whole_of(given: Mapping[str, Any], name: str, low: int = 0, high: int = INT64_MAX) -> int:
    """An integer of a request.  Raises: Refused."""
    found = given.get(name)
    if type(found) is not int or not low <= found <= high:
        raise Refused(400, f"{name}: found {str(found)[:40]!r}, wanted {low} to {high}")
    return found
