"""Transactions: a C program on librdkafka commits one after another, to one broker and then to the
next.

acks=all, no compression, PLAINTEXT over loopback; each client's next transaction waits for the
commit of its last one.  The broker, durability `os`, is a separate process, like Apache Kafka
with its default settings and the JVM options of its scripts: neither waits for the disk.  `plain`
is the same program without transactions: an idempotent producer that flushes where the other
commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.broker import programs
from benchmarks.broker.brokers import KAFKA, OURS, Served, brokers
from benchmarks.measure import Part, Want, scaled

SIZE = 100
TRANSACTIONS = {1: 1_000, 16: 4_000}
"""Transactions in all, by the number of clients; one record each."""
LARGE, LARGE_COUNT = 1_000, 150
"""Records in a large transaction, and how many of those."""
FASTER = 3
OVERHEAD = 1.05


@pytest.fixture(scope="module")
def running(module_folder: Path) -> Iterator[dict[str, Served]]:
    """Ours, and Apache Kafka where it can run, for all rows."""
    try:
        programs.program("load")
    except programs.Missing as reason:
        pytest.skip(str(reason))
    with brokers(module_folder, [OURS, KAFKA]) as made:
        yield made


def side(
    broker: Served, key: str, count: int, clients: int, **settings: object
) -> Callable[[], dict[str, float]]:
    """A fresh topic with a partition for each client; transactions a second, and the broker's CPU
    time for each."""

    def once() -> dict[str, float]:
        topic = broker.new_topic(clients)
        before_s = broker.cpu_s()
        taken_s = programs.load(
            "transact", broker.bootstrap, topic, count, SIZE, clients, clients, **settings
        )["seconds"]
        spent_s = broker.cpu_s() - before_s
        broker.drop_topic(topic)
        return {key: count / taken_s, f"{key}-cpu": spent_s / count}

    return once


def parts(key: str, work: str, wants: list[Want], cpu_wants: list[Want]) -> list[Part]:
    return [
        Part(key, work, "transactions/s", wants),
        Part(f"{key}-cpu", f"{work}, the broker's CPU time", "s", cpu_wants),
    ]


@pytest.mark.parametrize("clients", TRANSACTIONS)
def test_transactions(measure_together: Any, running: dict[str, Served], clients: int) -> None:
    count, key = scaled(TRANSACTIONS[clients], 10 * clients), f"transactions-{clients}c"
    sides = {name: side(broker, key, count, clients) for name, broker in running.items()}
    work = f"Transactions of one record, {clients} producer(s)"
    wants = [Want(OURS, than=KAFKA, factor=FASTER)]
    measure_together(parts(key, work, wants, []), sides, jvm=True)


def test_overhead(measure_together: Any, running: dict[str, Served]) -> None:
    """The cost of transactions, with a thousand records in each."""
    count, key = scaled(LARGE_COUNT, 10), "transactions-large"
    sides = {}
    for name, broker in running.items():
        sides[name] = side(broker, key, count, 1, piece=LARGE)
        sides[f"{name}, plain"] = side(
            broker, key, count, 1, piece=LARGE, plain=1, enable_idempotence="true"
        )
    work = f"Transactions of {LARGE:,} records, one producer"
    wants = [Want(OURS, than=f"{OURS}, plain", factor=1 / OVERHEAD)]
    measure_together(parts(key, work, wants, wants), sides, jvm=True)
