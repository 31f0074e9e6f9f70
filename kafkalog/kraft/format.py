"""Formats the directories of a node of a KRaft cluster, as Apache Kafka 4.4's kafka-storage does:
meta.properties, and in the metadata directory of a controller the snapshot 0-0, with the first
records, kraft.version and the first voters.

Source: KIP-853, KIP-1170; the files that Kafka 4.4.0 writes.
"""

from __future__ import annotations

import ipaddress
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog.clock import Clock
from kafkalog.disk import layout
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import METADATA_TOPIC, MetaProperties
from kafkalog.errors import ArgumentError
from kafkalog.kraft.records import encode
from kafkalog.kraft.snapshots import SnapshotName, render_snapshot
from kafkalog.metadata.image import ELIGIBLE_REPLICAS, METADATA_VERSION, empty_image
from kafkalog.metadata.levels import (
    FIRST_LEVELS,
    KRAFT_VERSION,
    LEVEL,
    LEVEL_MIN,
    MAX_LEVELS,
    RELEASES,
)
from kafkalog.raft.codec import VOTERS_MAX, control_record
from kafkalog.raft.replicas import ReplicaKey, Voter, Voters, find, voters_of

__all__ = [
    "Format",
    "first_levels",
    "format_directory",
    "parse_release",
    "parse_voters",
    "read_meta",
]

FOLDER = layout.partition_folder(METADATA_TOPIC, 0)
FIRST = SnapshotName(0, 0)
"""The snapshot in which a formatted directory has its first records."""
META_BYTES_MAX = 1 << 16
CLUSTER_ID = re.compile(r"[A-Za-z0-9._-]{1,255}")
NODE_ID_MAX = (1 << 31) - 1
ELIGIBLE_SINCE = 23
"""The metadata.version that eligible leader replicas need: 4.0-IV1."""
_VOTER = re.compile(r"([0-9]{1,10})@(?:\[([^\[\]]+)\]|([^\s:\[\]@]+)):([0-9]{1,5}):(.+)")

Record = tuple[str, Any]


class Format(NamedTuple):
    """How a node's directories are formatted."""

    cluster_id: str
    node_id: int
    controller: bool = True
    """Brokers alone have no first records: they fetch all of the metadata log."""
    levels: Mapping[str, int] = FIRST_LEVELS[LEVEL]
    """Feature levels; those that are 0 have no record."""
    kraft_version: int = 0
    """1: the voters are in the metadata log, and can change (KIP-853)."""
    voters: Voters | None = None
    """The first voters, with kraft.version 1; None: another controller's directory has them."""
    more: Sequence[Record] = ()
    """Further records, such as SCRAM credentials."""

    def kind(self, metadata: bool) -> str:
        """Kafka's words for a directory; `metadata`: it is that of the metadata log."""
        if not metadata:
            return "data directory"
        if self.voters is None:
            return "metadata directory"
        known = find(self.voters, self.node_id) is not None
        return f"dynamic metadata {'voter ' if known else ''}directory"


def format_directory(
    path: str, wanted: Format, clock: Clock, metadata: bool = True
) -> MetaProperties:
    """Format a directory that is new or empty; returns its identity.

    `metadata`: it is that of the metadata log.  meta.properties is written last: a directory whose
    format was interrupted is formatted again.

    Raises: ArgumentError: it is formatted, or holds partitions; OSError, IoFailed.
    """
    _check(wanted)
    if read_meta(path) is not None:
        raise ArgumentError(f"{path}: is already formatted")
    os.makedirs(path, exist_ok=True)
    _check_unused(path)
    voter = find(wanted.voters or (), wanted.node_id) if metadata else None
    directory_id = voter.key.directory_id if voter else layout.random_topic_id()
    meta = MetaProperties(1, wanted.node_id, wanted.cluster_id, directory_id)
    with Directory(path) as directory:
        if metadata and wanted.controller:
            if not os.path.isdir(os.path.join(path, FOLDER)):
                directory.make(FOLDER)
            with Directory(os.path.join(path, FOLDER)) as folder:
                folder.replace(FIRST.file(), _first_snapshot(wanted, clock.now_ms()))
        directory.replace(layout.META_PROPERTIES, layout.render_meta_properties(meta))
        directory.sync()
    return meta


def read_meta(path: str) -> MetaProperties | None:
    """The identity of a formatted directory; None: it is not formatted, or does not exist.

    Raises: CorruptLog, IoFailed.
    """
    if not os.path.isdir(path):
        return None
    with Directory(path) as directory:
        data = directory.read(layout.META_PROPERTIES, META_BYTES_MAX)
    if data is None or layout.is_torn_meta(data):
        return None
    return layout.parse_meta_properties(data, os.path.join(path, layout.META_PROPERTIES))


def _check(wanted: Format) -> None:
    if not CLUSTER_ID.fullmatch(wanted.cluster_id):
        raise ArgumentError(
            f"cluster id: found {wanted.cluster_id!r}, wanted letters, digits, '.', '_' and '-', "
            "such as kafkalog storage random-uuid prints"
        )
    if not 0 <= wanted.node_id <= NODE_ID_MAX:
        raise ArgumentError(f"node id: found {wanted.node_id}, wanted 0 to {NODE_ID_MAX}")


def _check_unused(path: str) -> None:
    """Refuse a directory without an identity that holds records."""
    for tp, name in layout.list_directory(path).partitions.items():
        inside = os.path.join(path, name)
        if tp.topic != METADATA_TOPIC or layout.holds_segments(inside):
            raise ArgumentError(
                f"{path}: holds partitions ({name}, ...) but no {layout.META_PROPERTIES}; wanted a "
                "new directory"
            )


def _first_snapshot(wanted: Format, now_ms: int) -> bytes:
    levels = {name: level for name, level in wanted.levels.items() if name != KRAFT_VERSION}
    first = [METADATA_VERSION, *sorted(levels.keys() - {METADATA_VERSION})]
    records: list[Record] = [
        ("FeatureLevelRecord", {"name": name, "feature_level": levels[name]})
        for name in first
        if levels[name]
    ]
    image = empty_image("", wanted.node_id)
    values = [encode(name, fields, image) for name, fields in (*records, *wanted.more)]
    voters = None
    if wanted.kraft_version and wanted.voters is not None:
        voters = control_record(wanted.voters, wanted.kraft_version)[1]
    return render_snapshot(values, 0, (now_ms, now_ms), wanted.kraft_version, voters)


# ---- levels --------------------------------------------------------------------------------------


def parse_release(text: str) -> int:
    """The metadata.version of a release, `4.4` or `4.4-IV2`; of a release, its last one.

    Raises: ArgumentError.
    """
    found = [level for level, name in enumerate(RELEASES, 1)
             if level >= LEVEL_MIN and text in (name, name.partition("-")[0])]  # fmt: skip
    if not found:
        raise ArgumentError(
            f"metadata.version: found {text!r}, wanted {RELEASES[LEVEL_MIN - 1]} to "
            f"{RELEASES[LEVEL - 1]}, or a release such as {RELEASES[LEVEL - 1].partition('-')[0]}"
        )
    return found[-1]


def first_levels(
    release: int | None, given: Mapping[str, int], dynamic: bool
) -> tuple[dict[str, int], int]:
    """The feature levels of a new cluster, and its kraft.version.

    `release`: its metadata.version; None: the newest.  `given`: levels by feature, for which others
    are not chosen.  `dynamic`: its voters are in the metadata log.

    Raises: ArgumentError.
    """
    own = dict(given)
    if METADATA_VERSION in own:
        if release is not None:
            raise ArgumentError(f"--feature {METADATA_VERSION}: found next to --release-version, "
                                "wanted one of them")  # fmt: skip
        release = own.pop(METADATA_VERSION)
    release = LEVEL if release is None else release
    if not LEVEL_MIN <= release <= LEVEL:
        raise ArgumentError(f"metadata.version: found {release}, wanted {LEVEL_MIN} to {LEVEL}")
    for name, level in own.items():
        if name not in MAX_LEVELS:
            raise ArgumentError(f"feature {name}: wanted one of {', '.join(sorted(MAX_LEVELS))}")
        if not 0 <= level <= MAX_LEVELS[name]:
            raise ArgumentError(f"{name}: found {level}, wanted 0 to {MAX_LEVELS[name]}")
    kraft_version = own.pop(KRAFT_VERSION, int(dynamic))
    if kraft_version != dynamic:
        raise ArgumentError(
            f"{KRAFT_VERSION}: found {kraft_version}, wanted {int(dynamic)}: it is 1 with "
            "--standalone, --initial-controllers or --no-initial-controllers, and 0 with "
            "controller.quorum.voters"
        )
    levels = {**FIRST_LEVELS[release], **own}
    if levels[ELIGIBLE_REPLICAS] and release < ELIGIBLE_SINCE:
        raise ArgumentError(
            f"{ELIGIBLE_REPLICAS}: found {levels[ELIGIBLE_REPLICAS]}, wanted 0 with "
            f"metadata.version {release}; it needs {ELIGIBLE_SINCE} "
            f"({RELEASES[ELIGIBLE_SINCE - 1]})"
        )
    return levels, kraft_version


# ---- voters --------------------------------------------------------------------------------------


def parse_voters(text: str, listener: str) -> Voters:
    """The first voters: `id@host:port:directory-id,...`; `listener`: the name of their listeners.

    Raises: ArgumentError.
    """
    texts = [one.strip() for one in text.split(",")]
    if len(texts) > VOTERS_MAX:
        raise ArgumentError(f"controllers: found {len(texts)}, wanted at most {VOTERS_MAX}")
    voters = voters_of(_voter(one, listener) for one in texts)
    ids = [one.key.id for one in voters]
    if len(set(ids)) < len(ids):
        raise ArgumentError(f"controllers: found {ids}, wanted each node once")
    return voters


def _voter(text: str, listener: str) -> Voter:
    match = _VOTER.fullmatch(text)
    wrong = f"controller {text!r}: wanted id@host:port:directory-id"
    if match is None or int(match[1]) > NODE_ID_MAX or int(match[4]) > 65_535:
        raise ArgumentError(wrong)
    try:
        directory_id = layout.parse_uuid(match[5])
    except ValueError as problem:
        raise ArgumentError(f"{wrong}; {problem}") from None
    host = match[3] if match[2] is None else _v6(match[2], wrong)
    return new_voter(int(match[1]), directory_id, listener, host, int(match[4]))


def _v6(text: str, wrong: str) -> str:
    """An IPv6 address as Java writes it, without an abbreviation."""
    try:
        return ":".join(f"{int(part, 16):x}" for part in
                        ipaddress.IPv6Address(text).exploded.split(":"))  # fmt: skip
    except ValueError:
        raise ArgumentError(wrong) from None


def new_voter(node_id: int, directory_id: uuid.UUID, listener: str, host: str, port: int) -> Voter:
    """A first voter with one listener."""
    return Voter(ReplicaKey(node_id, directory_id), ((listener, host, port),), (0, 1))
