"""Three libraries' producers behind one interface: idempotent, acks=all, each record's outcome."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import kafkalog

DELIVERY_MS = 60_000
"""How long they retry; after that it is unknown whether the record is there."""
REQUEST_MS = 5_000
STEP_MS = 100
Done = Callable[[int | None], None]
"""Called with the offset; with -1 if the record is there at an unknown offset; with None if it is
unknown whether the record is there."""


class Sender(Protocol):
    def send(self, topic: str, partition: int, value: bytes, done: Done) -> None:
        """Raises: the library's errors; then nothing was sent, or that is unknown."""

    def look(self) -> None:
        """Run the library's callbacks, if it calls them only in its caller's thread."""

    def close(self) -> None:
        """Close when all sends are answered."""


class Ours:
    """kafkalog.Producer."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = kafkalog.Producer(
            bootstrap, acks="all", idempotent=True, linger_ms=5, delivery_timeout_ms=DELIVERY_MS,
            request_timeout_ms=REQUEST_MS, max_block_ms=DELIVERY_MS,
        )  # fmt: skip

    def send(self, topic: str, partition: int, value: bytes, done: Done) -> None:
        def told(future: Any) -> None:
            done(None if future.exception() is not None else future.result().offset)

        self._producer.send(topic, value, partition=partition).add_done_callback(told)

    def look(self) -> None:
        pass

    def close(self) -> None:
        with contextlib.suppress(kafkalog.KafkalogError):
            self._producer.close(DELIVERY_MS / 1000)


def offset_told(problem: Any, message: Any) -> int | None:
    """Translate librdkafka's report for `Done`: a record has no offset if its own batch got no
    answer or a timeout, and a later batch was accepted, which proves that it is there."""
    if problem is not None:
        return None
    offset = message.offset()
    return -1 if offset is None else int(offset)


class Librdkafka:
    """confluent_kafka.Producer, one for each partition.

    When a broker refuses a sequence of one partition, librdkafka (2.16) resends records of another
    partition under another epoch although they may be stored: they are there twice
    (librdkafka#4953).
    """

    def __init__(self, bootstrap: str) -> None:
        self._producers: dict[tuple[str, int], Any] = {}
        self._ended: set[tuple[str, int]] = set()  # after a fatal error
        self._settings = {
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
            "message.timeout.ms": DELIVERY_MS, "socket.timeout.ms": REQUEST_MS,
            "request.timeout.ms": REQUEST_MS, "log_level": 0,
        }  # fmt: skip

    def send(self, topic: str, partition: int, value: bytes, done: Done) -> None:
        from confluent_kafka import Producer

        def told(problem: Any, message: Any) -> None:
            done(offset_told(problem, message))

        if (topic, partition) not in self._producers:
            self._producers[topic, partition] = Producer(
                {**self._settings, "error_cb": partial(self._told_error, (topic, partition))}
            )
        producer = self._producers[topic, partition]
        try:
            producer.produce(topic, value, partition=partition, on_delivery=told)
        except Exception:
            self._ended.add((topic, partition))
            raise

    def look(self) -> None:
        for where, one in self._producers.items():
            try:
                one.poll(0)
            except Exception:  # a fatal error comes once, then each record's outcome
                self._ended.add(where)

    def close(self) -> None:
        for where, one in self._producers.items():
            self._flush(where, one)
            one.purge()
            with contextlib.suppress(Exception):
                one.flush(REQUEST_MS / 1000)

    def _told_error(self, where: tuple[str, int], problem: Any) -> None:
        if problem.fatal():
            self._ended.add(where)

    def _flush(self, where: tuple[str, int], producer: Any) -> None:
        """In steps: after a fatal error, which may come now, records that wait get no outcome."""
        for _ in range(DELIVERY_MS // STEP_MS):
            if where in self._ended or not len(producer):
                return
            try:
                producer.flush(STEP_MS / 1000)
            except Exception:  # it is reported for each record, too
                self._ended.add(where)


class KafkaPython:
    """kafka.KafkaProducer."""

    def __init__(self, bootstrap: str) -> None:
        from kafka import KafkaProducer  # type: ignore[import-untyped, unused-ignore]

        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","), acks="all", enable_idempotence=True,
            linger_ms=5, request_timeout_ms=REQUEST_MS, delivery_timeout_ms=DELIVERY_MS,
            max_block_ms=DELIVERY_MS,
        )  # fmt: skip

    def send(self, topic: str, partition: int, value: bytes, done: Done) -> None:
        future = self._producer.send(topic, value, partition=partition)
        future.add_callback(lambda metadata: done(metadata.offset))
        future.add_errback(lambda _: done(None))

    def look(self) -> None:
        pass

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._producer.close(timeout=DELIVERY_MS / 1000)


LIBRARIES: dict[str, Callable[[str], Sender]] = {
    "ours": Ours, "librdkafka": Librdkafka, "kafka-python": KafkaPython,
}  # fmt: skip
