"""Producers of several libraries send numbered values; readers follow each partition."""

from __future__ import annotations

import collections
import threading

from tests.faults.history import Anomaly, History, Outcome, Send
from tests.faults.judges import queues
from tests.faults.workloads.loops import Loop
from tests.faults.workloads.reading import LAST, Follower, read_all
from tests.faults.workloads.senders import LIBRARIES

TOPIC = "queue"
IN_FLIGHT = 200
"""Records of one producer that are not answered; then it waits."""


class Producer(Loop):
    """Sends to each partition in turn; after a failure it is another process."""

    def __init__(
        self, history: History, bootstrap: str, topic: str, partitions: int, library: str,
        pause_s: float,
    ) -> None:  # fmt: skip
        super().__init__(library)
        self._history, self._servers = history, bootstrap
        self._topic, self._partitions = topic, partitions
        self._pause_s = pause_s
        self._room = threading.Semaphore(IN_FLIGHT)
        self._number = 0
        self._failed = False
        self.acknowledged: collections.Counter[int] = collections.Counter()
        """Records, by partition."""

    def value(self, number: int) -> str:
        return f"{self.name}.{number}"

    def turn(self) -> None:
        sender = LIBRARIES[self.name](self._servers)
        self._failed = False
        try:
            while not self.ending and not self._failed:
                sender.look()
                if self._room.acquire(timeout=0.1):
                    self._send(sender.send)
                    self.pause(self._pause_s)
        finally:
            sender.close()

    def _send(self, send: object) -> None:
        self._number += 1
        partition, value = self._number % self._partitions, self.value(self._number)
        operation = self._history.begin(
            Send, f"{self.name}-{self.lives}", partition=partition, value=value
        )

        def done(offset: int | None) -> None:
            self._room.release()
            if offset is None:
                self._failed = True
                self._history.end(operation, Outcome.UNKNOWN)
            else:
                self.acknowledged[partition] += 1
                self._history.end(operation, offset=offset if offset >= 0 else None)

        try:
            send(self._topic, partition, value.encode(), done)  # type: ignore[operator]
        except Exception as refused:
            self._room.release()
            self.failures[type(refused).__name__] += 1
            self._failed = True
            self.pause(0.2)


class Queue:
    """The workload."""

    topics = {TOPIC: 3}  # noqa: RUF012

    def __init__(self, bootstrap: str, pause_s: float = 0.004) -> None:
        self.history = History()
        self._servers = bootstrap
        self._partitions = self.topics[TOPIC]
        self.producers = [
            Producer(self.history, bootstrap, TOPIC, self._partitions, library, pause_s)
            for library in LIBRARIES
        ]
        self.readers = [
            Follower(self.history, bootstrap, TOPIC, n, "read_uncommitted")
            for n in range(self._partitions)
        ]
        self.records: dict[int, list[tuple[int, str]]] = {}

    def begin(self) -> None:
        for one in (*self.producers, *self.readers):
            one.start()

    def stop(self) -> None:
        """Nothing new; all is answered when the cluster is whole."""
        for one in self.producers:
            one.ask_to_end()

    def settle(self) -> None:
        for one in (*self.producers, *self.readers):
            one.end()
        self.records = read_all(
            self.history, self._servers, TOPIC, self._partitions, "read_uncommitted"
        )

    def judge(self) -> list[Anomaly]:
        return queues.check(self.history, last=LAST)

    def figures(self) -> dict[str, float]:
        sends = self.history.of(Send)
        acknowledged = sorted(one.end for one in sends if one.outcome is Outcome.OK)
        gaps = [b - a for a, b in zip(acknowledged, acknowledged[1:])]  # noqa: B905, RUF007
        return {
            "sent": len(sends), "acknowledged": len(acknowledged),
            "longest silence in s": round(max(gaps, default=0), 1),
        }  # fmt: skip
