"""The step with a transaction: records in, records out and the position, all or nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from source import Flight
from tour import check, code, say

import kafkalog

SOURCE, TARGET = "boarding", "late"
LATE_MINUTES = 60
PATIENCE_S = 60
OPTIONS = {"group": "late", "auto_offset_reset": "earliest", "auto_commit": False}


class Breakdown(Exception):
    """A failure in the middle of a program."""


def consume_transform_produce(directory: Path, flights: Sequence[Flight]) -> None:
    """Move the flights that left late from one topic to another, aborted once."""
    code("with producer.transaction():")
    code("    producer.send(target, ...)")
    code("    producer.send_offsets(positions, consumer.group_metadata())")
    wanted = [flight.value for flight in flights if _is_late(flight.value)]
    with kafkalog.Store(directory) as store:
        store.create_topic(SOURCE)
        store.create_topic(TARGET)
        with store.producer() as producer:
            producer.send_many(SOURCE, [flight.value for flight in flights])
        try:
            _move(store, len(flights), broken=True)
        except Breakdown:
            found, whole = _read(store, "read_committed"), _read(store, "read_uncommitted")
            check(bool(whole) and not found, f"aborted: {len(whole)} written, none visible")
        _move(store, len(flights), broken=False)
        check(_committed(store, len(wanted)) == wanted, f"done once more: {len(wanted)}, each once")
        say(f"of {len(flights):,} flights {len(wanted)} left an hour late or more")


def _is_late(value: bytes | None) -> bool:
    return (json.loads(value or b"{}").get("dep_delay") or 0) >= LATE_MINUTES


def _move(store: kafkalog.Store, count: int, broken: bool) -> None:
    """One process after another: each continues where the last transaction ended."""
    with (
        store.consumer(SOURCE, **OPTIONS) as consumer,
        store.producer(transactional_id="late-1") as producer,
    ):
        producer.init_transactions()
        seen = 0
        while seen < count:
            records = consumer.poll()
            seen += len(records)
            with producer.transaction():
                for record in records:
                    if _is_late(record.value):
                        producer.send(TARGET, record.value)
                if broken:
                    producer.flush()
                    raise Breakdown
                offsets = {tp: consumer.position(tp) for tp in consumer.assignment}
                producer.send_offsets(offsets, consumer.group_metadata())


def _read(store: kafkalog.Store, isolation: str) -> list[bytes | None]:
    return [record.value for record in store[TARGET][0].read(isolation=isolation)]


def _committed(store: kafkalog.Store, count: int) -> list[bytes | None]:
    """The committed records.  Readers may see a commit a moment after it is acknowledged."""
    until_s = time.monotonic() + PATIENCE_S
    while len(found := _read(store, "read_committed")) < count and time.monotonic() < until_s:
        time.sleep(0.01)
    return found
