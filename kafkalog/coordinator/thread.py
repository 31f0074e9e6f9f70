"""The group coordinator's thread: a queue of events in front of the core.

One thread runs the core, so nothing in it is locked.  Requests come from any thread and wait
in a bounded queue; outcomes of appends and loaded partitions come in front of no one and are
never refused.  Answers and appends of a round are carried out after all its events were
taken, so that requests that come together share one batch of the journal.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from kafkalog.coordinator import loader, partitions
from kafkalog.coordinator.core import ANY_PARTITION, Append, Core
from kafkalog.coordinator.shard import Shard
from kafkalog.coordinator.step import Answer, Body, Request, Step
from kafkalog.errors import KafkalogError
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.clock import Clock
    from kafkalog.config.group import GroupConfig
    from kafkalog.coordinator.journal import Journal
    from kafkalog.wire.api import Api

__all__ = ["SERVED", "Coordinator"]

LOG = logging.getLogger(__name__)

SERVED = frozenset(
    {
        apis.JOIN_GROUP,
        apis.SYNC_GROUP,
        apis.HEARTBEAT,
        apis.LEAVE_GROUP,
        apis.OFFSET_COMMIT,
        apis.OFFSET_FETCH,
        apis.OFFSET_DELETE,
        apis.DESCRIBE_GROUPS,
        apis.LIST_GROUPS,
        apis.DELETE_GROUPS,
    }
)
"""The APIs that `submit` takes."""
QUEUED_MAX = 10_000

Event = Callable[[Step], None]


class _Once:
    """An answer that goes out once, whatever happens."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        self._answer: Answer | None = answer

    def __call__(self, body: Body) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(body)


class Coordinator:
    """The classic groups of this broker.  All methods may be called from any thread."""

    def __init__(
        self,
        journal: Journal,
        config: GroupConfig,
        clock: Clock,
        *,
        topic_partitions: Callable[[str], int] = lambda _name: ANY_PARTITION,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        """`topic_partitions`: how many partitions a topic has (0: there is none of the name),
        for offsets to be committed; called on the coordinator's thread.  `new_id` makes the
        unique part of member ids.
        """
        self._journal = journal
        self._config = config
        self._clock = clock
        self._core = Core(config, new_id, topic_partitions)
        self._wake = threading.Condition()  # guards what follows
        self._requests: deque[Event] = deque()
        self._events: deque[Event] = deque()  # all others
        self._to_load: deque[int] = deque()
        self._loader: threading.Thread | None = None
        self._closing = False
        self._gives_up = False
        self._partition_count = 0
        self._appending = 0  # the coordinator's thread only
        self._thread = threading.Thread(target=self._run, name="group-coordinator", daemon=True)

    def start(self) -> None:
        """Begin to answer requests."""
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Answer what waits, commits when they are in the journal, and end the thread.

        After `timeout_s`, which no injected clock stretches, what is still on its way into
        the journal is answered with NOT_COORDINATOR; so are members that wait for a rebalance.
        """
        with self._wake:
            self._closing = True
            self._to_load.clear()
            self._wake.notify_all()
            reading = self._loader
        if self._thread.is_alive():
            self._thread.join(timeout_s)
            with self._wake:
                self._gives_up = True
                self._wake.notify_all()
            self._thread.join()
        if reading is not None:
            reading.join()

    # ---- partitions ------------------------------------------------------------------------

    def load(self, partition_ids: Iterable[int], partition_count: int) -> None:
        """This broker now coordinates these partitions of __consumer_offsets, which has
        `partition_count` of them: read their groups.

        Requests are answered with COORDINATOR_LOAD_IN_PROGRESS until that is done.
        """
        found = list(partition_ids)
        with self._wake:
            self._partition_count = partition_count
            for partition in found:
                self._events.append(partial(self._begin_load, partition, partition_count))
            self._to_load.extend(found)
            if self._to_load and self._loader is None and not self._closing:
                self._loader = threading.Thread(target=self._read, name="group-loader", daemon=True)
                self._loader.start()
            self._wake.notify_all()

    def resign(self, partition: int) -> None:
        """This broker no longer coordinates a partition."""
        self._post(partial(self._core.resign, partition))

    def partition_for(self, group_id: str) -> int | None:
        """The partition that a group belongs to; None while there is no topic for it."""
        with self._wake:
            count = self._partition_count
        return partitions.partition_for(group_id, count) if count else None

    def topics_deleted(self, names: Collection[str]) -> None:
        """Forget the offsets that were committed for topics that are no more."""
        self._post(partial(self._core.drop_topics, frozenset(names)))

    # ---- requests --------------------------------------------------------------------------

    def submit(self, api: Api, request: Request) -> None:
        """Take a request of an API in SERVED; its answer is called once, in this thread or in
        the coordinator's, now or later.

        Waits while too many requests are queued.
        """
        request = request._replace(answer=_Once(request.answer))
        event = partial(self._request, api, request)
        with self._wake:
            while len(self._requests) >= QUEUED_MAX and not self._closing:
                self._wake.wait()
            if not self._closing:
                if not self._requests and not self._events:
                    self._wake.notify_all()
                self._requests.append(event)
                return
        step = Step(0, 0)
        self._core.refuse(api, request, step, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._give(step)

    def _request(self, api: Api, request: Request, step: Step) -> None:
        try:
            self._core.request(api, request, step)
        except Exception:
            LOG.exception("%s v%d: an error of the coordinator", api.name, request.version)
            self._core.refuse(api, request, step, ErrorCode.UNKNOWN_SERVER_ERROR)

    # ---- the thread ------------------------------------------------------------------------

    def _post(self, event: Event) -> None:
        with self._wake:
            self._events.append(event)
            self._wake.notify_all()

    def _step(self) -> Step:
        # The tiny addend: 1.001 s must not become 1000 ms.
        now_ms = math.floor(self._clock.monotonic_s() * 1000 + 1e-6)
        return Step(now_ms, self._clock.now_ms())

    def _run(self) -> None:
        while True:
            events, closing = self._next()
            step = self._step()
            for event in events:
                self._guarded(event, step)
            self._guarded(self._core.tick, step)
            self._finish(step)
            if closing and self._may_end():
                break
        step = self._step()
        self._core.stopped = True
        for partition in [*self._core.shards, *self._core.loading]:
            self._core.resign(partition, step)
        self._finish(step)

    def _next(self) -> tuple[list[Event], bool]:
        """The events that came; waits for one, for a timer or for the end."""
        with self._wake:
            while not self._events and not self._requests:
                timer_ms = self._core.timers.next_ms()
                until_s = None if timer_ms is None else timer_ms / 1000
                if self._closing and (not self._appending or self._gives_up):
                    break
                if until_s is not None and self._clock.monotonic_s() >= until_s:
                    break
                self._clock.wait_until(self._wake, until_s)
            # Outcomes first: what they allow is older than any request.
            events = [*self._events, *self._requests]
            self._events.clear()
            self._requests.clear()
            self._wake.notify_all()
            return events, self._closing

    def _may_end(self) -> bool:
        with self._wake:
            if self._events or self._requests:
                return False
            return not self._appending or self._gives_up

    @staticmethod
    def _guarded(event: Event, step: Step) -> None:
        """Run an event; an error of ours ends neither the thread nor the others' turn."""
        try:
            event(step)
        except Exception:
            LOG.exception("an error of the coordinator")

    def _finish(self, step: Step) -> None:
        """Carry out what a round led to."""
        while step.writes:
            for append in self._core.appends(step):
                self._append(append, step)
        self._give(step)

    def _append(self, append: Append, step: Step) -> None:
        self._appending += 1
        done = partial(self._done, append.number)
        try:
            self._journal.append(append.partition, append.records, done)
        except KafkalogError as error:
            code = -1 if error.code is None else error.code
            self._settled(append.number, ErrorCode(code), step)

    def _done(self, number: int, error: ErrorCode) -> None:
        self._post(partial(self._settled, number, error))

    def _settled(self, number: int, error: ErrorCode, step: Step) -> None:
        self._appending -= 1
        self._core.settled(number, error, step)

    @staticmethod
    def _give(step: Step) -> None:
        for answer, body in step.answers:
            try:
                answer(body)
            except Exception:
                LOG.exception("an answer could not be given")

    # ---- loading ---------------------------------------------------------------------------

    def _begin_load(self, partition: int, partition_count: int, _step: Step) -> None:
        self._core.begin_load(partition, partition_count)

    def _read(self) -> None:
        """The loader's thread: one partition after the other."""
        while True:
            with self._wake:
                if not self._to_load:
                    self._loader = None
                    return
                partition = self._to_load.popleft()
            shard = self._core.new_shard(partition)
            try:
                loader.load(shard, self._journal.read(partition), self._clock.now_ms())
            except Exception:
                LOG.exception("__consumer_offsets-%d: its groups cannot be read", partition)
                self._post(partial(self._core.resign, partition))
            else:
                self._post(partial(self._end_load, shard))

    def _end_load(self, shard: Shard, step: Step) -> None:
        self._core.end_load(shard, step)
