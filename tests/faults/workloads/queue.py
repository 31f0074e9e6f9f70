"""Producers of several libraries send numbered values; readers follow each partition."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterable
from typing import TypeVar

from tests.faults.history import Anomaly, History, Outcome, Send
from tests.faults.judges import queues
from tests.faults.workloads.loops import Loop
from tests.faults.workloads.reading import LAST, Follower, read_all
from tests.faults.workloads.senders import LIBRARIES
from tests.support.waiting import wait_for

TOPIC = "queue"
PATIENCE_S = 300.0
ENOUGH = 0.99
"""The share of sends that is acknowledged under faults of one node after the other: producers
retry refused sends."""
IN_FLIGHT = 200
"""Unanswered records of one producer; at this number it waits."""


class Producer(Loop):
    """Sends to each partition in turn; after a failure it continues as another process."""

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
        """Number of records by partition."""

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


Q = TypeVar("Q", bound="Queue")


class Queue:
    """The workload; a context manager, and inside it the workload runs."""

    topics = {TOPIC: 3}  # noqa: RUF012

    def __init__(
        self, bootstrap: str, pause_s: float = 0.004, libraries: Iterable[str] = LIBRARIES,
        topic: str = TOPIC,
    ) -> None:  # fmt: skip
        """`topic`: one with as many partitions as the usual topic."""
        self.history = History()
        self.topic = topic
        self._servers = bootstrap
        self._partitions = self.topics[TOPIC]
        self.producers = [
            Producer(self.history, bootstrap, topic, self._partitions, library, pause_s)
            for library in libraries
        ]
        self.readers = [
            Follower(self.history, bootstrap, topic, n, "read_uncommitted")
            for n in range(self._partitions)
        ]
        self.records: dict[int, list[tuple[int, str]]] = {}

    def begin(self) -> None:
        for one in (*self.producers, *self.readers):
            one.start()

    def __enter__(self: Q) -> Q:
        self.begin()
        self.go_on(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for one in self.readers:
            one.ask_to_end()

    def go_on(self, count: int) -> None:
        """Wait until each library has `count` more records acknowledged in each partition."""
        wanted = {
            (one.name, n): one.acknowledged[n] + count
            for one in self.producers for n in range(self._partitions)
        }  # fmt: skip

        def missing() -> dict[tuple[str, int], int]:
            found = {
                (one.name, n): c for one in self.producers for n, c in one.acknowledged.items()
            }
            return {where: c - found.get(where, 0) for where, c in wanted.items()
                    if found.get(where, 0) < c}  # fmt: skip

        try:
            wait_for(lambda: not missing(), f"{count} more are acknowledged", PATIENCE_S, 0.01)
        except AssertionError as late:
            raise AssertionError(f"{late} in each partition: {missing()} are missing") from None

    def stop(self) -> None:
        """Start no new sends; all are answered when the cluster is whole."""
        for one in self.producers:
            one.ask_to_end()

    def settle(self) -> None:
        for one in (*self.producers, *self.readers):
            one.end()
        self.records = read_all(
            self.history, self._servers, self.topic, self._partitions, "read_uncommitted"
        )

    def judge(self, enough: float = 0) -> list[Anomaly]:
        """`enough`: at least this share of the sends must be acknowledged."""
        found = queues.check(self.history, last=LAST)
        outcomes = [one.outcome for one in self.history.of(Send)]
        acknowledged = outcomes.count(Outcome.OK)
        if acknowledged < enough * len(outcomes):
            found.append(Anomaly("given up", f"{acknowledged} of {len(outcomes)} acknowledged"))
        return found

    def figures(self) -> dict[str, float]:
        sends = self.history.of(Send)
        acknowledged = sorted(one.end for one in sends if one.outcome is Outcome.OK)
        gaps = [b - a for a, b in zip(acknowledged, acknowledged[1:])]  # noqa: B905, RUF007
        return {
            "sent": len(sends), "acknowledged": len(acknowledged),
            "longest silence in s": round(max(gaps, default=0), 1),
        }  # fmt: skip
