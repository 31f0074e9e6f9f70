"""Topics as a coordinator of consumer groups sees them, and their hash in its records.

Source: Kafka's coordinator.group.Utils.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import pack
from typing import NamedTuple
from uuid import UUID

from kafkalog.coordinator.xxh3 import xxh3_64

__all__ = ["NO_TOPICS", "Topic", "Topics", "group_hash", "topic_hash"]

MAGIC = 0
"""The version of what is hashed."""


class Topic(NamedTuple):
    """A topic."""

    id: UUID
    partition_count: int
    hash: int


class Topics(NamedTuple):
    """Looks up topics in the metadata of this moment."""

    topic: Callable[[str], Topic | None]
    name_of: Callable[[UUID], str | None]
    version: Callable[[], int]
    """The offset of the metadata."""
    new_topics_version: Callable[[], int]
    """The offset of the last metadata that brought a topic."""


NO_TOPICS = Topics(lambda _name: None, lambda _id: None, lambda: 0, lambda: 0)


def topic_hash(name: str, topic_id: UUID, racks: Sequence[Iterable[str]]) -> int:
    """The hash of a topic; `racks`: those of each partition's replicas, in the order of the
    partitions."""
    high, low = topic_id.int >> 64, topic_id.int & (1 << 64) - 1
    parts = [pack("<bQQ", MAGIC, high, low), _text(name), pack("<i", len(racks))]
    for number, some in enumerate(racks):
        parts.append(pack("<i", number))
        for rack in sorted(some):
            parts += (pack("<i", _units(rack)), _text(rack))
    return xxh3_64(b"".join(parts))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _text(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + pack("<i", _units(text))


def group_hash(names: Iterable[str], topics: Topics) -> int:
    """The hash of these topics, as far as they exist; 0 if none does."""
    found = [one.hash for one in map(topics.topic, sorted(names)) if one is not None]
    return xxh3_64(pack(f"<{len(found)}Q", *found)) if found else 0
