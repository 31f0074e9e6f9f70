"""The logs of a directory that are open, and who opens, creates or removes one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from kafkalog.log.handle import Handle
from kafkalog.log.log import Log, log_over
from kafkalog.types import TopicPartition

__all__ = ["OpenLogs"]


class OpenLogs:
    """At most one thread opens, creates or removes a partition's log.  Safe from many threads."""

    def __init__(self, check: Callable[[], None]) -> None:
        """`check` raises if the directory can no longer be used; it is called under the lock."""
        self._check = check
        self._changed = threading.Condition()  # guards what follows; told of releases
        self.openings = 0
        """How often a log was opened."""
        self._handles: dict[TopicPartition, Handle] = {}
        self._logs: dict[TopicPartition, Log] = {}  # those that users have of these
        self._reserved: set[TopicPartition] = set()
        self._recovered: set[TopicPartition] = set()  # opened at least once, or created
        self._whole: set[TopicPartition] = set()  # of these, closed without a failure
        self._tainted = False  # a log was closed with a failure

    # ---- opening ---------------------------------------------------------------------------

    def reserve(self, tp: TopicPartition) -> Handle | None:
        """The open log; otherwise None, and until `release` nobody else opens, creates or removes
        it.

        Raises: as `check`.
        """
        with self._changed:
            while True:
                self._check()
                handle = self._handles.get(tp)
                if handle is not None and not handle.ending:
                    return handle
                if handle is None and tp not in self._reserved:
                    self._reserved.add(tp)
                    return None
                self._changed.wait()

    def release(self, tp: TopicPartition) -> None:
        """End a reservation, if there is one."""
        with self._changed:
            if tp in self._reserved:
                self._reserved.discard(tp)
                self._changed.notify_all()

    def add(self, handle: Handle) -> None:
        """A reserved log is open."""
        with self._changed:
            self._handles[handle.tp] = handle
            self.openings += 1
            self._recovered.add(handle.tp)
            self.release(handle.tp)

    def remove(self, tp: TopicPartition, whole: bool) -> None:
        """A log was closed, `whole`: without a failure; or it could not be opened."""
        with self._changed:
            was_open = self._handles.pop(tp, None) is not None
            self._logs.pop(tp, None)
            if was_open and whole:
                self._whole.add(tp)
            elif was_open:
                self._whole.discard(tp)
                self._recovered.discard(tp)
                self._tainted = True
            self.release(tp)

    def log(self, handle: Handle, mine: bool) -> Log | None:
        """The one Log of an open handle; None: its last user has just closed it.  `mine`: the
        caller is a user of the handle, and is no more if another thread's Log is returned."""
        with self._changed:
            log = self._logs.get(handle.tp)
            if log is None or log.closed:
                if not mine and not handle.take():
                    return None
                log = self._logs[handle.tp] = log_over(handle)
                return log
        if mine:  # another thread was faster
            handle.give_back()
        return log

    def handles(self) -> tuple[Handle, ...]:
        """The open logs, in the order of topics and partitions."""
        with self._changed:
            return tuple(self._handles[tp] for tp in sorted(self._handles))

    # ---- recovery --------------------------------------------------------------------------

    def created(self, tps: Iterable[TopicPartition]) -> None:
        """New partitions: they have nothing to recover."""
        with self._changed:
            self._recovered.update(tps)

    def deleted(self, tps: Collection[TopicPartition]) -> None:
        """Partitions that are gone."""
        with self._changed:
            self._recovered.difference_update(tps)
            self._whole.difference_update(tps)

    def closed_whole(self, tp: TopicPartition) -> bool:
        """True if a log was closed without a failure since the directory was opened."""
        return tp in self._whole

    def recovered(self, tps: Iterable[TopicPartition]) -> bool:
        """True if all of these were opened, and none of any was closed with a failure."""
        with self._changed:
            return self._recovered.issuperset(tps) and not self._tainted

    # ---- the end ---------------------------------------------------------------------------

    def end(self, begin: Callable[[], bool]) -> bool:
        """Call `begin`, after which `check` raises; if it returns True, wait until nothing is
        reserved."""
        with self._changed:
            begun = begin()
            while begun and self._reserved:
                self._changed.wait()
            return begun
