"""Loads the states of share partitions from a partition of `__share_group_state`."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog.coordinator.journal import JournalBatch, StoredRecord
from kafkalog.coordinator.share_state.records import change_of, key_of
from kafkalog.coordinator.share_state.shard import ShareStateShard
from kafkalog.errors import KafkalogError
from kafkalog.logs.limit import limited

__all__ = ["load"]

LOG = limited(__name__)


def load(shard: ShareStateShard, batches: Iterable[JournalBatch]) -> None:
    """Load an empty shard from its journal.

    A record that cannot be read is logged and skipped.
    """
    for batch in batches:
        for record in batch.records:
            try:
                _take(shard, record)
            except KafkalogError as error:
                _skip(shard, record.offset, error)
    for where, entry in shard.entries.items():
        entry.weigh(where)


def _take(shard: ShareStateShard, record: StoredRecord) -> None:
    found = None if record.key is None else key_of(record.key)
    if found is None:
        _skip(shard, record.offset, "no share partition")
        return
    where, kind = found
    shard.replay(where, change_of(kind, record.value), record.offset)


def _skip(shard: ShareStateShard, offset: int, why: object) -> None:
    LOG.warning("__share_group_state-%d: offset %d: %s", shard.partition, offset, why)
