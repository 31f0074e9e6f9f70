"""Converts a directory that was served standalone to a cluster node's, with all its topics.

The writes are decided purely; the tree is written before the directory is touched, and each step
can be repeated after a crash.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from kafkalog.directory.manager import Manager
from kafkalog.disk import layout
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import METADATA_TOPIC, MetaProperties
from kafkalog.errors import ArgumentError
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.metadata.image import BROKER, TOPIC, MetadataImage, Topic
from kafkalog.zookeeper import altering, entities, own_settings, tree
from kafkalog.zookeeper.loading import Loaded
from kafkalog.zookeeper.registering import cluster_id
from kafkalog.zookeeper.session import Create, Delete, Operation, Session, Set

__all__ = ["Adoption", "carry_out", "plan", "read_alone"]

ASIDE = ".alone"
"""Suffix of the directory's name: the folder that gets its own metadata."""
KINDS = {TOPIC: "topics", BROKER: "brokers"}


class Adoption(NamedTuple):
    """The planned changes of a directory and of the tree."""

    node: int
    cluster: str
    """The cluster's id, which the directory gets; the directory's own if the tree has none."""
    topics: tuple[Topic, ...]
    """The topics that the tree gets."""
    steps: tuple[tuple[Operation, ...], ...]
    """Each is all or nothing."""
    controller: bool
    """There is a controller, which must read the tree again: force another election."""
    offset: int = -1
    """Offset of the directory's metadata when it was planned; -1: not checked again."""


def read_alone(path: str) -> MetadataImage:
    """The image of the directory's own metadata; nothing is written.

    Raises: ArgumentError: the directory was not served standalone; as Manager.
    """
    with Manager(path, mode="r") as manager:
        if (METADATA_TOPIC, 0) not in manager.partitions(METADATA_TOPIC):
            raise ArgumentError(
                f"{path}: found no {METADATA_TOPIC}-0; wanted a directory that was served alone "
                "(a cluster node's directory needs no adoption: serve it with --zookeeper)"
            )
        return MetadataLog.open(manager).image


def plan(image: MetadataImage, loaded: Loaded, node: int) -> Adoption:
    """The writes that make a directory's topics the cluster's, all of them kept by `node` alone.

    Raises: ArgumentError: both have a topic of that name, the number is taken, or the directory
    has metadata that would be lost.
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
    again = bool(new) and loaded.controller is not None
    return Adoption(node, cluster, new, tuple(steps), again, image.offset)


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
                f"found {what} in the directory's metadata, which cannot be moved to a cluster on "
                "ZooKeeper yet; wanted none: remove them first"
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
                "cluster; wanted an unused number: --node-id N"
            )


def _topic(
    image: MetadataImage, topic: Topic, node: int, controller_epoch: int
) -> tuple[Operation, ...]:
    """A topic, its settings, and its partitions: this node leads each of them with all records."""
    replicas = dict.fromkeys(sorted(topic.partitions), (node,))
    told = tree.TopicNode(topic.id, replicas, {}, {})
    theirs, own = own_settings.split(image.config(TOPIC, topic.name))
    found: list[Operation] = [
        Create(tree.topic_path(topic.name), tree.write_topic(told)),
        Create(tree.partitions_path(topic.name)),
        Create(entities.config_path(("topics", topic.name)), entities.write_config(theirs)),
        *altering.own_change(topic.name, topic.id, own, None),
    ]
    for number, one in sorted(topic.partitions.items()):
        # Higher than every epoch in its log; the next election's is higher than this one.
        state = tree.PartitionState(node, one.leader_epoch + 1, (node,), controller_epoch)
        path = tree.partition_path(topic.name, number)
        found += [Create(os.path.dirname(path)), Create(path, tree.write_partition(state))]
    return tuple(found)


def _brokers(image: MetadataImage, loaded: Loaded, node: int) -> list[tuple[Operation, ...]]:
    """Settings of this broker and of all, if the cluster has none: the cluster's own stay."""
    found: list[tuple[Operation, ...]] = []
    for name, there in ((str(image.node_id), str(node)), ("", entities.DEFAULT)):
        settings = image.config(BROKER, name)
        known = "" if there == entities.DEFAULT else there
        if settings and not loaded.image.config(BROKER, known):
            path = entities.config_path(("brokers", there))
            found.append((Create(path, entities.write_config(settings)),))
    return found


def _producer_ids(image: MetadataImage, loaded: Loaded, node: int) -> list[tuple[Operation, ...]]:
    """Makes sure that no producer gets an id that this directory has given out."""
    if image.next_producer_id <= loaded.image.next_producer_id:
        return []
    last = image.next_producer_id - 1
    block = tree.write_producer_ids(tree.ProducerIdBlock(node, 0, last))
    return [(Set(tree.PRODUCER_IDS, block),)]


# ---- doing ---------------------------------------------------------------------------------


def carry_out(path: str, adoption: Adoption, session: Session) -> str:
    """Write the tree, then convert the directory; returns where its own metadata is now.

    Raises: Locked: a broker serves the directory; ArgumentError: the tree has changed since it was
    read, which is checked before the first write, and again by each; CorruptLog; ZooKeeperAway;
    OSError.
    """
    meta = os.path.join(path, layout.META_PROPERTIES)
    with Directory(os.path.abspath(path)) as directory:
        directory.lock()
        with open(meta, "rb") as file:
            before = file.read()
        known = layout.parse_meta_properties(before, meta).directory_id
        if adoption.offset >= 0 and read_alone(path).offset != adoption.offset:
            raise ArgumentError(f"{path}: a broker has served it since it was read: try again")
        _check_unchanged(adoption, session)
        if cluster_id(session, adoption.cluster) != adoption.cluster:
            raise _changed_cluster(session)
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


def _check_unchanged(adoption: Adoption, session: Session) -> None:
    """Refuse a plan whose first step, or any other, would be refused by the tree as it is now."""
    there = session.read(tree.CLUSTER_ID)
    if there is not None and tree.read_cluster_id(there.data) != adoption.cluster:
        raise _changed_cluster(session)
    node = tree.broker_path(adoption.node)
    new = [one.path for step in adoption.steps for one in step if isinstance(one, Create)]
    for path in (node, *new):
        if session.read(path) is not None:
            raise ArgumentError(
                f"{path}: found it in ZooKeeper at {session.hosts}, which has changed since it was "
                "read; nothing was changed: try again"
            )


def _changed_cluster(session: Session) -> ArgumentError:
    return ArgumentError(
        f"ZooKeeper at {session.hosts}: the cluster id has changed since: try again"
    )


def _turn(path: str, before: bytes, turned: MetaProperties, directory: Directory) -> str:
    """Convert the directory itself: its former metadata is kept next to it."""
    aside = _free_name(path + ASIDE)
    os.makedirs(aside, mode=0o700)
    with open(os.path.join(aside, layout.META_PROPERTIES), "wb") as file:
        file.write(before)
        os.fsync(file.fileno())
    directory.replace(layout.META_PROPERTIES, layout.render_meta_properties(turned))
    # Last: as long as it is there, everything can be repeated.
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
