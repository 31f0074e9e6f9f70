"""Calls that other threads hand to a client's own thread, which makes them between its turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkalog import errors
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import passing
from kafkalog.client.producer.background_calls import Line

__all__ = ["Tasks"]


class _Task:
    """One call, retried after transient failures."""

    def __init__(
        self, call: Callable[[Cluster], Any], aside: bool, until_s: float, pause_s: float
    ) -> None:
        self.call = call
        self.aside = aside
        self.in_line = False
        """It is being made in the line."""
        self.until_s = until_s
        self.pause_s = pause_s
        self.next_s = 0.0
        self.started = False
        """The thread makes it now, or has made an attempt."""
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def timed(self, cluster: Cluster) -> Any:
        """The call, within the time that is left.

        Raises: Timeout: no time is left, and no thread would read the answer.
        """
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise errors.Timeout("the producer's thread did not make this call in time")
        with cluster.patience.within(left_s):
            return self.call(cluster)


class Tasks:
    """The calls that wait for the thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake`: the thread."""
        self._wake = wake
        self._lock = threading.Lock()  # guards what follows
        self._waiting: list[_Task] = []
        self._closed: errors.KafkalogError | None = None

    def ask(self, call: Callable[[Cluster], Any], timeout_s: float, aside: bool = False) -> Any:
        """The result of `call` in the thread, or, with `aside`, in its line: it asks a broker.
        Transient failures are retried.

        At most `timeout_s` in total.  Raises: the last failure; Timeout; Closed.
        """
        task = _Task(call, aside, time.monotonic() + timeout_s, 0.02)
        with self._lock:
            if self._closed is not None:
                raise self._closed
            self._waiting.append(task)
        self._wake()
        if not task.done.wait(min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)):
            with self._lock:
                if not task.started and task in self._waiting:  # the thread is busy
                    self._waiting.remove(task)
                    raise errors.Timeout(
                        f"the producer's thread did not make this call in {timeout_s * 1000:.0f} ms"
                    )
            task.done.wait()  # the call ends at the same time limit
        if task.error is not None:
            raise task.error
        return task.result

    def run(self, now_s: float, line: Line) -> float:
        """The thread's turn: make the calls that are due; returns when the next is."""
        with self._lock:
            due = [task for task in self._waiting if task.next_s <= now_s and not task.in_line]
        for task in due:
            with self._lock:
                if task not in self._waiting:
                    continue  # no thread waits for it any more
                task.started |= not task.aside or line.free
            if not task.aside:
                try:
                    found = task.call(line.cluster)
                except BaseException as problem:
                    self._ended(task, line.cluster, None, problem)
                else:
                    self._ended(task, line.cluster, found, None)
            elif line.free:
                task.in_line = True
                line.begin(task.timed, partial(self._ended, task, line.cluster))
            elif now_s >= task.until_s:
                late = errors.Timeout("a broker did not answer an earlier request in time")
                self._ended(task, line.cluster, None, late)
        with self._lock:
            # A task that is due waits until the line is free, which rings, or until its time is up.
            waits_s = [
                task.next_s if task.next_s > now_s else task.until_s
                for task in self._waiting
                if not task.in_line
            ]
        return min(waits_s, default=now_s + 3600)

    def _ended(
        self, task: _Task, cluster: Cluster, result: Any, problem: BaseException | None
    ) -> None:
        task.in_line = False
        if isinstance(problem, errors.KafkalogError):
            # No retries if the transaction can only be aborted.
            passes = passing(problem) and not problem.abortable
            next_s = time.monotonic() + task.pause_s
            if passes and cluster.reached and next_s < task.until_s:
                cluster.forget_coordinators()
                task.next_s = next_s
                task.pause_s = min(task.pause_s * 2, 1.0)
                return
        task.result, task.error = result, problem
        with self._lock:
            if task in self._waiting:
                self._waiting.remove(task)
        task.done.set()

    def close(self, why: errors.KafkalogError) -> None:
        """The thread has ended: fail the calls that wait."""
        with self._lock:
            self._closed = why
            left, self._waiting = self._waiting, []
        for task in left:
            task.error = why
            task.done.set()
