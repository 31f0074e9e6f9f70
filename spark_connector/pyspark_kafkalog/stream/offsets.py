"""Where a stream stands, as its checkpoint keeps it.  Pure.

The JSON is that of Spark's Kafka source, `{"orders":{"0":23}}`: 23 is the offset read next.  Beside
the topics it has `@ids`, which no topic can be named: the id of each topic that has one.  So a
stream that comes back after its topic was deleted and made anew knows it, whatever the offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import BadOption
from ..options import Key

IDS = "@ids"


@dataclass(frozen=True)
class Offsets:
    """The next offset of each topic-partition, and the ids of their topics as far as known."""

    at: Mapping[Key, int]
    ids: Mapping[str, str] = field(default_factory=dict)

    def same_topic(self, other: Offsets, topic: str) -> bool:
        """False when the topic was made anew between the two."""
        mine, theirs = self.ids.get(topic), other.ids.get(topic)
        return mine is None or theirs is None or mine == theirs


def to_json(offsets: Offsets) -> dict[str, Any]:
    """What Spark writes down.  Always in the same order, since Spark compares the text."""
    found: dict[str, Any] = {}
    if offsets.ids:
        found[IDS] = {topic: offsets.ids[topic] for topic in sorted(offsets.ids)}
    for (topic, partition), offset in sorted(offsets.at.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(found: Any) -> Offsets:
    """The offsets of a checkpoint, ours or one of Spark's Kafka source.

    Raises: BadOption.
    """
    at: dict[Key, int] = {}
    ids: dict[str, str] = {}
    try:
        for topic, each in found.items():
            if topic == IDS:
                ids = {name: str(known) for name, known in each.items()}
                continue
            for partition, offset in each.items():
                at[topic, int(partition)] = int(offset)
    except (AttributeError, TypeError, ValueError):
        raise BadOption(
            f'checkpoint: found the offsets {found!r}, wanted some like {{"orders":{{"0":23}}}}: '
            "it is of a query with another source"
        ) from None
    return Offsets(at, ids)
