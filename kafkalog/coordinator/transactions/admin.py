"""DescribeTransactions and ListTransactions.  Source: KIP-664, KIP-994, KIP-1152."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby

from kafkalog.coordinator.pattern import Pattern
from kafkalog.coordinator.step import Body, Step
from kafkalog.coordinator.transactions.shard import TransactionShard
from kafkalog.coordinator.transactions.transaction import State, Transaction
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Filters", "describe", "described_error"]

BY_TITLE = {state.title: state for state in State}


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


class Filters:
    """Which transactional ids a ListTransactions request wants; an empty filter matches all."""

    def __init__(
        self, states: Collection[str], producer_ids: Collection[int], longer_ms: int, pattern: str
    ) -> None:
        """`longer_ms`: only transactions older than this; negative: any.  `pattern`: for whole
        transactional ids, "": any.

        Raises: ArgumentError for an invalid pattern.
        """
        self._pattern = Pattern(pattern) if pattern else None
        self.unknown = [title for title in dict.fromkeys(states) if title not in BY_TITLE]
        """Names of states that Kafka does not have."""
        self._states = {BY_TITLE[title] for title in states if title in BY_TITLE}
        self._any_state = not states
        self._producer_ids = set(producer_ids)
        self._longer_ms = longer_ms

    def listed(self, shard: TransactionShard, step: Step) -> list[Body]:
        """Those of a partition."""
        return [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.status.producer_id,
                "transaction_state": one.status.state.title,
            }
            for one in shard.live()
            if self._wanted(one, step)
        ]

    def _wanted(self, one: Transaction, step: Step) -> bool:
        status = one.status
        if self._producer_ids and status.producer_id not in self._producer_ids:
            return False
        if self._pattern is not None and not self._pattern.matches(one.transactional_id):
            return False
        if not self._any_state and status.state not in self._states:
            return False
        return self._longer_ms < 0 or step.wall_ms - status.start_ms > self._longer_ms
