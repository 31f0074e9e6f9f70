"""Applies a change of the metadata: to folders, settings of open logs, listeners."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from kafkalog.errors import KafkalogError, TopicExists
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import INTERNAL_TOPICS, Change, MetadataImage, Topic
from kafkalog.metadata.settings import changed_topics
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.directory.manager import Manager

__all__ = ["Followers", "Listener"]

Listener = Callable[[Change], None]
"""Called with the difference between the images."""

_logger = limited(__name__)


class Followers:
    """The folders of a directory's partitions, and the listeners.  One thread at a time."""

    def __init__(self, manager: "Manager", removed: set[object]) -> None:
        """`removed`: ids of topics whose removal is on disk; their leftovers may be deleted."""
        self._manager = manager
        self._removed = removed
        self._listeners: list[Listener] = []
        self.unmade: dict[str, KafkalogError] = {}
        """Topics whose folders could not be created, and why."""

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    def follow(self, change: Change) -> None:
        """The change is on disk and visible: a failure to follow it does not undo it."""
        self.make_folders(change.new, (topic.name for topic in change.changed))
        for topic in changed_topics(change):
            self._told(partial(self._manager.reconfigure, topic=topic))
        for listener in self._listeners:
            self._told(partial(listener, change))
        if gone := change.gone:
            tps = [TopicPartition(topic.name, n) for topic in gone for n in topic.partitions]
            self._removed.update(topic.id for topic in gone)
            try:
                # Until a snapshot covers the record of its removal, that record identifies what a
                # crash may bring back.
                self._manager.delete_partitions(tps, sync=False)
            except KafkalogError as error:
                # They are gone from the metadata: the next start deletes their folders.
                _logger.error("%s: %s", self._manager.path, error)
            # Folders of topics recreated in the same change, once the old folders are gone.
            self.make_folders(change.new, (topic.name for topic in gone))

    def _told(self, tell: Callable[[], object]) -> None:
        """A listener's failure does not keep the change from the others."""
        try:
            tell()
        except Exception:
            path = self._manager.path
            _logger.exception("%s: a change was written, but not applied everywhere", path)

    def make_folders(self, image: MetadataImage, topics: Iterable[str]) -> None:
        """Create missing folders for the partitions of topics."""
        for name in topics:
            topic = image.topics.get(name)
            if topic is None or name in INTERNAL_TOPICS:
                continue  # an internal topic's folders are created at their first use
            try:
                self._clear(topic)
                self._make(topic)
            except KafkalogError as error:
                # It is in the metadata; Manager.get retries.
                _logger.error("%s: %s", self._manager.path, error)
                self.unmade[name] = error

    def _make(self, topic: Topic) -> None:
        # The id of an existing folder is checked when its log is first opened.
        missing = [n for n in topic.partitions if not self._has(topic.name, n)]
        while missing:
            try:
                self._manager.make(topic.name, topic.id, missing)
                return
            except TopicExists:  # it was used, and hence created, since we looked
                left = [n for n in missing if not self._has(topic.name, n)]
                if len(left) == len(missing):
                    raise
                missing = left

    def _has(self, topic: str, partition: int) -> bool:
        return self._manager.has(TopicPartition(topic, partition))

    def _clear(self, topic: Topic) -> None:
        """Delete folders that a removed topic of the same name left behind."""
        if self._removed:
            here = [
                TopicPartition(topic.name, n) for n in topic.partitions if self._has(topic.name, n)
            ]
            ids = {tp: self._manager.folders.partition_id(tp) for tp in here}
            gone = [tp for tp, topic_id in ids.items() if topic_id in self._removed]
            self._manager.delete_partitions(gone)
