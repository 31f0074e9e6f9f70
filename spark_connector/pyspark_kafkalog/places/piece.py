"""A range on its way to a task."""

from __future__ import annotations

from dataclasses import dataclass

from ..plan import Range


class ReadError(RuntimeError):
    """A task could not read its range."""


@dataclass(frozen=True)
class Piece:
    """A range as a task reads it.  Plain values only: it travels to the executors."""

    range: Range
    identity: str
    """Of the partition: a task does not read another one of the same name."""
    folder: str = ""
    """Where it lies; brokers know by themselves."""
