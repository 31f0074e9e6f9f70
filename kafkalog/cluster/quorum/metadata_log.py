"""A broker's copy of the metadata log: the leader's batches, byte for byte, and the image of those
that the quorum has committed."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalog.batch.walk import whole_batches
from kafkalog.cluster.quorum.observer import METADATA_TOPIC_ID, End, Observer
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import ArgumentError, CorruptLog, CorruptMessage
from kafkalog.kraft.batches import records_in
from kafkalog.kraft.loading import QUORUM_STATE, load, render_observer_state
from kafkalog.kraft.snapshots import SnapshotName, list_snapshots, read_snapshot
from kafkalog.kraft.snapshotting import Snapshotting
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from kafkalog.logs.limit import limited
from kafkalog.metadata.differences import difference
from kafkalog.metadata.image import Change, MetadataImage
from kafkalog.metadata.levels import SUPPORTED
from kafkalog.replication.follower_log import FollowerLog
from kafkalog.replication.following import EpochEnd, cut_to

if TYPE_CHECKING:
    from kafkalog.directory.manager import Manager

__all__ = ["CopiedMetadata", "check_features", "supported_features"]

_logger = limited(__name__)

READ_BYTES = 1 << 20
PART = ".part"
"""Kafka's suffix of a snapshot that is not complete."""


class CopiedMetadata:
    """The local `__cluster_metadata-0` of an observer.  One thread at a time."""

    def __init__(self, manager: Manager, cluster_id: str, node: int) -> None:
        """Open it, created if it is missing, and read its newest snapshot: what the log has after
        that counts once the leader says that it is committed.

        Raises: CorruptLog, IoFailed; ArgumentError: a feature that is not supported.
        """
        manager.make(METADATA_TOPIC, METADATA_TOPIC_ID, [0])
        self._log = manager.get(METADATA_TOPIC, 0)
        self._copy = FollowerLog(self._log)
        self._identity = cluster_id, node
        self._loaded = load(self._log, cluster_id, node, end=0)
        if (known := self._loaded.snapshot) is not None and self._precedes(known):
            truncate_fully(handle_of(self._log), known.offset)  # a crash came between
        self.image: MetadataImage = self._loaded.replay.image
        """The committed metadata."""
        self._snapshots = Snapshotting(manager, self._log)
        self._high_watermark = -1
        self._download: SnapshotName | None = None
        self.discard()
        self._check()

    @property
    def folder(self) -> str:
        """Its folder."""
        return str(self._log.path)

    @property
    def end(self) -> End:
        """Where the log ends."""
        now = self._copy.now()
        epoch = now.last_epoch if now.log_end > now.log_start else self._snapshot_epoch()
        return End(now.log_end, max(epoch, 0), self._high_watermark)

    @property
    def caught_up(self) -> bool:
        """True if the image has everything below the known high watermark."""
        return 0 <= self._high_watermark <= self._next

    @property
    def _next(self) -> int:
        """The offset of the first record that is not in the image."""
        return self.image.offset + 1

    def _precedes(self, snapshot: SnapshotName) -> bool:
        """True if the log does not reach a snapshot, or has records that it does not know of."""
        now = self._copy.now()
        other = now.log_end > now.log_start and snapshot.epoch > now.last_epoch
        return other or snapshot.offset > now.log_end

    def _snapshot_epoch(self) -> int:
        kept = list_snapshots(self.folder)
        return kept[-1].epoch if kept else 0

    def epoch_known(self) -> int:
        """The highest leader epoch that this directory has seen."""
        found = 0
        with Directory(self.folder) as folder, suppress(ValueError, TypeError, AttributeError):
            written = json.loads(folder.read(QUORUM_STATE, 1 << 16) or b"{}")
            found = int(written.get("leaderEpoch", 0))
        return max(found, self.end.epoch)

    def save_epoch(self, seen: Observer) -> None:
        """Write `quorum-state`: after a restart no leader of an earlier epoch is followed."""
        data = render_observer_state(
            seen.leader, seen.epoch, [*seen.voters], self._loaded.kraft_version
        )
        with Directory(self.folder) as folder:
            if folder.read(QUORUM_STATE, 1 << 16) != data:
                folder.replace(QUORUM_STATE, data)

    # ---- the leader's answers ------------------------------------------------------------------

    def append(self, records: bytes | None, high_watermark: int, epoch: int) -> Change | None:
        """Append the leader's batches of its epoch `epoch` and earlier ones, up to the first later
        one, and replay what is committed; None: nothing new is.

        Raises: CorruptLog, CorruptMessage, UnexpectedAppendOffset, IoFailed; ArgumentError: a
        feature or a record that is not supported.
        """
        if records:
            known = _up_to(epoch, records)
            if not known:
                raise CorruptMessage(f"found a batch of a later epoch, wanted at most {epoch}, in "
                                     "which the leader leads")  # fmt: skip
            self._log.append_as_follower(known)
        self._high_watermark = max(self._high_watermark, high_watermark)
        self._copy.show(self._high_watermark, -1)
        return self._replay()

    def diverge(self, epoch: int, end_offset: int) -> None:
        """Truncate to where both logs agree on an epoch.

        Raises: CorruptLog: that would remove committed records; IoFailed.
        """
        theirs, now = EpochEnd(epoch, end_offset), self._copy.now()
        cut = cut_to(theirs, EpochEnd(*self._log.epoch_end(epoch)), now)
        offset = getattr(cut, "offset", now.log_end)
        if offset < max(self._high_watermark, self._next):
            raise CorruptLog(
                f"{self.folder}: the leader of the quorum has another log from offset {offset} on, "
                f"wanted the same up to {max(self._high_watermark, self._next)}, which is committed"
            )
        _logger.info("%s: truncated from offset %d to %d, as its leader's", self.folder,
                     now.log_end, offset)  # fmt: skip
        self._log.truncate(offset)

    def _replay(self) -> Change | None:
        old, limit = self.image, min(self._high_watermark, self._log.end_offset)
        while (at := self._loaded.replay.image.offset + 1) < limit:
            try:
                found = [*records_in(self._log.read_batches(at, READ_BYTES, "log_end"))]
            except CorruptMessage as problem:  # of this disk, not of the leader
                raise CorruptLog(f"{self.folder}: after offset {at}: {problem}") from problem
            raws = [raw for raw in found if at <= raw.offset < limit]
            if not raws:
                break
            self._loaded.take(raws)
            self._loaded.removed.clear()  # a broker's folders follow its roles
            self._snapshots.written(sum(len(raw.value) for raw in raws))
        change = self._show(old)
        if not self._loaded.replay.in_transaction:
            self._snapshots.take_if_due(self._loaded)
        return change

    def _show(self, old: MetadataImage) -> Change | None:
        if self._loaded.replay.image is old:
            return None
        self._check()
        self.image = self._loaded.replay.image
        return self._loaded.replay.change(old)

    def _check(self) -> None:
        """Refuse metadata that is not completely understood."""
        self._loaded.check_known(self.folder)
        check_features(self._loaded.replay.image)

    # ---- its snapshots -------------------------------------------------------------------------

    def begin(self, snapshot: SnapshotName) -> None:
        """Begin to write a snapshot of the leader.

        Raises: CorruptLog: it is older than the image.
        """
        if snapshot.offset < self._next:
            raise CorruptLog(
                f"{self.folder}: the leader of the quorum sends the snapshot {snapshot.file()}, "
                f"wanted one after offset {self._next}, up to which this broker has its metadata"
            )
        self.discard()
        self._download = snapshot

    @property
    def downloading(self) -> tuple[SnapshotName, int] | None:
        """The snapshot that is being written, and how many bytes of it are here."""
        if self._download is None:
            return None
        try:
            return self._download, os.path.getsize(self._part(self._download))
        except FileNotFoundError:
            return self._download, 0

    def store(self, data: bytes, size: int) -> Change | None:
        """Write the next piece of a snapshot of `size` bytes.  Once it is complete, the log begins
        after it, and the image is the snapshot's: the change is returned.

        Raises: CorruptMessage: it is damaged; IoFailed, NoSpace; ArgumentError, as `append`.
        """
        assert self._download is not None
        path = self._part(self._download)
        with open(path, "ab") as file:
            file.write(data)
            file.flush()
            if file.tell() < size:
                return None
            os.fsync(file.fileno())
        try:
            read_snapshot(path)
        except CorruptLog as problem:
            self.discard()
            raise CorruptMessage(str(problem)) from problem
        return self._use(self._download)

    def _use(self, snapshot: SnapshotName) -> Change:
        with Directory(self.folder) as folder:
            folder.rename(snapshot.file() + PART, snapshot.file())
        self._download = None
        truncate_fully(handle_of(self._log), snapshot.offset)
        old = self.image
        loaded = load(self._log, *self._identity, end=0)
        if loaded.snapshot != snapshot:
            raise CorruptLog(f"{self.folder}: {'; '.join(loaded.problems)}")
        self._loaded = loaded
        self._check()
        self.image = loaded.replay.image
        return difference(old, self.image)

    def discard(self) -> None:
        """Forget the snapshot that was begun."""
        self._download = None
        for name in os.listdir(self.folder):
            if name.endswith(PART):
                with Directory(self.folder) as folder:
                    folder.unlink(name)

    def _part(self, snapshot: SnapshotName) -> str:
        return os.path.join(self.folder, snapshot.file() + PART)

    def close(self) -> None:
        """Flush.  Raises: IoFailed, StorageOffline."""
        self._log.flush()


def _up_to(epoch: int, records: bytes) -> bytes:
    """The batches before the first one of a later epoch; CRCs are not checked."""
    end = 0
    for batch, whole in whole_batches(records, check_crc=False):
        if batch.leader_epoch > epoch:
            return bytes(records[:end])
        end += len(whole)
    return records


# ---- features --------------------------------------------------------------------------------


def check_features(image: MetadataImage) -> None:
    """Refuse the levels of features that are not supported.

    Raises: ArgumentError.
    """
    for name, level in image.features.items():
        low, high = SUPPORTED.get(name, (0, 0))
        if not low <= level <= high:
            wanted = f"{low} to {high}" if high else "none: kafkalog does not know this feature"
            raise ArgumentError(f"{name}: found {level} in the cluster, wanted {wanted}")


def supported_features(image: MetadataImage) -> tuple[tuple[str, int, int], ...]:
    """(name, lowest level, highest level) of each feature, for the registration."""
    return tuple((name, *levels) for name, levels in SUPPORTED.items())
