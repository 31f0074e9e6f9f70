"""A mirror's state, as records of a compacted topic of the target."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.mirror.spans import SPANS_MAX, Span
from kafkalog.types import Record, TopicPartition

__all__ = [
    "CONFIG", "NEVER", "OWNER_KEY", "PREFIX", "STATES_BYTES_MAX", "Cut", "Owner", "Progress",
    "State", "key_of", "owner_value", "take", "value_of",
]  # fmt: skip

PREFIX = "kafkalog-mirror."
"""The prefix of mirrors' own topics, which are not mirrored."""
CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    # The active segment is not compacted, and is read whole at each start.
    "segment.bytes": str(16 << 20),
    "compression.type": "producer",
}
VERSION = 2
VERSION_MIN = 1
"""Version 1 has no leader epochs, no names of copies and no owner."""
CLUSTERS_MAX = 64
VALUE_BYTES_MAX = 128 << 10
"""For a key and its value: longer ones are no mirror's."""
STATES_BYTES_MAX = 256 << 20
"""For the keys and values of all partitions that a mirror reads: about 100,000 partitions."""
OWNER_KEY = b'{"owner": true}'


class Cut(NamedTuple):
    """An accepted loss of the source: its log was truncated."""

    offset: int
    """Where the log diverged from the records copied before."""
    epoch: int
    """The leader epoch of the last record copied before; -1: no loss, or not known."""


NEVER = Cut(0, -1)


class Progress(NamedTuple):
    """The progress of a partition."""

    topic_id: str
    """The source topic's id; empty if the source has none."""
    position: int
    """The next offset of the source to copy."""
    spans: tuple[Span, ...]
    """Empty: its copy is about to be created."""
    epoch: int = -1
    """The leader epoch of the record before the position; -1: not known."""
    copy: str = ""
    """The name of the copy; empty: not known."""
    copy_id: str = ""
    """The copy's topic id; empty: not known."""
    copy_epoch: int = -1
    """The leader epoch of the copy when it was last examined; -1: not known."""
    via: tuple[str, ...] = ()
    """The ids of the clusters that the records came through; the source's is the last."""
    cut: Cut = NEVER
    lost: str = ""
    """Why it is not copied on until the loss is accepted; empty: it is."""

    @property
    def copy_end(self) -> int:
        """The offset in the target after the last copied record, at least."""
        return self.spans[-1].target + self.spans[-1].count if self.spans else 0


class Owner(NamedTuple):
    """The mirror process that writes to the topic."""

    id: str
    """Unique for each run."""
    where: str
    """Its host and process, for people."""


@dataclass
class State:
    """The content of a mirror's topic."""

    progress: dict[TopicPartition, Progress] = field(default_factory=dict)
    """By the source's partitions."""
    owner: Owner | None = None
    spans: bool = True
    """False: progress is kept without spans and losses: enough to recognise copies."""
    bytes: int = field(default=0, compare=False)
    """The size of the keys and values in `progress`."""
    _sizes: dict[TopicPartition, int] = field(default_factory=dict, compare=False, repr=False)

    def put(self, tp: TopicPartition, progress: Progress | None, size: int) -> None:
        """Set a partition's progress, of `size` bytes; None: forget it."""
        self.bytes -= self._sizes.pop(tp, 0)
        if progress is None:
            self.progress.pop(tp, None)
            return
        if not self.spans:
            progress = progress._replace(spans=(), lost="")
        self.progress[tp], self._sizes[tp] = progress, size
        self.bytes += size


def key_of(tp: TopicPartition) -> bytes:
    """The record's key for a partition of the source."""
    return json.dumps({"topic": tp.topic, "partition": tp.partition}).encode()


def value_of(progress: Progress) -> bytes:
    """A few kilobytes at most."""
    return json.dumps({"version": VERSION, **progress._asdict()}, separators=(",", ":")).encode()


def owner_value(owner: Owner) -> bytes:
    """The value of the record with the key OWNER_KEY."""
    return json.dumps({"version": VERSION, **owner._asdict()}).encode()


def take(records: Iterable[Record], topic: str, state: State) -> None:
    """Apply records of `topic`, in their order.

    Raises: BadAnswer for a record that no mirror wrote.
    """
    for record in records:
        try:
            _apply(record, state)
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise errors.BadAnswer(
                f"topic {topic!r}, offset {record.offset}: found a record that no mirror of this "
                f"version wrote ({problem}), wanted the state of a mirror; give the mirror another "
                "name, or delete the topic if its mirror is gone"
            ) from None


def _apply(record: Record, state: State) -> None:
    size = len(record.key or b"") + len(record.value or b"")
    if size > VALUE_BYTES_MAX:
        raise ValueError(f"{size} bytes")
    value = None if record.value is None else json.loads(record.value)
    if value is not None and not VERSION_MIN <= _number(value["version"]) <= VERSION:
        raise ValueError(f"version {value['version']!r}")
    if record.key == OWNER_KEY:
        state.owner = value and Owner(_text(value["id"]), _text(value["where"]))
        return
    key = json.loads(record.key or b"")
    tp = TopicPartition(_text(key["topic"]), _number(key["partition"]))
    state.put(tp, None if value is None else _progress(value), size)


def _progress(value: Any) -> Progress:
    rows = value["spans"]
    if not isinstance(rows, list) or len(rows) > SPANS_MAX:
        raise ValueError("spans")
    spans = tuple(Span(*map(_number, row)) for row in rows)
    if any(a.source > b.source or a.target > b.target for a, b in pairwise(spans)):
        raise ValueError("spans out of order")
    found = Progress(_text(value["topic_id"]), _number(value["position"]), spans)
    if value["version"] == 1:
        return found
    via = value["via"]
    if not isinstance(via, list) or len(via) > CLUSTERS_MAX:
        raise ValueError("via")
    offset, epoch = value["cut"]
    return found._replace(
        epoch=_epoch(value["epoch"]), copy=_text(value["copy"]), copy_id=_text(value["copy_id"]),
        copy_epoch=_epoch(value["copy_epoch"]),
        via=tuple(map(_text, via)), cut=Cut(_number(offset), _epoch(epoch)),
        lost=_text(value["lost"]),
    )  # fmt: skip


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r}")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise TypeError(f"{value!r}")
    return value


def _epoch(value: Any) -> int:
    return -1 if value == -1 else _number(value)
