"""Where the partitions of a read are, and how a range of one is read.

`Place` is what planning (batch and stream) and tasks ask; `open_place` makes the one that the
options name: a `directory`, or `brokers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..options import Key, ReadOptions
from ..plan import Ends, Marks, Range
from .piece import Piece

__all__ = ["Piece", "Place", "open_place"]


class Place(Protocol):
    """Topic-partitions that can be read.  One thread; it keeps what it opens, up to a bound.

    Methods about many partitions leave out of their answer those that have gone; `told_gone`
    is the sentence for these.
    """

    @property
    def name(self) -> str:
        """For messages: a path, or servers."""

    def present(self) -> list[Key]:
        """Every topic-partition that is there now, also those that were never written to.

        Raises: BadOption when there is no such place.
        """

    def identities(self, keys: Sequence[Key]) -> dict[Key, str]:
        """What tells each from one that has its name later: the topic's id, or something like it.

        Ask before the ends: then these are never taken for those of a later one.
        """

    def ends(self, keys: Sequence[Key]) -> dict[Key, Ends]:
        """What can be read of each now.  Made to be asked many times a second."""

    def at_times(self, times_ms: Mapping[Key, int]) -> dict[Key, int | None]:
        """The first offset at or after a time in ms since 1970, or the first with the largest time
        (LARGEST); None: there is none.
        """

    def marks(self, ranges: Sequence[Range], options: ReadOptions) -> dict[Key, Marks]:
        """Where batches begin in what is to be read, and about how many bytes lie between."""

    def piece(self, there: Range, identity: str) -> Piece:
        """A range as a task gets it."""

    def read(self, piece: Piece, columns: Sequence[str], options: ReadOptions) -> Iterator[Any]:
        """The records of a piece as `pyarrow.RecordBatch`es, columns in the order asked for.

        With failOnDataLoss false what has gone is left out, and a warning says so.

        Raises: DataLoss, ReadError; both name the partition, the offsets and this host.
        """

    def told_gone(self, key: Key) -> str:
        """A sentence for a partition that went while the read was planned."""

    def close(self) -> None:
        """Let go of what is open; harmless when repeated."""


def open_place(options: ReadOptions) -> Place:
    """The place that the options name.  Nothing is looked at yet."""
    if options.servers is not None:
        from .brokers import Brokers

        return Brokers(options.servers, options.isolation, options.client, options.retries)
    from .directory import Directory

    assert options.path is not None  # one of the two is
    return Directory(options.path, options.isolation)
