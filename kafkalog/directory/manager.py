"""A data directory of many partitions, in Kafka's layout: opened lazily, owned by one process."""

import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import ClassVar, NoReturn

from kafkalog._native import lib
from kafkalog.arguments import INT32_MAX, topic_partition, whole_number
from kafkalog.clock import Clock, SystemClock
from kafkalog.config.broker import BrokerConfig
from kafkalog.config.topic import TopicConfig
from kafkalog.directory.closing import abandon_logs, close_logs, vouch
from kafkalog.directory.folders import Folders
from kafkalog.directory.identity import check_agrees, identify
from kafkalog.directory.jobs.cleaner import Cleaner
from kafkalog.directory.jobs.place import each
from kafkalog.directory.jobs.removals import JOB as REMOVAL
from kafkalog.directory.jobs.upkeep import Upkeep
from kafkalog.directory.open_logs import OpenLogs
from kafkalog.directory.parallel import in_parallel
from kafkalog.directory.scheduler import Job, Scheduler
from kafkalog.directory.sharing import Shared
from kafkalog.directory.topics import METADATA_CONFIG, TopicConfigs, TopicSource
from kafkalog.disk import layout
from kafkalog.disk.checkpoint import DirectoryState
from kafkalog.disk.space import is_full
from kafkalog.errors import (
    ArgumentError,
    Closed,
    ForkedHandle,
    InvalidTopic,
    ReadOnly,
    TopicExists,
    UnknownTopicOrPartition,
)
from kafkalog.log.handle import Handle
from kafkalog.log.hooks import Lent
from kafkalog.log.log import Log, handle_of
from kafkalog.log.opening import open_plan
from kafkalog.log.owner import absolute, absorbed
from kafkalog.types import TopicPartition

__all__ = ["Manager"]


class Manager:
    """All logs of one data directory, and their background jobs.

    In mode "w" it owns the directory (`.lock`) and runs retention, periodic flushes,
    checkpoints and removals in one thread until close.  In mode "r" it changes nothing, and
    any number of processes may read.  A log is opened when it is first asked for.  Safe to use
    from many threads; after a fork the child's copy raises ForkedHandle.
    """

    _shared: ClassVar[Shared["Manager"]] = Shared()
    """The writing managers of this process."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: Mapping[str, object] | None = None,
        topic_config: TopicConfigs = None,
        clock: Clock | None = None,
        mode: str = "w",
        *,
        adopt: bool = False,
        node_id: int | None = 1,
        gather: bool = False,
    ) -> None:
        """Open the data directory at `path`; mode "w" creates it if it is missing, mode 0700.

        `config`: broker settings (docs/settings.md); `topic_config`: topic settings that override
        their defaults.  `adopt`: accept a directory that has partition folders but no
        meta.properties.  `node_id` is written into a new meta.properties; None: its owner writes
        it later.  `gather`: a new directory is on disk only once its MetadataLog is open.
        Raises: Locked with the owner's pid, NotFound, InvalidSetting, CorruptLog (a damaged
        meta.properties), ArgumentError (`adopt` is missing), IoFailed.
        """
        if mode not in ("r", "w"):
            raise ArgumentError(f"mode: found {mode!r}, wanted 'r' or 'w'")
        self.path = absolute(path)
        self.mode = mode
        self.config = BrokerConfig.of(config)
        self.clock: Clock = clock or SystemClock()
        self._topic_config = topic_config
        self._source: TopicSource | None = None
        if not callable(topic_config):
            TopicConfig.of(topic_config)  # an error shows here, not at the first log
        self._pid = os.getpid()
        self._logs = OpenLogs(self._check)
        self._closed = False
        self._scheduler: Scheduler | None = None
        self._cleaner = Cleaner(self)
        self.on_open: Callable[[TopicPartition], None] = lambda _tp: None  # raises nothing
        self.state = DirectoryState(self.path, mode, create=True, gather=gather)
        """The lock, the clean marker and the checkpoints."""
        try:
            self.folders = Folders(self.state.directory)
            """Which partitions are here, and under which names."""
            self.meta = identify(self.folders, mode, adopt, node_id, gather)
            """Content of meta.properties; None: there is none."""
            self.upkeep = Upkeep(self, self.folders.marked)
            """The background jobs."""
            if mode == "w":
                self._begin()
        except BaseException:
            self.state.close()
            raise

    def _begin(self) -> None:
        self.state.keep(self.folders.partitions())  # it may return truncated elsewhere
        if not self.state.clean:
            # Names that a killed process created or removed, and files of its first start.
            self.folders.sync(layout.FIRST_FILES)
        if self.config.kafkalog_max_open_files:
            lib.kl_set_max_open_files(self.config.kafkalog_max_open_files)
        name = f"kafkalog {os.path.basename(self.path)}"
        self._scheduler = Scheduler(name, self.clock, self.upkeep.jobs())
        self._scheduler.start()
        self._cleaner.start()
        Manager._shared.put(self.path, self)

    def every(self, name: str, run: Callable[[], object], period_ms: int) -> None:
        """Let the background thread call `run` every `period_ms`, until the manager is closed."""
        assert self._scheduler is not None
        self._scheduler.add(Job(name, run, period_ms, period_ms))

    # ---- one per process and directory ----------------------------------------------------

    @classmethod
    def shared(cls, path: str | os.PathLike[str], clock: Clock | None = None) -> "Manager":
        """This process's writing manager of `path`, opened if there is none; see release.

        Raises: as Manager.
        """
        with cls._shared.turn(path):
            return cls._shared.take(path) or cls(path, clock=clock)

    def release(self) -> None:
        """Release what `shared` returned; the last user closes a manager that shared opened."""
        with Manager._shared.turn(self.path):
            if Manager._shared.give_back(self):
                self.close()

    # ---- partitions --------------------------------------------------------------------------

    def topics(self, internal: bool = True) -> tuple[str, ...]:
        """The topics' names, sorted; `internal`: including those that begin with two
        underscores."""
        return tuple(dict.fromkeys(tp.topic for tp in self.partitions(internal=internal)))

    def partitions(
        self, topic: str | None = None, internal: bool = True
    ) -> tuple[TopicPartition, ...]:
        """The partitions here (of one topic), sorted."""
        self._check()
        return tuple(
            tp
            for tp in self.folders.partitions()
            if topic in (None, tp.topic) and (internal or not tp.topic.startswith("__"))
        )

    def refresh(self) -> None:
        """List the directory again, to see what another process created or removed (mode "r")."""
        self._check()
        if self.mode == "r":
            self.folders.list()

    def has(self, tp: TopicPartition) -> bool:
        """True if the partition has a folder here."""
        return self.folders.name(tp) is not None

    def folder(self, topic: str, partition: int = 0) -> str:
        """The path of a partition's folder.

        Raises: UnknownTopicOrPartition.
        """
        self._check()
        return self.folders.path(topic_partition(topic, partition))

    def topic_config(self, topic: str) -> TopicConfig:
        """The settings of a topic: its own override the broker's, which override the defaults.

        Raises: UnknownSetting, InvalidSetting.
        """
        if topic == layout.METADATA_TOPIC:
            return METADATA_CONFIG
        given, known = self._topic_config, self.config.topic
        if self._source:
            known = TopicConfig.of(self._source.config(topic), known)
        return TopicConfig.of(given(topic) if callable(given) else given, known)

    @property
    def has_source(self) -> bool:
        """True if it has a source that knows the topics."""
        return bool(self._source)

    def use(self, source: TopicSource) -> None:
        """Use `source` for topics from now on: for settings, also of open logs, and for partitions,
        whose missing folders are created: see make and get."""
        self._source = source
        self.reconfigure()

    def reconfigure(self, config: BrokerConfig | None = None, topic: str | None = None) -> None:
        """Apply the current settings to open logs (of one topic).

        `config`: the directory's own from now on; the periods of its jobs stay.
        Raises: UnknownSetting, InvalidSetting of the first failure, after the others were done.
        """
        if config is not None:
            self.config = BrokerConfig.of(config)
        each(self, (log for log in self.handles() if topic in (None, log.tp.topic)), self._obey)

    def _obey(self, log: Handle) -> None:
        if (wanted := self.topic_config(log.tp.topic)) != log.config:
            log.configure(wanted)
            if self._scheduler is not None:
                self.upkeep.flushes.configured(log, self._scheduler)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id in the topic's partition.metadata files; None if there is none.

        Raises: CorruptLog.
        """
        self._check()
        return self.folders.topic_id(topic)

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic with partitions 0 to `partitions` - 1.

        Raises: InvalidTopic, TopicExists, ArgumentError, ReadOnly, IoFailed.
        """
        count = whole_number("partitions", partitions, 1, layout.PARTITION_MAX)
        if self.partitions(layout.check_topic(topic)):
            raise TopicExists(f"{self.path}: topic {topic} already exists")
        tps = [TopicPartition(topic, number) for number in range(count)]
        self._make(tps, layout.random_topic_id(), sync=True)

    def create_partition(
        self, topic: str, partition: int = 0, topic_id: uuid.UUID | None = None
    ) -> Log:
        """Create one more partition and open it; `topic_id` None: its siblings', or a new one.

        Raises: InvalidTopic, TopicExists, ArgumentError, ReadOnly, IoFailed.
        """
        number = whole_number("partition", partition, 0, layout.PARTITION_MAX)
        tp = TopicPartition(layout.check_topic(topic), number)
        self._make([tp], self._id_or_new(topic) if topic_id is None else topic_id, sync=True)
        return self.get(*tp)

    def make(self, topic: str, topic_id: uuid.UUID, partitions: Iterable[int]) -> None:
        """Create the folders that the metadata's partitions lack; durable by their first use.

        Raises: TopicExists if a folder of another topic id has the name; IoFailed, NoSpace.
        """
        tps = [TopicPartition(topic, partition) for partition in partitions]
        missing = [tp for tp in tps if not self.folders.claim(tp, topic_id)]
        if missing:
            self._make(missing, topic_id, sync=False)  # settle syncs them

    def _id_or_new(self, topic: str) -> uuid.UUID:
        return self.topic_id(topic) or layout.random_topic_id()

    def _make(self, tps: Sequence[TopicPartition], topic_id: uuid.UUID, sync: bool) -> None:
        """All of them or none."""
        self._check_writable()
        # From earlier partitions with these names; the new ones must not inherit their starts.
        self.state.renew(tp for tp in tps if self.folders.name(tp) is None)
        # Noted before another thread can open one, append, and note more.  Each is empty: there is
        # nothing to recover; see settle.
        self.folders.make(tps, topic_id, sync, lambda tp: self.state.note(tp, 0, None, 0))
        self._logs.created(tps)

    def delete_partition(self, topic: str, partition: int = 0) -> None:
        """Delete a partition; its files are removed after file.delete.delay.ms, its Log is closed.

        Raises: UnknownTopicOrPartition, ReadOnly, IoFailed.
        """
        self.folder(topic, partition)
        self.delete_partitions([topic_partition(topic, partition)])

    def delete_partitions(
        self, tps: Iterable[TopicPartition], sync: bool = True, kind: str = "delete"
    ) -> None:
        """As delete_partition, for many, some of which may be gone; `sync` False: see folders.sync;
        `kind`: "stray": their folders are renamed, and kept.

        Raises: ReadOnly; IoFailed of the first failure, after the others were deleted.
        """
        self._check_writable()
        wanted, gone, failures = list(tps), list[TopicPartition](), list[Exception]()
        for tp in wanted:
            try:
                gone += [tp] * self._take_out(tp, kind)
            except Exception as problem:
                failures.append(problem)
        self._logs.deleted(gone)
        self.state.forget(gone)
        if wanted and sync:
            self.folders.sync()  # also what an earlier call renamed, and could not sync
        if gone and self._scheduler is not None and is_full(self.path):
            self._scheduler.soon(REMOVAL)
        for failure in failures:
            raise failure

    def _take_out(self, tp: TopicPartition, kind: str) -> bool:
        log = self._reserve(tp)
        try:
            if found := self.has(tp):
                self._delete(tp, log, kind)
            return found
        finally:
            if log is None:
                self._logs.release(tp)

    def _delete(self, tp: TopicPartition, log: Handle | None, kind: str = "delete") -> None:
        delay_ms = (log.config if log else self.topic_config(tp.topic)).file_delete_delay_ms
        name = self.folders.take_out(tp, kind)
        if kind == "delete":
            self.upkeep.removals.later(name, delay_ms)
        if log is not None:
            log.discard()

    # ---- logs ----------------------------------------------------------------------------------

    def get(self, topic: str, partition: int = 0) -> Log:
        """The log of a partition; the same object as long as it is open.

        The first call after a crash recovers it.

        Raises: UnknownTopicOrPartition, Closed, ForkedHandle, errors of opening a Log.
        """
        tp = topic_partition(topic, partition)
        while True:
            handle = self._reserve(tp)
            mine = handle is None
            if handle is None:
                handle = self._open(tp)
                self.on_open(tp)
            if (log := self._logs.log(handle, mine)) is not None:
                return log

    def handle(self, tp: TopicPartition) -> Handle:
        """The handle of a partition's log, for jobs; see get."""
        return handle_of(self.get(*tp))

    def _open(self, tp: TopicPartition) -> Handle:
        """Open a reserved log; the caller becomes its user."""
        try:
            self._make_known(tp)
            return self._over(tp, self.topic_config(tp.topic))
        finally:
            self._logs.release(tp)

    def _make_known(self, tp: TopicPartition) -> None:
        """Create the folder for a partition of the metadata; nothing if there is no metadata.

        Raises: UnknownTopicOrPartition if the metadata does not (or no longer) name the partition.
        """
        if not (source := self._source) or self.mode != "w" or tp.topic == layout.METADATA_TOPIC:
            return
        if (topic_id := source.topic_id(*tp)) is not None:
            self.make(tp.topic, topic_id, [tp.partition])
            if source.topic_id(*tp) == topic_id:
                return
            self._delete(tp, None)  # the topic has been deleted since
            self.folders.sync()
        message = f"{self.path}: the metadata names no partition {tp[0]}-{tp[1]}"
        raise UnknownTopicOrPartition(message)

    def _reserve(self, tp: TopicPartition) -> Handle | None:
        """As OpenLogs.reserve."""
        self._check()
        return self._logs.reserve(tp)

    def _over(self, tp: TopicPartition, config: TopicConfig) -> Handle:
        folder = self.folders.own_path(tp) if self.mode == "w" else self.folder(*tp)
        clean = True if self._logs.closed_whole(tp) else None
        if self.mode == "w":
            self.state.settle(tp)
            if absorbed(self.state, folder, tp):
                clean = False
        return Handle(folder, open_plan(self.state, tp, config, self.clock, clean), self)

    def lend(self, folder: layout.Folder, config: Mapping[str, object] | None) -> Lent:
        """A partition's log, found by its path; see shared.

        A missing folder is created.  A log that is open in this process is shared.  `config`
        overrides the topic's settings if nothing else determines them: with an open log, or the
        directory's metadata, it must agree.

        Raises: InvalidTopic, IoFailed; ArgumentError for a different setting;
        UnknownTopicOrPartition if there is metadata that does not name the partition.
        """
        self._check_writable()
        tp = TopicPartition(folder.topic, folder.partition)
        while True:
            handle = self._reserve(tp)
            if handle is None:
                handle = self._open_lent(tp, folder, config)
                self.on_open(tp)
                break
            if handle.take():
                break
        lent = Lent(handle, partial(self._take_back, handle), shared=True)
        try:
            check_agrees(self.folder(*tp), config, handle.config)
        except BaseException:
            handle.give_back()
            raise
        return lent

    def _open_lent(
        self, tp: TopicPartition, folder: layout.Folder, config: Mapping[str, object] | None
    ) -> Handle:
        try:
            known = self.folders.name(tp)
            if known != folder.name and (known or layout.parse_folder(folder.name) != folder):
                raise InvalidTopic(
                    f"{self.path}: found {folder.name!r}, wanted a folder named as "
                    f"{layout.partition_folder(*tp)}: this is a data directory"
                )
            self._make_known(tp)
            if self.folders.name(tp) is None:
                self._make([tp], self._id_or_new(tp.topic), sync=True)
            settings = self.topic_config(tp.topic)
            if self._source is None:
                settings = TopicConfig.of(config, settings)
            return self._over(tp, settings)
        finally:
            self._logs.release(tp)

    def _take_back(self, handle: Handle) -> None:
        try:
            handle.give_back()
        finally:
            self.release()

    def opened(self, log: Handle) -> None:
        """Own an open log until it closes."""
        self._logs.add(log)
        if self._scheduler is not None:
            self.upkeep.opened(log, self._scheduler)

    def closing(self, log: Handle, all_synced: bool) -> None:
        """A log is about to close: remember its offsets."""
        if self.mode == "w" and not self._forked():
            self.upkeep.closing(log, all_synced)

    def gone(self, log: Handle) -> None:
        """A log ends whose folder was removed."""
        self.upkeep.gone(log)

    def closed(self, tp: TopicPartition, whole: bool) -> None:
        """A log was closed, or could not be opened."""
        if not self._forked():
            self._logs.remove(tp, whole)

    def handles(self) -> tuple[Handle, ...]:
        """The logs that are open now, in the order of topics and partitions."""
        return self._logs.handles()

    @property
    def openings(self) -> int:
        """How often a log was opened."""
        return self._logs.openings

    def recover_all(self, threads: int | None = None) -> tuple[Log, ...]:
        """Open every log, so that all are recovered; returns the logs (except KRaft's own).

        `threads`: how many at a time; None: num.recovery.threads.per.data.dir.
        Raises: the first error of opening a log, after the others were opened.
        """
        given = self.config.num_recovery_threads_per_data_dir if threads is None else threads
        count = whole_number("threads", given, 1, INT32_MAX)
        found = in_parallel(count, self._ours(), lambda tp: self.get(*tp))
        for one in found:
            if isinstance(one, Exception):
                raise one
        return tuple(one for one in found if isinstance(one, Log))

    def _ours(self) -> list[TopicPartition]:
        return [tp for tp in self.folders.partitions() if tp.topic != layout.METADATA_TOPIC]

    # ---- the end --------------------------------------------------------------------------------

    @property
    def problems(self) -> tuple[str, ...]:
        """Damaged files that were ignored, and the last failures of background jobs."""
        failures = (self._scheduler.failures if self._scheduler else {}) | self._cleaner.failures
        return (*self.state.problems, *(f"{name}: {e}" for name, e in failures.items()))

    def close(self) -> None:
        """Flush and close all logs, write checkpoints and the clean-shutdown marker.  Idempotent,
        and harmless after a fork.

        Raises: the first failure, after everything was closed; the next open recovers then.
        """
        self._end(self._close_logs)

    def abandon(self) -> dict[str, int]:
        """End as in a crash, see abandon_logs."""
        return self._end(lambda: abandon_logs(self.handles())) or {}

    def _end(self, end_logs: Callable[[], dict[str, int] | None]) -> dict[str, int] | None:
        if self._forked():
            return None
        if not self._logs.end(self._begin_end):
            return None
        self._cleaner.stop()
        if self._scheduler is not None:
            self.upkeep.removals.stop()
            self._scheduler.stop()
        with closing(self.state):
            return end_logs()

    def _begin_end(self) -> bool:
        begins, self._closed = not self._closed, True
        if begins:
            Manager._shared.forget(self)
        return begins

    def _close_logs(self) -> None:
        threads = self.config.num_recovery_threads_per_data_dir
        failures = close_logs(self.handles(), self.state.directory, threads, self.mode == "w")
        if self.mode == "w":
            self.state.directory.settle()  # left by a failed first start
            # After a crash, logs that were never opened still need recovery.
            all_recovered = self._logs.recovered(() if self.state.clean else self._ours())
            vouch(self.state, not failures, all_recovered)
        if failures:
            raise failures[0]

    def _forked(self) -> bool:
        return self._pid != os.getpid()

    def _check(self) -> None:
        if self._forked():
            raise ForkedHandle(
                f"{self.path}: was opened by process {self._pid}; open it in this process"
            )
        if self._closed:
            raise Closed(f"{self.path}: the data directory was closed")

    def _check_writable(self) -> None:
        self._check()
        if self.mode != "w":
            raise ReadOnly(f"{self.path}: was opened for reading")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise ArgumentError(
            f"{self.path}: found an open data directory to be copied or pickled, wanted its path"
        )

    def __enter__(self) -> "Manager":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Manager({self.path!r}, mode={self.mode!r})"
