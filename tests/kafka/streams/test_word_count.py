"""Unmodified Kafka Streams counts words exactly once while its broker and it are killed: the counts
equal those of a plain program."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable

import pytest

from tests.kafka.clients.conftest import Admin
from tests.kafka.clients.servers import Server
from tests.kafka.streams.application import CLASSIC, STREAMS, WAIT_S, Application, committed
from tests.support.effort import LONG

KILLS = 12 if LONG else 2
"""Kills, of the broker and of the program in turn."""
LINES = 300
"""Lines fed between two kills."""
PARTITIONS = 2
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "in", "spain"]

Wait = Callable[..., None]
pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]


def counts(bootstrap: str) -> dict[str, int]:
    """The newest committed count of each word; each word's counts rise one by one."""
    found: dict[str, int] = {}
    for key, value in committed(bootstrap, "counts", PARTITIONS):
        word, (count,) = key.decode(), struct.unpack(">q", value)
        assert count > found.get(word, 0), f"{word}: {count} after {found.get(word)}"
        found[word] = count
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


@pytest.mark.parametrize(
    ("broker", "protocol"),
    [
        pytest.param(("kafkalog", "classic"), CLASSIC, id="kafkalog-classic"),
        pytest.param(("kafkalog", "streams"), STREAMS, id="kafkalog-streams"),
        pytest.param(("kafka", "streams"), STREAMS, id="kafka-streams"),
    ],
    indirect=["broker"],
)
def test_words_are_counted_once_through_kills(
    broker: Server, protocol: dict[str, str], admin: Admin, started: Callable[..., Application],
    rng: random.Random, wait_until: Wait,
) -> None:  # fmt: skip
    admin.create("lines", PARTITIONS, {})
    admin.create("counts", PARTITIONS, {})
    application = started("streams", protocol)
    wanted: Counter[str] = Counter()

    def until_counted(share: float) -> None:
        try:
            wait_until(
                lambda: sum(counts(broker.bootstrap).values()) >= share * wanted.total(),
                "words are counted", WAIT_S,
            )  # fmt: skip
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{application.said()}") from None

    for kill in range(KILLS):
        feed(broker.bootstrap, rng, wanted)
        until_counted(0.5 if kill == 0 else 0.8)
        if kill % 2 == 0:
            broker.kill()
            broker.start()
            wait_until(broker.answers, "the broker is back", WAIT_S)
        else:
            feed(broker.bootstrap, rng, wanted)
            application.kill()
            application.start()
    until_counted(1)
    assert counts(broker.bootstrap) == dict(wanted)
