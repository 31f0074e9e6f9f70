"""A directory that no broker serves at the moment: its topics' settings apply to every writer."""

import uuid
from collections.abc import Mapping

from kafkalog.clock import Clock
from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import METADATA_TOPIC, Folder
from kafkalog.errors import ArgumentError, InvalidTopic, KafkalogError, TopicExists
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.kraft.loading import load
from kafkalog.log.hooks import Lent
from kafkalog.metadata.image import MetadataImage
from kafkalog.metadata.requests import NewTopic, NewTopics
from kafkalog.metadata.settings import topic_overrides
from kafkalog.types import TopicPartition

__all__ = ["create_topic", "heed", "lend"]

_ERRORS: dict[int, type[KafkalogError]] = {17: InvalidTopic, 36: TopicExists}


def create_topic(manager: Manager, topic: str, partitions: int = 1) -> None:
    """Create a topic: in the metadata if the directory has any, else only its folders.

    Raises: InvalidTopic, TopicExists, ArgumentError, IoFailed.
    """
    if not manager.has(TopicPartition(METADATA_TOPIC, 0)):
        manager.create_topic(topic, partitions)
        return
    with MetadataLog.open(manager) as metadata:
        (result,) = metadata.create_topics(NewTopics([NewTopic(topic, partitions, 1)]))
    if result["error_code"]:
        kind = _ERRORS.get(result["error_code"], ArgumentError)
        raise kind(f"{manager.path}: {result['error_message']}")


class _Topics:
    """The topics in a directory's metadata when it was opened."""

    def __init__(self, image: MetadataImage, manager: Manager) -> None:
        self._image = image
        self._manager = manager

    def config(self, topic: str) -> Mapping[str, object] | None:
        """The topic settings that override the broker's."""
        return topic_overrides(self._image, topic, self._manager.config.topic)

    def topic_id(self, topic: str, partition: int) -> uuid.UUID | None:
        """The topic's id if it has that partition."""
        found = self._image.topics.get(topic)
        return found.id if found is not None and partition in found.partitions else None


def heed(manager: Manager) -> None:
    """Let a manager follow its directory's metadata, if there is any and nothing else does.

    Raises: ArgumentError (it would write unknown metadata), CorruptLog, IoFailed.
    """
    if manager.has_source or not manager.has(TopicPartition(METADATA_TOPIC, 0)):
        return
    meta = manager.meta
    if meta is None:  # a reader's: somebody else's folders, without an identity
        return
    log = manager.get(METADATA_TOPIC, 0)
    loaded = load(log, meta.cluster_id or "", meta.node_id)
    if manager.mode == "w":
        loaded.check_known(log.path)
    manager.use(_Topics(loaded.replay.image, manager))


def lend(
    path: str, folder: Folder, config: Mapping[str, object] | None, clock: Clock | None
) -> Lent:
    """A partition's log in a data directory, through its manager and metadata: see Manager.lend."""
    manager = Manager.shared(path, clock)
    try:
        heed(manager)
        return manager.lend(folder, config)
    except BaseException:
        manager.release()
        raise
