"""A topic that is used while its folders are being created."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kafkalog.metadata.changes import partition_fields
from kafkalog.metadata.image import Partition
from kafkalog.server.broker import Broker
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw


def records_of(name: str, topic_id: uuid.UUID, count: int) -> list[tuple[str, Any]]:
    """The records that create a topic."""
    made = [Partition(number, (1,), (1,), 1, 0, 0) for number in range(count)]
    return [
        ("TopicRecord", {"name": name, "topic_id": topic_id}),
        *(("PartitionRecord", partition_fields(one, topic_id)) for one in made),
    ]


def test_a_folder_created_by_another_thread_is_used(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check for the folder and its creation; the partition must not go offline."""
    manager, topic_id = broker._manager, uuid.uuid4()
    with monkeypatch.context() as patch:
        patch.setattr(manager, "make", lambda *_: None)  # the creating thread is not that far
        broker._metadata.write(records_of("t", topic_id, 1))
    claim = manager.folders.claim

    def overtaken(tp: TopicPartition, topic_id: uuid.UUID) -> bool:
        monkeypatch.setattr(manager.folders, "claim", claim)
        found = claim(tp, topic_id)
        manager.make(tp.topic, topic_id, [tp.partition])
        return found

    monkeypatch.setattr(manager.folders, "claim", overtaken)
    assert broker._node.partitions.log("t", 0).topic == "t"
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.produce("t", b"v").error_code == ErrorCode.NONE


def test_a_topic_is_used_while_its_folders_are_made(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One of three folders exists when the others are to be created: no error says so."""
    manager, topic_id = broker._manager, uuid.uuid4()
    make = manager.make

    def overtaken(name: str, topic_id: uuid.UUID, partitions: list[int]) -> None:
        monkeypatch.setattr(manager, "make", make)
        claim = manager.folders.claim

        def claimed(tp: TopicPartition, topic_id: uuid.UUID) -> bool:
            found = claim(tp, topic_id)
            if tp.partition == 2:  # the last check before they are created
                monkeypatch.setattr(manager.folders, "claim", claim)
                manager.get("t", 1)
            return found

        monkeypatch.setattr(manager.folders, "claim", claimed)
        make(name, topic_id, partitions)

    monkeypatch.setattr(manager, "make", overtaken)
    broker._metadata.write(records_of("t", topic_id, 3))
    assert [tp.partition for tp in manager.partitions("t")] == [0, 1, 2]
    assert "already exists" not in caplog.text
