"""Clients that go on while nodes of a cluster come and go, and judges of what they saw.

Idempotent producers of two libraries, transactions that include a group's offsets, a group, and a
reader of each partition; as under faults (tests/faults), with the same judges.
"""

from __future__ import annotations

import collections
from pathlib import Path

from tests.faults.history import Anomaly, History, Outcome, Send
from tests.faults.workloads import bank, groups, queue
from tests.faults.workloads.bank import Bank
from tests.faults.workloads.groups import Groups
from tests.faults.workloads.queue import Queue
from tests.kafka.cluster.members import INTERNAL, Members, until

LIBRARIES = ("ours", "librdkafka")
TOPICS = {**dict.fromkeys(INTERNAL, 2), **Queue.topics, **Bank.topics}
"""All topics that they use, with their numbers of partitions."""
COORDINATED = (groups.GROUP, bank.GROUP), ("teller0", "teller1")
"""Their groups and transactional ids."""


class Clients:
    """Runs on the topics of an existing cluster."""

    def __init__(self, nodes: Members, pace: float = 1) -> None:
        """`pace`: pauses are longer by this factor."""
        self.queue = Queue(nodes.bootstrap, 0.02 * pace, LIBRARIES)
        self.groups = Groups(nodes.bootstrap, queue.TOPIC, Queue.topics[queue.TOPIC])
        self.bank = Bank(nodes.bootstrap, 0.06 * pace)
        self._nodes = nodes
        for one in (self.queue, self.groups, self.bank):
            one.begin()
        self.go_on()

    def go_on(self) -> None:
        """Wait until each library's records are acknowledged in each partition, transactions are
        committed, and the groups have advanced."""
        before = self._done()

        def more() -> bool:
            now = self._done()
            return all(now[name] > before.get(name, 0) for name in now)

        try:
            until(more, "all goes on")
        except AssertionError as late:
            now = self._done()
            stuck = [name for name in now if now[name] <= before.get(name, 0)]
            raise AssertionError(f"{late}: {stuck} do not") from None

    def _done(self) -> dict[str, int]:
        names = [f"{one} to {n}" for one in LIBRARIES for n in range(Queue.topics[queue.TOPIC])]
        found = collections.Counter(
            f"{one.process.rpartition('-')[0]} to {one.partition}"
            for one in self.queue.history.of(Send) if one.outcome is Outcome.OK
        )  # fmt: skip
        ledger = self.bank.ledger.of(Send)
        return {
            **{name: found[name] for name in names},
            "transactions": sum(one.outcome is Outcome.OK for one in ledger),
            "the group": sum(self.groups.watcher.told.values()),
        }

    def end(self) -> list[str]:
        """Stop, and return the anomalies once everything was read.  The cluster must be whole."""
        for one in (self.queue, self.groups, self.bank):
            one.stop()
        self.queue.settle()
        records = self.queue.records
        self.groups.records = {n: [offset for offset, _ in rows] for n, rows in records.items()}
        self.groups.settle()
        self.bank.settle()
        found: list[Anomaly] = []
        for one in (self.queue, self.groups, self.bank):
            found += one.judge()
        return [f"{one.kind}: {one.what}" for one in found]

    def figures(self) -> str:
        return str({**self.queue.figures(), **self.groups.figures(), **self.bank.figures()})

    def keep(self, folder: Path) -> None:
        """Write the histories to files for people."""
        histories: dict[str, History] = {
            "queue": self.queue.history, "groups": self.groups.history,
            "orders": self.bank.orders, "ledger": self.bank.ledger,
        }  # fmt: skip
        for name, history in histories.items():
            (folder / f"{name}.history").write_text("\n".join(history.lines()) + "\n")
