"""A mirror's progress, as records of a compacted topic of the target."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.mirror.spans import SPANS_MAX, Span
from kafkalog.types import Record, TopicPartition

__all__ = ["CONFIG", "PREFIX", "Progress", "key_of", "progress_of", "value_of"]

PREFIX = "kafkalog-mirror."
"""The prefix of mirrors' own topics, which are not mirrored."""
CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    # The active segment is not compacted, and is read whole at each start.
    "segment.bytes": str(16 << 20),
    "compression.type": "producer",
}
VERSION = 1


class Progress(NamedTuple):
    """The progress of a partition."""

    topic_id: str
    """The source topic's id; empty if the source has none."""
    position: int
    """The next offset of the source to copy."""
    spans: tuple[Span, ...]


def key_of(tp: TopicPartition) -> bytes:
    """The record's key for a partition of the source."""
    return json.dumps({"topic": tp.topic, "partition": tp.partition}).encode()


def value_of(progress: Progress) -> bytes:
    """A few kilobytes at most."""
    return json.dumps({"version": VERSION, **progress._asdict()}, separators=(",", ":")).encode()


def progress_of(records: Iterable[Record], topic: str) -> dict[TopicPartition, Progress]:
    """The last record of each partition in `topic`.

    Raises: BadAnswer for a record that no mirror wrote.
    """
    found: dict[TopicPartition, Progress] = {}
    for record in records:
        try:
            key = json.loads(record.key or b"")
            tp = TopicPartition(_text(key["topic"]), _number(key["partition"]))
            if record.value is None:
                found.pop(tp, None)
                continue
            found[tp] = _progress(json.loads(record.value))
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise errors.BadAnswer(
                f"topic {topic!r} of the target, offset {record.offset}: found a record that no "
                f"mirror of this version wrote ({problem}), wanted how far a partition is copied; "
                "give the mirror another name"
            ) from None
    return found


def _progress(value: Any) -> Progress:
    if value["version"] != VERSION:
        raise ValueError(f"version {value['version']!r}")
    rows = value["spans"]
    if not isinstance(rows, list) or len(rows) > SPANS_MAX:
        raise ValueError("spans")
    spans = tuple(Span(*map(_number, row)) for row in rows)
    if any(a.source > b.source or a.target > b.target for a, b in pairwise(spans)):
        raise ValueError("spans out of order")
    return Progress(_text(value["topic_id"]), _number(value["position"]), spans)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r}")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise TypeError(f"{value!r}")
    return value
