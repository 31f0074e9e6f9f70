"""Each key has its own partition: appends that are waited for, and readings of the whole list."""

from __future__ import annotations

import itertools
import random
import time

import kafkalog
from kafkalog.types import TopicPartition
from tests.faults.history import Anomaly, Append, History, Outcome, Read
from tests.faults.judges import lists
from tests.faults.workloads.loops import Loop
from tests.faults.workloads.reading import LAST, read_all, text
from tests.faults.workloads.senders import DELIVERY_MS, REQUEST_MS

TOPIC = "lists"
KEYS = 3
WAIT_MS = 60_000


class Appender(Loop):
    """Appends to random keys, one after the other."""

    def __init__(
        self, history: History, bootstrap: str, number: int, seed: int,
        values: itertools.count[int], pause_s: float,
    ) -> None:  # fmt: skip
        super().__init__(f"appender-{number}")
        self._history, self._servers = history, bootstrap
        self._rng = random.Random(seed)
        self._values = values
        self._pause_s = pause_s

    def turn(self) -> None:
        with kafkalog.Producer(
            self._servers, acks="all", idempotent=True, linger_ms=0,
            delivery_timeout_ms=DELIVERY_MS, request_timeout_ms=REQUEST_MS,
        ) as producer:  # fmt: skip
            while not self.ending:
                key, value = self._rng.randrange(KEYS), next(self._values)
                append = self._history.begin(
                    Append, f"{self.name}.{self.lives}", keys=[str(key)], value=value
                )
                producer.send(TOPIC, b"%d" % value, partition=key).result(2 * DELIVERY_MS / 1000)
                self._history.end(append)
                self.pause(self._pause_s)


class Reader(Loop):
    """Reads a key from its start to the end that it had then."""

    def __init__(self, history: History, bootstrap: str, number: int, seed: int) -> None:
        super().__init__(f"list-reader-{number}")
        self._history, self._servers = history, bootstrap
        self._rng = random.Random(seed)

    def turn(self) -> None:
        with kafkalog.Consumer(self._servers, auto_offset_reset="earliest") as consumer:
            while not self.ending:
                tp = TopicPartition(TOPIC, self._rng.randrange(KEYS))
                read = self._history.begin(Read, f"{self.name}.{self.lives}", key=str(tp.partition))
                found = self._read(consumer, tp)
                if found is None:
                    return
                self._history.end(read, found=found)
                self.pause(0.1)

    def _read(self, consumer: kafkalog.Consumer, tp: TopicPartition) -> list[int] | None:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        end, found = consumer.end_offsets([tp])[tp], []
        until = time.monotonic() + WAIT_MS / 1000
        while consumer.position(tp) < end:
            if self.ending or time.monotonic() > until:
                return None
            found += [int(text(record.value)) for record in consumer.poll(300)]
        return found


class Lists:
    """The workload."""

    topics = {TOPIC: KEYS}  # noqa: RUF012

    def __init__(self, bootstrap: str, rng: random.Random, pause_s: float = 0.05) -> None:
        self.history = History()
        self._servers = bootstrap
        values = itertools.count(1)
        self._appenders = [
            Appender(self.history, bootstrap, n, rng.getrandbits(32), values, pause_s)
            for n in range(2)
        ]
        self._readers = [Reader(self.history, bootstrap, n, rng.getrandbits(32)) for n in range(2)]

    def begin(self) -> None:
        for one in (*self._appenders, *self._readers):
            one.start()

    def stop(self) -> None:
        for one in self._appenders:
            one.ask_to_end()

    def settle(self) -> None:
        for one in (*self._appenders, *self._readers):
            one.end()
        found = History()
        for key, records in read_all(found, self._servers, TOPIC, KEYS, "read_committed").items():
            read = self.history.begin(Read, LAST, key=str(key))
            self.history.end(read, found=[int(value) for _, value in records])

    def judge(self) -> list[Anomaly]:
        return lists.check(self.history, last=LAST)

    def figures(self) -> dict[str, float]:
        strict = lists.check(self.history, last=LAST, promised=lists.STRICT)
        appends = self.history.of(Append)
        return {
            "appends": len(appends), "reads": len(self.history.of(Read)),
            "appends of unknown fate": sum(a.outcome is not Outcome.OK for a in appends),
            "stale": len(strict),
        }  # fmt: skip
