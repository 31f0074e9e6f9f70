"""DescribeTransactions, and ListTransactions, a slice at a time.

A pattern has to be matched with every transactional id, all of which may be long: the requests of
others are served between two slices.

Source: KIP-664, KIP-994, KIP-1152.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from kafkalog.coordinator.pattern import Pattern
from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.coordinator.transactions.shard import TransactionShard
from kafkalog.coordinator.transactions.transaction import State, Transaction
from kafkalog.errors import ArgumentError
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "LISTINGS_BYTES_MAX", "LISTINGS_MAX", "SLICE", "Filters", "Listing", "Listings", "describe",
    "described_error",
]  # fmt: skip

SLICE = 20_000
"""Work between two looks at other requests, about 10 ms: steps of the pattern, quarters of
characters, and transactional ids."""
LISTINGS_MAX = 100
LISTINGS_BYTES_MAX = 16 << 20
"""Requests that have not begun, and what they may take: once they do, later ones are to be
retried."""
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


class Listing:
    """One request, under way."""

    def __init__(self, request: Call, shards: Iterable[TransactionShard]) -> None:
        """Raises: ArgumentError for an invalid pattern."""
        body = request.body
        self.request = request
        self.filters = Filters(body.state_filters, body.producer_id_filters, body.duration_filter,
                               body.transactional_id_pattern or "")  # fmt: skip
        self.found: list[Body] = []
        self.error = ErrorCode.NONE
        """Why there is no list."""
        self._left = _each([(shard, list(shard.live())) for shard in shards])

    def go_on(self, step: Step) -> bool:
        """Look at a slice of what is left; whether that was all."""
        filters = self.filters
        work, before = 0, filters.spent
        try:
            for one in self._left:
                work += filters.work(one)
                if not one.dead and filters.wants(one, step):
                    self.found.append(
                        {
                            "transactional_id": one.transactional_id,
                            "producer_id": one.status.producer_id,
                            "transaction_state": one.status.state.title,
                        }
                    )
                if work + filters.spent - before >= SLICE:
                    return False
        except ArgumentError:
            self.error = ErrorCode.INVALID_REGULAR_EXPRESSION
        return True

    def answer(self, step: Step, code: ErrorCode) -> None:
        """Answer with what was found.  `code`: whether that is all that there is."""
        if self.error is not ErrorCode.NONE:
            step.answer(self.request.answer, error_code=self.error)
        else:
            step.answer(self.request.answer, error_code=code, transaction_states=self.found,
                        unknown_state_filters=self.filters.unknown)  # fmt: skip


def _each(found: list[tuple[TransactionShard, list[Transaction]]]) -> Iterator[Transaction]:
    """The transactional ids of the shards that are still open."""
    for shard, ids in found:
        for one in ids:
            if shard.closed:
                break
            yield one


class Listings:
    """The requests under way: only the first one remembers transactional ids."""

    def __init__(self) -> None:
        self._first: Listing | None = None
        self._waiting: deque[Call] = deque()
        self._waiting_bytes = 0

    @property
    def busy(self) -> bool:
        """True if a request is under way."""
        return self._first is not None or bool(self._waiting)

    def add(self, request: Call) -> bool:
        """Let a request wait for `go_on`; False if too many wait."""
        if len(self._waiting) >= LISTINGS_MAX or self._waiting_bytes >= LISTINGS_BYTES_MAX:
            return False
        self._waiting.append(request)
        self._waiting_bytes += request.size
        return True

    def go_on(self, shards: Iterable[TransactionShard], code: ErrorCode, step: Step) -> None:
        """Do a slice of the first request, and answer it if that was the last.

        `shards`: those of a request that begins; `code`: see Listing.answer.
        """
        if self._first is None:
            request = self._waiting.popleft()
            self._waiting_bytes -= request.size
            try:
                self._first = Listing(request, shards)
            except ArgumentError:
                step.answer(request.answer, error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
                return
        if self._first.go_on(step):
            self._first.answer(step, code)
            self._first = None


# ---- descriptions ------------------------------------------------------------------------------


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
