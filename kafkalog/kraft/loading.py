"""Loads the metadata of a directory: the newest complete snapshot, then the log after it."""

import json
import os
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from kafkalog.disk.directory import Directory
from kafkalog.errors import ArgumentError, CorruptLog
from kafkalog.kraft.batches import KRAFT_VERSION, VOTERS, Raw, kraft_version_of, records_in
from kafkalog.kraft.records import decode
from kafkalog.kraft.snapshots import SnapshotName, list_snapshots, read_snapshot
from kafkalog.log.log import Log
from kafkalog.logs.limit import limited
from kafkalog.metadata.changes import Replay
from kafkalog.metadata.image import MetadataImage, empty_image
from kafkalog.raft.quorum_state import QuorumState, render_quorum_state
from kafkalog.raft.replicas import ReplicaKey

__all__ = [
    "QUORUM_STATE", "Loaded", "QuorumOnly", "known_epoch", "led_alone", "load", "render_own_state",
]  # fmt: skip

QUORUM_STATE = "quorum-state"
_logger = limited(__name__)


class Loaded:
    """The result of a metadata log's records; one thread only."""

    def __init__(self, cluster_id: str, node_id: int) -> None:
        """Nothing is read yet."""
        self.replay = Replay(empty_image(cluster_id, node_id))
        self.snapshot: SnapshotName | None = None
        """The snapshot that it started from."""
        self.kraft_version = 0
        self.voters: bytes | None = None
        """The last VotersRecord of a quorum of version 1."""
        self.removed: set[object] = set()
        """Ids of topics whose removal was read: their leftovers may be deleted."""
        self.problems: list[str] = []
        self._unknown: dict[str, str] = {}
        """Where each unknown kind of record first occurs."""

    def unknown(self) -> list[str]:
        """A sentence for each unknown kind of record, with its count."""
        foreign = self.replay.image.foreign
        return [f"{self._unknown[what]}: found {what}" for what in foreign if what in self._unknown]

    def check_known(self, path: str) -> None:
        """Refuse writing if anything is unknown.  Raises: ArgumentError."""
        if unknown := self.unknown():
            raise ArgumentError(
                f"{path}: {unknown[0]}; metadata with unknown records can only be read: open it "
                "with mode='r', or with a newer kafkalog"
            )

    def take(self, raws: Iterable[Raw], start: int = 0, where: str = "metadata") -> None:
        """Feed records from offset `start` on; complete after the last one of the log.

        `where`: names their source in messages.

        Raises: CorruptLog.
        """
        last: Raw | None = None
        for raw in raws:
            if raw.offset < start:
                continue  # of a batch that begins before the start
            last = raw
            if raw.control == KRAFT_VERSION:
                self.kraft_version = kraft_version_of(raw.value)
            elif raw.control == VOTERS:
                self.voters = raw.value
            elif raw.control is None:
                self._feed(raw, f"{where}, offset {raw.offset}")
        if last is not None:
            self.replay.settle(last.offset, last.epoch, last.timestamp_ms)

    def _feed(self, raw: Raw, place: str) -> None:
        try:
            entry = decode(raw.value)
            self.replay.feed(entry)
        except CorruptLog as error:
            raise CorruptLog(f"{place}: {error}") from error
        if isinstance(entry, str):
            self._unknown.setdefault(entry, place)
        elif entry.name == "RemoveTopicRecord":
            self.removed.add(entry.fields.topic_id)


class QuorumOnly(Loaded):
    """Only what the control records say: the quorum and its version.  Nothing else is decoded."""

    def _feed(self, raw: Raw, place: str) -> None:
        """The metadata are not wanted."""


def load(
    log: Log, cluster_id: str, node_id: int, end: int | None = None, oldest: int = 0,
    kind: type[Loaded] = Loaded,
) -> Loaded:  # fmt: skip
    """Read the newest snapshot that is complete and connects to the log, then the log, up to `end`;
    None: all of it.  `oldest`: snapshots that end below this offset are not read.

    Raises: CorruptLog if neither it nor the log has the beginning.
    """
    problems: list[str] = []
    start, end = log.start_offset, log.end_offset if end is None else end
    loaded = kind(cluster_id, node_id)
    for name in reversed(list_snapshots(log.path)):
        if name.offset < max(start, oldest):
            break
        loaded = kind(cluster_id, node_id)
        try:
            _take_snapshot(loaded, log.path, name)
        except CorruptLog as error:
            problems.append(f"{error}; not used")
            _logger.warning("%s", problems[-1])
            loaded = kind(cluster_id, node_id)
            continue
        break
    if loaded.snapshot is None and start > 0:
        raise CorruptLog(
            f"{log.path}: the log begins at offset {start}, and no complete snapshot is at or "
            "above it"
        )
    loaded.problems = problems
    offset = loaded.snapshot.offset if loaded.snapshot else 0
    while offset < end:
        data = log.read_batches(offset, isolation="log_end")
        raws = list(records_in(data))
        if not raws:
            break
        loaded.take(raws, offset)
        offset = raws[-1].offset + 1
    problems += (f"{one}; not all of the metadata is read" for one in loaded.unknown())
    return loaded


def _take_snapshot(loaded: Loaded, folder: str, name: SnapshotName) -> None:
    raws = read_snapshot(os.path.join(folder, name.file()))
    loaded.take(raws, where=f"metadata, {name.file()}")
    # Its records count from 0; their content ends just below its name's offset.
    loaded.replay.settle(name.offset - 1, name.epoch, raws[-1].timestamp_ms)
    loaded.snapshot = name


# ---- quorum-state ----------------------------------------------------------------------------


class _Quorum(NamedTuple):
    epoch: int
    voters: tuple[int, ...] | None
    leader: int = -1


def known_epoch(log: Log, image: MetadataImage, node_id: int) -> tuple[int, bool]:
    """The highest epoch stored anywhere; and whether quorum-state has one.

    Raises: ArgumentError: other voters elect its leaders, too.
    """
    with Directory(log.path) as folder:
        quorum = _quorum_epoch(folder.read(QUORUM_STATE, 1 << 16))
    if quorum.voters not in (None, (), (node_id,)):
        raise ArgumentError(
            f"{log.path}: found voters {quorum.voters}, wanted only {node_id}: it belongs to a "
            "cluster of several nodes"
        )
    if quorum.leader not in (-1, node_id):
        raise ArgumentError(
            f"{log.path}: found leader {quorum.leader}, wanted only {node_id}: it belongs to a "
            "broker whose controllers are other nodes"
        )
    epochs = [entry.epoch for entry in log.epochs]
    return max(quorum.epoch, image.epoch, *epochs), quorum.epoch > 0


def led_alone(log: Log, node_id: int) -> bool:
    """True if the node led the log last, and the file names no other voter."""
    with Directory(log.path) as folder:
        quorum = _quorum_epoch(folder.read(QUORUM_STATE, 1 << 16))
    return quorum.leader == node_id and quorum.voters in (None, (node_id,))


def _quorum_epoch(data: bytes | None) -> _Quorum:
    """Epoch and voters from a quorum-state file; epoch 0 if it is missing or damaged.

    The voters are None if the file does not have them (version 1).
    """
    try:
        found = json.loads(data or b"{}")
        voters = found.get("currentVoters")
        ids = None if voters is None else tuple(int(voter["voterId"]) for voter in voters)
        epoch, leader = int(found.get("leaderEpoch", 0)), int(found.get("leaderId", -1))
        return _Quorum(max(0, epoch), ids, leader)
    except (ValueError, KeyError, TypeError, AttributeError):
        return _Quorum(0, None)  # Kafka, too, then takes the epoch from the log


def render_own_state(node_id: int, epoch: int, directory_id: UUID | None) -> bytes:
    """quorum-state of a node that is its own quorum.

    `directory_id`: for a quorum of version 1 (KIP-853), which has other fields.
    """
    voted = None if directory_id is None else ReplicaKey(node_id, directory_id)
    version = 0 if directory_id is None else 1
    return render_quorum_state(QuorumState(epoch, node_id, voted), version, [node_id])
