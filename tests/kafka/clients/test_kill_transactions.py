"""kill -9 of a broker, and of the clients, during transactions that read, transform and write:
each transfer is made once, the bank's total stays the same, and the offsets match the output."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

import kafkalog
from tests.kafka.clients.agent import Agent
from tests.kafka.clients.conftest import Admin
from tests.kafka.clients.servers import Server
from tests.support.effort import LONG

KILLS = 30 if LONG else 3
"""Kills, of the broker and of clients, in turn; the long form draws which."""
BETWEEN = 80
"""Transfers read between two kills, at least."""
TRANSFERS = KILLS * BETWEEN * 2
MOVERS = ("left", "right")
PARTITIONS = 3
ACCOUNTS = 10
WAIT_S = 60.0

Wait = Callable[..., None]
pytestmark = [pytest.mark.slow]


def feed(bootstrap: str, rng: random.Random) -> list[bytes]:
    """Write the transfers into the source topic."""
    from confluent_kafka import Producer

    found = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(TRANSFERS):
        one, other = rng.sample(range(ACCOUNTS), 2)
        found.append(b"%d:%d:%d:%d" % (number, one, other, rng.randint(1, 100)))
        producer.produce("asked", found[-1], partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0
    return found


class Reader:
    """Reads committed records from the beginning on, repeatedly, as the topic grows."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def read(self) -> list[tuple[int, bytes]]:
        """(account, "number:change") of all records committed so far."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({
            "bootstrap.servers": self._bootstrap, "group.id": "nobody",
            "isolation.level": "read_committed", "enable.auto.commit": False,
            "enable.partition.eof": True, "fetch.wait.max.ms": 20,
        })  # fmt: skip
        consumer.assign([TopicPartition("done", n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
        found, ended = [], set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if message.error() is None:
                found.append((int(message.key()), message.value()))
            elif message.error().name() == "_PARTITION_EOF":
                ended.add(message.partition())
        consumer.close()
        return found


def offsets(bootstrap: str) -> list[int]:
    """The group's committed offsets; waits for open transactions to end."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "movers"})
    found = consumer.committed([TopicPartition("asked", n) for n in range(PARTITIONS)], WAIT_S)
    consumer.close()
    return [max(one.offset, 0) for one in found]


def once(found: list[tuple[int, bytes]]) -> None:
    """Check that nothing is duplicated."""
    doubled = [one for one, times in Counter(found).items() if times > 1]
    assert not doubled


def test_transfers_survive_kills(
    own_broker: Server, side: str, new_agent: Callable[..., Agent], rng: random.Random,
    wait_until: Wait,
) -> None:  # fmt: skip
    wait_until(own_broker.answers, "the broker takes connections", WAIT_S)
    admin = Admin(own_broker.bootstrap)
    admin.until_ready()
    admin.create("asked", PARTITIONS, {})
    admin.create("done", PARTITIONS, {"segment.bytes": "1048576"})
    asked = feed(own_broker.bootstrap, rng)

    def start(name: str) -> Agent:
        agent = new_agent("mover", own_broker.bootstrap)
        agent.ask("move", source="asked", target="done", group="movers", name=name,
                  partitions=PARTITIONS)  # fmt: skip
        return agent

    movers = {name: start(name) for name in MOVERS}
    reader = Reader(own_broker.bootstrap)
    seen = 0
    for kill in range(KILLS):
        goal = min(seen + BETWEEN, TRANSFERS - 1)
        wait_until(lambda n=goal: len(reader.read()) // 2 >= n, "transfers are made", WAIT_S)
        victim = rng.choice(["broker", *MOVERS]) if LONG else ["broker", *MOVERS][kill % 3]
        if victim == "broker":
            own_broker.kill()
            own_broker.start()
            wait_until(own_broker.answers, "the broker is back", WAIT_S)
        else:
            movers[victim].kill()
            movers[victim] = start(victim)
        found = reader.read()
        once(found)
        assert len(found) // 2 >= goal
        seen = len(found) // 2

    wait_until(lambda: sum(offsets(own_broker.bootstrap)) == TRANSFERS, "all are made", 4 * WAIT_S)
    found = reader.read()
    once(found)
    assert Counter(found) == Counter(wanted(asked))
    assert sum(int(value.partition(b":")[2]) for _, value in found) == 0
    for mover in movers.values():
        mover.ask("stop")
    own_broker.stop()
    if side == "kafkalog":
        for number in range(PARTITIONS):
            with kafkalog.Log(own_broker.directory / f"done-{number}", mode="r") as log:
                assert log.verify().clean


def wanted(asked: list[bytes]) -> list[tuple[int, bytes]]:
    """The expected output of the transfers."""
    found = []
    for value in asked:
        number, one, other, amount = map(int, value.split(b":"))
        found += [(one, b"%d:%d" % (number, -amount)), (other, b"%d:%d" % (number, amount))]
    return found
