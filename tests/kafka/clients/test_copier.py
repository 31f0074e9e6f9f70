"""Kafka's TransactionalMessageCopier, used as in its system tests: it copies each partition of a
topic into another in transactions with its positions, and aborts some, while it and the broker are
killed; each value is there once, in order."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.clients.conftest import Admin
from tests.kafka.clients.servers import Server
from tests.support import apache
from tests.support.effort import LONG

KILLS = 12 if LONG else 2
"""Kills, of the broker and of a copier in turn."""
BETWEEN = 60
"""Values of a partition copied between two kills, at least."""
COUNT = BETWEEN * KILLS * 4
"""Values in each partition."""
STEP = 5
"""Values in a transaction."""
PARTITIONS = 2
WAIT_S = 90.0

Wait = Callable[..., None]
pytestmark = [pytest.mark.java, pytest.mark.long]


class Copier:
    """One of Kafka's programs, for one partition."""

    def __init__(self, bootstrap: str, partition: int, folder: Path) -> None:
        self._command = apache.java(
            "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", bootstrap,
            "--input-topic", "asked", "--input-partition", str(partition),
            "--output-topic", "done", "--consumer-group", "copiers",
            "--transactional-id", f"copier-{partition}", "--transaction-size", str(STEP),
            "--transaction-timeout", "10000", "--enable-random-aborts", "--use-group-metadata",
        )  # fmt: skip
        self._output = folder / f"copier-{partition}.out"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def copied(self) -> int:
        """The number of values that it has committed since it started."""
        told: list[dict[str, Any]] = [{"totalProcessed": 0}]
        for line in self._output.read_text(errors="replace").splitlines():
            if line.startswith("{") and line.endswith("}"):
                told.append(json.loads(line))
        return int(told[-1]["totalProcessed"])

    def ended(self) -> bool:
        """True if it has copied everything; it must not have failed."""
        assert self._process is not None
        status = self._process.poll()
        assert status in (None, 0), self._output.read_text(errors="replace")[-3_000:]
        return status == 0


@pytest.fixture
def copiers(own_broker: Server, tmp_path: Path) -> Iterator[list[Copier]]:
    try:
        made = [Copier(own_broker.bootstrap, number, tmp_path) for number in range(PARTITIONS)]
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    yield made
    for one in made:
        one.kill()


def feed(bootstrap: str) -> list[list[bytes]]:
    """Fill the source topic; returns the values of each partition."""
    from confluent_kafka import Producer

    found = [[b"%d-%d" % (number, n) for n in range(COUNT)] for number in range(PARTITIONS)]
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, values in enumerate(found):
        for value in values:
            producer.produce("asked", value, partition=number)
    assert producer.flush(WAIT_S) == 0
    return found


def committed(bootstrap: str) -> list[list[bytes]]:
    """The values that a read_committed consumer finds in each partition of the copy."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True,
        "isolation.level": "read_committed", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition("done", n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is None:
            found[message.partition()].append(message.value())
        elif message.error().name() == "_PARTITION_EOF":
            ended.add(message.partition())
    consumer.close()
    return found


def test_copies_survive_kills(own_broker: Server, copiers: list[Copier], wait_until: Wait) -> None:
    wait_until(own_broker.answers, "the broker takes connections", WAIT_S)
    admin = Admin(own_broker.bootstrap)
    admin.until_ready()
    admin.create("asked", PARTITIONS, {})
    admin.create("done", PARTITIONS, {})
    asked = feed(own_broker.bootstrap)
    for copier in copiers:
        copier.start()
    for kill in range(KILLS):
        victim = copiers[kill // 2 % PARTITIONS]
        goal = victim.copied() + BETWEEN
        wait_until(lambda one=victim, n=goal: one.copied() >= n, "values are copied", WAIT_S)
        assert not victim.ended(), "it ended before it could be killed"
        if kill % 2 == 0:
            own_broker.kill()
            own_broker.start()
            wait_until(own_broker.answers, "the broker is back", WAIT_S)
        else:
            victim.kill()
            victim.start()
    for copier in copiers:
        wait_until(copier.ended, "all is copied", 2 * WAIT_S)
    assert committed(own_broker.bootstrap) == asked
