"""Prepares a data directory for metadata, and adopts folders that have none."""

import os
import uuid
from collections.abc import Collection, Sequence
from typing import Any

from kafkalog.controller.records import PRODUCER_ID_BLOCK
from kafkalog.directory.identity import says_little
from kafkalog.directory.manager import Manager
from kafkalog.disk import layout
from kafkalog.disk.layout import METADATA_TOPIC, MetaProperties
from kafkalog.errors import ArgumentError, CorruptLog, NotFound, UnsupportedForMessageFormat
from kafkalog.kraft.records import decode, encode
from kafkalog.kraft.snapshots import read_snapshot, render_snapshot
from kafkalog.logs.limit import limited
from kafkalog.metadata.changes import Replay, partition_fields
from kafkalog.metadata.image import (
    BROKER,
    ELIGIBLE_REPLICAS,
    METADATA_VERSION,
    MetadataImage,
    Partition,
    empty_image,
)
from kafkalog.metadata.levels import LEVEL, LEVEL_MIN, LEVEL_NEW, SHARE_VERSION, STREAMS_VERSION
from kafkalog.types import TopicPartition

__all__ = [
    "adoption",
    "check_adoptable",
    "check_alone",
    "elections",
    "first_image",
    "first_records",
    "has_metadata",
    "identity",
    "prepare",
    "settle_folders",
    "supported_features",
]

METADATA_TOPIC_ID = uuid.UUID(int=1)
"""Kafka's reserved id of the metadata topic."""
_LEAST = "min.insync.replicas"
FEATURES = {
    METADATA_VERSION: LEVEL_NEW, "group.version": 1, "transaction.version": 2, ELIGIBLE_REPLICAS: 1,
    SHARE_VERSION: 1, STREAMS_VERSION: 1,
}  # fmt: skip
"""Feature levels in a new directory: those of Kafka 4.1, and share and streams groups, which Kafka
has since 4.2: 4.2 to 4.4 can open it."""

Record = tuple[str, Any]
_logger = limited(__name__)


# ---- identity --------------------------------------------------------------------------------


def has_metadata(manager: Manager) -> bool:
    """True if there is a metadata log."""
    return TopicPartition(METADATA_TOPIC, 0) in manager.partitions(METADATA_TOPIC)


def identity(manager: Manager, adopt: bool, number: int) -> MetaProperties:
    """The identity that the directory has, or gets from `prepare`; nothing is written.

    Raises: ArgumentError, NotFound (mode "r": there is none), CorruptLog.
    """
    meta, here = manager.meta, has_metadata(manager)
    if manager.mode == "r":
        if meta is None or not here:
            raise NotFound(f"{manager.path}: found no {METADATA_TOPIC}-0 to read")
        return meta
    meta = meta or MetaProperties(1, number, None, None)
    others = [tp for tp in manager.partitions() if tp.topic != METADATA_TOPIC]
    if not here and others and not adopt and not _ours(manager, others):
        # Version 0: the directory of a node in a cluster on ZooKeeper.
        back = "serve it in its cluster with --zookeeper, " if meta.version == 0 else ""
        raise ArgumentError(
            f"{manager.path}: holds partitions ({layout.partition_folder(*others[0])}, ...) but "
            f"no {METADATA_TOPIC}-0 that says what they are; {back}open it with mode='r', or adopt "
            f"it with: kafkalog adopt --dir {manager.path}"
        )
    return MetaProperties(
        1,
        meta.node_id if meta.node_id >= 0 else number,
        meta.cluster_id or layout.uuid_text(layout.random_topic_id()),
        meta.directory_id or layout.random_topic_id(),
    )


def first_image(manager: Manager, meta: MetaProperties) -> MetadataImage:
    """The metadata that the first records make.

    Raises: as first_records.
    """
    replay = Replay(empty_image(meta.cluster_id or "", meta.node_id))
    for name, fields in first_records(manager):
        replay.feed(decode(encode(name, fields, replay.image)))
    replay.settle(0, 0, 0)
    return replay.image


def prepare(manager: Manager, wanted: MetaProperties) -> None:
    """Make sure that there is a metadata log, and that the directory has the identity `wanted`.

    Raises: ArgumentError (unknown records), IoFailed.
    """
    meta, here = manager.meta, has_metadata(manager)
    if wanted != meta:
        data = layout.render_meta_properties(wanted)
        manager.state.directory.replace(layout.META_PROPERTIES, data)
        manager.meta = wanted
    if _is_torn_bootstrap(manager) if here else _bootstrap(manager) is None:
        image = empty_image("", wanted.node_id)
        values = [encode(name, fields, image) for name, fields in first_records(manager)]
        data = render_snapshot(values, 0, (0, manager.clock.now_ms()))
        manager.state.directory.replace(layout.BOOTSTRAP, data)
    if not here:
        manager.make(METADATA_TOPIC, METADATA_TOPIC_ID, [0])
    elif not manager.state.clean:
        manager.folders.claim(TopicPartition(METADATA_TOPIC, 0), METADATA_TOPIC_ID)


def _is_torn_bootstrap(manager: Manager) -> bool:
    """True if a power cut left it empty: the log has its contents."""
    path = os.path.join(manager.path, layout.BOOTSTRAP)
    if manager.state.clean or not os.path.lexists(path):
        return False
    try:
        read_snapshot(path)
    except CorruptLog:
        return True
    return False


def _bootstrap(manager: Manager) -> list[tuple[str, dict[str, Any]]] | None:
    """The bootstrap records of the directory: features, users that may log in (SCRAM).  None if it
    was not formatted, or our first start did not finish.

    Raises: CorruptLog if it is damaged; ArgumentError for unknown
    records.
    """
    path = os.path.join(manager.path, layout.BOOTSTRAP)
    if not os.path.lexists(path):
        return None
    try:
        entries = [decode(raw.value) for raw in read_snapshot(path) if raw.control is None]
    except CorruptLog:
        if says_little(path):
            return None
        raise
    for entry in entries:
        if isinstance(entry, str):
            raise ArgumentError(f"{path}: found {entry}, wanted records that are known here")
    return [(one.name, dict(one.fields)) for one in entries if not isinstance(one, str)]


def _ours(manager: Manager, tps: list[TopicPartition]) -> bool:
    """True if everything in it is from kafkalog's own storage, which needs no metadata.

    Kafka 4 leaves a bootstrap.checkpoint, and Kafka with ZooKeeper another meta.properties.
    """
    meta, path = manager.meta, manager.path
    if meta is None or meta.version != 1 or meta.directory_id is None:
        return False
    if os.path.lexists(os.path.join(path, layout.BOOTSTRAP)):
        return False
    return all(manager.topic_id(topic) for topic in {tp.topic for tp in tps})


def check_level(level: int) -> None:
    """Refuse a metadata.version that is unknown here.  Raises: ArgumentError."""
    if not LEVEL_MIN <= level <= LEVEL:
        raise ArgumentError(
            f"metadata.version: found {level}, wanted {LEVEL_MIN} (3.3) to {LEVEL} (4.4)"
        )


def check_alone(image: MetadataImage, meta: MetaProperties | None) -> None:
    """Refuse the metadata of a cluster, or of a node with several directories.

    Raises: ArgumentError.
    """
    assert meta is not None
    others = [number for number in image.brokers if number != meta.node_id]
    if others:
        raise ArgumentError(
            f"found brokers {others} besides {meta.node_id}, wanted a directory of a single node"
        )
    check_level(image.features.get(METADATA_VERSION, LEVEL_NEW))
    for topic, partition in image.partitions():
        where = f"partition {partition.partition} of {topic.name}"
        if partition.replicas != (meta.node_id,):
            raise ArgumentError(
                f"{where}: found replicas {list(partition.replicas)}, wanted [{meta.node_id}]"
            )
        # The first hundred ids are reserved: 0 means that its directory is unknown.
        if any(d.int > 99 and d != meta.directory_id for d in partition.directories):
            raise ArgumentError(
                f"{where}: is in another log directory; kafkalog has one directory per node"
            )


def first_records(manager: Manager, formatted: Sequence[Record] = ()) -> Sequence[Record]:
    """The first records of a new metadata log: what its directory was formatted with, else the
    levels of our features; and the records that these require.

    `formatted`: the records that were found elsewhere than in bootstrap.checkpoint.

    Raises: ArgumentError (unknown records or level), CorruptLog.
    """
    records = [*formatted] or _bootstrap(manager) or []
    levels = {
        one["name"]: one["feature_level"] for name, one in records if name == "FeatureLevelRecord"
    }
    if METADATA_VERSION not in levels:
        levels = FEATURES
        records += [("FeatureLevelRecord", {"name": name, "feature_level": level})
                    for name, level in FEATURES.items()]  # fmt: skip
    check_level(levels[METADATA_VERSION])
    configured = any(name == "ConfigRecord" and one["name"] == _LEAST for name, one in records)
    if levels.get(ELIGIBLE_REPLICAS) and not configured:
        # With eligible leader replicas it belongs to the cluster, from the start.
        least = str(manager.config.topic.min_insync_replicas)
        everybody = {"resource_type": BROKER, "resource_name": ""}
        records.append(("ConfigRecord", {**everybody, "name": _LEAST, "value": least}))
    return records


def supported_features(image: MetadataImage) -> tuple[tuple[str, int, int], ...]:
    """The features and levels that this broker registers: at least those in use."""
    highest = {**FEATURES, METADATA_VERSION: LEVEL, "kraft.version": 1}
    for name, level in image.features.items():
        highest[name] = max(level, highest.get(name, 0))
    return tuple((name, LEVEL_MIN if name == METADATA_VERSION else 0, level)
                 for name, level in highest.items())  # fmt: skip


# ---- partitions ------------------------------------------------------------------------------


def elections(image: MetadataImage, unclean: bool) -> list[Record]:
    """Changes that make this node the leader of every partition.

    `unclean`: records that clients have seen may be lost since the last run, so every leader
    epoch rises, and clients notice (KIP-320).
    """
    node = image.node_id
    found: list[Record] = []
    for topic, partition in image.partitions():
        change: dict[str, Any] = {"topic_id": topic.id, "partition_id": partition.partition}
        if partition.isr != (node,):
            change.update(isr=[node], eligible_leader_replicas=[], last_known_elr=[])
        elif partition.leader == node and not unclean:
            continue
        if partition.leader_recovery_state:
            change["leader_recovery_state"] = 0
        found.append(("PartitionChangeRecord", {**change, "leader": node}))
    return found


def settle_folders(
    manager: Manager, image: MetadataImage, removed: Collection[object]
) -> dict[TopicPartition, str]:
    """Delete folders of removed topics; returns a sentence for each unknown folder.

    Raises: IoFailed.
    """
    problems: dict[TopicPartition, str] = {}
    leftover: list[TopicPartition] = []
    for tp in manager.partitions():
        if tp.topic == METADATA_TOPIC:
            continue
        topic = image.topics.get(tp.topic)
        known = topic is not None and tp.partition in topic.partitions
        if known and not removed:
            continue
        found = manager.folders.partition_id(tp)
        # An unused folder of a removed topic may have come back without its id: see Folders.make.
        nobodys = removed and not known and manager.folders.bare(tp)
        if found in removed or nobodys:
            leftover.append(tp)
        elif not known:
            manager.folders.hide(tp)
            # No one recovers it any more, so the clean-shutdown marker must not vouch for it.
            manager.state.save(recovery_points={tp: None})
            problems[tp] = (
                f"{manager.path}: {layout.partition_folder(*tp)} is not in the metadata and stays "
                f"as it is; to adopt it: kafkalog adopt --dir {manager.path}"
            )
    manager.delete_partitions(leftover)
    return problems


# ---- adoption ----------------------------------------------------------------------------------

# Without the owner's word nothing is deleted: neither Kafka's seven days nor the broker's defaults.
_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_INTERNAL: dict[str, dict[str, str]] = {
    "__consumer_offsets": {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    },
    "__transaction_state": {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
    "__share_group_state": {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    },
}


def check_adoptable(manager: Manager, image: MetadataImage) -> None:
    """Refuse topics whose folders have different ids; nothing is written.

    Raises: ArgumentError, CorruptLog.
    """
    for topic, numbers in _unnamed(manager, image).items():
        _topic_id(manager, topic, numbers)


def _unnamed(manager: Manager, image: MetadataImage) -> dict[str, list[int]]:
    """The partitions here, by topic, of topics that no metadata names."""
    found: dict[str, list[int]] = {}
    for tp in manager.partitions():
        if tp.topic != METADATA_TOPIC and tp.topic not in image.topics:
            found.setdefault(tp.topic, []).append(tp.partition)
    return found


def adoption(manager: Manager, image: MetadataImage) -> list[Record]:
    """Records that adopt the topics whose folders are here and that no metadata names.

    Every log is opened, to recover it and so that no producer id is used twice.

    Raises: ArgumentError if the folders of a topic have different ids; errors of opening.
    """
    records: list[Record] = []
    highest = image.next_producer_id - 1
    for topic, numbers in _unnamed(manager, image).items():
        topic_id = _topic_id(manager, topic, numbers)
        records.append(("TopicRecord", {"name": topic, "topic_id": topic_id}))
        for name, value in _INTERNAL.get(topic, _KEPT).items():
            records.append(("ConfigRecord", {"resource_type": 2, "resource_name": topic,
                                             "name": name, "value": value}))  # fmt: skip
        for number in range(max(numbers) + 1):
            epoch = 0
            if number in numbers:
                epoch, producer_id = _look_into(manager, TopicPartition(topic, number))
                highest = max(highest, producer_id)
            records.append(_new_partition(manager, image.node_id, number, epoch, topic_id))
    if highest >= image.next_producer_id:
        next_id = (highest // PRODUCER_ID_BLOCK + 1) * PRODUCER_ID_BLOCK
        fields = {"broker_id": image.node_id, "broker_epoch": -1, "next_producer_id": next_id}
        records.append(("ProducerIdsRecord", fields))
    return records


def _look_into(manager: Manager, tp: TopicPartition) -> tuple[int, int]:
    """A log's leader epoch, and the highest producer id in it (-1: none)."""
    manager.folders.name_properly(tp)
    try:
        log = manager.get(*tp)
    except UnsupportedForMessageFormat as error:
        _logger.warning("%s: %s", layout.partition_folder(*tp), error)
        return 0, -1  # it has neither; a request for its records gets the same error
    return log.leader_epoch, max((p.producer_id for p in log.producers), default=-1)


def _new_partition(
    manager: Manager, node: int, number: int, epoch: int, topic_id: uuid.UUID
) -> Record:
    assert manager.meta is not None
    assert manager.meta.directory_id is not None
    one = Partition(number, (node,), (node,), node, epoch, 0, (manager.meta.directory_id,))
    return "PartitionRecord", partition_fields(one, topic_id)


def _topic_id(manager: Manager, topic: str, numbers: list[int]) -> uuid.UUID:
    """The id that all folders of a topic agree on; a new one if none has any."""
    ids = {
        found for n in numbers if (found := manager.folders.partition_id(TopicPartition(topic, n)))
    }
    if len(ids) > 1:
        texts = ", ".join(sorted(map(layout.uuid_text, ids)))
        raise ArgumentError(f"topic {topic}: found folders of different topic ids: {texts}")
    return next(iter(ids), None) or layout.random_topic_id()
