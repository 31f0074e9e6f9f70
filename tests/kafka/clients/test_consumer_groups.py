"""Real clients with `group.protocol=consumer`: librdkafka's, and Java's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalog.server.broker import Broker
from tests.support import apache

pytestmark = pytest.mark.slow

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
}
Wait = Callable[..., None]
JOIN_S = 60.0


class Member:
    """A consumer that polls in a thread of its own."""

    def __init__(self, address: str, topics: list[str], **settings: Any) -> None:
        self.seen: list[tuple[str, int, int]] = []
        self._consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "g", "group.protocol": "consumer",
             "auto.offset.reset": "earliest", "enable.auto.commit": False, **settings}
        )  # fmt: skip
        self._consumer.subscribe(topics)
        self._parts: set[tuple[str, int]] = set()
        self._over, self._commits = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.seen.append((message.topic(), message.partition(), message.offset()))
            self._parts = {(one.topic, one.partition) for one in self._consumer.assignment()}
            if self._commits.is_set():
                self._commit()
                self._commits.clear()

    def parts(self) -> set[tuple[str, int]]:
        """The partitions that it has."""
        return self._parts

    @property
    def commits(self) -> bool:
        """True while a commit is under way."""
        return self._commits.is_set()

    def commit(self) -> None:
        """Have it commit all that it has read."""
        self._commits.set()

    def _commit(self) -> None:
        next_ones: dict[tuple[str, int], int] = {}
        for topic, partition, offset in self.seen:
            next_ones[topic, partition] = offset + 1
        offsets = [TopicPartition(*where, offset) for where, offset in next_ones.items()]
        self._consumer.commit(offsets=offsets, asynchronous=False)

    def leave(self) -> None:
        """End it in good order."""
        self._over.set()
        self._thread.join()
        self._consumer.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose members heartbeat often, with two topics."""
    with Broker(tmp_path / "data", config=QUICK) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers})
        for future in admin.create_topics([NewTopic("t", 4), NewTopic("tt", 2)]).values():
            future.result()
        yield made


def fill(address: str, topic: str, partitions: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": address})
    for partition in range(partitions):
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition)
    producer.flush()


def test_members_share_out_commit_and_leave(broker: Broker, wait_until: Wait) -> None:
    """One subscribes by name, one by a pattern; what one leaves goes on with the other."""
    address = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": address})
    fill(address, "t", 4, 5)
    first = Member(address, ["t"], **{"group.instance.id": "one"})
    wait_until(lambda: len(first.parts()) == 4 and len(first.seen) == 20, "all is read", JOIN_S)
    first.commit()
    wait_until(lambda: not first.commits, "the commit", JOIN_S)
    second = Member(address, ["^t+$"])

    def shared() -> bool:
        return not first.parts() & second.parts() and len(first.parts() | second.parts()) == 6

    wait_until(shared, "both have their part", JOIN_S)
    assert {len(first.parts()), len(second.parts())} == {3}
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert (described.state.name, described.type.name) == ("STABLE", "CONSUMER")
    assert {one.group_instance_id for one in described.members} == {"one", None}
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["g"])["g"].result()
    second.leave()
    wait_until(lambda: len(first.parts()) == 4, "the first took over", JOIN_S)
    first.leave()


def test_members_outlive_a_restart_of_the_broker(
    broker: Broker, tmp_path: Path, wait_until: Wait
) -> None:
    """They go on with the partitions that they had."""
    address = broker.bootstrap_servers
    members = [Member(address, ["t"]) for _ in range(2)]
    wait_until(lambda: all(len(one.parts()) == 2 for one in members), "their parts", JOIN_S)
    before = [one.parts() for one in members]
    broker.close()
    with Broker(tmp_path / "data", address, config=QUICK):
        fill(address, "t", 4, 3)
        wait_until(lambda: all(len(one.seen) == 6 for one in members), "the records", JOIN_S)
        assert [one.parts() for one in members] == before
        members[0].leave()
        wait_until(lambda: len(members[1].parts()) == 4, "the other took over", JOIN_S)
        members[1].leave()


@pytest.mark.java
def test_javas_consumer_reads_as_a_member(broker: Broker) -> None:
    """The console consumer of Apache Kafka 4.4.0, by name and by pattern."""
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    fill(broker.bootstrap_servers, "t", 4, 2)
    main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    for group, chosen in (("named", ("--topic", "t")), ("matched", ("--include", "t+"))):
        said = apache.ask(
            main, "--bootstrap-server", broker.bootstrap_servers, *chosen, "--group", group,
            "--from-beginning", "--command-property", "group.protocol=consumer",
            "--max-messages", "8", "--timeout-ms", "60000",
        )  # fmt: skip
        assert sorted(said.split()) == ["0"] * 4 + ["1"] * 4
