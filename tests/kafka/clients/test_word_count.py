"""Unmodified Kafka Streams counts words exactly once while its broker and it are killed: the counts
equal those of a plain program."""

from __future__ import annotations

import random
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.clients import programs
from tests.kafka.clients.conftest import Admin
from tests.kafka.clients.servers import Server
from tests.support.effort import LONG

KILLS = 12 if LONG else 2
"""Kills, of the broker and of the program in turn."""
LINES = 300
"""Lines fed between two kills."""
PARTITIONS = 2
WAIT_S = 90.0
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "in", "spain"]

Wait = Callable[..., None]
pytestmark = [pytest.mark.java, pytest.mark.long]


class Program:
    """The word count, in a JVM."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._settings = folder / "streams.properties"
        self._output = folder / "streams.out"
        self._settings.write_text(
            f"bootstrap.servers={bootstrap}\n"
            "application.id=word-count\n"
            "processing.guarantee=exactly_once_v2\n"
            f"state.dir={folder / 'state'}\n"
            "commit.interval.ms=50\n"
            "replication.factor=1\n"
            "reconnect.backoff.max.ms=200\n"
            "consumer.group.instance.id=only\n"
            "consumer.session.timeout.ms=3000\n"
            "consumer.heartbeat.interval.ms=500\n"
            "consumer.auto.offset.reset=earliest\n"
            "producer.transaction.timeout.ms=10000\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*programs.command("streams"), str(self._settings)], stdin=subprocess.PIPE,
                stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """The end of its output."""
        return self._output.read_text(errors="replace")[-3_000:]


@pytest.fixture
def program(own_broker: Server, tmp_path: Path) -> Iterator[Program]:
    made = Program(own_broker.bootstrap, tmp_path)
    try:
        made.start()
    except programs.Unavailable as reason:
        pytest.skip(str(reason))
    yield made
    made.kill()


def counts(bootstrap: str) -> dict[str, int]:
    """The newest committed count of each word; each word's counts rise one by one."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True,
        "isolation.level": "read_committed", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition("counts", n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    found: dict[str, int] = {}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is None:
            word, (count,) = message.key().decode(), struct.unpack(">q", message.value())
            assert count > found.get(word, 0), f"{word}: {count} after {found.get(word)}"
            found[word] = count
        elif message.error().name() == "_PARTITION_EOF":
            ended.add(message.partition())
    consumer.close()
    return found


def feed(bootstrap: str, rng: random.Random, wanted: Counter[str]) -> None:
    """Write more lines, and add a plain count of them to `wanted`."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(LINES):
        words = rng.choices(WORDS, k=rng.randint(1, 9))
        wanted.update(words)
        producer.produce("lines", " ".join(words).title(), partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def test_words_are_counted_once_through_kills(
    own_broker: Server, program: Program, rng: random.Random, wait_until: Wait
) -> None:
    wait_until(own_broker.answers, "the broker takes connections", WAIT_S)
    admin = Admin(own_broker.bootstrap)
    admin.until_ready()
    admin.create("lines", PARTITIONS, {})
    admin.create("counts", PARTITIONS, {})
    wanted: Counter[str] = Counter()

    def until_counted(share: float) -> None:
        try:
            wait_until(
                lambda: sum(counts(own_broker.bootstrap).values()) >= share * wanted.total(),
                "words are counted", WAIT_S,
            )  # fmt: skip
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{program.said()}") from None

    for kill in range(KILLS):
        feed(own_broker.bootstrap, rng, wanted)
        until_counted(0.5 if kill == 0 else 0.8)
        if kill % 2 == 0:
            own_broker.kill()
            own_broker.start()
            wait_until(own_broker.answers, "the broker is back", WAIT_S)
        else:
            feed(own_broker.bootstrap, rng, wanted)
            program.kill()
            program.start()
    until_counted(1)
    assert counts(own_broker.bootstrap) == dict(wanted)
