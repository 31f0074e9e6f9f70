"""DescribeTransactions and ListTransactions.

A pattern has to be matched with every transactional id, all of which may be long.

Source: KIP-664, KIP-994, KIP-1152.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import groupby

from kafkalog.coordinator.listings import Listing, each_of
from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.coordinator.transactions.shard import TransactionShard
from kafkalog.coordinator.transactions.transaction import State, Transaction
from kafkalog.errors import ArgumentError
from kafkalog.pattern import Pattern
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Descriptions", "Filters", "TransactionListing", "described_error"]

ROW_WORK = 8
"""Work per row, in the unit of Listing.work."""
BY_TITLE = {state.title: state for state in State}


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

    def wants(self, one: Transaction, step: Step) -> bool:
        """True if a transactional id is to be listed.

        Raises: ArgumentError if the pattern takes too much work.
        """
        status = one.status
        if self._producer_ids and status.producer_id not in self._producer_ids:
            return False
        if not self._any_state and status.state not in self._states:
            return False
        if 0 <= self._longer_ms >= step.wall_ms - status.start_ms:
            return False
        return self._pattern is None or self._pattern.matches(one.transactional_id)

    def work(self, one: Transaction) -> int:
        """An upper bound of the work of `wants`, except the pattern's own."""
        return 1 + (len(one.transactional_id) >> 2 if self._pattern is not None else 0)

    @property
    def spent(self) -> int:
        """The pattern's work so far."""
        return 0 if self._pattern is None else self._pattern.work


class TransactionListing(Listing):
    """A ListTransactions request, under way."""

    def __init__(self, request: Call, shards: Collection[TransactionShard]) -> None:
        super().__init__(request, each_of(shards), "transaction_states")
        body = request.body
        self._filters: Filters | None = None
        """None: the pattern is invalid, or takes too much work."""
        with suppress(ArgumentError):
            self._filters = Filters(body.state_filters, body.producer_id_filters,
                                    body.duration_filter,
                                    body.transactional_id_pattern or "")  # fmt: skip

    def go_on(self, step: Step) -> bool:
        """Look at a slice of what is left; True if that was all."""
        if self._filters is None:
            return True
        try:
            return super().go_on(step)
        except ArgumentError:
            self._filters = None
            return True

    def row(self, one: Transaction, step: Step) -> Body | None:
        """The row of a transactional id; None if it is not wanted, or gone by now.

        Raises: ArgumentError if the pattern takes too much work.
        """
        filters = self._filters
        assert filters is not None
        before = filters.spent
        wanted = not one.dead and filters.wants(one, step)
        self.work += filters.work(one) + filters.spent - before
        if not wanted:
            return None
        self.work += ROW_WORK
        return {
            "transactional_id": one.transactional_id,
            "producer_id": one.status.producer_id,
            "transaction_state": one.status.state.title,
        }

    def answer(self, step: Step, code: ErrorCode) -> None:
        """Answer with what was found.  `code`: NONE if that is all that there is."""
        if self._filters is None:
            step.answer(self.request.answer, error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        else:
            step.answer(self.request.answer, error_code=code, transaction_states=self.found,
                        unknown_state_filters=self._filters.unknown)  # fmt: skip


# ---- descriptions ------------------------------------------------------------------------------


class Descriptions(Listing):
    """A DescribeTransactions request, under way."""

    def __init__(
        self, request: Call, where: Callable[[str], tuple[TransactionShard | None, ErrorCode]]
    ) -> None:
        """`where`: the shard of a transactional id, or the error if there is none."""
        # Each is answered once: otherwise a few bytes could ask for any number of partitions.
        names = dict.fromkeys(request.body.transactional_ids)
        super().__init__(request, names, "transaction_states")
        self._where = where

    def row(self, one: str, step: Step) -> Body:
        """The row of a transactional id."""
        shard, error = self._where(one)
        self.work += ROW_WORK
        if not one:
            return described_error(one, ErrorCode.INVALID_REQUEST)
        if shard is None:
            return described_error(one, error)
        row = describe(shard, one)
        self.work += ROW_WORK * sum(len(each["partitions"]) for each in row.get("topics", ()))
        return row

    def answer(self, step: Step, code: ErrorCode) -> None:
        """Answer with what was found."""
        step.answer(self.request.answer, transaction_states=self.found)


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
