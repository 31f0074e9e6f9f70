"""Plans changes of topics: from a request and the image to records and results.

Pure: nothing here reads a clock or a file.  Each function takes a request and returns the records
that fulfil it, and exactly one result per item, with Kafka's error and a message (clients handle a
missing message badly).  Source: Kafka's ControllerApis, ReplicationControlManager; kafka.md of the
specification, 4.6.
"""

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.server import CORDONED
from kafkalog.disk.layout import METADATA_TOPIC, random_topic_id, topic_problem
from kafkalog.metadata.changes import partition_fields
from kafkalog.metadata.configs import Refused, checked_topic_configs, new_topic_entries
from kafkalog.metadata.image import BROKER, TOPIC, MetadataImage, Partition, Topic
from kafkalog.metadata.requests import (
    MoreOfTopic,
    MorePartitions,
    Move,
    NewTopic,
    NewTopics,
    TopicMoves,
    TopicNamed,
)
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

__all__ = [
    "PARTITIONS_MAX",
    "PRODUCER_ID_BLOCK",
    "Plan",
    "Site",
    "allocate_producer_ids",
    "alter_partition_reassignments",
    "check_name",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "duplicates",
    "elect_leaders",
    "folded",
    "is_cordoned",
    "list_partition_reassignments",
]

PRODUCER_ID_BLOCK = 1000
PRODUCER_ID_MAX = (1 << 63) - 1
PARTITIONS_MAX = 10_000
"""New partitions in one request (Kafka: MAX_PARTITIONS_PER_BATCH)."""

Record = tuple[str, Any]
Result = dict[str, Any]


class Site(NamedTuple):
    """Inputs besides the image."""

    directory_id: uuid.UUID
    config: BrokerConfig
    """The static settings, including a server's."""
    blocked: frozenset[str] = frozenset()
    """Topics that have folders but are not in the metadata."""
    new_id: Callable[[], uuid.UUID] = random_topic_id

    def setting(self, name: str, default: Any) -> Any:
        """A server's setting that no topic has."""
        return self.config.get(name, default)


class Plan(NamedTuple):
    """Records to write, all or none, and the results to send once they are written."""

    records: list[Record]
    results: list[Result]


def _error(error: Refused) -> Result:
    return {"error_code": int(error.code), "error_message": str(error)}


def duplicates(names: Iterable[Any]) -> set[Any]:
    """The values that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


# ---- CreateTopics ------------------------------------------------------------------------------


def create_topics(image: MetadataImage, asked: NewTopics, site: Site) -> Plan:
    """CreateTopics; results are its response's `topics`."""
    plan = Plan([], [])
    twice = duplicates(topic.name for topic in asked.topics)
    taken: dict[str, str] = {}  # topics of this request, by folded name
    count = sum(
        len(topic.assignments)
        or (_partition_default(site) if topic.num_partitions == -1 else topic.num_partitions)
        for topic in asked.topics
        if topic.name not in twice
    )
    for name in dict.fromkeys(topic.name for topic in asked.topics if topic.name in twice):
        error = Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        plan.results.append({"name": name, **_error(error)})
    for topic in asked.topics:
        if topic.name in twice:
            continue
        try:
            if count > PARTITIONS_MAX:
                raise Refused(
                    ErrorCode.POLICY_VIOLATION,
                    f"Excessively large number of partitions per request: found {count}, wanted "
                    f"at most {PARTITIONS_MAX}.",
                )
            records, result = _create_topic(image, topic, site, taken)
        except Refused as error:
            plan.results.append({"name": topic.name, **_error(error)})
            continue
        taken[folded(topic.name)] = topic.name
        if asked.validate_only:
            result["topic_id"] = ZERO_UUID
        else:
            plan.records.extend(records)
        plan.results.append(result)
    return plan


def folded(name: str) -> str:
    """Names that differ only in dots and underscores are the same to Kafka's metrics."""
    return name.replace(".", "_")


def _collision(name: str, topics: Mapping[str, Topic]) -> str | None:
    """A different topic whose folded name is the same."""
    parts = re.split("[._]", name)
    marks = len(parts) - 1
    if marks >= len(topics).bit_length():  # more such names than topics
        flat = folded(name)
        return next((other for other in topics if folded(other) == flat), None)
    for between in product("._", repeat=marks):
        other = "".join(part + mark for part, mark in zip(parts, (*between, ""), strict=True))
        if other in topics:
            return other
    return None


def _partition_default(site: Site) -> int:
    return int(site.setting("num.partitions", 1))


def check_name(name: str, topics: Mapping[str, Topic], taken: Mapping[str, str]) -> None:
    """Check whether a topic may be created under a name, given `topics` and the names `taken` in
    the same request, by folded name.

    Raises: Refused.
    """
    problem = topic_problem(name)
    if problem is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    if name == METADATA_TOPIC:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )
    if name in topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = taken.get(folded(name)) or _collision(name, topics)
    if other is not None:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def _create_topic(
    image: MetadataImage, topic: NewTopic, site: Site, taken: Mapping[str, str]
) -> tuple[list[Record], Result]:
    check_name(topic.name, image.topics, taken)
    if topic.name in site.blocked:
        raise Refused(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"Topic '{topic.name}' has folders, but is not in the metadata: kafkalog adopt adds "
            "it in.",
        )
    configs = {config.name: config.value for config in topic.configs}
    twice = duplicates(config.name for config in topic.configs)
    if twice:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Duplicate config names: {sorted(twice)}")
    checked_topic_configs(image, topic.name, configs, site.config)
    count = _count(image, topic, site)
    topic_id = site.new_id()
    records: list[Record] = [("TopicRecord", {"name": topic.name, "topic_id": topic_id})]
    for name, value in configs.items():
        fields = {"resource_type": TOPIC, "resource_name": topic.name, "name": name}
        records.append(("ConfigRecord", {**fields, "value": value}))
    records.extend(_partitions(image, topic_id, range(count), site))
    result = {
        "name": topic.name,
        "topic_id": topic_id,
        "error_code": 0,
        "error_message": None,
        "topic_config_error_code": 0,
        "num_partitions": count,
        "replication_factor": 1,
        "configs": new_topic_entries(image, site.config, configs),
    }
    return records, result


def _count(image: MetadataImage, topic: NewTopic, site: Site) -> int:
    """The partition count of a new topic."""
    if topic.assignments:
        if topic.replication_factor != -1:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set "
                "to -1.",
            )
        if topic.num_partitions != -1:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        _check_indexes([one.partition for one in topic.assignments])
        _check_assignments(image, [one.brokers for one in topic.assignments])
        return len(topic.assignments)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor was set to an invalid non-positive value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if topic.replication_factor > 1:
        factor = topic.replication_factor
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor "
            f"of {factor} cannot be reached because only 1 broker(s) are registered.",
        )
    _check_cordon(image, site, "Unable to replicate the partition 1 time(s): ")
    count = topic.num_partitions
    return _partition_default(site) if count == -1 else count


def is_cordoned(image: MetadataImage, static: BrokerConfig) -> bool:
    """Whether cordoned.log.dirs names the broker's directory (it can name no other): as set at run
    time, for this broker or all, else in its properties."""
    for resource in (str(image.node_id), ""):
        if (said := image.config(BROKER, resource).get(CORDONED)) is not None:
            return bool(said)
    return bool(static.get(CORDONED, ()))


def _check_cordon(image: MetadataImage, site: Site, before: str = "") -> None:
    """Refuse to place a partition in a cordoned directory, unless it is assigned manually, as in
    Kafka."""
    if is_cordoned(image, site.config):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{before}All brokers are currently fenced, or have all their log directories "
            "cordoned.",
        )


def _check_indexes(indexes: Sequence[int]) -> None:
    twice = duplicates(indexes)
    if twice:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Found multiple manual partition assignments for partition {min(twice)}",
        )
    if sorted(indexes) != list(range(len(indexes))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )


def _check_assignments(image: MetadataImage, assignments: Iterable[Sequence[int]]) -> None:
    what = "The manual partition assignment includes"
    for brokers in assignments:
        if not brokers:
            problem = f"{what} an empty replica list."
        elif twice := duplicates(brokers):
            problem = f"{what} the broker {min(twice)} more than once."
        elif others := [broker for broker in brokers if broker != image.node_id]:
            problem = f"{what} broker {others[0]}, but no such broker is registered."
        else:
            continue
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _partitions(
    image: MetadataImage, topic_id: uuid.UUID, numbers: Iterable[int], site: Site
) -> Iterable[Record]:
    mine = (image.node_id,)
    for number in numbers:
        one = Partition(number, mine, mine, image.node_id, 0, 0, (site.directory_id,))
        yield "PartitionRecord", partition_fields(one, topic_id)


# ---- DeleteTopics ------------------------------------------------------------------------------


def delete_topics(image: MetadataImage, asked: Sequence[TopicNamed], site: Site) -> Plan:
    """DeleteTopics by name or id; results are its response's `responses`."""
    names = duplicates(name for name, _ in asked if name is not None)
    ids = duplicates(topic_id for _, topic_id in asked if topic_id != ZERO_UUID)
    plan = Plan([], [])
    gone: set[uuid.UUID] = set()
    for name, topic_id in dict.fromkeys(asked):
        result: Result = {"name": name, "topic_id": topic_id}
        try:
            if name in names or topic_id in ids:
                what = "name" if name in names else "id"
                raise Refused(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
            topic = _to_delete(image, name, topic_id, site)
        except Refused as error:
            plan.results.append({**result, **_error(error)})
            continue
        if topic.id in gone:  # once by name and once by id
            twice = Refused(ErrorCode.INVALID_REQUEST, "The topic was named twice.")
            plan.results.append({**result, **_error(twice)})
            continue
        gone.add(topic.id)
        plan.records.append(("RemoveTopicRecord", {"topic_id": topic.id}))
        plan.results.append({"name": topic.name, "topic_id": topic.id, "error_code": 0,
                             "error_message": None})  # fmt: skip
    return plan


def _to_delete(image: MetadataImage, name: str | None, topic_id: uuid.UUID, site: Site) -> Topic:
    if name is None and topic_id == ZERO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != ZERO_UUID:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    topic = image.topic(topic_id) if name is None else image.topics.get(name)
    if topic is None and name is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if topic is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    if not site.setting("delete.topic.enable", True):
        raise Refused(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    return topic


# ---- CreatePartitions --------------------------------------------------------------------------


def create_partitions(image: MetadataImage, asked: MorePartitions, site: Site) -> Plan:
    """CreatePartitions; results are its response's `results`."""
    plan = Plan([], [])
    twice = duplicates(topic.name for topic in asked.topics)
    added = 0
    for name, topic in {topic.name: topic for topic in asked.topics}.items():
        try:
            if name in twice:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            numbers = _more(image, topic, site)
            added += len(numbers)
            if added > PARTITIONS_MAX:
                raise Refused(
                    ErrorCode.INVALID_PARTITIONS,
                    f"Excessively large number of partitions per request: found {added}, wanted "
                    f"at most {PARTITIONS_MAX}.",
                )
        except Refused as error:
            plan.results.append({"name": name, **_error(error)})
            continue
        if not asked.validate_only:
            plan.records.extend(_partitions(image, image.topics[name].id, numbers, site))
        plan.results.append({"name": name, "error_code": 0, "error_message": None})
    return plan


def _more(image: MetadataImage, asked: MoreOfTopic, site: Site) -> range:
    """The numbers of the added partitions."""
    topic = image.topics.get(asked.name)
    if topic is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
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
    if asked.assignments is not None:
        if len(asked.assignments) != wanted - now:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {wanted - now} additional partition(s), but only "
                f"{len(asked.assignments)} assignment(s) were specified.",
            )
        _check_assignments(image, asked.assignments)
    else:
        _check_cordon(image, site)
    first = max(topic.partitions, default=-1) + 1
    return range(first, first + wanted - now)


# ---- producer ids --------------------------------------------------------------------------------


def allocate_producer_ids(image: MetadataImage) -> tuple[list[Record], range]:
    """A block of producer ids for this broker, which may use them once the record is written.

    Raises: Refused if 2^63 ids are used up.
    """
    first = image.next_producer_id
    if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds")
    broker = image.brokers.get(image.node_id)
    fields = {
        "broker_id": image.node_id,
        "broker_epoch": -1 if broker is None else broker.epoch,
        "next_producer_id": first + PRODUCER_ID_BLOCK,
    }
    return [("ProducerIdsRecord", fields)], range(first, first + PRODUCER_ID_BLOCK)


# ---- one node: the honest answers --------------------------------------------------------


def elect_leaders(
    image: MetadataImage, asked: Iterable[tuple[str, Iterable[int]]] | None
) -> list[Result]:
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
        _check_assignments(image, [asked.replicas])
    except Refused as error:
        result.update(_error(error))
    return result


def list_partition_reassignments() -> list[Result]:
    """ListPartitionReassignments: none is ever in progress; its response's `topics`."""
    return []
