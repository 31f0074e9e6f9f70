"""The coordinator of transactions in its office: each client request in one line.

Markers are written to lists, immediately or when the test says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from typing import Any

from kafkalog.config.transaction import TransactionConfig
from kafkalog.coordinator.transactions.core import TransactionCoordinatorState
from kafkalog.coordinator.transactions.shard import Marker, Outside
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.virtual_core import PARTITIONS, Bench, MemoryJournal, Reply

OFFSETS = TopicPartition("__consumer_offsets", 7)


def settings(**given: int) -> TransactionConfig:
    """A TransactionConfig from settings by their Python names."""
    return TransactionConfig({name.replace("_", "."): value for name, value in given.items()})


class Office(Bench[TransactionCoordinatorState]):
    """One coordinator of transactions, its journal, its partitions and its clock."""

    def __init__(
        self, config: TransactionConfig | None = None, journal: MemoryJournal | None = None,
        partitions: int = PARTITIONS,
    ) -> None:  # fmt: skip
        self.config = config or settings()
        self.level = 2
        self.topics: dict[str, int] = defaultdict(lambda: 10_000)
        self.ids: Iterator[int] = count(1000)
        self.marks: list[Marker] = []
        """The markers that were written."""
        self.waiting: list[Marker] | None = None
        """A list in which markers wait; None: they are written immediately."""
        self.refusals: list[ErrorCode] = []
        """Outcomes of the next markers; empty: all succeed."""
        super().__init__(journal, partitions)

    def new_core(self) -> TransactionCoordinatorState:
        outside = Outside(
            lambda: next(self.ids),
            lambda topic: self.topics[topic],
            lambda _group: OFFSETS,
            lambda: self.level,
        )
        return TransactionCoordinatorState(self.config, outside)

    def effect(self, effect: Marker) -> None:
        if self.waiting is not None:
            self.waiting.append(effect)
            return
        error = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        self.told(effect, error)

    def told(self, marker: Marker, error: ErrorCode = ErrorCode.NONE) -> None:
        """Report the outcome of a marker to the coordinator."""
        if error is ErrorCode.NONE:
            self.marks.append(marker)
        self.step(lambda step: self.core.marked(marker, error, step))

    def mark_all(self) -> None:
        """Write the waiting markers, and later ones immediately."""
        waiting, self.waiting = self.waiting or [], None
        for marker in waiting:
            self.told(marker)

    # ---- requests --------------------------------------------------------------------------

    def ask(self, api: Api, version: int, **fields: Any) -> Reply:
        """Send a request."""
        return self.call(api, version, fields)

    def init(
        self, name: str = "t", timeout_ms: int = 60_000, producer: tuple[int, int] | None = None,
        version: int = 4,
    ) -> Reply:  # fmt: skip
        fields: dict[str, Any] = {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
        if producer is not None:
            fields |= {"producer_id": producer[0], "producer_epoch": producer[1]}
        return self.ask(apis.INIT_PRODUCER_ID, version, **fields)

    def new(self, name: str = "t", timeout_ms: int = 60_000) -> tuple[int, int]:
        """Producer id and epoch of a new producer."""
        reply = self.init(name, timeout_ms)
        assert reply.error is ErrorCode.NONE
        return reply.producer_id, reply.producer_epoch

    def add(
        self, producer: tuple[int, int], *partitions: int, topic: str = "a", name: str = "t",
        version: int = 3,
    ) -> list[ErrorCode]:  # fmt: skip
        return self.codes(
            self.adding(producer, *partitions, topic=topic, name=name, version=version)
        )

    @staticmethod
    def codes(reply: Reply) -> list[ErrorCode]:
        (found,) = reply.results_by_topic_v3_and_below
        return [ErrorCode(one.partition_error_code) for one in found.results_by_partition]

    def adding(
        self, producer: tuple[int, int], *partitions: int, topic: str = "a", name: str = "t",
        version: int = 3,
    ) -> Reply:  # fmt: skip
        return self.ask(
            apis.ADD_PARTITIONS_TO_TXN, version, v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0], v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
        )  # fmt: skip

    def batch(
        self, producer: tuple[int, int], *partitions: int, verify: bool = False, name: str = "t",
        version: int = 5,
    ) -> list[ErrorCode]:  # fmt: skip
        """Send AddPartitionsToTxn as brokers do."""
        reply = self.ask(apis.ADD_PARTITIONS_TO_TXN, version, transactions=[{
            "transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1],
            "verify_only": verify, "topics": [{"name": "a", "partitions": list(partitions)}],
        }])  # fmt: skip
        (found,) = reply.results_by_transaction
        (topic,) = found.topic_results
        return [ErrorCode(one.partition_error_code) for one in topic.results_by_partition]

    def end(
        self, producer: tuple[int, int], commit: bool = True, name: str = "t", version: int = 4
    ) -> Reply:
        return self.ask(
            apis.END_TXN, version, transactional_id=name, producer_id=producer[0],
            producer_epoch=producer[1], committed=commit,
        )  # fmt: skip

    def offsets(self, producer: tuple[int, int], version: int = 3) -> ErrorCode:
        return self.ask(
            apis.ADD_OFFSETS_TO_TXN, version, transactional_id="t", producer_id=producer[0],
            producer_epoch=producer[1], group_id="g",
        ).error  # fmt: skip

    def described(self, name: str = "t") -> Any:
        (found,) = self.ask(
            apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name]
        ).transaction_states
        return found

    def state(self, name: str = "t") -> str:
        return str(self.described(name).transaction_state)

    def listed(self, version: int = 1, **filters: Any) -> list[str]:
        reply = self.ask(apis.LIST_TRANSACTIONS, version, **filters)
        assert reply.error is ErrorCode.NONE
        return sorted(one.transactional_id for one in reply.transaction_states)
