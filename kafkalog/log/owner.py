"""The owner of an open log: its data directory's manager, or its own folder."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.clock import Clock
from kafkalog.config.topic import TopicConfig
from kafkalog.disk.checkpoint import (
    CLEAN_MARKER,
    CLEANER,
    FLUSHED,
    HIGH_WATERMARK,
    LOCK,
    LOG_START,
    RECOVERY_POINT,
    DirectoryState,
    tell_unclean,
)
from kafkalog.disk.layout import META_PROPERTIES, Folder, bare_folder, check_link, check_topic
from kafkalog.errors import ArgumentError, NoSpace, NotFound
from kafkalog.log.handle import Handle
from kafkalog.log.hooks import Lent, hooks
from kafkalog.log.opening import open_plan
from kafkalog.log.segments import list_segments
from kafkalog.types import TopicPartition

__all__ = [
    "LoneOwner",
    "Offsets",
    "Reader",
    "absolute",
    "absorbed",
    "offsets_of",
    "open_log",
]


class Offsets(NamedTuple):
    """A log's offsets in the checkpoints."""

    tp: TopicPartition
    recovery_point: int
    log_start: int | None
    """None: the first segment's base, which is found again."""
    high_watermark: int


def offsets_of(log: Handle) -> Offsets:
    """Remember the offsets of an open log."""
    state = log.state()
    start, raised = int(state.log_start_offset), None
    if start > 0 and (segments := list_segments(log)) and start > segments[0].base_offset:
        raised = start
    return Offsets(log.tp, int(state.flushed_offset), raised, int(state.high_watermark))


class LoneOwner:
    """The folder of a log outside a data directory, which has its own lock, checkpoints and
    marker."""

    def __init__(self, state: DirectoryState) -> None:
        """Own the one log of `state`'s folder until it is closed."""
        self.state = state
        self._offsets: Offsets | None = None

    def opened(self, log: Handle) -> None:
        """Write down that nothing of a new log is missing: recovery may trust that."""
        if self.state.recovery_point(log.tp) < 0 and log.state().size_bytes == 0:
            self.state.save(recovery_points={log.tp: log.end_offset})
        if log.mode == "w" and log.recovery.segments_recovered > 1:
            log.flush()  # once is enough

    def closing(self, log: Handle, all_synced: bool) -> None:
        """Remember the offsets."""
        self._offsets = offsets_of(log)

    def gone(self, log: Handle) -> None:
        """Nothing to do."""

    def closed(self, tp: TopicPartition, whole: bool) -> None:
        """Write checkpoints and marker if the log is whole; release the folder.

        Raises: IoFailed; the folder is released even then.
        """
        try:
            if whole and self._offsets is not None:
                self.state.note(*self._offsets)
                self.state.save({}, {}, {})
                self.state.mark_clean()
        except NoSpace as error:
            tell_unclean(self.state.path, error)
        finally:
            self.state.close()


class Reader:
    """A reader's owner: it changes nothing and remembers nothing."""

    def __init__(self, state: DirectoryState) -> None:
        """Hand out what `state` says."""
        self.state = state

    def opened(self, log: Handle) -> None:
        """Nothing to do."""

    def closing(self, log: Handle, all_synced: bool) -> None:
        """Nothing to do."""

    def gone(self, log: Handle) -> None:
        """Nothing to do."""

    def closed(self, tp: TopicPartition, whole: bool) -> None:
        """Close the directory."""
        self.state.close()


def open_log(
    path: str | os.PathLike[str],
    mode: str,
    config: Mapping[str, object] | None,
    name: tuple[str | None, int | None] = (None, None),
    clock: Clock | None = None,
) -> Lent:
    """Open the log at `path`; returns it with the function that releases it.

    If the parent is a data directory (it has meta.properties), its manager opens the log;
    otherwise the folder is on its own.  Mode "w" creates a missing folder.  `name`: topic and
    partition, if the folder's name does not give them.

    Raises: Locked, NotFound (mode "r"), InvalidTopic, InvalidSetting, ArgumentError, IoFailed.
    """
    if mode not in ("r", "w"):
        raise ArgumentError(f"mode: found {mode!r}, wanted 'r' or 'w'")
    path = absolute(path)
    parent, base = os.path.split(path)
    folder = _folder(base, *name)
    in_directory = os.path.exists(os.path.join(parent, META_PROPERTIES))
    if mode == "w" and in_directory:
        return hooks().lend(parent, folder, config, clock)
    tp, settings = TopicPartition(folder.topic, folder.partition), TopicConfig.of(config)
    owner: LoneOwner | Reader
    if mode == "w":
        check_link(path)
        owner = LoneOwner(DirectoryState(path, "w", create=True, own=True))
    elif os.path.isdir(path):
        # A folder in a directory may still have the files of its time outside one.
        root = parent if in_directory else path
        owner = Reader(DirectoryState(root, "r", own=not in_directory))
    else:
        raise NotFound(f"{path}: found no such folder to read")
    handle = Handle(path, open_plan(owner.state, tp, settings, clock), owner)
    return Lent(handle, handle.give_back)


def absolute(path: str | os.PathLike[str]) -> str:
    """The absolute form of `path`, so that later changes of the working directory do not matter.

    Raises: ArgumentError if it is empty, which would mean the working directory.
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise ArgumentError(f"path: found {path!r}, wanted a folder's path") from None
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ArgumentError(f"path: found {text!r}, which no file system can hold") from None
    if not text:
        raise ArgumentError("path: it is empty; give a folder's path")
    return os.path.abspath(text)


def _folder(name: str, topic: str | None, partition: int | None) -> Folder:
    if partition is not None and (
        isinstance(partition, bool)
        or not isinstance(partition, int)
        or not 0 <= partition < 1 << 31
    ):
        raise ArgumentError(f"partition: found {partition!r}, wanted 0 to 2147483647")
    if topic is None:
        folder = bare_folder(name)
        return folder if partition is None else folder._replace(partition=partition)
    return Folder(name, check_topic(topic), partition or 0)


def absorbed(state: DirectoryState, path: str, tp: TopicPartition) -> bool:
    """Take over the state of a log that was once outside a directory; returns whether there was
    one.

    Raises: Locked when it is still open; IoFailed, NoSpace.
    """
    # Two checks for each of ten thousand: such a log has its own lock file, which is removed last;
    # a copy without hidden files has none, and would show records that were deleted below its
    # start.
    if not any(os.path.lexists(f"{path}/{name}") for name in (LOCK, LOG_START)):
        return False
    alone = DirectoryState(path, "w", own=True)
    try:
        start = alone.log_start(tp)
        if start > state.log_start(tp):
            state.save(log_starts={tp: start})
        # A program that has written to it in the directory since, such as Kafka, knows its end
        # better.
        point, there = max(0, alone.recovery_point(tp)), state.recovery_point(tp)
        # State from under another name is worthless for this log: everything is checked.
        state.save(recovery_points={tp: min(point, there) if there >= 0 else point})
        if (cleaned := alone.cleaner(tp)) > state.cleaner(tp):
            state.save(cleaners={tp: cleaned})
        for name in (
            CLEAN_MARKER,
            RECOVERY_POINT,
            LOG_START,
            HIGH_WATERMARK,
            CLEANER,
            FLUSHED,
            LOCK,
        ):
            alone.directory.unlink(name)
    finally:
        alone.close()
    return True
