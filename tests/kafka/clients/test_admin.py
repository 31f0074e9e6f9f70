"""Topics, settings, groups and records through each client's admin calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from tests.kafka.clients.agent import Agent, Record
from tests.kafka.clients.servers import Server
from tests.support.waiting import LIMIT_S

WAIT_S = LIMIT_S
TOPIC_ALREADY_EXISTS = 36
TRIES = {"kafkalog": 1, "kafka": 10}
"""Apache Kafka may show the old value of a setting for a moment after it confirmed the change."""
_numbers = itertools.count()


def test_a_tour_of_topics(
    client: Agent, side: str, admin: Any, wait_until: Callable[..., None]
) -> None:
    wanted = {
        "partitions": 3, "retention": "3600000", "again": TOPIC_ALREADY_EXISTS, "grown": 5,
        "altered": "7200000",
    }  # fmt: skip
    for _ in range(TRIES[side]):
        topic = f"tour-{next(_numbers)}"
        said = client.ask("tour", topic=topic)
        if said == wanted:
            break
    assert said == wanted
    wait_until(lambda: topic not in admin.client.list_topics(timeout=10).topics, "it is gone")


def test_offsets_of_a_group_are_set_and_deleted(
    agent: Callable[[str], Agent], admin: Any, new_topic: Callable[..., str], new_group: str
) -> None:
    """With librdkafka's admin client; metadata and leader epoch come back unchanged."""
    topic = new_topic(2)
    for number in (0, 1):
        agent("confluent").produce(topic, [Record(None, b"x")] * 9, partition=number)
    # Java's client waits until the coordinator has loaded; librdkafka's admin calls do not.
    assert agent("java").committed(new_group, topic, [0, 1]) == [-1, -1]
    wanted = [
        TopicPartition(topic, 0, 4, metadata="four, \u00fc", leader_epoch=0),
        TopicPartition(topic, 1, 7, metadata=""),
    ]
    given = ConsumerGroupTopicPartitions(new_group, wanted)
    result_of(admin.client.alter_consumer_group_offsets([given]))
    asked = ConsumerGroupTopicPartitions(new_group)
    found = result_of(admin.client.list_consumer_group_offsets([asked])).topic_partitions
    assert sorted((p.partition, p.offset, p.metadata or "") for p in found) == [
        (0, 4, "four, \u00fc"), (1, 7, ""),
    ]  # fmt: skip
    (described,) = admin.client.describe_consumer_groups([new_group]).values()
    assert described.result(WAIT_S).state is ConsumerGroupState.EMPTY
    result_of(admin.client.delete_consumer_groups([new_group]))
    assert agent("java").committed(new_group, topic, [0, 1]) == [-1, -1]


def test_records_are_deleted(
    agent: Callable[[str], Agent], admin: Any, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    agent("confluent").produce(topic, [Record(None, b"%d" % i) for i in range(9)])
    said = result_of(admin.client.delete_records([TopicPartition(topic, 0, 5)]))
    assert said.low_watermark == 5
    (left,) = admin.client.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}).values()
    assert left.result(WAIT_S).offset == 5
    assert [r.value for r in agent("kafka-python").consume(topic, 4, 5)] == [b"5", b"6", b"7", b"8"]


def test_the_cluster_describes_itself(server: Server, admin: Any) -> None:
    found = admin.client.describe_cluster().result(WAIT_S)
    assert found.cluster_id and len(found.nodes) == 1
    assert f"{found.nodes[0].host}:{found.nodes[0].port}" == server.bootstrap
    assert found.controller.id == found.nodes[0].id


def result_of(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(WAIT_S)
