"""Where the partitions of a read are, and how a range of one is read.

`Place` is the interface for planning (batch and stream) and for tasks; `open_place` opens the one
that the options name: a `directory`, or `brokers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..options import Key, ReadOptions
from ..plan import Ends, Marks, Range
from .piece import Piece

__all__ = ["Piece", "Place", "open_place"]


class Place(Protocol):
    """Topic-partitions that can be read.  One thread; it keeps what it opens, up to a limit.

    Methods about many partitions leave out deleted ones; `told_gone` is the message for
    these.
    """

    @property
    def name(self) -> str:
        """For messages: a path, or servers."""

    def present(self) -> list[Key]:
        """Every topic-partition that exists now, including those that were never written.

        Raises: BadOption if the place does not exist.
        """

    def identities(self, keys: Sequence[Key]) -> dict[Key, str]:
        """The identity of each, which a later one of the same name does not have: its topic's id or
        such.

        Ask for it before the ends: then these are never taken for those of a later one.
        """

    def ends(self, keys: Sequence[Key]) -> dict[Key, Ends]:
        """The readable offsets of each now.  Cheap enough to call many times a second."""

    def at_times(self, times_ms: Mapping[Key, int]) -> dict[Key, int | None]:
        """The first offset at or after a time in ms since 1970, or the first with the largest time
        (LARGEST); None: there is none.
        """

    def marks(self, ranges: Sequence[Range], options: ReadOptions) -> dict[Key, Marks]:
        """Where batches begin in a range, and about how many bytes are between them."""

    def piece(self, there: Range, identity: str) -> Piece:
        """A range in the form that a task gets."""

    def read(self, piece: Piece, columns: Sequence[str], options: ReadOptions) -> Iterator[Any]:
        """The records of a piece as `pyarrow.RecordBatch`es, columns in the order asked for.

        With failOnDataLoss false, missing records are left out, with a warning.

        Raises: DataLoss, ReadError; both name the partition, the offsets and this host.
        """

    def told_gone(self, key: Key) -> str:
        """A message about a partition that was deleted while the read was planned."""

    def close(self) -> None:
        """Close what is open.  Idempotent."""


def open_place(options: ReadOptions) -> Place:
    """The place that the options name.  Nothing is read yet."""
    if options.servers is not None:
        from .brokers import Brokers

        return Brokers(options.servers, options.isolation, options.client, options.retries)
    from .directory import Directory

    assert options.path is not None  # one of the two is
    return Directory(options.path, options.isolation)
