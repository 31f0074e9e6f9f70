"""Logs that are replicas: a leader sets their high watermark."""

from __future__ import annotations

from pathlib import Path

from kafkalog.batch.walk import whole_batches
from kafkalog.config.topic import TopicConfig
from kafkalog.disk.checkpoint import DirectoryState
from kafkalog.log.handle import Handle
from kafkalog.log.log import Log, handle_of, log_over
from kafkalog.log.opening import open_plan
from kafkalog.log.owner import LoneOwner
from kafkalog.types import TopicPartition


def open_copy(folder: Path, config: dict[str, object] | None = None) -> Log:
    """The log in its own folder, `topic-0`, created if missing."""
    topic, _, number = folder.name.rpartition("-")
    tp = TopicPartition(topic, int(number))
    state = DirectoryState(str(folder), "w", create=True, own=True)
    state.copied = True
    plan = open_plan(state, tp, TopicConfig.of(config))
    return log_over(Handle(str(folder), plan, LoneOwner(state)))


def append_alone(folder: Path, *runs: tuple[int, int], what: bytes = b"alone") -> None:
    """Append records that no leader has: (leader epoch, count) each, one batch a record."""
    with Log(folder) as log:
        for epoch, count in runs:
            handle_of(log).lead(epoch)
            for _ in range(count):
                log.append(what)


def batches_in(folder: Path, start: int = 0, stop: int | None = None) -> list[bytes]:
    """The bytes of each batch from `start` up to `stop`, segment by segment."""
    found = []
    for segment in sorted(folder.glob("*.log")):
        for batch, data in whole_batches(segment.read_bytes()):
            if batch.base_offset >= start and (stop is None or batch.last_offset < stop):
                found.append(bytes(data))
    return found
