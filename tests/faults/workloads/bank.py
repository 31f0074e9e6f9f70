"""Tellers read orders and book debit and credit in one transaction with the position."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterable
from typing import Any

import kafkalog
from kafkalog.types import Record, TopicPartition
from tests.faults.history import Anomaly, History, Outcome, Poll, Send, Transaction
from tests.faults.judges import banks, queues
from tests.faults.workloads import queue
from tests.faults.workloads.loops import Loop
from tests.faults.workloads.reading import LAST, Follower, read_all, text
from tests.faults.workloads.senders import DELIVERY_MS, REQUEST_MS
from tests.support.waiting import wait_for

ORDERS, LEDGER, GROUP = "orders", "ledger", "tellers"
PARTITIONS = 2
AT_ONCE = 20  # orders in a transaction
TELLERS = 2
SETTLE_S = 300.0


class Placer(queue.Producer):
    """Places orders, with librdkafka."""

    def __init__(self, history: History, bootstrap: str, pause_s: float) -> None:
        super().__init__(history, bootstrap, ORDERS, PARTITIONS, "librdkafka", pause_s)
        self._amounts = random.Random(1)

    def value(self, number: int) -> str:
        return f"{number}:{self._amounts.randint(1, 100)}"


class Teller(Loop):
    """Books orders; each attempt has its own number, so that no value is there twice."""

    def __init__(self, ledger: History, bootstrap: str, number: int) -> None:
        super().__init__(f"teller{number}")
        self._ledger, self._servers = ledger, bootstrap
        self._attempts = 0
        self.committed = 0
        """The number of transactions."""

    def turn(self) -> None:
        with contextlib.ExitStack() as closing:
            consumer = closing.enter_context(kafkalog.Consumer(
                self._servers, ORDERS, group=GROUP, auto_offset_reset="earliest",
                auto_commit=False, session_timeout_ms=6_000, heartbeat_ms=500,
            ))  # fmt: skip
            producer = kafkalog.Producer(
                self._servers, transactional_id=self.name, transaction_timeout_ms=10_000,
                delivery_timeout_ms=DELIVERY_MS, request_timeout_ms=REQUEST_MS, linger_ms=0,
                max_block_ms=30_000,
            )  # fmt: skip
            closing.callback(_close, producer)
            producer.init_transactions()
            while not self.ending:
                records = consumer.poll(300, max_records=AT_ONCE)
                if records:
                    self._book(consumer, producer, records)

    def _book(
        self, consumer: kafkalog.Consumer, producer: kafkalog.Producer, records: list[Record]
    ) -> None:
        """Book in one transaction.  Raises: the reason why it failed, or why that is unknown."""
        self._attempts += 1
        attempt = f"{self.name}-{self._attempts}"
        transaction = self._ledger.begin(Transaction, attempt)
        sends: list[tuple[Send, Any]] = []
        try:
            producer.begin_transaction()
            for partition, value in _legs(records, attempt):
                send = self._ledger.begin(Send, attempt, partition=partition, value=value)
                transaction.sent.append((partition, value))
                sends.append((send, None))
                future = producer.send(LEDGER, value.encode(), partition=partition)
                sends[-1] = send, future
            offsets = {TopicPartition(r.topic, r.partition): r.offset + 1 for r in records}
            producer.send_offsets(offsets, consumer.group_metadata())
            producer.flush()
        except kafkalog.KafkalogError:  # no commit was requested, nor will be
            self._over(transaction, sends, Outcome.FAIL)
            with contextlib.suppress(kafkalog.KafkalogError):
                producer.abort_transaction()
            raise
        transaction.decided = time.monotonic()
        try:
            _commit(producer)
        except kafkalog.KafkalogError:
            self._over(transaction, sends, Outcome.UNKNOWN)
            raise
        self.committed += 1
        self._over(transaction, sends, Outcome.OK)

    def _over(
        self, transaction: Transaction, sends: Iterable[tuple[Send, Any]], outcome: Outcome
    ) -> None:
        self._ledger.end(transaction, outcome)
        for send, future in sends:
            offset = future.result(0).offset if outcome is Outcome.OK else None
            self._ledger.end(send, outcome, offset=offset)


def _legs(records: Iterable[Record], attempt: str) -> Iterable[tuple[int, str]]:
    for record in records:
        number, amount = text(record.value).split(":")
        for side, sign in banks.SIDES.items():
            partition = (int(number) + (sign > 0)) % PARTITIONS
            yield partition, f"{number}:{side}:{sign * int(amount)}:{attempt}"


def _commit(producer: kafkalog.Producer) -> None:
    """Commit; repeat it if the answer was lost."""
    until = time.monotonic() + 2 * DELIVERY_MS / 1000
    while True:
        try:
            producer.commit_transaction()
            return
        except kafkalog.errors.Timeout:
            if time.monotonic() > until:
                raise


def _close(producer: kafkalog.Producer) -> None:
    with contextlib.suppress(kafkalog.KafkalogError):
        producer.close(DELIVERY_MS / 1000)


class Bank:
    """The workload."""

    topics = {ORDERS: PARTITIONS, LEDGER: PARTITIONS}  # noqa: RUF012

    def __init__(self, bootstrap: str, pause_s: float = 0.02) -> None:
        self.orders, self.ledger = History(), History()
        self._servers = bootstrap
        self._placer = Placer(self.orders, bootstrap, pause_s)
        self.tellers = [Teller(self.ledger, bootstrap, n) for n in range(TELLERS)]
        self._readers = [
            Follower(self.ledger, bootstrap, LEDGER, n, "read_committed") for n in range(PARTITIONS)
        ]

    def begin(self) -> None:
        for one in (self._placer, *self.tellers, *self._readers):
            one.start()

    def stop(self) -> None:
        self._placer.ask_to_end()

    def settle(self) -> None:
        """Wait until all orders are booked.  Raises: AssertionError, if that takes too long."""
        self._placer.end()
        placed = read_all(self.orders, self._servers, ORDERS, PARTITIONS, "read_uncommitted")
        wanted = {n: rows[-1][0] + 1 for n, rows in placed.items() if rows}
        places = [TopicPartition(ORDERS, n) for n in wanted]
        told: dict[int, int] = {}

        def done() -> bool:
            with contextlib.suppress(kafkalog.KafkalogError):
                found = admin.list_group_offsets(GROUP, places)
                told.update({tp.partition: one.offset for tp, one in found.items()})
            return told == wanted

        with kafkalog.Admin(self._servers) as admin:
            try:
                wait_for(done, "all orders are booked", SETTLE_S, 0.1)
            except AssertionError as late:
                failures = [dict(one.failures) for one in self.tellers]
                raise AssertionError(f"{late}: {told} of {wanted}; {failures}") from None
        for one in (*self.tellers, *self._readers):
            one.end()
        read_all(self.ledger, self._servers, LEDGER, PARTITIONS, "read_committed")

    def judge(self) -> list[Anomaly]:
        return [
            *queues.check(self.orders, last=LAST),
            *queues.check(self.ledger, last=LAST),
            *banks.check(self.orders, self.ledger, last=LAST),
        ]

    def figures(self) -> dict[str, float]:
        found = self.ledger.of(Transaction)
        return {
            "orders": len(self.orders.of(Send)),
            "transactions": len(found),
            "not committed": sum(one.outcome is not Outcome.OK for one in found),
            "legs read": sum(len(p.records) for p in self.ledger.of(Poll) if p.process == LAST),
        }
