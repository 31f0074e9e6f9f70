"""The records of `__transaction_state`: kafkalog.wire.records, docs/format.md."""

from __future__ import annotations

from itertools import groupby

from kafkalog.coordinator.step import JournalRecord
from kafkalog.coordinator.transactions.transaction import State, Status
from kafkalog.types import TopicPartition
from kafkalog.wire.records import TRANSACTIONS

__all__ = ["key_of", "loaded_id", "loaded_status", "status_record"]

KIND = "TransactionLog"
FLEXIBLE_SINCE = 1
"""The first level of transaction.version that writes values in version 1, whose tagged fields hold
what transaction version 2 needs."""


def key_of(transactional_id: str) -> bytes:
    """The key of a transactional id's record."""
    return TRANSACTIONS.encode_key(KIND, {"transactional_id": transactional_id})


def status_record(transactional_id: str, status: Status, level: int) -> JournalRecord:
    """A status in its written form; `level`: of the feature transaction.version."""
    version = 1 if level >= FLEXIBLE_SINCE else 0
    topics = [
        {"topic": topic, "partition_ids": [one.partition for one in found]}
        for topic, found in groupby(sorted(status.partitions), key=lambda one: one.topic)
    ]
    fields = {
        "producer_id": status.producer_id,
        "producer_epoch": status.epoch,
        "transaction_timeout_ms": status.timeout_ms,
        "transaction_status": int(status.state),
        # Kafka requires null while nothing is open, and otherwise a list, even an empty one.
        "transaction_partitions": None if status.state is State.EMPTY else topics,
        "transaction_last_update_timestamp_ms": status.updated_ms,
        "transaction_start_timestamp_ms": status.start_ms,
    }
    if version >= 1:
        fields |= {
            "previous_producer_id": status.previous_id,
            "next_producer_id": status.next_id,
            "client_transaction_version": status.version,
        }
    return key_of(transactional_id), TRANSACTIONS.encode_value(KIND, version, fields)


def loaded_id(key: bytes) -> str | None:
    """The transactional id of a record; None if the record's kind is unknown."""
    name, _, fields = TRANSACTIONS.decode_key(key)
    return str(fields.transactional_id) if name == KIND else None


def loaded_status(value: bytes) -> Status:
    """A status from its record.

    Raises: InvalidRequest, UnsupportedVersion, ValueError.
    """
    version, fields = TRANSACTIONS.decode_value(KIND, value)
    status = Status(
        producer_id=fields.producer_id,
        epoch=fields.producer_epoch,
        timeout_ms=fields.transaction_timeout_ms,
        state=State(fields.transaction_status),
        partitions=frozenset(
            TopicPartition(one.topic, number)
            for one in fields.transaction_partitions or ()
            for number in one.partition_ids
        ),
        start_ms=fields.transaction_start_timestamp_ms,
        updated_ms=fields.transaction_last_update_timestamp_ms,
    )
    if version < 1:
        return status
    return status._replace(
        previous_id=fields.previous_producer_id,
        next_id=fields.next_producer_id,
        version=fields.client_transaction_version,
    )
