"""A partition's log on this node, as a follower writes it.

The only place that carries out the decisions of `following`.  One thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from kafkalog.errors import KafkalogError, NotLeaderOrFollower
from kafkalog.log.handle import Handle, states
from kafkalog.log.log import Log, handle_of
from kafkalog.log.removal import truncate_fully
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import Partition
from kafkalog.replication.following import (
    NOTHING_KNOWN,
    Action,
    Append,
    Copied,
    Cut,
    EpochEnd,
    Restart,
    cut_to,
)
from kafkalog.replication.keeping import keep

__all__ = [
    "FollowerLog", "all_now", "lead_held", "not_synced_before_leading", "sync_before_leading",
]  # fmt: skip

_logger = limited(__name__)


def sync_before_leading(handle: Handle) -> None:
    """Sync what a replica appended, if acks=all means on disk, before its node leads.

    A leader counts itself as a replica that has all its records; without this, the last ones that
    it fetched as a follower, or found after a kill, would be visible before they survive a power
    cut.

    Raises: IoFailed, NoSpace, StorageOffline.
    """
    if _is_durable(handle) and _is_behind(handle.state()):
        handle.flush()


def lead_held(log: Log, state: Partition | None, node: int) -> int:
    """Let an open log append in its partition's leader epoch, if node `node` leads it; returns that
    epoch.  `state`: of the node's replica; None: it has none.

    Raises: NotLeaderOrFollower; IoFailed and others, as `sync_before_leading`.
    """
    if state is None:
        raise NotLeaderOrFollower(f"{log!r} is not kept by node {node}")
    if state.leader == node:
        handle = handle_of(log)
        sync_before_leading(handle)
        handle.lead(state.leader_epoch)
    return state.leader_epoch


def not_synced_before_leading(handles: Iterable[Handle]) -> set[Handle]:
    """As sync_before_leading, for many; returns those that failed, and why."""
    durable = [one for one in handles if _is_durable(one)]
    found, statuses = states(durable)
    each = zip(durable, found, statuses, strict=True)
    owed = [one for one, state, status in each if status or _is_behind(state)]
    for one in owed:
        with suppress(KafkalogError):
            one.flush_start()
    return {one for one in owed if not _is_synced(one)}


def _is_durable(handle: Handle) -> bool:
    return bool(handle.config.kafkalog_durability == "fsync")


def _is_behind(state: Any) -> bool:
    return bool(state.flushed_offset < state.log_end_offset)


def _is_synced(handle: Handle) -> bool:
    try:
        sync_before_leading(handle)
    except KafkalogError:
        return False
    return True


class FollowerLog:
    """A log with the records of a leader, with the leader's offsets and epochs."""

    def __init__(self, log: Log, count: Callable[[int], None] = lambda _bytes: None) -> None:
        """`log`: open for writing, with its own high watermark; `count` gets the bytes of each
        append."""
        self.log, self._count = log, count
        self._handle = handle_of(log)

    def __repr__(self) -> str:
        return f"FollowerLog({self.log.path!r})"

    @property
    def durable(self) -> bool:
        """True if the topic's current settings count only records on this disk for the leader."""
        return _is_durable(self._handle)

    def now(self) -> Copied:
        """The replica's current offsets."""
        return _copied(self._handle.state())

    def do(self, action: Action | EpochEnd, asked: int = -1) -> Action:
        """Apply an answer to the log; returns the action taken, with our epochs if they were
        needed.

        `asked`: the fetch offset of the request; records for another offset are ignored.

        Raises: UnexpectedAppendOffset, CorruptMessage, as a Log's append: batches before the one
        that failed were appended; IoFailed and others.
        """
        if isinstance(action, EpochEnd):
            action = cut_to(action, self._epoch_end(action.epoch), self.now())
        if isinstance(action, Append):
            if action.records is not None and self.now().log_end == asked:
                self.log.append_as_follower(action.records)
                self._count(len(action.records))
            self.show(action.high_watermark, action.log_start)
        elif isinstance(action, Cut):
            self._cut(action.offset)
        elif isinstance(action, Restart):
            self._restart(action.offset)
        return action

    def _cut(self, offset: int) -> None:
        now = self.now()
        if offset < now.log_end:
            self._tell(max(offset, now.log_start), now)
        self.log.truncate(offset)

    def _restart(self, offset: int) -> None:
        now = self.now()
        if offset > now.log_end:
            _logger.info("%s-%d: its leader starts at offset %d, beyond the end here at %d: "
                         "the copy starts over there", self.log.topic, self.log.partition, offset,
                         now.log_end)  # fmt: skip
        elif now.log_start < now.log_end:
            self._tell(now.log_start, now)
        truncate_fully(handle_of(self.log), offset)

    def _tell(self, start: int, now: Copied) -> None:
        """Back up visible records before they are cut, and log every cut."""
        where = "nothing of it was shown here"
        if start < now.high_watermark:
            where = f"kept in {keep(self.log, start, now.log_end)}"
        level = logging.WARNING if start < now.high_watermark else logging.INFO
        _logger.log(level, "%s-%d: %d offsets from %d up to %d are cut, as its leader lacks them: "
                    "%s", self.log.topic, self.log.partition, now.log_end - start, start,
                    now.log_end, where)  # fmt: skip

    def _epoch_end(self, epoch: int) -> EpochEnd:
        return EpochEnd(*self.log.epoch_end(epoch)) if epoch >= 0 else NOTHING_KNOWN

    def show(self, high_watermark: int, log_start: int) -> None:
        """Take over the leader's high watermark as far as records are here, never lower than
        before, and its log start."""
        self._handle.show_until(high_watermark)
        now = self.now()
        start = min(log_start, now.high_watermark)
        if start > now.log_start:
            self.log.delete_before(start)

    def sync_begin(self) -> None:
        """Request a flush that `sync` waits for: for all replicas of a node together."""
        self._handle.flush_start()

    def sync(self) -> None:
        """Return when everything appended is on disk."""
        self._handle.flush()


def all_now(copies: Sequence[FollowerLog]) -> list[Copied | None]:
    """As FollowerLog.now, for many; an error in place of the offsets of one that failed."""
    found, statuses = states([one._handle for one in copies])
    return [
        None if status else _copied(state) for state, status in zip(found, statuses, strict=True)
    ]


def _copied(state: Any) -> Copied:
    return Copied(
        state.log_start_offset, state.log_end_offset, state.high_watermark, state.last_epoch
    )
