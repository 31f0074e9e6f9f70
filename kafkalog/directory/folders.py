"""The partition folders of a data directory: found, created, renamed for removal."""

import os
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress

from kafkalog.disk import layout
from kafkalog.disk.directory import Directory
from kafkalog.errors import (
    ArgumentError,
    InvalidTopic,
    NotFound,
    TopicExists,
    UnknownTopicOrPartition,
)
from kafkalog.logs.limit import limited
from kafkalog.types import TopicPartition

__all__ = ["Folders"]

_logger = limited(__name__)


class Folders:
    """The partitions of a data directory, and their folders.

    A folder's contents are read only on request.  Safe to use from many threads.
    """

    def __init__(self, directory: Directory) -> None:
        """List the directory."""
        self.directory = directory
        self._lock = threading.RLock()  # guards what follows, and the creation of folders
        self._names: dict[TopicPartition, str] = {}
        self._claimed: dict[TopicPartition, uuid.UUID] = {}  # whose ids were checked
        self.marked: tuple[layout.MarkedFolder, ...] = ()
        """Folders being deleted, moved or left over, at the last listing."""
        self._unsynced = True  # names may not be on disk yet: their creator may have been killed
        self.list()

    def list(self) -> None:
        """List the directory again."""
        listing = layout.list_directory(self.directory.path)
        with self._lock:
            self._names, self.marked = listing.partitions, listing.marked
        for name in listing.foreign:
            _logger.debug("%s: %s is not a partition and is ignored", self.directory.path, name)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that are known, sorted."""
        with self._lock:
            return tuple(sorted(self._names))

    def name(self, tp: TopicPartition) -> str | None:
        """The folder's name; also finds one that was put there since the listing."""
        with self._lock:
            name = self._names.get(tp)
            if name is None:
                late = layout.partition_folder(*tp)
                path = self._path(late)
                if layout.parse_folder(late) and (os.path.isdir(path) or os.path.islink(path)):
                    name = self._names[tp] = late
        return name

    def written(self, tp: TopicPartition) -> bool:
        """True if its log was ever opened for writing: otherwise it is empty, and opening it to
        read would create files.  Also True if that cannot be determined."""
        name = self.name(tp)
        try:
            return name is not None and layout.look_for_segments(self._path(name))
        except FileNotFoundError:
            return os.path.islink(self._path(name or ""))  # otherwise it was removed since
        except OSError:
            return True  # opening it reports why

    def bare(self, tp: TopicPartition) -> bool:
        """True if it only has what it was created with: neither an id nor a byte of a log."""
        path = self.path(tp)
        if self.partition_id(tp) is not None or layout.leads_nowhere(path):
            return False
        with os.scandir(path) as entries:
            return all(
                entry.is_file(follow_symlinks=False)
                and (entry.name == layout.PARTITION_METADATA or not entry.stat().st_size)
                for entry in entries
            )

    def path(self, tp: TopicPartition) -> str:
        """The folder's path.

        Raises: UnknownTopicOrPartition.
        """
        name = self.name(tp)
        if name is None:
            wanted = layout.partition_folder(*tp)
            raise UnknownTopicOrPartition(f"{self.directory.path}: found no partition {wanted}")
        return self._path(name)

    def own_path(self, tp: TopicPartition) -> str:
        """The folder's path, for its writer: no other name in the directory leads to it.

        Raises: UnknownTopicOrPartition; ArgumentError, NotFound for a link that is refused.
        """
        path = self.path(tp)
        layout.check_link(path)
        if os.path.islink(path):
            with self._lock:
                others = [self._path(name) for name in self._names.values()]
            for other in others:
                if other != path and os.path.islink(other) and _same(other, path):
                    raise ArgumentError(
                        f"{path}: found a link to {os.path.realpath(path)}, as {other} is, wanted "
                        "a folder of its own: two logs in one folder destroy each other; remove "
                        "one of the links"
                    )
        return path

    def _path(self, name: str) -> str:
        return os.path.join(self.directory.path, name)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id in the topic's partition.metadata files; None if there is none.

        Raises: CorruptLog.
        """
        for tp in self.partitions():
            if tp.topic == topic and (found := self.partition_id(tp)) is not None:
                return found
        return None

    def partition_id(self, tp: TopicPartition) -> uuid.UUID | None:
        """The id in a partition's partition.metadata; None if it has none (yet).

        Raises: UnknownTopicOrPartition, CorruptLog.
        """
        path = self.path(tp)
        if os.path.islink(path) and not os.path.isdir(path):
            return None  # opening it reports why
        with Directory(path) as folder:
            data = folder.read(layout.PARTITION_METADATA, 1 << 12)
        if data is None or layout.is_torn_partition_metadata(data):
            return None  # a power cut after its creation and before anything was flushed
        return layout.parse_partition_metadata(data, os.path.join(path, layout.PARTITION_METADATA))

    def name_properly(self, tp: TopicPartition) -> None:
        """Add the number that Kafka requires to a folder that is named after its topic alone.

        Raises: UnknownTopicOrPartition, IoFailed.
        """
        with self._lock:
            old, new = os.path.basename(self.path(tp)), layout.partition_folder(*tp)
            if old != new:
                self.directory.rename(old, new)
                self._names[tp] = new

    def hide(self, tp: TopicPartition) -> None:
        """Remove an existing folder from the listing; asking for it finds it again."""
        with self._lock:
            self._names.pop(tp, None)

    def make(
        self, tps: Iterable[TopicPartition], topic_id: uuid.UUID, sync: bool = True,
        found: Callable[[TopicPartition], object] = lambda _tp: None,
    ) -> None:  # fmt: skip
        """Create folders for a topic's partitions, each with its partition.metadata; all or none.

        On return their names are on disk (`sync` False: after `sync` was called); their contents
        are once their logs are flushed.  `found` is called with each of them, before another
        thread can find it.

        Raises: InvalidTopic, TopicExists, IoFailed, NoSpace (nothing is left of them then).
        """
        data = layout.render_partition_metadata(topic_id)
        made: dict[TopicPartition, str] = {}
        with self._lock:
            try:
                for tp in tps:
                    name = self._new_name(tp)
                    made[tp] = name
                    self.directory.make_with(name, layout.PARTITION_METADATA, data)
                self._unsynced = True
                if sync:
                    self.sync()
            except BaseException:
                self._remove(made.values())  # half of them would block the names
                raise
            for tp in made:
                found(tp)
            self._names.update(made)
            self._claimed.update(dict.fromkeys(made, topic_id))

    def _new_name(self, tp: TopicPartition) -> str:
        name = layout.partition_folder(layout.check_topic(tp.topic), tp.partition)
        if layout.parse_folder(name) is None or len(name) > layout.FILE_NAME_BYTES_MAX:
            raise InvalidTopic(f"topic: found {tp.topic!r}, whose folder's name is too long")
        if self.name(tp) or os.path.lexists(self._path(name)):
            raise TopicExists(f"{self.directory.path}: partition {name} already exists")
        return name

    def _remove(self, names: Iterable[str]) -> None:
        import shutil

        for name in names:
            shutil.rmtree(self._path(name), ignore_errors=True)

    def claim(self, tp: TopicPartition, topic_id: uuid.UUID) -> bool:
        """Check that a partition's folder belongs to that topic; one without an id gets it.

        Returns False if it has no folder.

        Raises: TopicExists if it belongs to another; CorruptLog, IoFailed; as own_path.
        """
        if self.name(tp) is None:
            return False
        if self._claimed.get(tp) == topic_id:
            return True
        self.own_path(tp)
        found = self.partition_id(tp)
        if found is None:  # a crash during its creation, or a folder older than ids
            with Directory(self.path(tp)) as folder:
                data = layout.render_partition_metadata(topic_id)
                folder.replace(layout.PARTITION_METADATA, data)
        elif found != topic_id:
            raise TopicExists(
                f"{self.path(tp)}: found topic id {layout.uuid_text(found)}, wanted "
                f"{layout.uuid_text(topic_id)}: it belongs to another topic of that name"
            )
        self._claimed[tp] = topic_id
        return True

    def take_out(self, tp: TopicPartition, kind: str = "delete") -> str:
        """Rename a partition's folder for its removal; returns the new name.  See `sync`.

        `kind`: "stray": it is kept under the new name.

        A folder that somebody has removed is done with.

        Raises: UnknownTopicOrPartition, IoFailed.
        """
        with self._lock:
            old = os.path.basename(self.path(tp))
            new = layout.marked_name(tp.topic, tp.partition, uuid.uuid4(), kind)
            with suppress(NotFound):
                self.directory.rename(old, new, sync=False)
            self._unsynced = True
            del self._names[tp]
            self._claimed.pop(tp, None)
        return new

    def sync(self, files: Iterable[str] = ()) -> None:
        """Put the current names on disk, and those of `files` that are here.

        Raises: IoFailed.
        """
        with self._lock:
            if self._unsynced:
                here = [name for name in files if os.path.lexists(self._path(name))]
                self.directory.sync(here)
                self._unsynced = False


def _same(one: str, other: str) -> bool:
    """True if two paths are one folder; False if one leads nowhere, or was removed since."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
