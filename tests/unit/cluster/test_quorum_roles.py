"""Roles of replicas from changes of the metadata."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkalog.cluster.quorum.roles import (
    all_roles,
    changed_roles,
    lacks_directories,
    misplaced,
    no_roles,
    unled,
)
from kafkalog.metadata.changes import Entry, Replay
from kafkalog.metadata.image import Change, empty_image
from kafkalog.replication.roles import Drop, Effect, Follow, Lead
from kafkalog.types import TopicPartition
from kafkalog.wire.records import METADATA

NODE = 2
TOPIC = UUID(int=100)
HERE, THERE = UUID(int=500), UUID(int=501)
WHERE = TopicPartition("orders", 0)


class Log:
    """Records as a metadata log has them, and the change of each batch."""

    def __init__(self) -> None:
        self.replay = Replay(empty_image("cluster", NODE))
        self._offset = -1

    def write(self, *records: tuple[str, int, dict[str, Any]]) -> Change:
        """Replay (name, version, fields) records: they are encoded and decoded."""
        old = self.replay.image
        for name, version, fields in records:
            self._offset += 1
            entry = METADATA.decode(METADATA.encode(name, version, fields))
            self.replay.feed(Entry(*entry))
        self.replay.settle(self._offset, 1, 0)
        return self.replay.change(old)

    def topic(self, topic_id: UUID = TOPIC, **fields: Any) -> Change:
        return self.write(
            ("TopicRecord", 0, {"name": "orders", "topic_id": topic_id}),
            partition(topic_id, **fields),
        )


def partition(topic_id: UUID = TOPIC, **fields: Any) -> tuple[str, int, dict[str, Any]]:
    usual = {
        "partition_id": 0, "topic_id": topic_id, "replicas": [1, 2], "isr": [1, 2], "leader": 1,
        "removing_replicas": [], "adding_replicas": [], "leader_epoch": 0, "partition_epoch": 0,
        "directories": [THERE, HERE],
    }  # fmt: skip
    return "PartitionRecord", 1, {**usual, **fields}


def changed(**fields: Any) -> tuple[str, int, dict[str, Any]]:
    return "PartitionChangeRecord", 1, {"topic_id": TOPIC, "partition_id": 0, **fields}


def kinds(effects: list[Effect]) -> list[type]:
    return [type(one) for one in effects]


def test_a_new_partition_is_led_or_followed() -> None:
    (follow,) = changed_roles(Log().topic())
    assert isinstance(follow, Follow)
    assert (follow.partition, follow.new, follow.held.topic_id) == (WHERE, True, TOPIC)
    (lead,) = changed_roles(Log().topic(leader=NODE))
    assert isinstance(lead, Lead)
    assert lead.held.state.leader == NODE


def test_a_partition_of_others_is_none_of_this_broker() -> None:
    assert changed_roles(Log().topic(replicas=[1, 3], isr=[1, 3])) == []


def test_an_election_changes_the_role() -> None:
    log = Log()
    log.topic()
    (lead,) = changed_roles(log.write(changed(leader=NODE)))
    assert isinstance(lead, Lead)
    assert (lead.new, lead.held.state.leader_epoch) == (False, 1)
    (follow,) = changed_roles(log.write(changed(leader=1)))
    assert isinstance(follow, Follow)
    (nobody,) = changed_roles(log.write(changed(leader=-1)))
    assert isinstance(nobody, Follow)
    assert nobody.held.state.leader == -1


def test_only_the_leader_acts_on_an_isr() -> None:
    log = Log()
    log.topic()
    assert changed_roles(log.write(changed(isr=[1]))) == []
    log.write(changed(isr=[1, 2], leader=NODE))
    (lead,) = changed_roles(log.write(changed(isr=[2])))
    assert isinstance(lead, Lead)
    assert lead.held.state.isr == (2,)


def test_a_moved_replica_is_deleted_and_a_new_one_follows() -> None:
    log = Log()
    log.topic()
    gone = changed_roles(log.write(changed(replicas=[1, 3], isr=[1], directories=[THERE, HERE])))
    assert gone == [Drop(WHERE, delete=True)]
    back = changed_roles(log.write(changed(replicas=[1, 2], directories=[THERE, HERE])))
    assert kinds(back) == [Follow]


def test_a_deleted_topic_is_dropped() -> None:
    log = Log()
    log.topic()
    assert changed_roles(log.write(("RemoveTopicRecord", 0, {"topic_id": TOPIC}))) == [
        Drop(WHERE, delete=True)
    ]


def test_a_recreated_topic_is_dropped_first() -> None:
    log = Log()
    log.topic()
    other = UUID(int=101)
    effects = changed_roles(log.write(
        ("RemoveTopicRecord", 0, {"topic_id": TOPIC}),
        ("TopicRecord", 0, {"name": "orders", "topic_id": other}),
        partition(other),
    ))  # fmt: skip
    assert kinds(effects) == [Drop, Follow]
    follow = effects[1]
    assert isinstance(follow, Follow)
    assert follow.held.topic_id == other


def test_a_broker_begins_with_all_its_roles() -> None:
    log = Log()
    log.topic()
    log.write(partition(partition_id=1, leader=NODE), partition(partition_id=2, replicas=[1, 3]))
    assert kinds(all_roles(log.replay.image)) == [Follow, Lead]


def test_a_broker_that_resigns_leads_nothing_and_keeps_its_data() -> None:
    log = Log()
    log.topic()
    log.write(partition(partition_id=1, leader=NODE), partition(partition_id=2, replicas=[1, 3]))
    image = log.replay.image
    assert no_roles(image) == [Drop(TopicPartition("orders", n), delete=False) for n in (0, 1)]
    change = unled(image)
    leaders = {n: one.leader for n, one in change.new.topics["orders"].partitions.items()}
    assert leaders == {0: 1, 1: -1, 2: 1}
    assert change.changed == (change.new.topics["orders"],)
    assert image.topics["orders"].partitions[1].leader == NODE


def test_replicas_in_another_directory_are_reported() -> None:
    """A broker that lost its disk, or whose directory the controller does not know yet."""
    log = Log()
    log.write(("FeatureLevelRecord", 0, {"name": "metadata.version", "feature_level": 17}))
    log.topic()
    log.write(partition(partition_id=1, directories=[THERE, UUID(int=0)]))
    assert misplaced(log.replay.image, HERE) == {TOPIC: [1]}
    assert misplaced(log.replay.image, UUID(int=600)) == {TOPIC: [0, 1]}


def test_a_registration_from_before_directories_is_incomplete() -> None:
    log = Log()
    log.write(("FeatureLevelRecord", 0, {"name": "metadata.version", "feature_level": 16}))
    log.write(("RegisterBrokerRecord", 2, {
        "broker_id": NODE, "incarnation_id": UUID(int=7), "broker_epoch": 1, "end_points": [],
        "features": [], "rack": None, "fenced": False, "in_controlled_shutdown": False,
    }))  # fmt: skip
    assert not lacks_directories(log.replay.image)
    log.write(("FeatureLevelRecord", 0, {"name": "metadata.version", "feature_level": 17}))
    assert lacks_directories(log.replay.image)


def test_directories_are_not_reported_to_controllers_without_them() -> None:
    log = Log()
    log.write(("FeatureLevelRecord", 0, {"name": "metadata.version", "feature_level": 16}))
    log.topic()
    assert misplaced(log.replay.image, UUID(int=600)) == {}
