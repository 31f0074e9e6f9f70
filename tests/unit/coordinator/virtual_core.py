"""A coordinator's core without its thread: virtual time, a journal in memory, whole requests.

Requests are encoded and decoded as on the wire, and so are the answers: a field that a
version does not have, or a value that it cannot say, fails the test.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from kafkalog.coordinator.core import Append, CoordinatorState
from kafkalog.coordinator.journal import JournalBatch, StoredRecord
from kafkalog.coordinator.step import Call, JournalRecord, Producer, Step, all_of
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.repeating import Network

__all__ = ["EPOCH", "HOST", "PARTITIONS", "WALL_MS", "Bench", "MemoryJournal", "Reply"]

HOST = "/127.0.0.1"
WALL_MS = 1_700_000_000_000
PARTITIONS = 4
EPOCH = 5
"""The leader epoch of the journal's partitions."""


class MemoryJournal:
    """The batches of each partition, as a disk would have them."""

    def __init__(self) -> None:
        self.batches: dict[int, list[JournalBatch]] = defaultdict(list)
        self.ends: dict[int, int] = defaultdict(int)

    def put(self, partition: int, records: Iterable[JournalRecord], **batch: Any) -> None:
        """Append a batch."""
        stored = []
        for key, value in records:
            stored.append(StoredRecord(self.ends[partition], key, value))
            self.ends[partition] += 1
        what = {"producer_id": -1, "transactional": False, "marker": None, **batch}
        self.batches[partition].append(JournalBatch(records=stored, **what))

    def put_of(
        self, partition: int, records: Iterable[JournalRecord], producer: Producer | None
    ) -> None:
        """Append a batch, or a marker, as a coordinator writes it."""
        if producer is None:
            self.put(partition, records)
            return
        kind = None if producer.commit is None else int(producer.commit)
        self.put(partition, records, producer_id=producer.producer_id, transactional=True,
                 marker=kind)  # fmt: skip

    def append(
        self,
        partition: int,
        epoch: int,
        records: Sequence[JournalRecord],
        done: Callable[[ErrorCode], None],
        producer: Producer | None = None,
    ) -> None:
        """Journal.append, which succeeds immediately here."""
        self.put_of(partition, records, producer)
        done(ErrorCode.NONE)

    def read(self, partition: int, epoch: int = EPOCH) -> Iterator[JournalBatch]:
        """Journal.read."""
        return iter(list(self.batches[partition]))


class Reply:
    """The answer to a request, as soon as there is one."""

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self._body: Any = None

    def __call__(self, body: dict[str, Any]) -> None:
        assert self._body is None, f"{self.api.name}: a second answer: {body}"
        encoded = self.api.encode_response(self.version, body)
        self._body = self.api.decode_response(self.version, encoded)

    @property
    def waits(self) -> bool:
        return self._body is None

    @property
    def body(self) -> Any:
        """The decoded response."""
        assert self._body is not None, f"{self.api.name} was not answered"
        return self._body

    def __getattr__(self, name: str) -> Any:
        return getattr(self.body, name)

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.body.error_code)


C = TypeVar("C", bound=CoordinatorState[Any])


class Bench(Generic[C]):
    """One coordinator, its journal and its clock."""

    def __init__(self, journal: MemoryJournal | None, partitions: int) -> None:
        """`partitions`: the partition count of its journal's topic."""
        self.partitions = partitions
        self.journal = journal or MemoryJournal()
        self.now_ms = 0
        self.errors: list[ErrorCode] = []
        """Outcomes of the next appends; empty: all succeed."""
        self.held: list[Append] | None = None
        """A list in which appends wait; None: they complete immediately."""
        self.network: Network | None = None
        """Repeats answers; None: every request reaches the coordinator."""
        self.later: list[Callable[[Step], None]] = []
        """Events to handle in the same step as the next one."""
        self.restart()

    @abstractmethod
    def new_core(self) -> C:
        """The coordinator under test, without state."""

    def effect(self, effect: Any) -> None:
        """Carry out an effect of a step."""
        raise AssertionError(f"unexpected effect: {effect}")

    def restart(self) -> None:
        """Start a new coordinator from the journal."""
        self.core = self.new_core()
        for partition in range(self.partitions):
            self.load(partition)

    def load(self, partition: int) -> None:
        """Let the coordinator read a partition of its journal."""
        self.core.begin_load(partition, self.partitions, EPOCH)
        shard = self.core.new_shard(partition, EPOCH)
        self.core.load(shard, self.journal.read(partition), self.wall_ms)
        self.step(lambda step: self.core.end_load(shard, step))

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def step(self, event: Callable[[Step], None]) -> None:
        """Handle an event and what follows from it, even if it fails, as the thread
        does."""
        step = Step(self.now_ms, self.wall_ms)
        try:
            later, self.later = self.later, []
            all_of(partial(one, step) for one in (event, *later, self.core.tick))
        finally:
            self._finish(step)

    def _finish(self, step: Step) -> None:
        while step.writes:
            for append in self.core.appends(step):
                self._append(append, step)
        for answer, body in step.answers:
            answer(body)
        for effect in step.effects:
            self.effect(effect)

    def _append(self, append: Append, step: Step) -> None:
        if self.held is not None:
            self.held.append(append)
            return
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        base_offset = self.journal.ends[append.partition]
        self._write(append, error)
        self.core.settled(append.number, error, step, base_offset)

    def _write(self, append: Append, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self.journal.put_of(append.partition, append.records, append.producer)

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Complete the held appends, all with this outcome, and later ones immediately."""
        held, self.held = self.held or [], None
        for append in held:
            base_offset = self.journal.ends[append.partition]
            self._write(append, error)
            self.step(
                lambda step, a=append, b=base_offset: self.core.settled(a.number, error, step, b)
            )

    def wait(self, ms: int) -> None:
        """Let time pass, timer by timer."""
        end_ms = self.now_ms + ms
        while (at_ms := self.core.timers.next_ms()) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.step(lambda _step: None)
        self.now_ms = end_ms

    def call(
        self, api: Api, version: int, fields: dict[str, Any], client_id: str = "client"
    ) -> Reply:
        """Send a request."""
        data = api.encode_request(version, fields)
        reply = Reply(api, version)
        rows = partial(api.response.rows, version)
        body = api.decode_request(version, data)
        request = Call(body, version, client_id, HOST, reply, rows=rows)
        if self.network is not None:
            if (same := self.network.answered(client_id, data)) is not None:
                reply(same)
                return reply
            answer, repeat = self.network.passing(client_id, data, reply)
            request = request._replace(answer=answer, repeat=repeat)
        self.step(lambda step: self.core.request(api, request, step))
        return reply
