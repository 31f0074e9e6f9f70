"""The identity of a data directory, and whether a writer's settings agree with the directory's."""

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkalog._native import lib
from kafkalog.batch.decode import body_of, decoded_records
from kafkalog.batch.walk import whole_batches
from kafkalog.config.topic import TopicConfig
from kafkalog.directory.folders import Folders
from kafkalog.disk import layout
from kafkalog.disk.checkpoint import LOCK
from kafkalog.disk.directory import Directory
from kafkalog.disk.space import RESERVE
from kafkalog.errors import ArgumentError, CorruptLog, InvalidSetting, KafkalogError
from kafkalog.types import TopicPartition

__all__ = [
    "Found",
    "check_agrees",
    "check_unlocked",
    "identify",
    "look",
    "node_number",
    "says_little",
]

_METADATA_FOLDER = layout.partition_folder(layout.METADATA_TOPIC, 0)
_MADE_FIRST = frozenset({*layout.FIRST_FILES, RESERVE, LOCK, _METADATA_FOLDER})
"""All files in a directory that nobody could use yet."""
_MADE_INSIDE = frozenset(
    {
        layout.PARTITION_METADATA, layout.segment_name(0), layout.segment_name(0, ".index"),
        layout.segment_name(0, ".timeindex"),
        "leader-epoch-checkpoint", "quorum-state",
    }
)  # fmt: skip
"""And in its metadata log's folder."""
_FIRST_BYTES = 480
"""A larger metadata log has more than its first records: a broker was
registered in it."""
_FIRST_KINDS = frozenset({b"\x04", b"\x0c"})
"""Kafka's numbers of ConfigRecord and FeatureLevelRecord, the first records of each."""


class Found(NamedTuple):
    """A directory as it is before anything is written to it."""

    meta: layout.MetaProperties | None
    """None: it is new, or its first start was cut off before anybody could use it."""
    partitions: tuple[TopicPartition, ...]


def look(path: str) -> Found:
    """The content of the directory at `path`; nothing is written, and no lock is taken.

    Raises: CorruptLog; ArgumentError for partition folders without meta.properties; IoFailed.
    """
    if not os.path.isdir(path):
        return Found(None, ())
    with Directory(path) as directory:
        data = directory.read(layout.META_PROPERTIES, 1 << 16)
        if (data is None or layout.is_torn_meta(data)) and _is_half_made(path):
            return Found(None, ())
        meta = None if data is None else _parsed(data, path)
    partitions = layout.list_directory(path).partitions
    if meta is None:
        _check_nothing(path, partitions.values())
    return Found(meta, tuple(partitions))


def check_unlocked(path: str) -> None:
    """Refuse a directory that another process owns; nothing is written, and no lock is taken.

    Raises: Locked with the owner's pid, IoFailed.
    """
    if os.path.isdir(path):
        with Directory(path) as directory:
            if directory.locked():
                directory.lock()


def node_number(
    path: str, meta: layout.MetaProperties | None, given: int | None, clustered: bool
) -> int:
    """The id of the node that the directory at `path` belongs to: the one in meta.properties.

    `given`: node.id of the settings, which must be the same; a directory without an id takes it.
    Without both a single node is 1; a node of a cluster must be named, since it takes over what
    the cluster keeps on that node.

    Raises: InvalidSetting.
    """
    known = None if meta is None or meta.node_id < 0 else meta.node_id
    if known is not None and given not in (None, known):
        raise InvalidSetting(f"node.id: found {given}, wanted {known}, the owner of {path}")
    if known is None and given is None and clustered:
        raise InvalidSetting(
            f"node.id: found none, neither given nor in {path}; wanted a number that no other node "
            "of the cluster has: --node-id N"
        )
    return next((number for number in (known, given) if number is not None), 1)


def identify(
    folders: Folders, mode: str, adopt: bool, node_id: int | None, gather: bool = False
) -> layout.MetaProperties | None:
    """The contents of meta.properties; mode "w" creates it, with `node_id`, if it is missing;
    with None its caller does that later.

    If a power cut interrupted a directory's first start, so that nobody has used it, the
    directory is created again.  `gather`: new files are on disk only after Directory.settle.

    Raises: CorruptLog; ArgumentError for partition folders without it, unless `adopt`.
    """
    directory = folders.directory
    data = directory.read(layout.META_PROPERTIES, 1 << 16)
    torn = data is None or layout.is_torn_meta(data)
    if mode == "w" and torn and _is_half_made(directory.path):
        _unmake(folders)
    elif data is not None:
        return _parsed(data, directory.path)
    if mode == "r":
        return None
    found = folders.partitions()
    if not adopt:
        _check_nothing(directory.path, (str(folders.name(tp)) for tp in found))
    if gather and not found:
        directory.gather()
    if node_id is None:
        return None
    meta = layout.new_meta_properties(node_id)
    directory.replace(layout.META_PROPERTIES, layout.render_meta_properties(meta))
    return meta


def _check_nothing(path: str, folders: Iterable[str]) -> None:
    """Refuse partition folders: they have no owner."""
    for name in folders:
        raise ArgumentError(
            f"{path}: holds partition folders ({name}, ...) but no {layout.META_PROPERTIES}; "
            f"open it with mode='r', or adopt it: kafkalog adopt --dir {path}"
        )


def _parsed(data: bytes, path: str) -> layout.MetaProperties:
    try:
        return layout.parse_meta_properties(data, os.path.join(path, layout.META_PROPERTIES))
    except CorruptLog as damage:
        raise CorruptLog(
            f"{damage}; put back a copy of the file, or move it away and adopt "
            f"the directory: kafkalog adopt --dir {path}"
        ) from None


# ---- a first start that was cut off ------------------------------------------------------------


def _is_half_made(path: str) -> bool:
    """True if a directory has nothing but what a first start creates before anybody can use it, or
    a part of that."""
    inside = os.path.join(path, _METADATA_FOLDER)
    names = {name.removesuffix(".tmp") for name in os.listdir(path) if not _is_unmade(name)}
    if not names <= _MADE_FIRST or not says_little(os.path.join(path, layout.BOOTSTRAP)):
        return False
    if not os.path.lexists(inside):
        return True
    names = {name.removesuffix(".tmp") for name in os.listdir(inside)}
    return names <= _MADE_INSIDE and says_little(os.path.join(inside, layout.segment_name(0)))


def says_little(path: str) -> bool:
    """True if a metadata file has only the first records of every metadata log."""
    try:
        with open(path, "rb") as file:
            data = file.read(_FIRST_BYTES + 1)
    except FileNotFoundError:
        return True
    if len(data) > _FIRST_BYTES:
        return False
    try:
        for batch, raw in whole_batches(data):
            if batch.attributes & lib.KL_ATTR_CONTROL:
                continue
            for record in decoded_records(batch, body_of(batch, raw)):
                if (record.value or b"")[1:2] not in _FIRST_KINDS:
                    return False
    except KafkalogError:
        pass  # the rest did not reach the disk
    return True


def _is_unmade(name: str) -> bool:
    """True if it is a metadata folder that `_unmake` renamed."""
    found = layout.parse_marked(name)
    return found is not None and found.topic == layout.METADATA_TOPIC


def _unmake(folders: Folders) -> None:
    """Remove the rest; after that nothing of it can reappear next to new files."""
    tp = TopicPartition(layout.METADATA_TOPIC, 0)
    if folders.name(tp) is not None:
        folders.take_out(tp)
    folders.directory.unlink(layout.META_PROPERTIES)
    folders.list()  # what is to be removed
    folders.sync()


# ---- settings ----------------------------------------------------------------------------------


def check_agrees(path: str, config: Mapping[str, object] | None, known: TopicConfig) -> None:
    """Refuse settings that differ from those that apply to every writer.

    Raises: ArgumentError; UnknownSetting, InvalidSetting.
    """
    wanted = TopicConfig.of(config, known)
    for name in wanted if wanted != known else ():
        if wanted[name] != known[name]:
            raise ArgumentError(
                f"{path}: {name}: found {wanted[name]!r}, wanted {known[name]!r}, the topic's own "
                "value, which applies to every writer"
            )
