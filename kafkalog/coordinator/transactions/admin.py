"""DescribeTransactions.  Source: KIP-664."""

from __future__ import annotations

from itertools import groupby

from kafkalog.coordinator.step import Body
from kafkalog.coordinator.transactions.shard import TransactionShard
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["describe", "described_error"]


def describe(shard: TransactionShard, name: str) -> Body:
    """One transactional id of a DescribeTransactions response."""
    one = shard.ids.get(name)
    if one is None or one.dead or not one.recorded:
        return described_error(name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    status = one.status
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": name,
        "transaction_state": status.state.title,
        "transaction_timeout_ms": status.timeout_ms,
        "transaction_start_time_ms": status.start_ms,
        "producer_id": status.producer_id,
        "producer_epoch": status.epoch,
        "topics": [
            {"topic": topic, "partitions": [each.partition for each in found]}
            for topic, found in groupby(
                sorted(one.markers if status.prepared else status.partitions),
                key=lambda each: each.topic,
            )
        ],
    }


def described_error(name: str, error: ErrorCode) -> Body:
    """A transactional id of a DescribeTransactions response that cannot be described."""
    return {"error_code": error, "transactional_id": name}
