"""Creates, enlarges and deletes topics: CreateTopics, CreatePartitions, DeleteTopics.

Steps, as defined in kafkalog.cluster.controller.steps.  Requests are refused with the same errors
as by Kafka's brokers on ZooKeeper (3.9): a new topic may be assigned to brokers that are offline,
and waits for them; added partitions may not.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kafkalog.cluster.controller import deletion, topics
from kafkalog.cluster.controller.context import unclean_of
from kafkalog.cluster.controller.events import Read
from kafkalog.cluster.controller.placement import Start, place
from kafkalog.cluster.controller.reassign import moving
from kafkalog.cluster.controller.steps import Looks, Office, Steps
from kafkalog.disk.layout import uuid_text
from kafkalog.metadata.configs import Refused, checked_topic_configs, new_topic_entries
from kafkalog.metadata.image import Topic
from kafkalog.metadata.plan import PARTITIONS_MAX, check_name, duplicates, folded
from kafkalog.metadata.zookeeper import altering, entities, own_settings, tree
from kafkalog.metadata.zookeeper.documents import ZNODE_BYTES_MAX
from kafkalog.metadata.zookeeper.session import Create, Operation, Set
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

__all__ = ["create_partitions", "create_topics", "delete_topics"]

CHANGED = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "The topic has changed since: try again.")
Body = dict[str, Any]
Replicas = dict[int, tuple[int, ...]]


def _refused(error: Refused) -> Body:
    return {"error_code": int(error.code), "error_message": str(error)}


# ---- CreateTopics --------------------------------------------------------------------------------


def create_topics(office: Office, request: Any, version: int) -> Steps[Body]:
    """CreateTopics: one result per topic, in the order of the request."""
    twice = duplicates(topic.name for topic in request.topics)
    results: dict[str, Body] = {}
    wanted: dict[str, tuple[tree.TopicNode, Mapping[str, str]]] = {}
    for topic in request.topics:
        try:
            if topic.name in twice:
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    "Create topics request contains multiple entries for the following topics: "
                    f"{topic.name}",
                )
            node, settings = _new_topic(office, topic, {folded(name): name for name in wanted})
        except Refused as error:
            results[topic.name] = {"name": topic.name, **_refused(error)}
            continue
        wanted[topic.name] = node, settings
        results[topic.name] = {
            "name": topic.name,
            "topic_id": ZERO_UUID if request.validate_only else node.topic_id,
            "error_code": 0,
            "error_message": None,
            "topic_config_error_code": 0,
            "num_partitions": len(node.replicas),
            "replication_factor": len(node.replicas[0]),
            "configs": new_topic_entries(office.image, office.options.config, settings),
        }
    if not request.validate_only:
        failed = yield from _write_topics(office, wanted)
        for name, why in failed.items():
            results[name] = {"name": name, **_refused(why)}
    return {"topics": list(results.values())}


def _new_topic(
    office: Office, topic: Any, taken: Mapping[str, str]
) -> tuple[tree.TopicNode, dict[str, str]]:
    known = {name: Topic(name, topic_id, {}) for name, topic_id in office.context.ids.items()}
    check_name(topic.name, known, taken)
    configs = {config.name: config.value for config in topic.configs}
    if duplicates(config.name for config in topic.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate config names.")
    checked_topic_configs(office.image, topic.name, configs, office.options.config)
    replicas = _chosen(topic) if topic.assignments else _placed(office, topic)
    node = tree.TopicNode(_new_id(office), replicas, {}, {})
    if len(replicas) > PARTITIONS_MAX or len(tree.write_topic(node)) > ZNODE_BYTES_MAX:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"found {len(replicas)} partitions, wanted at most {PARTITIONS_MAX}, whose description "
            f"fits in {ZNODE_BYTES_MAX} bytes",
        )
    return node, {name: value for name, value in configs.items() if value is not None}


def _new_id(office: Office) -> uuid.UUID:
    while True:
        found = uuid.UUID(int=office.random.getrandbits(128), version=4)
        if not uuid_text(found).startswith("-"):
            return found


def _chosen(topic: Any) -> Replicas:
    """The caller's own assignment."""
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both "
            "cannot be used at the same time.",
        )
    replicas = {one.partition_index: tuple(one.broker_ids) for one in topic.assignments}
    sizes = {len(brokers) for brokers in replicas.values()}
    problem = None
    if len(replicas) < len(topic.assignments) or sorted(replicas) != [*range(len(replicas))]:
        problem = "partitions should be a consecutive 0-based integer sequence"
    elif 0 in sizes:
        problem = "a partition would have no replica"
    elif len(sizes) > 1:
        problem = "All partitions should have the same number of replicas"
    elif any(len({*brokers}) < len(brokers) for brokers in replicas.values()):
        problem = f"Duplicate replica assignment found: {replicas}"
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return dict(sorted(replicas.items()))


def _placed(office: Office, topic: Any) -> Replicas:
    config = office.options.config
    count, factor = topic.num_partitions, topic.replication_factor
    count = int(config.get("num.partitions", 1)) if count == -1 else count
    factor = int(config.get("default.replication.factor", 1)) if factor == -1 else factor
    racks = _racks(office)
    if count < 1:
        raise Refused(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if count > PARTITIONS_MAX:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions: found {count}, wanted at most {PARTITIONS_MAX}.",
        )
    if factor < 1:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."
        )
    if factor > len(racks):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {factor} larger than available brokers: {len(racks)}.",
        )
    return dict(enumerate(place(racks, count, factor, office.random)))


def _racks(office: Office) -> dict[int, str | None]:
    brokers = office.context.brokers
    return {number: one.rack for number, one in sorted(brokers.items())}


def _write_topics(
    office: Office, wanted: Mapping[str, tuple[tree.TopicNode, Mapping[str, str]]]
) -> Steps[dict[str, Refused]]:
    """Write them to the tree, then elect leaders; returns those that already exist."""
    context = office.context
    found = yield Looks([Read(path) for name in wanted for path in own_settings.paths_of(name)])
    olds = zip(found[::2], found[1::2], strict=True)  # may be left over from a topic of that name
    changes = []
    for (name, (node, settings)), (old, old_own) in zip(wanted.items(), olds, strict=True):
        theirs, own = own_settings.split(settings)
        path, data = entities.config_path(("topics", name)), entities.write_config(theirs)
        config: Operation = Create(path, data) if old is None else Set(path, data, old.version)
        others = altering.own_change(name, node.topic_id, own, old_own)
        topic = Create(tree.topic_path(name), tree.write_topic(node))
        changes.append(context.change(topic.path, config, *others, topic))
    outcomes = yield changes
    made: dict[str, tree.TopicNode] = {}
    failed: dict[str, Refused] = {}
    for (name, (node, settings)), outcome in zip(wanted.items(), outcomes, strict=True):
        if outcome.done:
            made[name] = node
            context.assigned_at[name] = 0
            context.says_unclean(name, unclean_of(settings))
        else:
            failed[name] = Refused(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
            )
    yield from topics.topics_are(context, office.told, made)
    return failed


# ---- CreatePartitions ----------------------------------------------------------------------------


def create_partitions(office: Office, request: Any, version: int) -> Steps[Body]:
    """CreatePartitions: one result per topic."""
    twice = duplicates(topic.name for topic in request.topics)
    context = office.context
    results: dict[str, Body] = {}
    wanted: dict[str, tree.TopicNode] = {}
    for topic in request.topics:
        try:
            if topic.name in twice:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            wanted[topic.name] = _larger(office, topic)
            results[topic.name] = {"name": topic.name, "error_code": 0, "error_message": None}
        except Refused as error:
            results[topic.name] = {"name": topic.name, **_refused(error)}
    if not request.validate_only:
        changes = [
            context.change(
                tree.topic_path(name),
                Set(
                    tree.topic_path(name), tree.write_topic(node), context.assigned_at.get(name, -1)
                ),
            )
            for name, node in wanted.items()
        ]
        outcomes = yield changes
        for name, outcome in zip(list(wanted), outcomes, strict=True):
            if outcome.done:
                context.assigned_at[name] += 1
                continue
            del wanted[name]
            results[name] = {"name": name, **_refused(CHANGED)}
        yield from topics.topics_are(context, office.told, wanted)
    return {"results": list(results.values())}


def _larger(office: Office, asked: Any) -> tree.TopicNode:
    """The topic with its new partitions."""
    context, name = office.context, asked.name
    now = {key[1]: one for key, one in context.partitions.items() if key[0] == name}
    if name not in context.ids or not now:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if name in context.deleted:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic '{name}' is being deleted.")
    if any(moving(one) for one in now.values()):
        raise Refused(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"A partition reassignment is in progress for the topic '{name}'.",
        )
    count = asked.count
    if count == len(now):
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partitions.")
    if count < len(now):
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {len(now)} partitions, which is higher than the requested "
            f"{count}.",
        )
    if count - len(now) > PARTITIONS_MAX:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"found {count - len(now)} more partitions, wanted at most {PARTITIONS_MAX}",
        )
    replicas = {number: one.replicas for number, one in now.items()}
    numbers = range(max(now) + 1, max(now) + 1 + count - len(now))
    more = _added(office, asked, now[min(now)].replicas, numbers)
    node = tree.TopicNode(context.ids[name], {**replicas, **more}, {}, {})
    if len(tree.write_topic(node)) > ZNODE_BYTES_MAX:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"the description of {count} partitions is larger than {ZNODE_BYTES_MAX} bytes",
        )
    return node


def _added(office: Office, asked: Any, like: Sequence[int], numbers: range) -> Replicas:
    racks = _racks(office)
    if asked.assignments is None:
        if len(like) > len(racks):
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor: {len(like)} larger than available brokers: {len(racks)}.",
            )
        after = [at for at, broker in enumerate(racks) if broker >= like[0]]
        start = Start(after[0] if after else 0, numbers.start)
        found = place(racks, len(numbers), len(like), office.random, start)
        return dict(zip(numbers, found, strict=True))
    chosen = [tuple(one.broker_ids) for one in asked.assignments]
    unknown = sorted({broker for brokers in chosen for broker in brokers} - racks.keys())
    problem = None
    if len(chosen) != len(numbers):
        problem = (
            f"Increasing the number of partitions by {len(numbers)} but {len(chosen)} "
            "assignments provided."
        )
    elif any(len({*brokers}) < len(brokers) for brokers in chosen):
        problem = f"Duplicate brokers not allowed in replica assignment: {chosen}"
    elif unknown:
        problem = f"Unknown broker(s) in replica assignment: {unknown}."
    elif any(len(brokers) != len(like) for brokers in chosen):
        problem = (
            f"Inconsistent replication factor between partitions, partition 0 has {len(like)} "
            f"while these were given: {chosen}"
        )
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return dict(zip(numbers, chosen, strict=True))


# ---- DeleteTopics --------------------------------------------------------------------------------


def delete_topics(office: Office, request: Any, version: int) -> Steps[Body]:
    """DeleteTopics: one result per topic.  The topics are being deleted from now on, and are gone
    once every broker has dropped them."""
    context = office.context
    by_id = {topic_id: name for name, topic_id in context.ids.items()}
    asked = [(one.name, one.topic_id) for one in request.topics]
    asked += [(name, ZERO_UUID) for name in request.topic_names]
    found = [(name or by_id.get(topic_id), name, topic_id) for name, topic_id in asked]
    twice = duplicates(name for name, _, _ in found if name is not None)
    results: list[Body] = []
    wanted: list[str] = []
    for topic, name, topic_id in found:
        result: Body = {"name": name, "topic_id": topic_id}
        error = _stands_against(office, topic, name, topic_id, twice)
        if error is not None:
            results.append(result | _refused(error))
            continue
        assert topic is not None
        wanted.append(topic)
        own = {"name": topic, "topic_id": context.ids[topic]}
        results.append(own | {"error_code": 0, "error_message": None})
    paths = [f"{tree.DELETE_TOPICS}/{name}" for name in wanted]
    yield [context.change(path, Create(path)) for path in paths]  # one that exists is fine, too
    yield from deletion.topics_to_delete(context, office.told, wanted)
    return {"responses": results}


def _stands_against(
    office: Office, topic: str | None, name: str | None, topic_id: uuid.UUID, twice: set[Any]
) -> Refused | None:
    if (name is None) == (topic_id == ZERO_UUID):
        return Refused(ErrorCode.INVALID_REQUEST, "Topic name and id: wanted one of them.")
    if topic in twice:
        return Refused(ErrorCode.INVALID_REQUEST, "The topic was named twice.")
    if topic is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if topic not in office.context.ids:
        return Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    if not office.options.deletes:
        return Refused(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    return None
