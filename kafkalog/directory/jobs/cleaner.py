"""Compaction in the background: the log with the most dirty bytes first."""

import os
from collections.abc import Callable
from functools import partial

from kafkalog.config.broker import BrokerConfig
from kafkalog.directory.jobs.place import Place
from kafkalog.directory.scheduler import Job, Scheduler
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import Closed, Locked, StaleLog, UnknownTopicOrPartition, passes
from kafkalog.log.compaction import Cleanable, Limits, Throttle, compact, due, filthiest, look
from kafkalog.log.handle import Handle
from kafkalog.logs.limit import limited
from kafkalog.types import TopicPartition

__all__ = ["Cleaner"]

_logger = limited(__name__)


class Cleaner:
    """Compacts the logs of a data directory, dirtiest first, in its own thread.

    A log whose compaction failed is skipped until the directory is opened again; a log that
    lacked space, memory or a descriptor is retried.
    """

    def __init__(self, place: Place) -> None:
        """The thread starts with `start`, if log.cleaner.enable says so."""
        self._place = place
        config = place.config
        self._throttle = Throttle(config.log_cleaner_io_max_bytes_per_second, place.clock)
        self._limits = self._limits_of(config)
        self._failures: dict[TopicPartition, Exception] = {}
        self._wanting: dict[TopicPartition, Exception] = {}  # temporary failures at the last try
        self._stopping = False
        self._backoff_ms = backoff_ms = config.log_cleaner_backoff_ms
        delay_ms = min(config.log_initial_task_delay_ms, backoff_ms)
        name = f"kafkalog cleaner {os.path.basename(place.path)}"
        job = Job("compaction", self.run, max(backoff_ms, 1), delay_ms)
        self._scheduler = Scheduler(name, place.clock, [job])

    @property
    def failures(self) -> dict[str, Exception]:
        """The failures, by partition; these are skipped, except those that are temporary."""
        both = {**self._wanting, **self._failures}
        return {f"compaction of {tp[0]}-{tp[1]}": e for tp, e in both.items()}

    def start(self) -> None:
        """Start the thread."""
        if self._place.config.log_cleaner_enable:
            self._scheduler.start()

    def stop(self) -> None:
        """Stop the thread; a round in progress is abandoned.  Idempotent."""
        self._stopping = True
        self._throttle.stop()
        self._scheduler.stop()

    def _limits_of(self, config: BrokerConfig) -> Limits:
        return Limits(
            config.log_cleaner_dedupe_buffer_size,
            config.log_cleaner_io_buffer_load_factor,
            self._throttle,
        )

    def _obey(self, config: BrokerConfig) -> None:
        """Settings may have changed since the last run."""
        self._throttle.set_rate(config.log_cleaner_io_max_bytes_per_second)
        self._limits = self._limits_of(config)
        if config.log_cleaner_backoff_ms != self._backoff_ms:
            self._backoff_ms = config.log_cleaner_backoff_ms
            self._scheduler.set_period("compaction", max(self._backoff_ms, 1))

    def run(self) -> None:
        """Compact until no log needs it."""
        self._obey(self._place.config)
        passed: set[TopicPartition] = set()
        while not self._stopping:
            found: dict[TopicPartition, Cleanable] = {}
            for tp in self._compacted():
                if tp not in passed:
                    self._try(tp, passed, partial(self._look, tp=tp, found=found))
            due_still = found.keys() | passed
            self._wanting = {tp: e for tp, e in self._wanting.items() if tp in due_still}
            best = filthiest(found)
            if best is None:
                return
            if self._try(best, passed, partial(compact, limits=self._limits, rounds=1)):
                self._wanting.pop(best, None)

    def _compacted(self) -> list[TopicPartition]:
        """The partitions whose settings want compaction."""
        place = self._place
        configs = {log.tp: log.config for log in place.handles()}
        return [
            tp
            for tp in place.partitions()
            if tp.topic != METADATA_TOPIC
            and "compact" in (configs.get(tp) or place.topic_config(tp.topic)).cleanup_policy
            and tp not in self._failures
            and (tp in configs or place.folders.written(tp))
        ]

    def _look(
        self, log: Handle, tp: TopicPartition, found: dict[TopicPartition, Cleanable]
    ) -> None:
        one = look(log)
        if due(one, log.config, self._place.clock.now_ms()):
            found[tp] = one

    def _try(
        self, tp: TopicPartition, passed: set[TopicPartition], work: Callable[[Handle], object]
    ) -> bool:
        """Compact it; returns whether it was done.  A failure only affects its own log."""
        try:
            work(self._place.handle(tp))
            return True
        except (Closed, Locked, StaleLog, UnknownTopicOrPartition):
            passed.add(tp)  # others are working on it, or it is being deleted: until the next check
        except Exception as error:
            if passes(error):
                passed.add(tp)
                if tp not in self._wanting:
                    _logger.error("compaction of %s-%d has to wait: %s", *tp, error)
                self._wanting[tp] = error
                return False
            _logger.exception("compaction of %s-%d failed; it is skipped from now on", *tp)
            self._failures[tp] = error
        return False
