"""Records on their way into the metadata log: data for a driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog.metadata.image import Broker, MetadataImage

__all__ = [
    "OWN_OFFSET", "Append", "ChangeKraftVersion", "MetadataRecord", "MetadataRecords",
    "live_brokers",
]  # fmt: skip

MetadataRecord = tuple[str, Mapping[str, Any]]
"""A record's name and fields."""
OWN_OFFSET = object()
"""A field's value: the offset that the record gets, which only its append decides."""


class MetadataRecords(NamedTuple):
    """A step's wish to write these."""

    records: Sequence[MetadataRecord]
    atomic: bool = True
    """All or none; otherwise, if they are too many for one batch, perhaps only the first ones."""


class Append(NamedTuple):
    """Append these to the metadata log, all or none; the result is the image once they are
    committed, or NotActive."""

    number: int
    records: Sequence[MetadataRecord]


class ChangeKraftVersion(NamedTuple):
    """Raise kraft.version, which belongs to Raft; the result is an error code and a message (None:
    it is done), or NotActive."""

    number: int
    level: int


def live_brokers(image: MetadataImage) -> dict[int, Broker]:
    """The registered brokers that are not fenced."""
    return {number: one for number, one in image.brokers.items() if not one.fenced}
