"""The partitions that this broker leads: opens their logs for the metadata and the data plane."""

import threading
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from kafkalog._native import lib
from kafkalog.config.declare import FOREVER
from kafkalog.config.topic import TopicConfig, compresses, timestamp_window
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import (
    Closed,
    ForkedHandle,
    KafkalogError,
    NotLeaderOrFollower,
    StorageOffline,
    TopicExists,
    UnknownTopicOrPartition,
    passes,
)
from kafkalog.log.log import handle_of
from kafkalog.logs.limit import limited
from kafkalog.metadata.configs import is_sensitive
from kafkalog.metadata.image import BROKER, CLIENT_METRICS, GROUP, INTERNAL_TOPICS, TOPIC
from kafkalog.metadata.settings import changed_topics
from kafkalog.types import TopicPartition
from kafkalog.wire.values import ZERO_UUID

if TYPE_CHECKING:
    from kafkalog.config.server import ServerConfig
    from kafkalog.directory.manager import Manager
    from kafkalog.log.log import Log
    from kafkalog.metadata.image import Change, MetadataImage, Partition, Topic
    from kafkalog.metadata.source import Metadata
    from kafkalog.server.network.reactor import Reactor

__all__ = ["Partitions", "has_failed", "looks_inside"]

_logger = limited(__name__)

AHEAD_MS = int(lib.KL_AHEAD_MS)
"""Compressed batches whose header is further ahead go to Python in topics that check times."""
RETRY_S = 10.0
"""How long a log that failed to open is left alone: each attempt costs a recovery."""


def looks_inside(config: TopicConfig) -> bool:
    """True if a compressed batch must be decompressed before it can be appended.

    The header says well enough whether a record is too far ahead, from AHEAD_MS on; it does not
    say whether one is too far back.
    """
    before_ms, after_ms = timestamp_window(config)
    return (
        (_is_timed(config) and (before_ms < FOREVER or after_ms < AHEAD_MS))
        or config.kafkalog_check_compressed
        or config.max_decompressed_message_bytes < config.kafkalog_max_decompressed_bytes
        or "compact" in config.cleanup_policy
        or config.compression_type != "producer"
    )


def _is_timed(config: TopicConfig) -> bool:
    return config.message_timestamp_type == "CreateTime" and min(timestamp_window(config)) < FOREVER


class _Offline(NamedTuple):
    """A log that could not be opened."""

    reason: str
    until_s: float
    """When to retry, on the monotonic clock."""


class Partitions:
    """Logs by topic and partition, opened at their first use.

    The data plane knows an open log, and answers for it from then on.  Safe to use from many
    threads.  Follows the metadata from its construction on.
    """

    def __init__(self, manager: "Manager", metadata: "Metadata", reactor: "Reactor") -> None:
        """Nothing is opened."""
        self._manager = manager
        self._metadata = metadata
        self._reactor = reactor
        # Guards what follows and the data plane's state; taken inside the metadata's lock, never
        # around it.
        self._lock = threading.RLock()
        self._image: MetadataImage = metadata.image
        self._open_logs: dict[TopicPartition, Log] = {}
        self._empty: set[TopicPartition] = set()  # the data plane has no log of these
        self._offline: dict[TopicPartition, _Offline] = {}
        self._configs: dict[str, TopicConfig] = {}
        for topic in self._image.topics.values():
            self._introduce(topic)
        self.on_election: Callable[[TopicPartition, int], None] = lambda _partition, _epoch: None
        """Wait until a partition is led here in this epoch, if the metadata may say so earlier;
        called under no lock but the metadata's."""
        self.on_resignation: Callable[[Collection[TopicPartition]], None] = lambda _partitions: None
        """Called before these are led in another leader epoch, or elsewhere, or are deleted; under
        the metadata's lock."""
        metadata.listen(self._changed)
        manager.on_open = self._opened

    def config(self, topic: str) -> TopicConfig:
        """The settings in effect for a topic."""
        with self._lock:
            found = self._configs.get(topic)
            if found is None:
                found = self._configs[topic] = self._manager.topic_config(topic)
            return found

    def has(self, topic: str, partition: int) -> bool:
        """True if there is such a partition."""
        return self._image.partition(topic, partition) is not None

    def state(self, topic: str, partition: int) -> "Partition | None":
        """The leader of a partition; None if it does not exist."""
        return self._image.partition(topic, partition)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The leader epoch in which a partition is led here: a decision made now is appended in no
        other epoch.

        Raises: UnknownTopicOrPartition; NotLeaderOrFollower.
        """
        state = self.state(topic, partition)
        if state is None:
            raise self._unknown(TopicPartition(topic, partition))
        return state.leader_epoch

    def count(self, topic: str) -> int:
        """How many partitions a topic has; 0 if it does not exist."""
        found = self._image.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def id_of(self, topic: str) -> uuid.UUID:
        """A topic's id; ZERO_UUID if it does not exist."""
        found = self._image.topics.get(topic)
        return ZERO_UUID if found is None else found.id

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic of that id."""
        return self._image.names.get(topic_id)

    def log(self, topic: str, partition: int) -> "Log":
        """The log of a partition, which the data plane serves from now on.

        The first call after a crash recovers it.

        Raises: UnknownTopicOrPartition, NotLeaderOrFollower; StorageOffline: it cannot be opened,
        which is retried by calls more than RETRY_S later; NoSpace and other temporary errors: it
        cannot be opened now.
        """
        tp = TopicPartition(topic, partition)
        with self._lock:
            log = self._open_logs.get(tp)
            if log is not None:
                return log
            topic_id = self._id(tp)
            if self.offline(topic, partition):
                self._reactor.put_offline(topic, partition, True)
                raise StorageOffline(self._offline[tp].reason)
        # Without the lock: it may recover, and write metadata.
        try:
            log = self._get(tp)
            epoch = self._metadata.lead(log)
        except (UnknownTopicOrPartition, NotLeaderOrFollower, Closed, ForkedHandle):
            raise  # its disk is well
        except (KafkalogError, OSError) as problem:
            self._fail(tp, problem)
            if passes(problem):
                raise
            raise StorageOffline(self._offline[tp].reason) from problem
        with self._lock:
            if self._open_logs.get(tp) is not log:
                if self._id(tp) != topic_id:
                    raise self._unknown(tp)  # recreated since
                self._serve(tp, log, epoch)
                _tell_recovery(log)
                if self._offline.pop(tp, None):
                    self._reactor.put_offline(topic, partition, False)
                    _logger.info("%s-%d: is open again", topic, partition)
        return log

    def _get(self, tp: TopicPartition) -> "Log":
        try:
            return self._manager.get(*tp)
        except TopicExists:
            # Whatever created the topic is creating its folder at this moment.
            return self._metadata.followed(lambda: self._manager.get(*tp))

    def apply_settings(self, config: "ServerConfig") -> None:
        """Apply the broker's settings that concern partitions."""

    def low_watermark(self, tp: TopicPartition) -> int:
        """The lowest offset that all replicas of a partition led here have.

        Raises: as `log`; NotLeaderOrFollower: it is not led here any more.
        """
        return self.log(*tp).start_offset

    def is_open(self, topic: str, partition: int) -> bool:
        """True if the log is already open."""
        with self._lock:
            return TopicPartition(topic, partition) in self._open_logs

    def existing_log(self, topic: str, partition: int) -> "Log | None":
        """As `log`, for reading only: None if nothing was ever written, so that reading
        creates no file.  Such a partition begins and ends at 0, in the epoch of its leader.
        """
        tp = TopicPartition(topic, partition)
        with self._lock:
            log = self._open_logs.get(tp)
            if log is not None:
                return log
            self._id(tp)
        state = self._manager.state  # says more where files were lost
        fresh = max(state.recovery_point(tp), state.log_start(tp)) <= 0
        if fresh and not self._manager.folders.written(tp):
            return None
        return self.log(topic, partition)

    def allow_reads(self, topic: str, partition: int) -> None:
        """Let the data plane answer reads of the partition; as `existing_log`, it creates no file.

        Raises: as `log`.
        """
        if self.existing_log(topic, partition) is not None:
            return
        tp = TopicPartition(topic, partition)
        with self._lock:
            self._id(tp)
            if tp not in self._open_logs:
                self._empty.add(tp)
                self._tell_empty(tp)
        self.existing_log(topic, partition)  # which may have been written since

    def _tell_empty(self, tp: TopicPartition) -> None:
        state = self._image.partition(*tp)
        durable = self.config(tp.topic).kafkalog_durability == "fsync"
        epoch = -1 if state is None else state.leader_epoch
        self._reactor.put_empty(*tp, leader_epoch=epoch, durable=durable)

    def _opened(self, tp: TopicPartition) -> None:
        """A log was opened, by any part of this process: readers of its partition must see what is
        written there."""
        with self._lock:
            if tp not in self._empty:
                return
        try:
            self.log(*tp)
        except (KafkalogError, OSError) as problem:
            _logger.warning("%s-%d: is not served: %s", *tp, problem)

    def offline(self, topic: str, partition: int) -> bool:
        """True if the partition's log failed recently, when it was opened or later.

        Metadata asks for each partition, and most often while roles change: it takes no lock for
        two reads of one value each.
        """
        tp = TopicPartition(topic, partition)
        if (log := self._open_logs.get(tp)) is not None:
            return has_failed(log)
        failed = self._offline.get(tp)
        return failed is not None and self._manager.clock.monotonic_s() < failed.until_s

    def unopened(self) -> int:
        """How many logs could not be opened at the last attempt."""
        with self._lock:
            return sum(self.offline(*tp) for tp in self._offline.keys() - self._open_logs)

    def any_offline(self) -> bool:
        """True if a log could not be opened, or went offline since."""
        with self._lock:
            failed = any(self.offline(*tp) for tp in self._offline)
            return failed or any(map(has_failed, self._open_logs.values()))

    def _fail(self, tp: TopicPartition, problem: Exception) -> None:
        reason = f"{tp.topic}-{tp.partition} cannot be opened: {problem}"
        with self._lock:
            until_s = self._manager.clock.monotonic_s() + (0 if passes(problem) else RETRY_S)
            known = self._offline.get(tp)
            self._offline[tp] = _Offline(reason, until_s)
            self._reactor.put_offline(*tp, True)
        if known is None or known.reason != reason:
            _logger.error("%s", reason)

    def _id(self, tp: TopicPartition) -> uuid.UUID:
        topic = self._image.topics.get(tp.topic)
        if topic is None or tp.partition not in topic.partitions or tp.topic == METADATA_TOPIC:
            raise self._unknown(tp)
        return topic.id

    def _unknown(self, tp: TopicPartition) -> UnknownTopicOrPartition:
        return UnknownTopicOrPartition(f"{self._manager.path}: no partition {tp[0]}-{tp[1]}")

    def _serve(self, tp: TopicPartition, log: "Log", leader_epoch: int) -> None:
        durable = self.config(tp.topic).kafkalog_durability == "fsync"
        self._reactor.put_partition(handle_of(log), leader_epoch=leader_epoch, durable=durable)
        self._open_logs[tp] = log
        self._empty.discard(tp)

    # ---- following the metadata ----------------------------------------------------------------

    def _introduce(self, topic: "Topic") -> None:
        if topic.name != METADATA_TOPIC:
            config = self.config(topic.name)
            self._reactor.put_topic(
                topic.name, topic.id, look_inside=looks_inside(config),
                internal=topic.name in INTERNAL_TOPICS, zstd=config.compression_type == "zstd",
                compress=compresses(config), timed=_is_timed(config),
            )  # fmt: skip

    def _changed(self, change: "Change") -> None:
        old, new = change.old, change.new
        with self._lock:
            self._image = new
            for topic in change.gone:
                self._each(topic.name, self._remove, topic)
                _logger.info("topic %s: deleted", topic.name)
            changed = {topic.name for topic in change.changed if topic.id not in old.names}
            if change.resources:
                _tell_settings(change)
                found = changed_topics(change)
                changed.update(new.topics if None in found else (n for n in found if n))
            for name in changed:
                self._configs.pop(name, None)
            for name in changed & new.topics.keys():
                self._each(name, self._introduce, new.topics[name])
            _tell_partitions(old, change.changed)
            self._update_roles(new, changed | self._topics_with_roles(change))

    def _topics_with_roles(self, change: "Change") -> set[str]:
        """Topics whose leaders the metadata names."""
        return {topic.name for topic in change.changed}

    @staticmethod
    def _each(name: str, follow: Callable[["Topic"], None], topic: "Topic") -> None:
        """A topic that cannot follow the metadata does not stop later ones from following it."""
        try:
            follow(topic)
        except Exception:
            _logger.exception("topic %s: does not follow the metadata", name)

    def _update_roles(self, new: "MetadataImage", changed: Iterable[str]) -> None:
        """Pass new leader epochs and a changed durability to the data plane."""
        found = [new.topics[name] for name in changed if name in new.topics]
        for tp, now in [(TopicPartition(topic.name, n), p)
                        for topic in found for n, p in topic.partitions.items()]:  # fmt: skip
            log = self._open_logs.get(tp)
            if log is not None:
                try:
                    self._serve(tp, log, now.leader_epoch)
                except KafkalogError as problem:  # as for a log that went offline
                    _logger.error("%s-%d: keeps its previous role: %s", *tp, problem)
            elif tp in self._empty:
                self._tell_empty(tp)

    def _remove(self, topic: "Topic") -> None:
        self._configs.pop(topic.name, None)
        gone = [TopicPartition(topic.name, number) for number in topic.partitions]
        self.on_resignation(gone)
        for tp in gone:
            self._open_logs.pop(tp, None)
            self._empty.discard(tp)
            self._offline.pop(tp, None)
        # Appends have ended and waiting requests are answered; then the metadata deletes the files.
        self._reactor.remove_topic(topic.name)


def has_failed(log: "Log") -> bool:
    """True if an open log went offline; a log that is being closed did not."""
    try:
        return bool(handle_of(log).state().offline)
    except KafkalogError:
        return False


# ---- what an operator reads --------------------------------------------------------------------


def _tell_recovery(log: "Log") -> None:
    found = log.recovery
    if found.truncated_bytes:
        _logger.warning(
            "%s-%d: recovered: cut %d bytes that were no whole batch; it ends at offset %d",
            log.topic, log.partition, found.truncated_bytes, log.end_offset,
        )  # fmt: skip
    elif found.segments_recovered:
        _logger.info(
            "%s-%d: recovered whole, to offset %d", log.topic, log.partition, log.end_offset
        )


def _tell_partitions(old: "MetadataImage", changed: Iterable["Topic"]) -> None:
    for topic in changed:
        before = old.topics.get(topic.name)
        if before is None or before.id != topic.id:
            _logger.info("topic %s: created with %d partitions", topic.name, len(topic.partitions))
        elif len(before.partitions) != len(topic.partitions):
            _logger.info("topic %s: has %d partitions", topic.name, len(topic.partitions))


_KINDS = {TOPIC: "topic", BROKER: "broker", CLIENT_METRICS: "client metrics", GROUP: "group"}


def _tell_settings(change: "Change") -> None:
    old, new = change.old, change.new
    for kind, name in change.resources:
        before, now = old.config(kind, name), new.config(kind, name)
        what = f"{_KINDS.get(kind, kind)} {name or 'default'}"
        gone = kind == TOPIC and name not in new.topics
        for setting in () if gone else sorted({*before, *now}):
            if before.get(setting) != now.get(setting):
                value = now.get(setting, "its default")
                _logger.info(
                    "%s: %s is %s", what, setting, "hidden" if is_sensitive(setting) else value
                )
