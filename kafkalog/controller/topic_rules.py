"""Which topics may be created, enlarged and deleted: CreateTopics, CreatePartitions, DeleteTopics.

Pure, and the same for every store.  Each function takes a request and returns the records that
fulfil it, and exactly one result per item, with Kafka's error and a message (clients handle a
missing message badly).  Source: Kafka's ControllerApis, ReplicationControlManager (4.4),
AdminManager (3.9).
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from kafkalog.config.broker import BrokerConfig
from kafkalog.controller.placement import Start
from kafkalog.controller.records import PartitionsCreation, Record, TopicCreation, TopicDeletion
from kafkalog.disk.layout import METADATA_TOPIC, random_topic_id, topic_problem
from kafkalog.metadata.configs import Refused, checked_topic_configs, new_topic_entries
from kafkalog.metadata.image import MetadataImage, Partition, Topic
from kafkalog.metadata.requests import MoreOfTopic, MorePartitions, NewTopic, NewTopics, TopicNamed
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

__all__ = [
    "PARTITIONS_MAX", "Cluster", "Decision", "Result", "check_assignments", "create_partitions",
    "create_topics", "delete_topics", "duplicates", "error_fields",
]  # fmt: skip

PARTITIONS_MAX = 10_000
"""New partitions in one request (Kafka: MAX_PARTITIONS_PER_BATCH); with ZooKeeper, of a topic."""
Replicas = dict[int, tuple[int, ...]]
Result = dict[str, Any]
Place = Callable[[int, int, "Start | None"], Sequence[tuple[int, ...]]]
"""The replicas of new partitions: their number, the replication factor, where to start."""


class Cluster(NamedTuple):
    """The facts of a cluster that the rules read, and where its controllers' rules differ."""

    image: MetadataImage
    """Topics and settings."""
    config: BrokerConfig
    """The static settings of the controller's node, including a server's."""
    brokers: Collection[int]
    """The live ones, in ascending order."""
    place: Place
    factor_default: int = 1
    """The replicas of a partition, unless the request has a number."""
    deleted: Collection[str] = ()
    """Topics that are being deleted."""
    blocked: Collection[str] = ()
    """Topics that have folders but are not in the metadata."""
    cordoned: bool = False
    """No broker has a log directory that takes new partitions, unless they are assigned to it
    manually."""
    deletes: bool = True
    """delete.topic.enable"""
    zookeeper: bool = False
    """The rules of Kafka's controllers on ZooKeeper: a new topic may be assigned to brokers that
    are offline, and waits for them; PARTITIONS_MAX limits a topic, not a request; a topic that is
    being moved cannot grow."""
    problem: Callable[[Record], str | None] = lambda _: None
    """Why the store cannot keep a record; None: it can."""
    new_id: Callable[[], uuid.UUID] = random_topic_id
    charge: Callable[[int], None] = lambda _: None
    """Count created or deleted partitions against the client's quota.  Raises: Refused."""
    known: Collection[int] | None = None
    """The brokers that a request may name; None: `brokers`."""
    in_sync: Collection[int] | None = None
    """Those of them that may be in sync: each new partition needs one; None: it does not."""


class Decision(NamedTuple):
    """Records to write, and the results to send once they are written."""

    records: list[Record]
    results: list[Result]


def error_fields(error: Refused) -> Result:
    """An error, as results have it."""
    return {"error_code": int(error.code), "error_message": str(error)}


def duplicates(names: Iterable[Any]) -> set[Any]:
    """The values that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


# ---- CreateTopics ------------------------------------------------------------------------------


def create_topics(cluster: Cluster, asked: NewTopics) -> Decision:
    """CreateTopics; results are its response's `topics`."""
    decision = Decision([], [])
    twice = duplicates(topic.name for topic in asked.topics)
    taken: dict[str, str] = {}  # topics of this request, by folded name
    total = sum(_count(cluster, topic) for topic in asked.topics if topic.name not in twice)
    for name in dict.fromkeys(topic.name for topic in asked.topics if topic.name in twice):
        error = Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        decision.results.append({"name": name, **error_fields(error)})
    for topic in asked.topics:
        if topic.name in twice:
            continue
        try:
            if total > PARTITIONS_MAX and not cluster.zookeeper:
                raise Refused(ErrorCode.POLICY_VIOLATION, _excessive(total))
            record = _create_topic(cluster, topic, taken)
        except Refused as error:
            decision.results.append({"name": topic.name, **error_fields(error)})
            continue
        taken[_folded(topic.name)] = topic.name
        if not asked.validate_only:
            decision.records.append(record)
        decision.results.append(_created(cluster, record, asked.validate_only))
    return decision


def _count(cluster: Cluster, topic: NewTopic) -> int:
    """The number of partitions of a new topic."""
    if topic.assignments:
        return len(topic.assignments)
    if topic.num_partitions == -1:
        return int(cluster.config.get("num.partitions", 1))
    return topic.num_partitions


def _excessive(count: int) -> str:
    return (
        f"Excessively large number of partitions per request: found {count}, wanted at most "
        f"{PARTITIONS_MAX}."
    )


def _created(cluster: Cluster, record: TopicCreation, validate_only: bool) -> Result:
    return {
        "name": record.name,
        "topic_id": ZERO_UUID if validate_only else record.topic_id,
        "error_code": 0,
        "error_message": None,
        "topic_config_error_code": 0,
        "num_partitions": len(record.replicas),
        "replication_factor": len(record.replicas[0]),
        "configs": new_topic_entries(cluster.image, cluster.config, record.settings),
    }


def _create_topic(cluster: Cluster, topic: NewTopic, taken: Mapping[str, str]) -> TopicCreation:
    _check_name(topic.name, cluster.image.topics, taken)
    if topic.name in cluster.blocked:
        raise Refused(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"Topic '{topic.name}' has folders, but is not in the metadata: kafkalog adopt adds "
            "it in.",
        )
    if twice := duplicates(config.name for config in topic.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, f"Duplicate config names: {sorted(twice)}")
    configs = {config.name: config.value for config in topic.configs}
    checked_topic_configs(cluster.image, topic.name, configs, cluster.config)
    replicas = _assigned(cluster, topic) if topic.assignments else _placed(cluster, topic)
    cluster.charge(len(replicas))
    settings = {name: value for name, value in configs.items() if value is not None}
    record = TopicCreation(topic.name, cluster.new_id(), replicas, settings)
    _check_storable(cluster, record)
    return record


def _folded(name: str) -> str:
    """Names that differ only in dots and underscores are the same to Kafka's metrics."""
    return name.replace(".", "_")


def _collision(name: str, topics: Mapping[str, Topic]) -> str | None:
    """A different topic whose folded name is the same."""
    parts = re.split("[._]", name)
    marks = len(parts) - 1
    if marks >= len(topics).bit_length():  # more such names than topics
        flat = _folded(name)
        return next((other for other in topics if _folded(other) == flat), None)
    for between in product("._", repeat=marks):
        other = "".join(part + mark for part, mark in zip(parts, (*between, ""), strict=True))
        if other in topics:
            return other
    return None


def _check_name(name: str, topics: Mapping[str, Topic], taken: Mapping[str, str]) -> None:
    """Refuse a name under which no topic may be created, given `topics` and the names `taken` in
    the same request, by folded name."""
    problem = topic_problem(name)
    if problem is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    if name == METADATA_TOPIC:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )
    if name in topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = taken.get(_folded(name)) or _collision(name, topics)
    if other is not None:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def _assigned(cluster: Cluster, topic: NewTopic) -> Replicas:
    """The caller's own assignment."""
    if topic.replication_factor != -1:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        )
    if topic.num_partitions != -1:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    if len(topic.assignments) > PARTITIONS_MAX:
        raise Refused(ErrorCode.INVALID_PARTITIONS, _excessive(len(topic.assignments)))
    indexes = [one.partition for one in topic.assignments]
    if twice := duplicates(indexes):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Found multiple manual partition assignments for partition {min(twice)}",
        )
    if sorted(indexes) != list(range(len(indexes))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    known = None if cluster.zookeeper else _nameable(cluster)
    check_assignments(known, [one.brokers for one in topic.assignments])
    found = {one.partition: tuple(one.brokers)
             for one in sorted(topic.assignments, key=lambda each: each.partition)}  # fmt: skip
    _check_in_sync(cluster, found)
    return found


def _nameable(cluster: Cluster) -> Collection[int]:
    return cluster.brokers if cluster.known is None else cluster.known


def _check_in_sync(cluster: Cluster, replicas: Replicas) -> None:
    """Refuse a partition that nobody could lead."""
    for number, brokers in replicas.items():
        if cluster.in_sync is not None and not any(one in cluster.in_sync for one in brokers):
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "All brokers specified in the manual partition assignment for partition "
                f"{number} are fenced or in controlled shutdown.",
            )


def check_assignments(
    known: Collection[int] | None, assignments: Iterable[Sequence[int]], factor: int | None = None
) -> None:
    """Check manually assigned replicas; `known`: the brokers that may be named, None: any;
    `factor`: how many each partition has, None: as many as the first.

    Raises: Refused.
    """
    what = "The manual partition assignment includes"
    for brokers in assignments:
        factor = factor or len(brokers)
        if not brokers:
            problem = f"{what} an empty replica list."
        elif twice := duplicates(brokers):
            problem = f"{what} the broker {min(twice)} more than once."
        elif known is not None and (others := [one for one in brokers if one not in known]):
            problem = f"{what} broker {others[0]}, but no such broker is registered."
        elif len(brokers) != factor:
            problem = (
                f"{what} a partition with {len(brokers)} replica(s), but this is not consistent "
                f"with previous partitions, which have {factor} replica(s)."
            )
        else:
            continue
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _placed(cluster: Cluster, topic: NewTopic) -> Replicas:
    count, factor = _count(cluster, topic), topic.replication_factor
    if factor < -1 or factor == 0:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor was set to an invalid non-positive value.",
        )
    if count < 1:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if count > PARTITIONS_MAX:
        raise Refused(ErrorCode.INVALID_PARTITIONS, _excessive(count))
    factor = cluster.factor_default if factor == -1 else factor
    before = f"Unable to replicate the partition {factor} time(s): "
    _check_room(cluster, factor, before)
    return dict(enumerate(cluster.place(count, factor, None)))


def _check_room(cluster: Cluster, factor: int, before: str) -> None:
    """Refuse to place more replicas of a partition than there are brokers, or any in a cordoned
    directory."""
    if factor > len(cluster.brokers):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{before}The target replication factor of {factor} cannot be reached because only "
            f"{len(cluster.brokers)} broker(s) are registered.",
        )
    if cluster.cordoned:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{before}All brokers are currently fenced, or have all their log directories "
            "cordoned.",
        )


def _check_storable(cluster: Cluster, record: Record) -> None:
    problem = cluster.problem(record)
    if problem is not None:
        raise Refused(ErrorCode.INVALID_PARTITIONS, problem)


# ---- CreatePartitions --------------------------------------------------------------------------


def create_partitions(cluster: Cluster, asked: MorePartitions) -> Decision:
    """CreatePartitions; results are its response's `results`."""
    decision = Decision([], [])
    twice = duplicates(topic.name for topic in asked.topics)
    added = 0
    for name, topic in {topic.name: topic for topic in asked.topics}.items():
        try:
            if name in twice:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            numbers = _more(cluster, topic)
            added = len(numbers) + (0 if cluster.zookeeper else added)
            if added > PARTITIONS_MAX:
                raise Refused(ErrorCode.INVALID_PARTITIONS, _excessive(added))
            cluster.charge(len(numbers))
            record = PartitionsCreation(name, _added(cluster, topic, numbers))
            _check_storable(cluster, record)
        except Refused as error:
            decision.results.append({"name": name, **error_fields(error)})
            continue
        if not asked.validate_only:
            decision.records.append(record)
        decision.results.append({"name": name, "error_code": 0, "error_message": None})
    return decision


def _more(cluster: Cluster, asked: MoreOfTopic) -> range:
    """The numbers of the added partitions."""
    topic = cluster.image.topics.get(asked.name)
    if topic is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    if asked.name in cluster.deleted:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic '{asked.name}' is being deleted."
        )
    moving = (one.adding_replicas or one.removing_replicas for one in topic.partitions.values())
    if cluster.zookeeper and any(moving):
        raise Refused(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"A partition reassignment is in progress for the topic '{asked.name}'.",
        )
    now, wanted = len(topic.partitions), asked.partition_count
    if wanted == now:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
    if wanted < now:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {asked.name} currently has {now} partition(s); {wanted} would not "
            "be an increase.",
        )
    if asked.assignments is not None and len(asked.assignments) != wanted - now:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {wanted - now} additional partition(s), but only "
            f"{len(asked.assignments)} assignment(s) were specified.",
        )
    first = max(topic.partitions, default=-1) + 1
    return range(first, first + wanted - now)


def _added(cluster: Cluster, asked: MoreOfTopic, numbers: range) -> Replicas:
    """The replicas of added partitions, as many as the others have."""
    partitions: Mapping[int, Partition] = cluster.image.topics[asked.name].partitions
    like = partitions[min(partitions)].replicas if partitions else ()
    factor = len(like) or cluster.factor_default
    if asked.assignments is not None:
        check_assignments(_nameable(cluster), asked.assignments, factor)
        found: Sequence[Sequence[int]] = asked.assignments
        _check_in_sync(cluster, {
            number: tuple(one) for number, one in zip(numbers, found, strict=True)
        })  # fmt: skip
    else:
        _check_room(cluster, factor, "")
        after = [at for at, broker in enumerate(cluster.brokers) if not like or broker >= like[0]]
        start = Start(after[0] if after else 0, numbers.start)
        found = cluster.place(len(numbers), factor, start)
    return {number: tuple(one) for number, one in zip(numbers, found, strict=True)}


# ---- DeleteTopics ------------------------------------------------------------------------------


def delete_topics(cluster: Cluster, asked: Sequence[TopicNamed]) -> Decision:
    """DeleteTopics by name or id; results are its response's `responses`."""
    names = duplicates(name for name, _ in asked if name is not None)
    ids = duplicates(topic_id for _, topic_id in asked if topic_id != ZERO_UUID)
    decision = Decision([], [])
    gone: set[str] = set()
    for name, topic_id in dict.fromkeys(asked):
        result: Result = {"name": name, "topic_id": topic_id}
        try:
            if name in names or topic_id in ids:
                what = "name" if name in names else "id"
                raise Refused(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
            topic = _to_delete(cluster, name, topic_id)
            if topic.name in gone:
                raise Refused(ErrorCode.INVALID_REQUEST, "The topic is named by name and by id.")
            cluster.charge(len(topic.partitions))
        except Refused as error:
            decision.results.append({**result, **error_fields(error)})
            continue
        gone.add(topic.name)
        decision.records.append(TopicDeletion(topic.name))
        decision.results.append(
            {"name": topic.name, "topic_id": topic.id, "error_code": 0, "error_message": None}
        )
    return decision


def _to_delete(cluster: Cluster, name: str | None, topic_id: uuid.UUID) -> Topic:
    if name is None and topic_id == ZERO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != ZERO_UUID:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    image = cluster.image
    topic = image.topic(topic_id) if name is None else image.topics.get(name)
    if topic is None and name is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if topic is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    if not cluster.deletes:
        raise Refused(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    return topic
