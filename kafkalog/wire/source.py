"""Generated Python source, which remembers the fields of each line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Part", "Source", "packer"]


class Part(NamedTuple):
    """A field that a line decodes or encodes; a line may have several of fixed size."""

    name: str
    end: int = 0
    """Where it ends, in bytes from the line's `pos`; 0 if its size is not fixed."""
    letter: str = ""
    """Format letter of `struct`, when its size is fixed."""


class Source:
    """The functions of one codec: lines are added, then compiled at once."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.file = f"<{title}>"
        self.lines: list[str] = []
        self.parts: dict[int, list[Part]] = {}
        """The fields of each line, by line number."""
        self.indexed: set[str] = set()
        """Functions whose local `i` is an index of their array."""
        self.names: dict[str, Any] = {}
        """Names for the functions besides the helpers: classes, packers, defaults."""
        self.rows: dict[str, str] = {}
        """The functions that encode the structs of the message's own arrays, by field."""
        self.arrays = 0
        """Arrays of the message, each with its own limit for all its elements."""

    def add(self, depth: int, text: str, *parts: Part) -> None:
        """A line, or several, for these fields."""
        for line in text.splitlines():
            self.lines.append("    " * depth + line)
            if parts:
                self.parts[len(self.lines)] = list(parts)

    def name(self, prefix: str, value: Any) -> str:
        """A name for a value that the functions use; the same for the same value."""
        for known, other in self.names.items():
            if other is value and known.startswith(prefix):
                return known
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def compile(self, helpers: dict[str, Any], main: str) -> Callable[..., Any]:
        """The function `main` of the finished source."""
        space = {**helpers, **self.names}
        exec(compile("\n".join(self.lines), self.file, "exec"), space)
        function: Callable[..., Any] = space[main]
        self.names = space
        return function


def packer(prefix: str, letters: str) -> str:
    """A name for the `struct` function of these letters."""
    return f"{prefix}_{letters.replace('?', 'o')}"
