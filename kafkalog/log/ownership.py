"""Who looks after an open log: its data directory's manager, or its own folder."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalog.clock import Clock, SystemClock
from kafkalog.config.topic import TopicConfig
from kafkalog.disk.checkpoint import (
    CLEAN_MARKER,
    CLEANER,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    DirectoryState,
)
from kafkalog.disk.layout import META_PROPERTIES, Folder, bare_folder, check_topic
from kafkalog.errors import ArgumentError, NotFound
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.log.log import Log, LogOpen

__all__ = [
    "LoneOwner",
    "Offsets",
    "Owner",
    "Reader",
    "absolute",
    "absorbed",
    "offsets_of",
    "open_plan",
    "plan_log",
]


class Owner(Protocol):
    """What a log tells, and asks, whoever took the lock for it."""

    @property
    def state(self) -> DirectoryState:
        """Where the log's checkpoints and the clean marker are."""

    def opened(self, log: "Log") -> None:
        """The log is open."""

    def closing(self, log: "Log") -> None:
        """The log was flushed and is about to close: remember its offsets."""

    def closed(self, tp: TopicPartition, whole: bool) -> None:
        """The log is closed, or could not be opened; `whole`: nothing of it is left to recover."""


class Offsets(NamedTuple):
    """What the checkpoints keep of a log."""

    tp: TopicPartition
    recovery_point: int
    log_start: int | None
    """None: the first segment's base, where it is found again."""
    high_watermark: int


def offsets_of(log: "Log") -> Offsets:
    """Take down the offsets of an open log."""
    tp = TopicPartition(log.topic, log.partition)
    state = log._state()
    start, raised = int(state.log_start_offset), None
    if start > 0 and (segments := log.segments) and start > segments[0].base_offset:
        raised = start
    return Offsets(tp, int(state.flushed_offset), raised, int(state.high_watermark))


class LoneOwner:
    """The folder of a log that stands alone: lock, checkpoints and marker lie inside it."""

    def __init__(self, state: DirectoryState) -> None:
        """Look after the one log of `state`'s folder until it is closed."""
        self.state = state
        self._offsets: Offsets | None = None

    def opened(self, log: "Log") -> None:
        """Write down of a new log that nothing of it is missing: recovery may believe that."""
        tp = TopicPartition(log.topic, log.partition)
        if self.state.recovery_point(tp) < 0 and log.size_bytes == 0:
            self.state.save(recovery_points={tp: log.end_offset})

    def closing(self, log: "Log") -> None:
        """Remember the offsets."""
        self._offsets = offsets_of(log)

    def closed(self, tp: TopicPartition, whole: bool) -> None:
        """Write checkpoints and marker when the log is whole; give the folder back.

        Raises: IoFailed, NoSpace; the folder is given back then, too.
        """
        try:
            if whole and self._offsets is not None:
                self.state.note(*self._offsets)
                self.state.save({}, {}, {})
                self.state.mark_clean()
        finally:
            self.state.close()


class Reader:
    """Nobody: a reader changes nothing and is remembered nowhere."""

    def __init__(self, state: DirectoryState) -> None:
        """Hand out what `state` says."""
        self.state = state

    def opened(self, log: "Log") -> None:
        """Nothing to do."""

    def closing(self, log: "Log") -> None:
        """Nothing to do."""

    def closed(self, tp: TopicPartition, whole: bool) -> None:
        """Close the directory."""
        self.state.close()


def plan_log(
    path: str | os.PathLike[str],
    mode: str,
    config: Mapping[str, object] | None,
    topic: str | None = None,
    partition: int | None = None,
    clock: Clock | None = None,
) -> "LogOpen":
    """Find or make the owner of the log at `path`, and say how the log is to be opened.

    When the parent is a data directory (it has meta.properties) its manager is shared,
    else the folder is its own.  Mode "w" makes a missing folder.  Afterwards call the
    owner's opened, or closed when opening failed.

    Raises: Locked, NotFound (mode "r"), InvalidTopic, InvalidSetting,
    ArgumentError, IoFailed.
    """
    if mode not in ("r", "w"):
        raise ArgumentError(f"mode: found {mode!r}, wanted 'r' or 'w'")
    path = absolute(path)
    parent, name = os.path.split(path)
    folder = _folder(name, topic, partition)
    tp = TopicPartition(folder.topic, folder.partition)
    in_directory = os.path.exists(os.path.join(parent, META_PROPERTIES))
    if mode == "w" and in_directory:
        from kafkalog.directory.manager import Manager  # which needs Log, which needs this

        manager = Manager.shared(parent, clock)
        try:
            return manager.lend(folder, config)
        except BaseException:
            manager.release()
            raise
    settings = TopicConfig.of(config)
    if mode == "w":
        state = DirectoryState(path, "w", create=True, own=True)
        return open_plan(LoneOwner(state), tp, settings, clock)
    if not os.path.isdir(path):
        raise NotFound(f"{path}: found no such folder to read")
    # A folder in a directory may still hold what it kept when it stood alone.
    state = DirectoryState(parent if in_directory else path, "r", own=not in_directory)
    return open_plan(Reader(state), tp, settings, clock)


def absolute(path: str | os.PathLike[str]) -> str:
    """The absolute form of `path`, so that a change of directory later does not matter.

    Raises: ArgumentError when it is empty, which would mean the present directory.
    """
    text = os.fspath(path)
    if not text:
        raise ArgumentError("path: found an empty one, wanted a folder")
    return os.path.abspath(text)


def _folder(name: str, topic: str | None, partition: int | None) -> Folder:
    if partition is not None and not 0 <= partition < 1 << 31:
        raise ArgumentError(f"partition: found {partition}, wanted 0 to 2147483647")
    if topic is None:
        folder = bare_folder(name)
        return folder if partition is None else folder._replace(partition=partition)
    return Folder(name, check_topic(topic), partition or 0)


def open_plan(
    owner: Owner,
    tp: TopicPartition,
    config: TopicConfig,
    clock: Clock | None = None,
    clean: bool | None = None,
) -> "LogOpen":
    """How to open a log, from what its owner's state remembers of it.

    `clean`: whether its batches need no reading; None: what the state says.
    """
    from kafkalog.log.log import LogOpen  # which needs plan_log

    state = owner.state
    recovery_point = state.recovery_point(tp)
    if clean is None:
        # A folder that was put here later is not what the marker vouches for.
        clean = state.clean and recovery_point >= 0
    return LogOpen(
        mode=state.mode,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=state.log_start(tp),
        # A single copy: all that is in the log is committed.
        high_watermark=-1,
        marker=state.marker,
        config=config,
        topic=tp.topic,
        partition=tp.partition,
        clock=clock or SystemClock(),
        owner=owner,
    )


def absorbed(state: DirectoryState, path: str, tp: TopicPartition) -> bool:
    """Take over what a log that once stood alone keeps in its folder; whether it did.

    Raises: Locked when it is still open; IoFailed, NoSpace.
    """
    names = (CLEAN_MARKER, RECOVERY_POINT, LOG_START, HIGH_WATERMARK, CLEANER, ".lock")
    here = [name for name in names if os.path.lexists(os.path.join(path, name))]
    if here:
        alone = DirectoryState(path, "w", own=True)
        try:
            start = alone.log_start(tp)
            if start > state.log_start(tp):
                state.save(log_starts={tp: start})
            state.save(recovery_points={tp: max(0, alone.recovery_point(tp))})
            if (cleaned := alone.cleaner(tp)) > state.cleaner(tp):
                state.save(cleaners={tp: cleaned})
            for name in here:
                alone.directory.unlink(name)
        finally:
            alone.close()
    return bool(here)
