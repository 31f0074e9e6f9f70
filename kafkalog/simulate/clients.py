"""Clients that write and read during faults: what they see is checked."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from kafkalog.simulate.around import Setup
from kafkalog.simulate.checks import Checks
from kafkalog.simulate.network import Network, Place
from kafkalog.simulate.records import batch, checksum, walk
from kafkalog.simulate.replica import CONSUMER, Fetch, Produce, Produced, Row, Where
from kafkalog.types import TopicPartition

__all__ = ["Client", "Producer", "Reader"]

AGAIN_MS = 20.0


class Client(Place):
    """A client that knows a partition's leader, as some node reported it."""

    def __init__(
        self, number: int, tp: TopicPartition, network: Network, setup: Setup, checks: Checks
    ) -> None:
        super().__init__(number, network)
        self.tp, self.setup, self.checks = tp, setup, checks
        self.stopped = False
        self.limit_ms = setup.answer_ms * 2
        self.leader = self.leader_epoch = -1

    def find(self, then: Callable[[], None]) -> None:
        """Ask some node for the leader."""

        def told(answer: tuple[int, int]) -> None:
            if answer[1] >= self.leader_epoch and answer[0] > 0:
                self.leader, self.leader_epoch = answer
            self.after(AGAIN_MS, then)

        node = self.world.rng.randint(1, self.setup.nodes)
        self.ask(node, Where(self.tp), told, lambda: self.after(AGAIN_MS, then), self.limit_ms)

    def after(self, ms: float, call: Callable[[], None]) -> None:
        """Call it after about that time."""
        self.world.later(ms * (0.5 + self.world.rng.random()), call, self)


class Producer(Client):
    """Sends one record after another.

    With acks=all it is idempotent, and retries each until it is acknowledged; with acks=1 it never
    retries.
    """

    def __init__(
        self, number: int, tp: TopicPartition, network: Network, setup: Setup, checks: Checks,
        acks: int, pause_ms: float, topic_id: UUID | None = None,
    ) -> None:  # fmt: skip
        """`topic_id`: of the only topic of that name that it writes to."""
        super().__init__(number, tp, network, setup, checks)
        self.acks, self.pause_ms, self.topic_id = acks, pause_ms, topic_id
        self.acknowledged = 0
        self._sequence = -1
        self._data = b""
        self.waits = False
        self.after(pause_ms, self._next)

    def _next(self) -> None:
        if self.stopped:
            return
        self._sequence += 1
        value = b"%d-%d" % (self.number, self._sequence)
        if self.acks == -1:
            self._data = batch(value, self.number, 0, self._sequence)
            self.checks.sent[checksum(self._data)] = self.number, self._sequence
            if self.topic_id is not None:
                self.checks.meant[checksum(self._data)] = self.topic_id
        else:
            self._data = batch(value)
        self.waits = True
        self._send()

    def _send(self) -> None:
        if self.stopped and self.topic_id is not None:
            self.waits = False  # its topic may be deleted
            return
        if self.leader < 0:
            self.find(self._send)
            return
        ask = Produce(self.tp, self._data, self.acks, self.topic_id)
        self.ask(self.leader, ask, self._answered, self._again, self.limit_ms)

    def _again(self) -> None:
        if self.acks == -1:
            self.find(self._send)
        else:
            self._done()

    def _answered(self, answer: Produced) -> None:
        if answer.error:
            if answer.error == "OutOfOrderSequenceNumber" and not self.setup.unclean:
                self.checks.out_of_order(self.tp, answer.leader_epoch, self.number, self._sequence)
            self._again()
            return
        if self.acks == -1:
            self.acknowledged += 1
            if self.topic_id is None or self.checks.is_current(self.tp, self.topic_id):
                self.checks.acknowledged(self.tp, answer.offset, checksum(self._data))
        self._done()

    def _done(self) -> None:
        self.waits = False
        self.after(self.pause_ms, self._next)


class Reader(Client):
    """Reads a partition from its start, repeatedly."""

    def __init__(
        self, number: int, tp: TopicPartition, network: Network, setup: Setup, checks: Checks
    ) -> None:
        super().__init__(number, tp, network, setup, checks)
        self.offset = 0
        self.after(AGAIN_MS, self._next)

    def _next(self) -> None:
        if self.stopped:
            return
        if self.leader < 0 or self.world.rng.random() < 0.1:
            self.find(self._fetch)
        else:
            self._fetch()

    def _fetch(self) -> None:
        if self.leader < 0:
            self._next()
            return
        ask = Fetch(self.tp, CONSUMER, -1, -1, self.offset, -1, -1)
        self.ask(self.leader, ask, self._took, lambda: self.find(self._next), self.limit_ms)

    def _took(self, row: Row) -> None:
        if row.error_code:
            self.find(self._next)
            return
        for one in walk(row.records):
            if one.offset >= self.offset:
                self.checks.read(self.tp, one.offset, one.checksum)
                self.offset = one.offset + 1
        if not row.records and self.world.rng.random() < 0.05:
            self.offset = max(row.log_start_offset, 0)
        self.after(AGAIN_MS, self._next)
