"""A single node as a controller: from a request and the image to metadata records and results.

Pure: nothing here reads a clock or a file.  The rules about topics are those of every controller
(kafkalog.controller.topic_rules); here is how its records become those of a metadata log, and what
one node answers where a request is about several.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog.config.broker import BrokerConfig
from kafkalog.controller import topic_rules
from kafkalog.controller.placement import Start
from kafkalog.controller.records import (
    PartitionsCreation,
    TopicCreation,
    TopicDeletion,
    next_producer_ids,
)
from kafkalog.controller.records import Record as Change
from kafkalog.controller.topic_rules import Cluster, Decision, check_assignments, error_fields
from kafkalog.disk.layout import random_topic_id
from kafkalog.metadata.changes import partition_fields
from kafkalog.metadata.configs import Refused
from kafkalog.metadata.image import TOPIC, MetadataImage, Partition
from kafkalog.metadata.requests import (
    Elections,
    MorePartitions,
    Move,
    NewTopics,
    Result,
    TopicMoves,
    TopicNamed,
)
from kafkalog.metadata.settings import is_cordoned
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Plan",
    "Record",
    "Site",
    "allocate_producer_ids",
    "alter_partition_reassignments",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "elect_leaders",
]

Record = tuple[str, Any]


class Site(NamedTuple):
    """Inputs besides the image."""

    directory_id: uuid.UUID
    config: BrokerConfig
    """The static settings, including a server's."""
    blocked: frozenset[str] = frozenset()
    """Topics that have folders but are not in the metadata."""
    new_id: Callable[[], uuid.UUID] = random_topic_id
    charge: Callable[[int], None] = lambda _: None
    """As in Cluster."""


class Plan(NamedTuple):
    """Records to write, all or none, and the results to send once they are written."""

    records: list[Record]
    results: list[Result]


# ---- topics ------------------------------------------------------------------------------------


def create_topics(image: MetadataImage, asked: NewTopics, site: Site) -> Plan:
    """CreateTopics; results are its response's `topics`."""
    return _plan(image, topic_rules.create_topics(_cluster(image, site), asked), site)


def create_partitions(image: MetadataImage, asked: MorePartitions, site: Site) -> Plan:
    """CreatePartitions; results are its response's `results`."""
    return _plan(image, topic_rules.create_partitions(_cluster(image, site), asked), site)


def delete_topics(image: MetadataImage, asked: Sequence[TopicNamed], site: Site) -> Plan:
    """DeleteTopics by name or id; results are its response's `responses`."""
    return _plan(image, topic_rules.delete_topics(_cluster(image, site), asked), site)


def _cluster(image: MetadataImage, site: Site) -> Cluster:
    mine = (image.node_id,)

    def placed(count: int, factor: int, start: Start | None) -> list[tuple[int, ...]]:
        return [mine] * count

    return Cluster(
        image, site.config, mine, placed, blocked=site.blocked,
        cordoned=is_cordoned(image, site.config),
        deletes=bool(site.config.get("delete.topic.enable", True)), new_id=site.new_id,
        charge=site.charge,
    )  # fmt: skip


def _plan(image: MetadataImage, decision: Decision, site: Site) -> Plan:
    return Plan(
        [each for one in decision.records for each in _records(image, one, site)], decision.results
    )


def _records(image: MetadataImage, change: Change, site: Site) -> Iterable[Record]:
    """A change as records of the metadata log."""
    if isinstance(change, TopicCreation):
        yield "TopicRecord", {"name": change.name, "topic_id": change.topic_id}
        for name, value in change.settings.items():
            fields = {"resource_type": TOPIC, "resource_name": change.name, "name": name}
            yield "ConfigRecord", {**fields, "value": value}
        yield from _partitions(image, change.topic_id, change.replicas, site)
    elif isinstance(change, PartitionsCreation):
        yield from _partitions(image, image.topics[change.topic].id, change.replicas, site)
    else:
        assert isinstance(change, TopicDeletion)
        yield "RemoveTopicRecord", {"topic_id": image.topics[change.topic].id}


def _partitions(
    image: MetadataImage, topic_id: uuid.UUID, replicas: Mapping[int, tuple[int, ...]], site: Site
) -> Iterable[Record]:
    for number, brokers in replicas.items():
        one = Partition(number, brokers, brokers, image.node_id, 0, 0, (site.directory_id,))
        yield "PartitionRecord", partition_fields(one, topic_id)


# ---- producer ids --------------------------------------------------------------------------------


def allocate_producer_ids(image: MetadataImage) -> tuple[list[Record], range]:
    """A block of producer ids for this broker, which may use them once the record is written.

    Raises: Refused if 2^63 ids are used up.
    """
    block = next_producer_ids(image.node_id, image.next_producer_id - 1)
    if block is None:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds")
    broker = image.brokers.get(image.node_id)
    fields = {
        "broker_id": image.node_id,
        "broker_epoch": -1 if broker is None else broker.epoch,
        "next_producer_id": block.last + 1,
    }
    return [("ProducerIdsRecord", fields)], range(block.first, block.last + 1)


# ---- one node: the honest answers --------------------------------------------------------


def elect_leaders(image: MetadataImage, asked: Elections) -> list[Result]:
    """ElectLeaders: the only replica already leads; `replica_election_results`.

    For all partitions (None), each topic's result is empty: no election was needed.
    """
    if asked is None:
        return [{"topic": name, "partition_result": []} for name in sorted(image.topics)]
    found: list[Result] = []
    for topic, numbers in asked:
        results: list[Result] = []
        for number in numbers:
            if image.partition(topic, number) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                known = topic in image.topics
                what = f"partition as {topic}-{number}" if known else f"topic as {topic}"
                why = f"No such {what}"
            else:
                code, why = ErrorCode.ELECTION_NOT_NEEDED, "The only replica leads already."
            results.append({"partition_id": number, "error_code": int(code), "error_message": why})
        found.append({"topic": topic, "partition_result": results})
    return found


def alter_partition_reassignments(
    image: MetadataImage, asked: Iterable[TopicMoves]
) -> list[Result]:
    """AlterPartitionReassignments: there is no other node; its response's `responses`."""
    return [
        {"name": topic, "partitions": [_reassigned(image, topic, move) for move in moves]}
        for topic, moves in asked
    ]


def _reassigned(image: MetadataImage, topic: str, asked: Move) -> Result:
    result = {"partition_index": asked.partition, "error_code": 0, "error_message": None}
    try:
        if image.partition(topic, asked.partition) is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition.")
        if asked.replicas is None:
            raise Refused(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
            )
        check_assignments([image.node_id], [asked.replicas])
    except Refused as error:
        result.update(error_fields(error))
    return result
