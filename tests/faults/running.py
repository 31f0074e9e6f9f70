"""One run: clients, one nemesis after the other, and then the judgement."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from tests.faults.cluster import INTERNAL, PATIENCE_S, Cluster
from tests.faults.history import Anomaly, History, Op
from tests.faults.nemeses import Nemesis
from tests.faults.workloads.bank import Bank
from tests.faults.workloads.groups import Groups
from tests.faults.workloads.lists import Lists
from tests.faults.workloads.queue import TOPIC, Queue
from tests.faults.workloads.topics import Topics
from tests.support.waiting import wait_for

SHOWN = 12
WAITED_FOR = ("ours", "librdkafka")
"""Libraries that must go on after each fault.  kafka-python's producer (3.0.12) was seen to stop
sending after all nodes had died, while the others went on in every partition; the answers that it
got are judged as well."""


class Workload(Protocol):
    def begin(self) -> None: ...
    def stop(self) -> None: ...
    def settle(self) -> None: ...
    def judge(self) -> list[Anomaly]: ...
    def figures(self) -> dict[str, float]: ...


class Run:
    """All workloads on one running cluster."""

    def __init__(self, cluster: Cluster, rng: random.Random, pace: float = 1) -> None:
        """`pace`: pauses of clients are longer by this factor; below 1 only the queue's."""
        self.cluster, self._rng = cluster, rng
        for topics in (Queue.topics, Bank.topics, Lists.topics):
            for name, partitions in topics.items():
                # Kafka refuses late requests of transactions only from 4.0 on (KIP-890).
                cluster.topic(name, partitions, anywhere=topics is not Bank.topics)
        self.queue = Queue(cluster.bootstrap, 0.01 * pace)
        self.groups = Groups(cluster.bootstrap, TOPIC, Queue.topics[TOPIC])
        self.bank = Bank(cluster.bootstrap, 0.03 * max(1, pace))
        self.lists = Lists(cluster.bootstrap, rng, 0.05 * max(1, pace))
        self.topics = Topics(cluster.bootstrap, max(1, pace))
        self._all: dict[str, Workload] = {
            "queue": self.queue, "groups": self.groups, "bank": self.bank, "lists": self.lists,
            "topics": self.topics,
        }  # fmt: skip
        self.log: list[str] = []
        self._begun = time.monotonic()
        self._lasted_s = math.inf

    def note(self, line: str) -> None:
        self.log.append(f"{time.monotonic() - self._begun:7.2f} s  {line}")

    def go(self, nemeses: Iterable[Nemesis]) -> None:
        """Run each in turn; before the next one everything works again.  Raises: AssertionError."""
        for one in self._all.values():
            one.begin()
        self.works()
        for nemesis in nemeses:
            start = time.monotonic()
            self.note(nemesis.deed(self.cluster, self._rng))
            churned = self._rng.choice(self.groups.members)
            churned.churn()
            threading.Event().wait(nemesis.hold_s)
            self.cluster.heal()
            self.note("healed")
            self.works()
            self.note("works")
            self.cluster.in_sync(INTERNAL)
            self.groups.disputed.append((start, time.monotonic()))
        self._lasted_s = time.monotonic() - self._begun
        for one in self._all.values():
            one.stop()
        self.cluster.whole()
        self.note("whole")
        self.queue.settle()
        self.groups.records = {p: [o for o, _ in rows] for p, rows in self.queue.records.items()}
        for one in (self.groups, self.bank, self.lists, self.topics):
            one.settle()
        self.note("settled")

    def works(self) -> None:
        """Wait until each library acknowledges more in each partition of the queue, and the bank
        books more."""
        before = self._done()

        def more() -> bool:
            now = self._done()
            return all(now[name] > count for name, count in before.items())

        try:
            wait_for(more, "all goes on", PATIENCE_S, 0.1)
        except AssertionError as late:
            now = self._done()
            stuck = [name for name, count in before.items() if now[name] <= count]
            raise AssertionError(f"{late}: {stuck} do not") from None

    def _done(self) -> dict[str, int]:
        """Counts of acknowledged records, by library and partition, and by the bank."""
        found = {f"queue-{n} by {one.name}": one.acknowledged[n]
                 for one in self.queue.producers if one.name in WAITED_FOR
                 for n in range(Queue.topics[TOPIC])}  # fmt: skip
        found["ledger"] = sum(one.committed for one in self.bank.tellers)
        return found

    def judge(self) -> dict[str, list[Anomaly]]:
        """Anomalies by workload, and replicas that differ; stops the nodes first."""
        found = {name: one.judge() for name, one in self._all.items()}
        self.cluster.end()
        found["copies"] = [Anomaly("differs", line) for line in self.cluster.copies_differ()]
        return {name: anomalies for name, anomalies in found.items() if anomalies}

    def figures(self) -> dict[str, Any]:
        """`rate`: operations of all clients a second, from the first fault to the last."""
        count = sum(len(history.of(Op)) for history in self._histories().values())
        return {
            "rate": round(count / self._lasted_s),
            **{name: one.figures() for name, one in self._all.items()},
        }

    def _histories(self) -> dict[str, History]:
        return {
            "queue": self.queue.history, "groups": self.groups.history,
            "orders": self.bank.orders, "ledger": self.bank.ledger, "lists": self.lists.history,
            "topics": self.topics.history,
        }  # fmt: skip

    def keep(self, folder: Path) -> None:
        """Write the histories and the log of faults to files for people."""
        folder.mkdir(exist_ok=True)
        for name, history in self._histories().items():
            (folder / f"{name}.history").write_text("\n".join(history.lines()) + "\n")
        (folder / "nemeses").write_text("\n".join(self.log) + "\n")


def told(anomalies: dict[str, list[Anomaly]]) -> str:
    """The first anomalies of each workload."""
    return "\n".join(
        f"{name}: {one.kind}: {one.what}"
        for name, found in anomalies.items() for one in found[:SHOWN]
    )  # fmt: skip
