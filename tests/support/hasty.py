"""A producer with acks=1 that runs while something happens to its partition's leader."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress

import kafkalog
from kafkalog.types import Record
from tests.support.waiting import LIMIT_S, wait_for

__all__ = ["Hasty"]

IN_FLIGHT = 20
ENOUGH = 100


class Hasty:
    """Writes to one partition, with several records in flight, until `end`; repeats what a node
    refuses.  A context manager."""

    def __init__(self, servers: str, topic: str, partition: int = 0) -> None:
        self.acknowledged: list[bytes] = []
        self._topic, self._partition = topic, partition
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(servers,), daemon=True)
        self._thread.start()

    def _write(self, servers: str) -> None:
        with kafkalog.Producer(servers, acks=1, linger_ms=0) as producer:
            sent: list[tuple[bytes, kafkalog.Future]] = []
            number = 0
            while sent or not self._ending.is_set():
                while len(sent) < IN_FLIGHT and not self._ending.is_set():
                    value = b"%d-%d" % (self._partition, number)
                    future = producer.send(self._topic, value, partition=self._partition)
                    sent.append((value, future))
                    number += 1
                value, future = sent.pop(0)
                with suppress(kafkalog.KafkalogError):
                    future.result(LIMIT_S)
                    self.acknowledged.append(value)

    def more(self) -> None:
        """Wait until ENOUGH more records are acknowledged."""
        before, alive = len(self.acknowledged), self._thread.is_alive
        wait_for(lambda: len(self.acknowledged) >= before + ENOUGH or not alive(), "it goes on")
        assert alive()

    def end(self) -> None:
        """Wait until nothing is in flight."""
        self._ending.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def lost(self, found: Iterable[Record]) -> list[bytes]:
        """The acknowledged records that are missing."""
        there = {record.value for record in found}
        return [value for value in self.acknowledged if value not in there]

    def __enter__(self) -> Hasty:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
