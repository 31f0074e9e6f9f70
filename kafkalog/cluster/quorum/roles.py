"""The roles of a broker's replicas, as the metadata gives them.

Pure.  No controller commands this broker: it reads in the metadata which partitions it leads and
follows (KIP-500).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from uuid import UUID

from kafkalog.metadata.image import METADATA_VERSION, Change, MetadataImage, Partition, Topic
from kafkalog.replication.roles import Drop, Effect, Follow, Held, Lead
from kafkalog.types import TopicPartition

__all__ = ["all_roles", "changed_roles", "lacks_directories", "misplaced", "no_roles", "unled"]

NO_LEADER = -1
DIRECTORIES_SINCE = 17
"""The metadata.version from which on a partition names its replicas' directories: 3.7-IV2."""
ASSIGNED_AT_ONCE = 2_250
"""Kafka's limit for one AssignReplicasToDirs."""


def all_roles(image: MetadataImage) -> list[Effect]:
    """The roles of all replicas of this broker, when it begins."""
    return [
        _role(image.node_id, topic, partition, new=False)
        for topic, partition in image.partitions()
        if image.node_id in partition.replicas
    ]


def no_roles(image: MetadataImage) -> list[Effect]:
    """Neither lead nor follow any replica of this broker, and keep its data."""
    return [
        Drop(TopicPartition(topic.name, partition.partition), delete=False)
        for topic, partition in image.partitions()
        if image.node_id in partition.replicas
    ]


def unled(image: MetadataImage) -> Change:
    """The change after which this broker leads nothing, as far as it knows."""
    topics, node, changed = dict(image.topics), image.node_id, list[Topic]()
    for name, topic in image.topics.items():
        led = {n: one._replace(leader=NO_LEADER)
               for n, one in topic.partitions.items() if one.leader == node}  # fmt: skip
        if led:
            topics[name] = topic._replace(partitions={**topic.partitions, **led})
            changed.append(topics[name])
    return Change(image, image._replace(topics=topics), tuple(changed), (), ())


def changed_roles(change: Change) -> list[Effect]:
    """The roles that a change gives to this broker's replicas: first what it loses."""
    node, dropped, given = change.new.node_id, list[Effect](), list[Effect]()
    for topic in change.gone:
        dropped += (
            Drop(TopicPartition(topic.name, one.partition), delete=True)
            for one in topic.partitions.values()
            if node in one.replicas
        )
    for topic in change.changed:
        before = change.old.topics.get(topic.name)
        known = before.partitions if before is not None and before.id == topic.id else {}
        for number, now in topic.partitions.items():
            old = known.get(number)
            if old is now:
                continue
            if node not in now.replicas:
                if old is not None and node in old.replicas:
                    dropped.append(Drop(TopicPartition(topic.name, number), delete=True))
            elif _differs(node, old, now):
                given.append(_role(node, topic, now, new=old is None and not now.leader_epoch))
    return dropped + given


def _differs(node: int, old: Partition | None, now: Partition) -> bool:
    """True if this broker must act: a leader on each change, as it keeps the ISR; a follower if
    there is another leader, or another leader epoch."""
    if old is None or node not in old.replicas or old.leader_epoch != now.leader_epoch:
        return True
    if now.leader == node:
        return old.partition_epoch != now.partition_epoch
    return old.leader != now.leader


def _role(node: int, topic: Topic, partition: Partition, *, new: bool) -> Effect:
    kind = Lead if partition.leader == node else Follow
    where = TopicPartition(topic.name, partition.partition)
    return kind(where, Held(topic.id, partition), new)


def lacks_directories(image: MetadataImage) -> bool:
    """True if this broker's registration has no directories, since the cluster had none then."""
    own = image.brokers.get(image.node_id)
    level = image.features.get(METADATA_VERSION, 0)
    return own is not None and not own.directories and level >= DIRECTORIES_SINCE


def misplaced(image: MetadataImage, directory_id: UUID) -> dict[UUID, list[int]]:
    """The partitions, by topic id, whose replica here is in another directory than the metadata
    say; as many as one request may name."""
    found: dict[UUID, list[int]] = defaultdict(list)
    if image.features.get(METADATA_VERSION, 0) >= DIRECTORIES_SINCE:
        for count, (topic_id, number) in enumerate(_misplaced(image, directory_id)):
            if count == ASSIGNED_AT_ONCE:
                break
            found[topic_id].append(number)
    return dict(found)


def _misplaced(image: MetadataImage, directory_id: UUID) -> Iterator[tuple[UUID, int]]:
    for topic, one in image.partitions():
        directories = dict(zip(one.replicas, one.directories, strict=False))
        if directories.get(image.node_id, directory_id) != directory_id:
            yield topic.id, one.partition
