"""Loads transactional ids from a partition of __transaction_state: the last record of each counts.
Source: Kafka's TransactionStateManager.loadTransactionMetadata."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kafkalog.coordinator.journal import JournalBatch
from kafkalog.coordinator.step import Step, all_of
from kafkalog.coordinator.transactions.records import loaded_id, loaded_status
from kafkalog.coordinator.transactions.shard import TransactionShard
from kafkalog.coordinator.transactions.transaction import State, Transaction
from kafkalog.errors import KafkalogError
from kafkalog.logs.limit import limited

__all__ = ["load", "resume"]

LOG = limited(__name__)


def load(shard: TransactionShard, batches: Iterable[JournalBatch]) -> None:
    """Load an empty shard from its journal.  Touches no timer; see resume.

    A record that cannot be read is logged and skipped.
    """
    values: dict[str, tuple[int, bytes]] = {}
    for batch in batches:
        for record in batch.records:
            try:
                name = None if record.key is None else loaded_id(record.key)
            except KafkalogError as error:
                _skip(shard, record.offset, error)
                continue
            if name is None:
                _skip(shard, record.offset, "no transactional id")
            elif record.value is None:
                values.pop(name, None)
            else:
                values[name] = record.offset, record.value
    for name, (offset, value) in values.items():
        try:
            status = loaded_status(value)
        except (KafkalogError, ValueError) as error:
            _skip(shard, offset, error)
            continue
        if status.state is not State.DEAD:  # Kafka writes a tombstone instead
            one = Transaction(name, status)
            one.recorded = True
            shard.put(one)


def _skip(shard: TransactionShard, offset: int, why: object) -> None:
    LOG.warning("__transaction_state-%d: offset %d: %s", shard.partition, offset, why)


def resume(shard: TransactionShard, step: Step) -> None:
    """Resume what the journal says is in progress: send markers of decided ends, and give open
    transactions the rest of their time."""
    all_of(partial(shard.take, step, one, one.status) for one in shard.ids.values())
