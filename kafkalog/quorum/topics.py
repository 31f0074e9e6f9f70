"""CreateTopics, CreatePartitions, DeleteTopics, and blocks of producer ids.

Steps, as defined in kafkalog.controller.active; `controller.topic_rules` decides which topics may
be created, and here is how its records become those of the metadata log.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafkalog.controller.active import Active, Steps
from kafkalog.controller.placement import Start, place
from kafkalog.controller.records import (
    PRODUCER_ID_BLOCK,
    PartitionsCreation,
    Record,
    TopicCreation,
    TopicDeletion,
    next_producer_ids,
)
from kafkalog.controller.topic_rules import (
    Cluster,
    Decision,
    create_partitions,
    create_topics,
    delete_topics,
)
from kafkalog.metadata import translation
from kafkalog.metadata.changes import partition_fields
from kafkalog.metadata.image import TOPIC, MetadataImage, Partition
from kafkalog.quorum.deciding import keeps_eligible, placed_at
from kafkalog.quorum.sessions import Committed, State, state_of
from kafkalog.quorum.writing import MetadataRecord, MetadataRecords
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "allocate_producer_ids", "answer_create_partitions", "answer_create_topics",
    "answer_delete_topics", "clear_eligible",
]  # fmt: skip

Body = dict[str, Any]
DISABLED_SINCE = 3
"""Versions of DeleteTopics before this one do not know TOPIC_DELETION_DISABLED."""
MIN_INSYNC = "min.insync.replicas"


def _active_brokers(image: MetadataImage) -> set[int]:
    return {number for number, one in image.brokers.items() if state_of(one) is State.UNFENCED}


@dataclass
class _Placement:
    """Chooses brokers for new partitions: live ones first, others if these are too few."""

    image: MetadataImage
    active: Active

    def usable(self) -> list[int]:
        """The brokers with a directory that takes new partitions."""
        return [
            number for number, one in sorted(self.image.brokers.items())
            if not one.directories or {*one.directories} - {*one.cordoned}
        ]  # fmt: skip

    def __call__(self, count: int, factor: int, start: Start | None) -> list[tuple[int, ...]]:
        usable = self.usable()
        alive = [one for one in usable if not self.image.brokers[one].fenced]
        others = [one for one in usable if one not in alive]
        racks = {one: self.image.brokers[one].rack for one in alive}
        begin = None if start is None else start._replace(
            broker_index=start.broker_index % len(alive)
        )  # fmt: skip
        found = place(racks, count, min(factor, len(alive)), self.active.random, begin)
        more = factor - len(alive)
        if more <= 0:
            return found
        turns = [others[at % len(others) :] + others[: at % len(others)] for at in range(count)]
        return [(*one, *turn[:more]) for one, turn in zip(found, turns, strict=True)]


def _cluster(store: Committed, active: Active) -> Cluster:
    image, config = store.image, active.options.config
    placed = _Placement(image, active)
    usable = placed.usable()
    return Cluster(
        image, config, usable, placed,
        factor_default=int(config.get("default.replication.factor", 1)),
        cordoned=all(image.brokers[one].fenced for one in usable), deletes=active.options.deletes,
        new_id=active.new_id, charge=active.caller.charge,
        known=image.brokers, in_sync=_active_brokers(image),
    )  # fmt: skip


def _written(store: Committed, decision: Decision) -> MetadataRecords:
    image = store.image
    made = [each for one in decision.records for each in _records(image, one)]
    return MetadataRecords(made)


def answer_create_topics(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """CreateTopics."""
    decision = create_topics(_cluster(store, active), translation.new_topics(request))
    yield _written(store, decision)
    return {"topics": decision.results}


def answer_create_partitions(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """CreatePartitions."""
    decision = create_partitions(_cluster(store, active), translation.more_partitions(request))
    yield _written(store, decision)
    return {"results": decision.results}


def answer_delete_topics(
    store: Committed, active: Active, request: Any, version: int
) -> Steps[Body]:
    """DeleteTopics: the topics are gone at once; brokers drop their copies when they read it."""
    decision = delete_topics(_cluster(store, active), translation.deleted_topics(request))
    yield _written(store, decision)
    if version < DISABLED_SINCE:
        for result in decision.results:
            if result["error_code"] == ErrorCode.TOPIC_DELETION_DISABLED:
                result["error_code"] = ErrorCode.INVALID_REQUEST
    return {"responses": decision.results}


# ---- records -----------------------------------------------------------------------------------


def _records(image: MetadataImage, record: Record) -> Iterator[MetadataRecord]:
    if isinstance(record, TopicCreation):
        yield "TopicRecord", {"name": record.name, "topic_id": record.topic_id}
        settings: list[MetadataRecord] = [
            ("ConfigRecord", {"resource_type": TOPIC, "resource_name": record.name, "name": name,
                              "value": value})
            for name, value in record.settings.items()
        ]  # fmt: skip
        yield from settings
        yield from clear_eligible(image, settings)
        yield from _partitions(image, record.topic_id, record.replicas)
    elif isinstance(record, PartitionsCreation):
        yield from _partitions(image, image.topics[record.topic].id, record.replicas)
    else:
        assert isinstance(record, TopicDeletion)
        yield "RemoveTopicRecord", {"topic_id": image.topics[record.topic].id}


def clear_eligible(
    image: MetadataImage, records: Sequence[MetadataRecord]
) -> Iterator[MetadataRecord]:
    """After changes of min.insync.replicas other replicas would be eligible: forget them."""
    if keeps_eligible(image):
        for name, one in records:
            if name == "ConfigRecord" and one["name"] == MIN_INSYNC:
                topic = one["resource_name"] if one["resource_type"] == TOPIC else ""
                yield "ClearElrRecord", {"topic_name": topic}


def _partitions(
    image: MetadataImage, topic_id: uuid.UUID, replicas: Mapping[int, tuple[int, ...]]
) -> Iterator[MetadataRecord]:
    """Partitions are created with their leaders."""
    able = _active_brokers(image)
    for number, keepers in replicas.items():
        isr = tuple(one for one in keepers if one in able)
        places = tuple(placed_at(image.brokers.get(one)) for one in keepers)
        one = Partition(number, keepers, isr, isr[0], 0, 0, places)
        yield "PartitionRecord", partition_fields(one, topic_id)


# ---- producer ids --------------------------------------------------------------------------------


def allocate_producer_ids(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """AllocateProducerIds: a block that no broker gets twice."""
    none = {"producer_id_start": 0, "producer_id_len": 0}
    sender = store.image.brokers.get(request.broker_id)
    if sender is None or sender.epoch != request.broker_epoch:
        return {"error_code": ErrorCode.STALE_BROKER_EPOCH, **none}
    block = next_producer_ids(request.broker_id, store.image.next_producer_id - 1)
    if block is None:
        return {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR, **none}
    fields = {"broker_id": sender.id, "broker_epoch": sender.epoch,
              "next_producer_id": block.last + 1}  # fmt: skip
    yield MetadataRecords([("ProducerIdsRecord", fields)])
    return {"error_code": ErrorCode.NONE, "producer_id_start": block.first,
            "producer_id_len": PRODUCER_ID_BLOCK}  # fmt: skip
