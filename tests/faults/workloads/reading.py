"""Readers: one follows a partition through all faults, and one reads everything at the end."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import kafkalog
from kafkalog.types import TopicPartition
from tests.faults.history import History, Op, Outcome, Poll
from tests.faults.workloads.loops import Loop

LAST = "last"
WAIT_S = 300.0


class Follower(Loop):
    """Reads a partition from its start as it grows."""

    def __init__(
        self, history: History, bootstrap: str, topic: str, partition: int, isolation: str
    ) -> None:
        super().__init__(f"reader-{topic}-{partition}")
        self._history, self._servers = history, bootstrap
        self._tp = TopicPartition(topic, partition)
        self._isolation = isolation
        self._next = 0

    def turn(self) -> None:
        """One life of a consumer; the next one continues where it ended."""
        with kafkalog.Consumer(
            self._servers, isolation=self._isolation, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([self._tp])
            consumer.seek(self._tp, self._next)
            while not self.ending:
                start = time.monotonic()
                records = consumer.poll(300)
                if records:
                    poll = self._history.begin(Poll, self.name, partition=self._tp.partition)
                    poll.start = start
                    self._history.end(poll, records=[(r.offset, text(r.value)) for r in records])
                    self._next = records[-1].offset + 1


def text(value: bytes | None) -> str:
    return (value or b"").decode()


def read_all(
    history: History, bootstrap: str, topic: str, partitions: int, isolation: str
) -> dict[int, list[tuple[int, str]]]:
    """Read everything with librdkafka; recorded as the last reading."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer
    from confluent_kafka import TopicPartition as Place

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "nobody", "isolation.level": isolation,
        "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0,
    })  # fmt: skip
    found: dict[int, list[tuple[int, str]]] = {n: [] for n in range(partitions)}
    polls = {n: history.begin(Poll, LAST, partition=n) for n in range(partitions)}
    ended: set[int] = set()
    try:
        consumer.assign([Place(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
        until = time.monotonic() + WAIT_S
        while len(ended) < partitions:
            assert time.monotonic() < until, f"{topic}: {ended} of {partitions} are read"
            message: Any = consumer.poll(1)
            if message is not None and message.error() is None:
                found[message.partition()].append((message.offset(), text(message.value())))
            elif message is not None and message.error().name() == "_PARTITION_EOF":
                ended.add(message.partition())
    finally:
        consumer.close()
    for n, poll in polls.items():
        history.end(poll, records=found[n])
    return found


def ends(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The offset after the last visible record of each partition."""
    wanted = [TopicPartition(topic, n) for n in range(partitions)]
    with kafkalog.Consumer(bootstrap) as consumer:
        return {tp.partition: end for tp, end in consumer.end_offsets(wanted).items()}


@contextlib.contextmanager
def unknown_if_it_fails(operation: Op) -> Any:
    """An operation whose failure does not show whether it had an effect."""
    try:
        yield
    except kafkalog.KafkalogError:
        History.end(operation, Outcome.UNKNOWN)
        raise
