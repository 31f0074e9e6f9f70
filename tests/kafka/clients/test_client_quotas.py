"""librdkafka is told how long it must wait, and gets everything in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import kafkalog
from kafkalog.server.broker import Broker
from tests.support.waiting import LIMIT_S

CHUNK, COUNT = 20_000, 12


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as broker, kafkalog.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        yield broker


def limit(broker: Broker, client: str, **values: float | None) -> None:
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        admin.alter_client_quotas({(("client-id", client),): values}).check()


def test_a_producer_and_a_consumer_are_throttled(broker: Broker) -> None:
    """Twelve records of 20 KB at 22 KB/s: a little more than the ten seconds of windows allow."""
    limit(broker, "slow", producer_byte_rate=22_000.0, consumer_byte_rate=22_000.0)
    told: list[float] = []
    common: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers, "client.id": "slow",
        "throttle_cb": lambda event: told.append(event.throttle_time),
    }  # fmt: skip
    producer = Producer({**common, "batch.size": CHUNK, "linger.ms": 0})
    for number in range(COUNT):
        producer.produce("t", bytes([number]) * CHUNK)
        assert producer.flush(LIMIT_S) == 0
    producer.poll(0)
    assert any(seconds > 0 for seconds in told)
    told.clear()
    consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    values: list[bytes] = []
    while len(values) < COUNT:
        record = consumer.poll(LIMIT_S)
        assert record is not None and record.error() is None
        values.append(record.value())
    assert values == [bytes([number]) * CHUNK for number in range(COUNT)]
    consumer.close()


def test_topics_above_the_rate_are_delayed(broker: Broker) -> None:
    """librdkafka sends a version of CreateTopics that is not refused: the next one waits."""
    limit(broker, "admin", controller_mutation_rate=1.0)
    told: list[float] = []
    admin = AdminClient({
        "bootstrap.servers": broker.bootstrap_servers, "client.id": "admin",
        "throttle_cb": lambda event: told.append(event.throttle_time),
    })  # fmt: skip
    for name, partitions in (("a", 12), ("b", 1)):
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(LIMIT_S)
    admin.poll(0)
    assert any(seconds > 0 for seconds in told)
