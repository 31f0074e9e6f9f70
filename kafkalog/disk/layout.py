"""Names and small texts of a data directory: partition folders, meta.properties, topic ids.

Nothing here writes; kafkalog.directory.manager writes what these functions make.
"""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.config.properties import parse_properties
from kafkalog.errors import ArgumentError, CorruptLog, InvalidTopic, NotFound
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    import uuid  # otherwise imported where needed: that takes as long as half of kafkalog

__all__ = [
    "BOOTSTRAP",
    "FIRST_FILES",
    "METADATA_TOPIC",
    "META_PROPERTIES",
    "NAME_PART",
    "PARTITION_METADATA",
    "SEGMENT",
    "Folder",
    "Listing",
    "MarkedFolder",
    "MetaProperties",
    "bare_folder",
    "check_link",
    "check_topic",
    "holds_segments",
    "is_torn_meta",
    "is_torn_partition_metadata",
    "list_directory",
    "look_for_segments",
    "marked_name",
    "new_meta_properties",
    "parse_folder",
    "parse_marked",
    "parse_meta_properties",
    "parse_partition_metadata",
    "parse_uuid",
    "partition_folder",
    "random_topic_id",
    "render_meta_properties",
    "render_partition_metadata",
    "segment_name",
    "topic_problem",
    "uuid_text",
]

META_PROPERTIES = "meta.properties"
BOOTSTRAP = "bootstrap.checkpoint"
"""The first records of a new metadata log, for Kafka."""
FIRST_FILES = (META_PROPERTIES, BOOTSTRAP, "recovery-point-offset-checkpoint")
"""The files that a first start writes into a directory, in addition to its metadata folder."""
PARTITION_METADATA = "partition.metadata"
METADATA_TOPIC = "__cluster_metadata"
"""KRaft's own log; retention leaves it alone."""

PARTITION_MAX = (1 << 31) - 1
FILE_NAME_BYTES_MAX = 255

TOPIC_NAME_CHARS_MAX = 249
"""Kafka's limit, so that a topic's folder can be marked for deletion within 255 bytes."""

_TOPIC_CHARS = r"[a-zA-Z0-9._-]+"
_TOPIC = re.compile(_TOPIC_CHARS)
# Only the form that Kafka writes: "orders-07" would share a name with "orders-7" otherwise.
_FOLDER = re.compile(rf"({_TOPIC_CHARS})-(0|[1-9][0-9]{{0,9}})")
_MARKED = re.compile(r"(\S+)-([0-9]{1,10})\.([0-9a-f]{32})-(delete|future|stray)")
SEGMENT = re.compile(r"[0-9]{20}\.log")
"""The name of a segment's file."""
NAME_PART = re.compile(r"[a-zA-Z0-9._-]{1,200}")
"""A part of a topic's or a file's name."""
_ID_LINES = b"version: 0\ntopic_id: "
UUID_CHARS = 22
"""The length of a UUID's text form."""


def topic_problem(name: str) -> str | None:
    """Why this cannot be a topic's name, in Kafka's words; None if it can."""
    if name == "":
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_CHARS_MAX:
        return (
            f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_CHARS_MAX}"
        )
    if not _TOPIC.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    return None


def check_topic(name: object) -> str:
    """Returns `name` if it can be a topic's.

    Raises: InvalidTopic.
    """
    if not isinstance(name, str) or topic_problem(name) is not None:
        raise InvalidTopic(
            f"topic: found {name!r}, wanted 1 to 249 letters, digits, dots, underscores and "
            "hyphens, but not . or .."
        )
    return name


class Folder(NamedTuple):
    """A partition's folder, by its name inside the data directory."""

    name: str
    topic: str
    partition: int


class MarkedFolder(NamedTuple):
    """A folder with a suffix: `kind` is delete, future or stray.  The topic may be truncated."""

    name: str
    topic: str
    partition: int
    kind: str


def partition_folder(topic: str, partition: int) -> str:
    """The folder's name: topic, hyphen, number."""
    return f"{topic}-{partition}"


def parse_folder(name: str) -> Folder | None:
    """Parses a folder's name, split at its last hyphen; None if it is not a partition's."""
    match = _FOLDER.fullmatch(name)
    if not match or int(match[2]) > PARTITION_MAX or topic_problem(match[1]) is not None:
        return None
    return Folder(name, match[1], int(match[2]))


def bare_folder(name: str) -> Folder:
    """Like parse_folder, but a name without a number is a topic's, partition 0.

    Raises: InvalidTopic.
    """
    folder = parse_folder(name)
    if folder is None:
        try:
            folder = Folder(name, check_topic(name), 0)
        except InvalidTopic as error:
            raise InvalidTopic(
                f"folder {name!r}: its name is not a topic name, so give topic=... ({error})"
            ) from None
    return folder


def parse_marked(name: str) -> MarkedFolder | None:
    """A folder being deleted, moved, or left over; None for every other name."""
    match = _MARKED.fullmatch(name)
    return MarkedFolder(name, match[1], int(match[2]), match[4]) if match else None


def marked_name(topic: str, partition: int, unique: "uuid.UUID", kind: str = "delete") -> str:
    """The name under which a partition's folder waits for removal, or as `kind` says."""
    ending = f"-{partition}.{unique.hex}-{kind}"
    return topic[: FILE_NAME_BYTES_MAX - len(ending)] + ending


def holds_segments(path: str) -> bool:
    """True if the folder holds a segment's file; False if that cannot be determined."""
    try:
        return look_for_segments(path)
    except OSError:
        return False


def segment_name(base_offset: int, suffix: str = ".log") -> str:
    """The name of one of a segment's files: `00000000000000000042.index` for 42 and `.index`."""
    return f"{base_offset:020d}{suffix}"


def look_for_segments(path: str) -> bool:
    """True if the folder holds a segment's file.

    Raises: OSError.
    """
    with os.scandir(path) as entries:
        return any(SEGMENT.fullmatch(entry.name) for entry in entries)


def leads_nowhere(path: str) -> bool:
    """True if a folder's path is a link to nothing: its disk may be offline."""
    return os.path.islink(path) and not os.path.isdir(path)


def check_link(path: str) -> None:
    """Refuse a partition's folder that is a link to nothing, or to a folder in a data directory:
    that folder is another partition's, or will be.  Kafka's servers follow every link.

    Raises: NotFound, ArgumentError.
    """
    if not os.path.islink(path):
        return
    target = os.path.realpath(path)
    if not os.path.isdir(target):
        raise NotFound(f"{path}: found a link to {target}, where there is no folder")
    if os.path.exists(os.path.join(os.path.dirname(target), META_PROPERTIES)):
        raise ArgumentError(
            f"{path}: found a link to {target}, which is in a data directory, wanted a separate "
            "folder: two logs in one folder destroy each other; remove the link"
        )


class Listing(NamedTuple):
    """The folders of a data directory, and links instead of folders, wherever they lead."""

    partitions: dict[TopicPartition, str]
    """The name of each partition's folder."""
    marked: tuple[MarkedFolder, ...]
    foreign: tuple[str, ...]
    """Folders that are not a partition's; Kafka refuses to start with them, we ignore them."""


def list_directory(path: str) -> Listing:
    """The folders of the data directory at `path`, without looking into any partition's.

    Raises: OSError.
    """
    partitions: dict[TopicPartition, str] = {}
    marked: list[MarkedFolder] = []
    others: list[str] = []
    with os.scandir(path) as entries:
        names = [entry.name for entry in entries if entry.is_dir() or entry.is_symlink()]
    for name in names:
        if folder := parse_folder(name):
            partitions[TopicPartition(folder.topic, folder.partition)] = name
        elif mark := parse_marked(name):
            marked.append(mark)
        else:
            others.append(name)
    foreign: list[str] = []
    for name in sorted(others):
        tp = TopicPartition(name, 0)
        fits = topic_problem(name) is None and tp not in partitions
        if fits and holds_segments(os.path.join(path, name)):
            partitions[tp] = name
        elif os.path.isdir(os.path.join(path, name)):
            foreign.append(name)
    ordered = {tp: partitions[tp] for tp in sorted(partitions)}
    return Listing(ordered, tuple(sorted(marked)), tuple(foreign))


# ---- identifiers --------------------------------------------------------------------------


def uuid_text(value: "uuid.UUID") -> str:
    """Kafka's text form: 22 characters of base64url, no padding."""
    import base64

    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> "uuid.UUID":
    """The UUID of a text form; standard and padded base64 are accepted, too.

    Raises: ValueError.
    """
    import base64
    import binascii
    import uuid

    plain = text.strip().rstrip("=").replace("+", "-").replace("/", "_")
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}", plain):
        raise ValueError(f"found {text!r}, wanted 22 characters of base64url")
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(plain + "=="))
    except binascii.Error as error:
        raise ValueError(f"found {text!r}: {error}") from None


def random_topic_id() -> "uuid.UUID":
    """A new id: not the reserved 0 and 1, and without a leading hyphen in its text, as Kafka."""
    import uuid

    while True:
        value = uuid.uuid4()
        if value.int > 1 and not uuid_text(value).startswith("-"):
            return value


def is_torn_partition_metadata(data: bytes) -> bool:
    """True if a power cut may leave this of a partition.metadata that was created and not yet
    flushed: nothing, zeros in it, or its beginning."""
    begun = data.startswith(_ID_LINES) and len(data) < len(_ID_LINES) + UUID_CHARS
    return b"\0" in data or begun or _ID_LINES.startswith(data)


def parse_partition_metadata(data: bytes, path: str = PARTITION_METADATA) -> "uuid.UUID":
    """The topic id in the partition.metadata file at `path`.

    Raises: CorruptLog, naming the path.
    """
    found: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip()] = value.strip()
    if found.get("version") != "0":
        raise CorruptLog(f"{path}: found version {found.get('version')!r}, wanted '0'")
    try:
        value_id = parse_uuid(found.get("topic_id", ""))
    except ValueError as error:
        raise CorruptLog(f"{path}: topic_id: {error}") from None
    if value_id.int == 0:
        raise CorruptLog(f"{path}: topic_id: found the zero id, which no topic has")
    return value_id


def render_partition_metadata(topic_id: "uuid.UUID") -> bytes:
    """The bytes of a partition.metadata file, as Kafka writes them.

    Raises: ArgumentError if it is not an id.
    """
    if not isinstance(getattr(topic_id, "bytes", None), bytes):
        raise ArgumentError(f"topic_id: found {topic_id!r}, wanted a uuid.UUID")
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


# ---- meta.properties -----------------------------------------------------------------------

_FIRST = "cluster.id="
"""The first bytes of a file of ours."""


class MetaProperties(NamedTuple):
    """Identifies a data directory: version 0 is of the ZooKeeper era, version 1 since KRaft."""

    version: int
    node_id: int
    cluster_id: str | None
    directory_id: "uuid.UUID | None"


def parse_meta_properties(data: bytes, path: str = META_PROPERTIES) -> MetaProperties:
    """The contents of the meta.properties file at `path`.

    Raises: CorruptLog, naming the path.
    """

    def number(values: Mapping[str, str], name: str) -> int:
        found = values.get(name)
        if found is None or not re.fullmatch(r"-?[0-9]{1,10}", found.strip()):
            raise CorruptLog(f"{path}: {name}: found {found!r}, wanted a number")
        return int(found.strip())

    values = parse_properties(data.decode("utf-8", "replace"))
    version = number(values, "version")
    if version not in (0, 1):
        raise CorruptLog(f"{path}: version: found {version}, wanted 0 or 1")
    directory_id = None
    if "directory.id" in values:
        try:
            directory_id = parse_uuid(values["directory.id"])
        except ValueError as error:
            raise CorruptLog(f"{path}: directory.id: {error}") from None
    # A ZooKeeper broker gets its number at its first start: the file may lack it.
    owner = "broker.id" if version == 0 else "node.id"
    node_id = -1 if version == 0 and owner not in values else number(values, owner)
    return MetaProperties(version, node_id, values.get("cluster.id"), directory_id)


def new_meta_properties(node_id: int) -> MetaProperties:
    """The identity of a new data directory: version 1 and random ids."""
    return MetaProperties(1, node_id, uuid_text(random_topic_id()), random_topic_id())


def render_meta_properties(meta: MetaProperties) -> bytes:
    """The bytes of a meta.properties file (ours have no date in a comment, as Java's do)."""
    lines: list[str] = []
    if meta.cluster_id is not None:
        lines.append(f"{_FIRST}{meta.cluster_id}")
    if meta.directory_id is not None:
        lines.append(f"directory.id={uuid_text(meta.directory_id)}")
    lines.append(f"{'broker.id' if meta.version == 0 else 'node.id'}={meta.node_id}")
    lines.append(f"version={meta.version}")  # required, and last: a truncated file lacks it
    return "".join(f"{line}\n" for line in lines).encode()


def is_torn_meta(data: bytes) -> bool:
    """True if a power cut may leave this of a meta.properties of ours before it is on disk:
    nothing, zeros in it, or its beginning."""
    begun = data.startswith(_FIRST.encode()) or _FIRST.encode().startswith(data)
    return b"\0" in data or (begun and not re.search(rb"\nversion=[01]", data))
