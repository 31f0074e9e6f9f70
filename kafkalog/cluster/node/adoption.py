"""A directory that was served alone becomes a node's of a cluster, with all its topics.

What is to be written is decided purely; the tree is written before the directory is touched, and
each step may be done again after a crash.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from kafkalog.directory.manager import Manager
from kafkalog.disk import layout
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import METADATA_TOPIC, MetaProperties
from kafkalog.errors import ArgumentError
from kafkalog.metadata.image import BROKER, TOPIC, MetadataImage, Topic
from kafkalog.metadata.kraft.kraftlog import MetadataLog
from kafkalog.metadata.zookeeper import entities, tree
from kafkalog.metadata.zookeeper.loading import Loaded
from kafkalog.metadata.zookeeper.registering import cluster_id
from kafkalog.metadata.zookeeper.session import Create, Delete, Operation, Session, Set

__all__ = ["Adoption", "carry_out", "plan", "read_alone"]

ASIDE = ".alone"
"""Behind the directory's name: where its own metadata go."""
KINDS = {TOPIC: "topics", BROKER: "brokers"}


class Adoption(NamedTuple):
    """What becomes of a directory, and of the tree."""

    node: int
    cluster: str
    """The cluster's id, which the directory gets; its own where the tree has none."""
    topics: tuple[Topic, ...]
    """Those that the tree has."""
    steps: tuple[tuple[Operation, ...], ...]
    """Each is done whole or not at all."""
    controller: bool
    """There is a controller, which must read again: force another election."""


def read_alone(path: str) -> MetadataImage:
    """What the directory's own metadata say; nothing is written.

    Raises: ArgumentError: it was not served alone; as Manager.
    """
    with Manager(path, mode="r") as manager:
        if (METADATA_TOPIC, 0) not in manager.partitions(METADATA_TOPIC):
            raise ArgumentError(
                f"{path}: found no {METADATA_TOPIC}-0; wanted a directory that was served alone "
                "(what is a cluster's node's already needs nothing: serve it with --zookeeper)"
            )
        return MetadataLog.open(manager).image


def plan(image: MetadataImage, loaded: Loaded, node: int) -> Adoption:
    """What is to be written so that the topics of a directory are the cluster's, all of them kept
    by `node` alone.

    Raises: ArgumentError: both have a topic of that name, the number is taken, or the directory
    has what would be lost.
    """
    _check_nothing_lost(image)
    there = loaded.image.topics
    for topic in image.topics.values():
        other = there.get(topic.name)
        if other is not None and other.id != topic.id:
            raise ArgumentError(
                f"topic {topic.name!r}: found it here and, another one, in the cluster; wanted it "
                "in one of them: copy its records with kafkalog mirror, or delete one"
            )
    new = tuple(topic for name, topic in sorted(image.topics.items()) if name not in there)
    _check_number(image, loaded, node)
    steps = [_topic(image, topic, node, loaded.controller_epoch) for topic in new]
    steps += _brokers(image, loaded, node)
    steps += _producer_ids(image, loaded, node)
    cluster = loaded.image.cluster_id or image.cluster_id
    return Adoption(node, cluster, new, tuple(steps), bool(new) and loaded.controller is not None)


def _check_nothing_lost(image: MetadataImage) -> None:
    kept = {
        "access rules": image.acls,
        "credentials": image.scram,
        "tokens": image.tokens,
        "quotas": image.quotas,
    }
    for what, some in kept.items():
        if some:
            raise ArgumentError(
                f"found {what} in the directory's metadata, which a cluster on ZooKeeper does not "
                "take over yet; wanted none: remove them before"
            )


def _check_number(image: MetadataImage, loaded: Loaded, node: int) -> None:
    if node in loaded.image.brokers:
        raise ArgumentError(
            f"node {node}: found it alive in the cluster; wanted a number that no other has: "
            "--node-id N"
        )
    for topic in loaded.image.topics.values():
        if topic.name not in image.topics and any(
            node in one.replicas for one in topic.partitions.values()
        ):
            raise ArgumentError(
                f"node {node}: found that it keeps partitions of topic {topic.name!r} in the "
                "cluster; wanted a number that was nobody's: --node-id N"
            )


def _topic(
    image: MetadataImage, topic: Topic, node: int, controller_epoch: int
) -> tuple[Operation, ...]:
    """A topic, its settings, and of each partition that this node leads it with all records."""
    replicas = dict.fromkeys(sorted(topic.partitions), (node,))
    told = tree.TopicNode(topic.id, replicas, {}, {})
    settings = entities.write_config(image.config(TOPIC, topic.name))
    found: list[Operation] = [
        Create(tree.topic_path(topic.name), tree.write_topic(told)),
        Create(tree.partitions_path(topic.name)),
        Create(entities.config_path(("topics", topic.name)), settings),
    ]
    for number, one in sorted(topic.partitions.items()):
        # Above every epoch in its log: the next election is above this one.
        state = tree.PartitionState(node, one.leader_epoch + 1, (node,), controller_epoch)
        path = tree.partition_path(topic.name, number)
        found += [Create(os.path.dirname(path)), Create(path, tree.write_partition(state))]
    return tuple(found)


def _brokers(image: MetadataImage, loaded: Loaded, node: int) -> list[tuple[Operation, ...]]:
    """Settings of this broker and of all, where the cluster has none: the cluster's own stay."""
    found: list[tuple[Operation, ...]] = []
    for name, there in ((str(image.node_id), str(node)), ("", entities.DEFAULT)):
        settings = image.config(BROKER, name)
        known = "" if there == entities.DEFAULT else there
        if settings and not loaded.image.config(BROKER, known):
            path = entities.config_path(("brokers", there))
            found.append((Create(path, entities.write_config(settings)),))
    return found


def _producer_ids(image: MetadataImage, loaded: Loaded, node: int) -> list[tuple[Operation, ...]]:
    """No producer gets an id that one of this directory's has."""
    if image.next_producer_id <= loaded.image.next_producer_id:
        return []
    last = image.next_producer_id - 1
    block = tree.write_producer_ids(tree.ProducerIdBlock(node, 0, last))
    return [(Set(tree.PRODUCER_IDS, block),)]


# ---- doing ---------------------------------------------------------------------------------


def carry_out(path: str, adoption: Adoption, session: Session) -> str:
    """Write the tree, then make the directory a node's; where its own metadata are now.

    Raises: Locked: a broker serves the directory; ArgumentError: the tree has changed since it was
    read; CorruptLog; ZooKeeperAway; OSError.
    """
    meta = os.path.join(path, layout.META_PROPERTIES)
    with Directory(os.path.abspath(path)) as directory:
        directory.lock()
        with open(meta, "rb") as file:
            before = file.read()
        known = layout.parse_meta_properties(before, meta).directory_id
        if cluster_id(session, adoption.cluster) != adoption.cluster:
            raise ArgumentError(
                f"ZooKeeper at {session.hosts}: the cluster id has changed since: try again"
            )
        for step in adoption.steps:
            done = session.commit(step)
            if not done.done:
                raise ArgumentError(
                    f"{step[done.refused].path}: {done.why}: ZooKeeper has changed since; the "
                    "directory is unchanged: try again"
                )
        turned = MetaProperties(0, adoption.node, adoption.cluster, known)
        aside = _turn(path, before, turned, directory)
    if adoption.controller:
        session.commit([Delete(tree.CONTROLLER)])  # the next controller reads everything again
    return aside


def _turn(path: str, before: bytes, turned: MetaProperties, directory: Directory) -> str:
    """Convert the directory itself: its former metadata is kept next to it."""
    aside = _free_name(path + ASIDE)
    os.makedirs(aside, mode=0o700)
    with open(os.path.join(aside, layout.META_PROPERTIES), "wb") as file:
        file.write(before)
        os.fsync(file.fileno())
    directory.replace(layout.META_PROPERTIES, layout.render_meta_properties(turned))
    # Last: as long as it is there, all can be done again.
    name = f"{METADATA_TOPIC}-0"
    os.rename(os.path.join(path, name), os.path.join(aside, name))
    for folder in (aside, path, os.path.dirname(aside)):
        _sync(folder)
    return aside


def _free_name(wanted: str) -> str:
    wanted = os.path.abspath(wanted)
    for name in (wanted, *(f"{wanted}-{number}" for number in range(2, 100))):
        if not os.path.exists(name):
            return name
    raise ArgumentError(f"{wanted}: found 99 of them; remove some")


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
