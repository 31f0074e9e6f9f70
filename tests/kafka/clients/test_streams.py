"""Producers that continue while their connections die, and consumers that wait.

An idempotent producer whose answers are lost resends values that the broker already has: the log
must hold each value once and in order, with any client.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.kafka.clients.agent import Agent, Record
from tests.kafka.clients.programs import some
from tests.kafka.clients.servers import Server

PARTITIONS = 3
ENOUGH, CUTS = 600, 6
REPLY_BYTES = 2_000
WAIT_S = 120.0

Wait = Callable[..., None]


def numbers_of(reader: Agent, topic: str, counts: dict[int, int]) -> dict[int, list[int]]:
    """The number of each value in each partition."""
    found = {}
    for partition, count in counts.items():
        values = [r.value or b"" for r in reader.consume(topic, count, partition=partition)]
        found[partition] = [int(value.partition(b":")[0]) for value in values]
    return found


def ends(admin: Agent, topic: str) -> dict[int, int]:
    return {p: admin.offset_at(topic, 1 << 52, p) for p in range(PARTITIONS)}


def cut_while_it_produces(
    producer: Agent, server: Server, topic: str, rng: random.Random, wait_until: Wait, acks: str
) -> tuple[list[list[int]], list[object]]:
    """The acknowledged and failed values of a stream through a proxy that cuts."""
    producer.ask(
        "stream", topic=topic, partitions=PARTITIONS, start=0, codec="none", acks=acks,
        idempotent=acks == "all",
    )  # fmt: skip
    wait_until(lambda: producer.ask("acked")["acked"], "it is under way", WAIT_S)
    before = server.proxy.cuts
    server.proxy.lose_replies(REPLY_BYTES, rng.getrandbits(32))
    server.proxy.cut()
    try:
        wait_until(
            lambda: server.proxy.cuts - before >= CUTS
            and len(producer.ask("acked")["acked"]) >= ENOUGH,
            "enough is acknowledged through enough cuts", WAIT_S,
        )  # fmt: skip
    finally:
        server.proxy.lose_replies(None)
    said = producer.ask("stop")
    return said["acked"], said["failed"]


# In `make test` one client of most languages.
CUT = some("confluent", "java", "franz-go", "sarama", long=["kafka-python", "aiokafka", "kafkajs"])


@pytest.mark.parametrize("name", CUT)
def test_idempotent_producers_under_dropped_connections(
    name: str, server: Server, new_agent: Callable[..., Agent], agent: Callable[[str], Agent],
    new_topic: Callable[..., str], rng: random.Random, wait_until: Wait,
) -> None:  # fmt: skip
    topic, reader = new_topic(PARTITIONS), agent("confluent")
    producer = new_agent(name, server.cut)
    acked, failed = cut_while_it_produces(producer, server, topic, rng, wait_until, "all")
    found = numbers_of(reader, topic, ends(reader, topic))
    everything = [number for numbers in found.values() for number in numbers]
    assert len(everything) == len(set(everything)), "a value is there twice"
    assert {number for number, _, _ in acked} <= set(everything), "a value is lost"
    assert {number for number, _ in failed}.isdisjoint(n for n, _, _ in acked)
    for partition, numbers in found.items():
        assert numbers == sorted(numbers), f"partition {partition} is out of order"
    known = {(p, n): o for n, p, o in acked if o >= 0}
    assert all(found[p][o] == n for (p, n), o in known.items())


def test_producers_without_idempotence_lose_nothing(
    server: Server, new_agent: Callable[..., Agent], agent: Callable[[str], Agent],
    new_topic: Callable[..., str], rng: random.Random, wait_until: Wait,
) -> None:  # fmt: skip
    """With acks=1 and retries a value may be there twice, but no acknowledged value is lost."""
    topic, reader = new_topic(PARTITIONS), agent("confluent")
    producer = new_agent("confluent", server.cut)
    acked, _ = cut_while_it_produces(producer, server, topic, rng, wait_until, "1")
    found = numbers_of(reader, topic, ends(reader, topic))
    assert {number for number, _, _ in acked} <= {n for all_ in found.values() for n in all_}


def test_a_consumer_that_waits_is_told(
    client: Agent, agent: Callable[[str], Agent], new_topic: Callable[..., str], new_group: str,
    wait_until: Wait,
) -> None:  # fmt: skip
    """A fetch is parked at the end of the log; each new record wakes it."""
    topic, producer = new_topic(), agent("confluent")
    waiting = client.join(new_group, [topic])
    wait_until(lambda: waiting.partitions() == {0}, "it has the partition", WAIT_S)
    for number in range(5):
        producer.produce(topic, [Record(None, b"%d" % number)])
        wait_until(
            lambda n=number: (topic, 0, n) in waiting.state().seen, f"record {number} came", WAIT_S
        )
    waiting.leave()


@pytest.mark.parametrize("name", some("java", long=["kafka-python", "franz-go"]))
def test_fetch_sessions(
    name: str, agent: Callable[[str], Agent], new_topic: Callable[..., str], new_group: str,
    wait_until: Wait,
) -> None:  # fmt: skip
    """Many partitions, few with new records: nothing is missed that a session leaves out."""
    partitions = 60
    topics = [new_topic(partitions), new_topic(1)]
    member = agent(name).join(new_group, topics)
    wait_until(lambda: len(member.state().assigned) == 61, "it has all partitions", WAIT_S)
    expected = set()
    producer = agent("confluent")
    for number in (0, 59, 0, 17, 17, 3):
        offset = producer.produce(topics[0], [Record(None, b"x")], partition=number)[0]
        expected.add((topics[0], number, offset))
        wait_until(lambda: expected <= set(member.state().seen), "the news came")
    for number in range(partitions):
        producer.produce(topics[0], [Record(None, b"y")], partition=number)
    producer.produce(topics[1], [Record(None, b"z")])
    wait_until(lambda: len(member.state().seen) == 6 + partitions + 1, "all came once")
    assert len(set(member.state().seen)) == len(member.state().seen)
    member.leave()


def test_consumers_survive_cut_connections(
    server: Server, new_agent: Callable[..., Agent], agent: Callable[[str], Agent],
    new_topic: Callable[..., str], new_group: str, wait_until: Wait,
) -> None:  # fmt: skip
    topic, producer = new_topic(PARTITIONS), agent("confluent")
    member = new_agent("java", server.cut).join(new_group, [topic])
    wait_until(lambda: len(member.partitions()) == PARTITIONS, "it has all partitions", WAIT_S)
    for number in range(6):
        producer.produce(topic, [Record(None, b"x")], partition=number % PARTITIONS)
        server.proxy.cut()
        wait_until(
            lambda n=number: len(set(member.state().seen)) >= n + 1, "the record came", WAIT_S
        )
    # It has committed nothing: when it joins the group again, it reads from the beginning.
    seen = set(member.state().seen)
    assert seen == {(topic, number, offset) for number in range(PARTITIONS) for offset in (0, 1)}
