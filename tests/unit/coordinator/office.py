"""The core of transactions behind a desk: virtual time, a journal in memory, whole requests.

Markers are written to lists, one a partition, when the test says so or at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Any

from kafkalog.config.transaction import TransactionConfig
from kafkalog.coordinator.core import Append
from kafkalog.coordinator.step import Request, Step
from kafkalog.coordinator.transactions.core import TransactionCore
from kafkalog.coordinator.transactions.shard import Marker, Outside
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.desk import HOST, WALL_MS, MemoryJournal, Reply

PARTITIONS = 4
OFFSETS = TopicPartition("__consumer_offsets", 7)


def settings(**given: int) -> TransactionConfig:
    """Settings by their names in Python."""
    return TransactionConfig({name.replace("_", "."): value for name, value in given.items()})


class Office:
    """One coordinator of transactions, its journal, its partitions and its time."""

    def __init__(
        self, config: TransactionConfig | None = None, journal: MemoryJournal | None = None,
        partitions: int = PARTITIONS,
    ) -> None:  # fmt: skip
        self.partitions = partitions
        self.config = config or settings()
        self.journal = journal or MemoryJournal()
        self.now_ms = 0
        self.level = 2
        self.topics: dict[str, int] = defaultdict(lambda: 100)
        self.ids = count(1000)
        self.errors: list[ErrorCode] = []
        """Outcomes of the next appends; none: all go well."""
        self.held: list[Append] | None = None
        """With a list, appends wait in it."""
        self.marks: list[Marker] = []
        """Those that were written."""
        self.waiting: list[Marker] | None = None
        """With a list, markers wait in it."""
        self.refusals: list[ErrorCode] = []
        """Outcomes of the next markers; none: all go well."""
        self.restart()

    def restart(self) -> None:
        """A new coordinator, of what the journal says."""
        outside = Outside(
            lambda: next(self.ids),
            lambda topic: self.topics[topic],
            lambda _group: OFFSETS,
            lambda: self.level,
            lambda _partition: 5,
        )
        self.core = TransactionCore(self.config, outside)
        for partition in range(self.partitions):
            self.load(partition)

    def load(self, partition: int) -> None:
        """Let the coordinator read a partition of its journal."""
        self.core.begin_load(partition, self.partitions)
        shard = self.core.new_shard(partition)
        self.core.load(shard, self.journal.read(partition), self.wall_ms)
        self.step(lambda step: self.core.end_load(shard, step))

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def step(self, event: Callable[[Step], None]) -> None:
        """Let something happen, and what follows from it."""
        step = Step(self.now_ms, self.wall_ms)
        event(step)
        self.core.tick(step)
        while step.writes:
            for append in self.core.appends(step):
                if self.held is not None:
                    self.held.append(append)
                    continue
                error = self.errors.pop(0) if self.errors else ErrorCode.NONE
                if error is ErrorCode.NONE:
                    self.journal.put(append.partition, append.records)
                self.core.settled(append.number, error, step)
        for answer, body in step.answers:
            answer(body)
        for marker in step.effects:
            self._mark(marker)

    def _mark(self, marker: Marker) -> None:
        if self.waiting is not None:
            self.waiting.append(marker)
            return
        error = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        self.told(marker, error)

    def told(self, marker: Marker, error: ErrorCode = ErrorCode.NONE) -> None:
        """The outcome of a marker."""
        if error is ErrorCode.NONE:
            self.marks.append(marker)
        self.step(lambda step: self.core.marked(marker, error, step))

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """End the appends that were held, and hold no more."""
        held, self.held = self.held or [], None
        for append in held:
            if error is ErrorCode.NONE:
                self.journal.put(append.partition, append.records)
            self.step(lambda step, a=append: self.core.settled(a.number, error, step))

    def mark_all(self) -> None:
        """Write the markers that wait, and let none wait any more."""
        waiting, self.waiting = self.waiting or [], None
        for marker in waiting:
            self.told(marker)

    def wait(self, ms: int) -> None:
        """Let time pass, timer by timer."""
        end_ms = self.now_ms + ms
        while (at_ms := self.core.timers.next_ms()) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.step(lambda _step: None)
        self.now_ms = end_ms

    # ---- requests --------------------------------------------------------------------------

    def call(self, api: Api, version: int, **fields: Any) -> Reply:
        body = api.decode_request(version, api.encode_request(version, fields))
        reply = Reply(api, version)
        request = Request(body, version, "client", HOST, reply)
        self.step(lambda step: self.core.request(api, request, step))
        return reply

    def init(
        self, name: str = "t", timeout_ms: int = 60_000, producer: tuple[int, int] | None = None,
        version: int = 4,
    ) -> Reply:  # fmt: skip
        fields: dict[str, Any] = {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
        if producer is not None:
            fields |= {"producer_id": producer[0], "producer_epoch": producer[1]}
        return self.call(apis.INIT_PRODUCER_ID, version, **fields)

    def new(self, name: str = "t", timeout_ms: int = 60_000) -> tuple[int, int]:
        """Producer id and epoch of a fresh producer."""
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
        return self.call(
            apis.ADD_PARTITIONS_TO_TXN, version, v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0], v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
        )  # fmt: skip

    def batch(
        self, producer: tuple[int, int], *partitions: int, verify: bool = False, name: str = "t",
        version: int = 5,
    ) -> list[ErrorCode]:  # fmt: skip
        """As brokers ask."""
        reply = self.call(apis.ADD_PARTITIONS_TO_TXN, version, transactions=[{
            "transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1],
            "verify_only": verify, "topics": [{"name": "a", "partitions": list(partitions)}],
        }])  # fmt: skip
        (found,) = reply.results_by_transaction
        (topic,) = found.topic_results
        return [ErrorCode(one.partition_error_code) for one in topic.results_by_partition]

    def end(
        self, producer: tuple[int, int], commit: bool = True, name: str = "t", version: int = 4
    ) -> Reply:
        return self.call(
            apis.END_TXN, version, transactional_id=name, producer_id=producer[0],
            producer_epoch=producer[1], committed=commit,
        )  # fmt: skip

    def offsets(self, producer: tuple[int, int], version: int = 3) -> ErrorCode:
        return self.call(
            apis.ADD_OFFSETS_TO_TXN, version, transactional_id="t", producer_id=producer[0],
            producer_epoch=producer[1], group_id="g",
        ).error  # fmt: skip

    def described(self, name: str = "t") -> Any:
        (found,) = self.call(
            apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name]
        ).transaction_states
        return found

    def state(self, name: str = "t") -> str:
        return str(self.described(name).transaction_state)

    def listed(self, version: int = 1, **filters: Any) -> list[str]:
        reply = self.call(apis.LIST_TRANSACTIONS, version, **filters)
        assert reply.error is ErrorCode.NONE
        return sorted(one.transactional_id for one in reply.transaction_states)
