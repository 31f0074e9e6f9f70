"""Transactions of real clients: aborted records are never seen, positions move with the records.

Each client reads, transforms and writes as its users do: values from one topic into another, the
positions in the same transaction, every third one aborted and repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.kafka.clients import servers
from tests.kafka.clients.agent import Agent, Record
from tests.support import apache

COUNT, STEP = 60, 10
WAIT_S = 60.0
Wait = Callable[..., None]
Pair = tuple[str, str]


def values(count: int = COUNT) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.fixture
def pair(new_topic: Callable[..., str]) -> Pair:
    """A topic to read and one to write."""
    return new_topic(1, "in"), new_topic(1, "out")


def read(bootstrap: str, topic: str, isolation: str, count: int) -> list[bytes]:
    """The values of a topic, as librdkafka reads them."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader",
                         "isolation.level": isolation, "enable.partition.eof": True})  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{topic}: {len(found)} of {count} values"
        if message.error() is None:
            found.append(message.value())
        elif len(found) >= count:  # the end; markers may still follow
            consumer.close()
            return found


def confluent(bootstrap: str, pair: Pair, group: str) -> int:
    """Consume, transform, produce; returns the final position."""
    from confluent_kafka import Consumer, Producer

    source, target = pair
    feed = Producer({"bootstrap.servers": bootstrap})
    for value in values():
        feed.produce(source, value)
    feed.flush(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions(WAIT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group,
                         "auto.offset.reset": "earliest", "enable.auto.commit": False})  # fmt: skip
    consumer.subscribe([source])
    batch: list[bytes] = []
    done = tries = 0
    while done < COUNT:
        while len(batch) < STEP:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if message.error() is None:
                batch.append(message.value())
        tries += 1
        producer.begin_transaction()
        for value in batch:
            producer.produce(target, value)
        producer.flush(WAIT_S)
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
        if tries % 3 == 0:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
            done += len(batch)
            batch = []
    (position,) = consumer.committed(consumer.assignment(), WAIT_S)
    consumer.close()
    return int(position.offset)


def kafka_python(bootstrap: str, pair: Pair, group: str) -> int:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    source, target = pair
    feed = KafkaProducer(bootstrap_servers=bootstrap)
    for value in values():
        feed.send(source, value, partition=0)
    feed.close()
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=group)
    producer.init_transactions()
    where = TopicPartition(source, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, max_poll_records=STEP,
                             enable_auto_commit=False, auto_offset_reset="earliest")  # fmt: skip
    consumer.assign([where])
    consumer.seek(where, 0)
    done = tries = 0
    while done < COUNT:
        batch = [one.value for found in consumer.poll(1_000).values() for one in found]
        while batch:
            tries += 1
            producer.begin_transaction()
            for value in batch:
                producer.send(target, value, partition=0)
            producer.flush()
            position = OffsetAndMetadata(consumer.position(where), "", -1)
            producer.send_offsets_to_transaction({where: position}, group)
            if tries % 3 == 0:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                done += len(batch)
                batch = []
    producer.close()
    while (found := consumer.committed(where)) is None or found < COUNT:
        pass  # its marker is not written yet
    consumer.close()
    return int(found)


def aiokafka(bootstrap: str, pair: Pair, group: str) -> int:
    return asyncio.run(_aiokafka(bootstrap, pair, group))


async def _aiokafka(bootstrap: str, pair: Pair, group: str) -> int:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    source, target = pair
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=group)
    await producer.start()
    async with producer.transaction():
        for value in values():
            await producer.send(source, value, partition=0)
    where = TopicPartition(source, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group,
                                enable_auto_commit=False, isolation_level="read_committed",
                                max_poll_records=STEP)  # fmt: skip
    await consumer.start()
    consumer.assign([where])
    consumer.seek(where, 0)
    done = tries = 0
    while done < COUNT:
        found = await consumer.getmany(timeout_ms=1_000, max_records=STEP)
        batch = [one.value for rows in found.values() for one in rows]
        while batch:
            tries += 1
            await producer.begin_transaction()
            for value in batch:
                await producer.send_and_wait(target, value, partition=0)
            position = await consumer.position(where)
            await producer.send_offsets_to_transaction({where: position}, group)
            if tries % 3 == 0:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                done += len(batch)
                batch = []
    await producer.stop()
    while (offset := await consumer.committed(where)) is None or offset < COUNT:
        pass  # its marker is not written yet
    await consumer.stop()
    return int(offset)


@pytest.mark.parametrize("run", [confluent, kafka_python, aiokafka])
def test_reading_transforming_and_writing_is_exactly_once(
    server: servers.Server, pair: Pair, new_group: str, wait_until: Wait,
    run: Callable[[str, Pair, str], int],
) -> None:  # fmt: skip
    assert run(server.bootstrap, pair, new_group) >= COUNT
    assert read(server.bootstrap, pair[1], "read_committed", COUNT) == values()
    assert len(read(server.bootstrap, pair[1], "read_uncommitted", COUNT + STEP)) > COUNT


@pytest.mark.parametrize("name", ["java", "franz-go", "sarama", "kafkajs"])
def test_clients_of_other_languages_are_exactly_once(
    server: servers.Server, agent: Callable[[str], Agent], pair: Pair, new_group: str,
    wait_until: Wait, name: str,
) -> None:  # fmt: skip
    client = agent(name)
    client.produce(pair[0], [Record(None, value) for value in values()])
    asked = {"source": pair[0], "target": pair[1], "group": new_group, "count": COUNT}
    assert client.ask("transform", **asked)["tries"] > COUNT // STEP
    assert read(server.bootstrap, pair[1], "read_committed", COUNT) == values()
    assert len(read(server.bootstrap, pair[1], "read_uncommitted", COUNT + STEP)) > COUNT
    # Its marker in the partition of the offsets may not be written yet.
    wait_until(lambda: client.committed(new_group, pair[0], [0]) == [COUNT], "its position")


def test_a_second_producer_of_an_id_fences_the_first(
    server: servers.Server, pair: Pair, new_group: str
) -> None:
    from confluent_kafka import KafkaException, Producer

    def make() -> Any:
        made = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": new_group})
        made.init_transactions(WAIT_S)
        return made

    old = make()
    old.begin_transaction()
    old.produce(pair[0], b"of the old one")
    old.flush(WAIT_S)
    new = make()
    new.begin_transaction()
    new.produce(pair[0], b"of the new one")
    new.commit_transaction(WAIT_S)
    with pytest.raises(KafkaException, match="fenced"):
        old.commit_transaction(WAIT_S)
    assert read(server.bootstrap, pair[0], "read_committed", 1) == [b"of the new one"]


@pytest.mark.java
def test_javas_producer_uses_version_2(
    server: servers.Server, new_topic: Callable[..., str], new_group: str
) -> None:
    """With Kafka's own tools: one produces many short transactions, another describes them."""
    topic = new_topic(2, "perf")

    def tool(name: str, *arguments: str) -> str:
        try:
            return apache.ask(f"org.apache.kafka.tools.{name}", *arguments)
        except apache.Unavailable as reason:
            pytest.skip(str(reason))

    tool("ProducerPerformance", "--topic", topic, "--num-records", "600", "--record-size", "20",
         "--throughput", "600", "--transactional-id", new_group, "--transaction-duration-ms", "50",
         "--producer-props", f"bootstrap.servers={server.bootstrap}")  # fmt: skip
    here = ("--bootstrap-server", server.bootstrap)
    assert new_group in tool("TransactionsCommand", *here, "list")
    told = tool("TransactionsCommand", *here, "describe", "--transactional-id", new_group)
    head, line = (row.split("\t") for row in told.strip().splitlines())
    found = {name.strip(): value.strip() for name, value in zip(head, line, strict=False)}
    assert found["TransactionState"] == "CompleteCommit"
    assert int(found["ProducerEpoch"]) >= 3  # each end raised it
    shown = tool("consumer.ConsoleConsumer", *here, "--topic", topic, "--from-beginning",
                 "--isolation-level", "read_committed", "--max-messages", "600",
                 "--timeout-ms", "30000")  # fmt: skip
    assert len(shown.split()) == 600
