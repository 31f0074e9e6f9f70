"""Follows the metadata log: sends an observer's requests, and carries out its decisions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalog.cluster.quorum.observer import (
    Action,
    Append,
    Discard,
    Diverge,
    Download,
    Observer,
    Refuse,
    Store,
    Wait,
    fetch_body,
    fetched,
    lost,
    snapshot_body,
    snapshot_fetched,
    target,
)
from kafkalog.errors import (
    ArgumentError,
    AuthenticationFailed,
    BadAnswer,
    Closed,
    CorruptMessage,
    KafkalogError,
    PeerGone,
    StorageOffline,
    Timeout,
    UnexpectedAppendOffset,
    UnsupportedVersion,
    told_once,
)
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import METADATA_VERSION
from kafkalog.replication.inter_broker import connect
from kafkalog.wire.apis import FETCH, FETCH_SNAPSHOT

if TYPE_CHECKING:
    from kafkalog.client.link.connection import Connection
    from kafkalog.cluster.quorum.joining import Entry
    from kafkalog.cluster.quorum.metadata_log import CopiedMetadata
    from kafkalog.config.server import ServerConfig
    from kafkalog.metadata.image import Change, MetadataImage

__all__ = ["MetadataFollower"]

_logger = limited(__name__)

VERSION_MIN = 17
"""The first version of Fetch with the fetching replica's directory, and with the leader's address
in the answer."""
DISK_S = 1.0
"""How long it waits after a write that the disk refused."""
UNREACHABLE = (PeerGone, Timeout, BadAnswer, UnsupportedVersion, AuthenticationFailed)
BAD_BYTES = (CorruptMessage, UnexpectedAppendOffset)


class MetadataFollower:
    """The copy of the metadata log, and the leader that it follows."""

    def __init__(
        self, copied: CopiedMetadata, entry: Entry, config: ServerConfig, lock: threading.RLock,
        turned: Callable[[], None],
    ) -> None:  # fmt: skip
        """Nothing is sent.  `lock` is held while the copy and its image change; `turned` is called
        when there is another leader."""
        self._copied, self._entry, self._lock, self._turned = copied, entry, lock, turned
        self._fetch_timeout_ms = config.controller_quorum_fetch_timeout_ms
        self._backoff_s = config.controller_quorum_retry_backoff_ms / 1000
        self.seen = Observer(entry.bootstrap, entry.voters, copied.epoch_known())
        """The quorum, as known here."""
        self._saved = self.seen.epoch, self.seen.leader  # in quorum-state
        self._not_saved: object = None  # why it was not, the last time
        self._connection: Connection | None = None
        self._ended = threading.Event()
        self._problem = ""

    @property
    def image(self) -> MetadataImage:
        """The metadata of the copy that are committed."""
        return self._copied.image

    def catch_up(self, at_most_s: float, ends: threading.Event) -> None:
        """Copy what the quorum has committed now.

        Raises: Timeout; Closed: `ends` was set; ArgumentError, CorruptLog: this cluster cannot be
        followed.
        """
        end_s = time.monotonic() + at_most_s
        while not (self._copied.caught_up and METADATA_VERSION in self._copied.image.features):
            if ends.is_set():
                raise Closed(f"{self._copied.folder}: its process ends")
            if time.monotonic() >= end_s:
                raise Timeout(
                    f"{self._copied.folder}: no leader of the quorum answered in {at_most_s:g} s: "
                    f"{self._problem or 'none is known'}"
                )
            self._step(lambda _: None)
        self._copied.save_epoch(self.seen)  # now it is known in which version

    def run(self, changed: Callable[[Change], None]) -> None:
        """Follow until `close`; `changed` gets each change of the image, with the lock held.

        Raises: ArgumentError, CorruptLog: this cluster cannot be followed any more; Closed.
        """
        while not self._ended.is_set():
            self._step(changed)

    def close(self) -> None:
        """Stop waiting, now and later."""
        self._ended.set()
        if (found := self._connection) is not None:
            found.interrupt()

    # ---- one exchange --------------------------------------------------------------------------

    def _step(self, changed: Callable[[Change], None]) -> None:
        state = self.seen
        try:
            after, action = self._exchange(state)
        except UNREACHABLE as problem:
            self._fails(state, problem)
            return
        bad: KafkalogError | None = None
        full: OSError | None = None
        self._see(after)
        with self._lock:
            try:
                change = self._do(action)
            except BAD_BYTES as problem:
                bad = problem
            except StorageOffline:
                raise
            except OSError as problem:
                full = problem
            else:
                if change is not None:
                    changed(change)  # not to be repeated: its failures are no failures of the copy
        if bad is not None:
            self._fails(after, bad)
        elif full is not None:  # the disk, which passes: the controller stays known
            self._say(full)
            self._ended.wait(DISK_S)
        elif isinstance(action, Discard) or (isinstance(action, Wait) and action.pause):
            self._ended.wait(self._backoff_s)

    def _exchange(self, state: Observer) -> tuple[Observer, Action]:
        connection = self._connected(state)
        who, downloading = self._entry.identity, self._copied.downloading
        if downloading is None:
            body = fetch_body(state, who, self._copied.end)
            version = connection.version_of(FETCH)
            if version < VERSION_MIN:
                raise UnsupportedVersion(
                    f"{connection.address}: Fetch: the controller offers up to {version}, wanted "
                    f"{VERSION_MIN}: Apache Kafka 3.9 or later"
                )
            return fetched(state, connection.call(FETCH, body, version, self._fetch_timeout_ms))
        snapshot, position = downloading
        body = snapshot_body(state, who, snapshot, position)
        answer: Any = connection.call(FETCH_SNAPSHOT, body, None, self._fetch_timeout_ms)
        return snapshot_fetched(state, snapshot, position, answer)

    def _connected(self, state: Observer) -> Connection:
        where, found = target(state), self._connection
        if found is not None and (found.address != where or found.closed):
            self._hang_up()
            found = None
        if found is None:
            found = self._connection = connect(where, self._entry.options)
        if self._ended.is_set():
            self._hang_up()
            raise Closed("the metadata are not followed any more")
        return found

    def _hang_up(self) -> None:
        found, self._connection = self._connection, None
        if found is not None:
            found.close()

    def _fails(self, state: Observer, problem: KafkalogError) -> None:
        self._hang_up()
        self._say(problem)
        self._see(lost(state))
        self._ended.wait(self._backoff_s)

    def _say(self, problem: Exception) -> None:
        if str(problem) != self._problem and not self._ended.is_set():
            _logger.info("the metadata are not followed now: %s", problem)
        self._problem = str(problem)

    def _see(self, after: Observer) -> None:
        """Know this from now on.  If quorum-state cannot be written, it will be with the next
        answer."""
        before, self.seen = self.seen, after
        if (before.epoch, before.leader, before.address) != (
            after.epoch, after.leader, after.address
        ):  # fmt: skip
            if after.leader >= 0:
                _logger.info("node %d at %s leads the quorum in epoch %d", after.leader,
                             after.address, after.epoch)  # fmt: skip
            self._turned()
        known = after.epoch, after.leader
        if known != self._saved and (after.leader >= 0 or after.epoch > self._saved[0]):
            try:
                self._copied.save_epoch(after)
            except StorageOffline:
                raise
            except OSError as problem:
                before_that, self._not_saved = self._not_saved, told_once(problem)
                if before_that != self._not_saved:
                    _logger.error("%s: the quorum's epoch is not saved: %s", self._copied.folder,
                                  problem)  # fmt: skip
            else:
                self._saved, self._not_saved = known, None

    def _do(self, action: Action) -> Change | None:
        """Carry out a decision; returns the change of the image, if any."""
        copied, change = self._copied, None
        if isinstance(action, Refuse):
            raise ArgumentError(f"{copied.folder}: {action.why}")
        if isinstance(action, Append):
            change = copied.append(action.records, action.high_watermark, action.epoch)
            self._problem = ""
        elif isinstance(action, Store):
            change = copied.store(action.data, action.size)
        elif isinstance(action, Diverge):
            copied.diverge(action.epoch, action.end_offset)
        elif isinstance(action, Download):
            copied.begin(action.snapshot)
        elif isinstance(action, Discard):
            copied.discard()
        return change
