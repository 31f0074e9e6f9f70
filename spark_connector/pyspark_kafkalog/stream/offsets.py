"""A stream's position in the form that its checkpoint keeps.  Pure.

The JSON is that of Spark's Kafka source, `{"orders":{"0":23}}`: 23 is the offset to read next.  In
addition to topics it has two names that no topic can have.  `@ids` is the id of each topic that has
one: so a stream that resumes after its topic was recreated notices it, whatever the
offsets.  `@start`, only in the end of batch 0, is where that batch began: Spark does not store it,
and asks again after a crash, when the logs may begin elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import BadOption
from ..options import Key

IDS, START = "@ids", "@start"


@dataclass(frozen=True)
class Offsets:
    """The next offset of each topic-partition, and the ids of their topics as far as known."""

    at: Mapping[Key, int]
    ids: Mapping[str, str] = field(default_factory=dict)
    began: Mapping[Key, int] = field(default_factory=dict)
    """In the end of batch 0: the offsets at which it starts."""

    def same_topic(self, other: Offsets, topic: str) -> bool:
        """False if the topic was recreated between the two."""
        mine, theirs = self.ids.get(topic), other.ids.get(topic)
        return mine is None or theirs is None or mine == theirs


def to_json(offsets: Offsets) -> dict[str, Any]:
    """The text that Spark stores.  Always in the same order, since Spark compares it."""
    found: dict[str, Any] = {}
    if offsets.ids:
        found[IDS] = {topic: offsets.ids[topic] for topic in sorted(offsets.ids)}
    if offsets.began:
        found[START] = _by_topic(offsets.began)
    return found | _by_topic(offsets.at)


def _by_topic(at: Mapping[Key, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(at.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(found: Any) -> Offsets:
    """The offsets of a checkpoint, ours or one of Spark's Kafka source.

    Raises: BadOption.
    """
    try:
        ids = {name: str(known) for name, known in found.get(IDS, {}).items()}
        return Offsets(_by_key(found), ids, _by_key(found.get(START, {})))
    except (AttributeError, TypeError, ValueError):
        raise BadOption(
            f'checkpoint: found the offsets {found!r}, wanted some like {{"orders":{{"0":23}}}}: '
            "it is of a query with another source"
        ) from None


def _by_key(found: Mapping[str, Any]) -> dict[Key, int]:
    return {
        (topic, int(partition)): int(offset)
        for topic, each in found.items()
        if topic not in (IDS, START)
        for partition, offset in each.items()
    }
