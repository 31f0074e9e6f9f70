"""A coordinator at work: a queue of events in front of its core.

One thread at a time runs the core, so it needs no locks.  A thread that brings a request runs it
if nobody else does, since switching threads costs more than most requests; otherwise the current
runner takes the request along.  The coordinator's own thread runs timers, and what others leave.
Requests wait in a bounded queue; outcomes of appends and loaded partitions overtake nothing and are
never refused.  Answers and appends of a round are carried out after all its events, so that
concurrent requests share one batch of the journal.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafkalog.coordinator.core import Append, CoordinatorState
from kafkalog.coordinator.step import Answer, Body, Call, Step
from kafkalog.errors import CorruptLog, CorruptMessage, KafkalogError, NotLeaderOrFollower
from kafkalog.logs.limit import limited
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.clock import Clock
    from kafkalog.coordinator.journal import Journal
    from kafkalog.wire.api import Api

__all__ = ["Coordinator", "Event"]

LOG = limited(__name__)

QUEUED_BYTES_MAX = 67_108_864
"""Limit for queued requests and those of the round in progress: beyond it the next one waits."""
REQUEST_BYTES = 2_000
"""Bytes of a request besides its decoded body.  Measured, and rounded up."""
FEW = 8
"""Up to this many effects of a step, each may take as long as an append."""
ROUNDS = 32
"""How long a thread that brought a request may run the core for others, too."""
UNSTARTED = -1
"""No thread's number."""

Event = Callable[[Step], None]
C = TypeVar("C", bound=CoordinatorState[Any])


class _Once:
    """An answer that is sent once, whatever happens."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        self._answer: Answer | None = answer

    def __call__(self, body: Body) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(body)


class Coordinator(Generic[C]):
    """The coordinator of one kind.  All methods may be called from any thread."""

    def __init__(
        self,
        core: C,
        journal: Journal,
        clock: Clock,
        *,
        name: str,
        carry_out: Callable[[Any, bool], None] = lambda _effect, _few: None,
    ) -> None:
        """`name`: of its thread, and of its journal in messages; `carry_out` performs a step's
        outside effects on the thread that runs the core, which it must not delay; it also gets
        whether the effect is one of FEW.
        """
        self.core = core
        """The core's state: `post` what is to happen to it."""
        self.borrows = True
        """True if the calling thread may run its request itself; see `ask`."""
        self._journal = journal
        self._clock = clock
        self._name = name
        self._carry_out = carry_out
        self._wake = threading.Condition()  # guards what follows
        self._requests: deque[Event] = deque()
        self._held_bytes = 0  # of requests that have not run
        self._round_bytes = 0  # of these, in the round in progress
        self._events: deque[Event] = deque()  # all others
        self._to_load: deque[tuple[int, int]] = deque()
        self._loader: threading.Thread | None = None
        self._unread: set[int] = set()  # the loader's thread only
        self._closing = False
        self._gives_up = False
        self._runner: int | None = UNSTARTED
        """The thread that runs the core, and owns its state; None: no thread does."""
        self._sleeps_ms = math.inf  # until then the coordinator's thread needs no timer
        self._appending = 0  # only for the runner, like the next one
        self._settling: list[Event] = []  # outcomes known before an append returned
        self._thread = threading.Thread(target=self._run, name=f"{name}-coordinator", daemon=True)

    def start(self) -> None:
        """Start answering requests."""
        with self._wake:
            self._runner = None
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Answer waiting requests, send commits once they are in the journal, finish what was
        decided, and end the thread.

        After `timeout_s` (not affected by an injected clock), requests that are still being written
        to the journal are answered with NOT_COORDINATOR; so are members that wait for a rebalance.
        What is unfinished then is finished when the journal is next read.
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

    def load(self, epochs: Mapping[int, int], partition_count: int) -> None:
        """This broker now coordinates these partitions of the journal, each in its leader epoch;
        the journal has `partition_count` of them.  They are read now.

        Requests are answered with COORDINATOR_LOAD_IN_PROGRESS until that is done.
        """
        with self._wake:
            for partition, epoch in epochs.items():
                begin = partial(self._begin_load, partition, partition_count, epoch)
                self._events.append(begin)
            self._look(epochs)
            self._wake.notify_all()

    def _look(self, epochs: Mapping[int, int]) -> None:
        """Read these, which the core knows or soon will.  The caller holds the lock."""
        self._to_load.extend(epochs.items())
        if self._to_load and self._loader is None and not self._closing:
            self._begin_loader()

    def _begin_loader(self) -> None:
        """The caller holds the lock."""
        name = f"{self._name}-loader"
        loader = threading.Thread(target=self._read, name=name, daemon=True)
        try:
            loader.start()
        except RuntimeError as problem:  # no thread can be started now: retried
            LOG.error("%s: %s", name, problem)
            self._events += [partial(self.core.not_loaded, *one) for one in self._to_load]
            self._to_load.clear()
        else:
            self._loader = loader

    def lead_on(self, partition: int, epoch: int) -> None:
        """This broker still coordinates a partition, in a later epoch, and nobody else did in
        between: its state is still valid."""
        self.post(partial(self.core.lead_on, partition, epoch))

    def leads(self, partition: int, epoch: int) -> None:
        """The log of a journal partition is now led here in this epoch: a read that came too early
        is repeated immediately."""
        self.post(partial(self.core.leads, partition, epoch))

    def resign(self, partition: int) -> None:
        """This broker no longer coordinates a partition."""
        self.post(partial(self.core.resign, partition))

    def post(self, event: Event) -> None:
        """Run an event in the core before any waiting request."""
        with self._wake:
            self._post(event)

    def _post(self, event: Event) -> None:
        """The caller holds the lock."""
        self._events.append(event)
        if self._runner is None:
            self._wake.notify_all()

    # ---- requests --------------------------------------------------------------------------

    def submit(self, api: Api, request: Call, *, here: bool = False) -> None:
        """Take a request of an API that the core serves; its `answer` is called once, in this
        thread or another one, now or later.

        Waits while requests of QUEUED_BYTES_MAX are queued.  `here`: see `ask`.
        """
        request = request._replace(answer=_Once(request.answer))
        if not self.ask(partial(self._request, api, request), request.size, here=here):
            step = Step(0, 0)
            self.core.refuse(api, request, step, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._give(step)

    def ask(self, event: Event, size: int, *, here: bool = False, bounded: bool = False) -> bool:
        """Run an event in the core in its turn, like a request; False if it never will.  `size`:
        the memory that it keeps, in bytes.

        Waits while requests of QUEUED_BYTES_MAX are queued, unless `bounded`: the caller itself
        bounds the bytes of its events, and may be inside a step of this coordinator.  `here`: it
        may run in the calling thread before this returns, together with requests that others
        bring; so that thread must not be inside a coordinator's step, and must hold no lock.
        """
        with self._wake:
            while not bounded and self._held_bytes >= QUEUED_BYTES_MAX and not self._closing:
                self._wake.wait()
            if self._closing:
                return False
            self._requests.append(event)
            self._held_bytes += REQUEST_BYTES + size
            runs = here and self.borrows and self._runner is None
            if runs:
                self._runner = threading.get_ident()
            elif self._runner is None:
                self._wake.notify_all()
        if runs:
            self._work(ROUNDS)
        return True

    def _request(self, api: Api, request: Call, step: Step) -> None:
        try:
            self.core.request(api, request, step)
        except Exception:
            LOG.exception("%s v%d: an error of the coordinator", api.name, request.version)
            self.core.refuse(api, request, step, ErrorCode.UNKNOWN_SERVER_ERROR)

    # ---- the thread ------------------------------------------------------------------------

    def _step(self) -> Step:
        # The tiny addend: 1.001 s must not become 1000 ms.
        now_ms = math.floor(self._clock.monotonic_s() * 1000 + 1e-6)
        return Step(now_ms, self._clock.now_ms())

    def _run(self) -> None:
        while self._wait():
            self._work()
        step = self._step()
        self.core.stopped = True
        for partition in [*self.core.shards, *self.core.loading]:
            self.core.resign(partition, step)
        self._finish(step)

    def _wait(self) -> bool:
        """Wait until there is work and no runner, and become the runner; False: this thread shall
        end."""
        with self._wake:
            while True:
                until_s = None
                if self._runner is None:
                    idle, until_s = self._idle()
                    if not idle or (self._closing and self._settled_all()):
                        self._runner = threading.get_ident()
                        return not idle
                self._sleeps_ms = math.inf if until_s is None else until_s * 1000
                self._clock.wait_until(self._wake, until_s)
                self._sleeps_ms = 0

    def _idle(self) -> tuple[bool, float | None]:
        """True if there is no work, and the time of the next timer.  The caller is the runner and
        holds the lock."""
        timer_ms = self.core.timers.next_ms()
        until_s = None if timer_ms is None else timer_ms / 1000
        idle = not self._events and not self._requests
        return idle and (until_s is None or self._clock.monotonic_s() < until_s), until_s

    def _work(self, rounds: int | None = None) -> None:
        """Run the core, as the runner, while there is work, for at most a number of rounds; then
        stop being the runner."""
        done = 0
        try:
            while (events := self._next(done == rounds)) is not None:
                step = self._step()
                for event in events:
                    self._guarded(event, step)
                self._guarded(self.core.tick, step)
                self._finish(step)
                done += 1
        except BaseException:
            with self._wake:
                if self._runner == threading.get_ident():  # the next one continues
                    self._end_round()
                    self._runner = None
                    self._wake.notify_all()
            raise

    def _next(self, enough: bool) -> list[Event] | None:
        """The pending events; None if there are none or `enough` was done, and another thread may
        become the runner."""
        with self._wake:
            self._end_round()
            idle, until_s = self._idle()
            if idle or enough:
                self._runner = None
                timer_ms = math.inf if until_s is None else until_s * 1000
                if not idle or self._closing or timer_ms < self._sleeps_ms:
                    self._wake.notify_all()
                return None
            self._round_bytes = self._held_bytes
            # Outcomes first: they precede every request that they allow.
            events = [*self._events, *self._requests]
            self._events.clear()
            self._requests.clear()
            return events

    def _end_round(self) -> None:
        """Its requests keep no memory any more.  The caller holds the lock."""
        if self._held_bytes >= QUEUED_BYTES_MAX:
            self._wake.notify_all()
        self._held_bytes -= self._round_bytes
        self._round_bytes = 0

    def _settled_all(self) -> bool:
        """True if every decision is carried out and nothing waits.  The caller is the runner and
        holds the lock."""
        return self._gives_up or not (self._appending or self.core.unfinished)

    @staticmethod
    def _guarded(event: Event, step: Step) -> None:
        """Run an event; an error of ours ends neither the thread nor the others' events."""
        try:
            event(step)
        except Exception:
            LOG.exception("an error of the coordinator")

    def _finish(self, step: Step) -> None:
        """Carry out the effects of a round."""
        while step.writes:
            for append in self.core.appends(step):
                self._append(append, step)
            settling, self._settling = self._settling, []
            for event in settling:
                self._guarded(event, step)
        if step.loads:
            # The core began these.  It hears of later metadata itself, and drops the result of a
            # read that is out of date.
            with self._wake:
                self._look(dict(step.loads))
        self._give(step)  # only effects that are notified wait for others
        effects, step.effects = step.effects, []
        for effect in effects:
            try:
                self._carry_out(effect, len(effects) <= FEW)
            except Exception:
                LOG.exception("an effect of a step")

    def _append(self, append: Append, step: Step) -> None:
        self._appending += 1
        done = partial(self._done, append.number)
        try:
            self._journal.append(
                append.partition, append.epoch, append.records, done, append.producer
            )
        except KafkalogError as error:
            code = ErrorCode(-1 if error.code is None else error.code)
            self._guarded(partial(self._settled, append.number, code), step)
        except Exception:  # no memory for the batch: the thread serves all others, too
            LOG.exception("an append failed")
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            self._guarded(partial(self._settled, append.number, code), step)

    def _done(self, number: int, error: ErrorCode, base_offset: int = -1) -> None:
        event = partial(self._settled, number, error, base_offset=base_offset)
        with self._wake:
            # After outcomes that wait for their turn: those of a partition keep their order.
            if self._runner == threading.get_ident() and not self._events:
                self._settling.append(event)
            else:
                self._post(event)

    def _settled(self, number: int, error: ErrorCode, step: Step, base_offset: int = -1) -> None:
        self._appending -= 1
        self.core.settled(number, error, step, base_offset)

    @staticmethod
    def _give(step: Step) -> None:
        for answer, body in step.answers:
            try:
                answer(body)
            except Exception:
                LOG.exception("an answer failed")

    # ---- loading ---------------------------------------------------------------------------

    def _begin_load(self, partition: int, partition_count: int, epoch: int, _step: Step) -> None:
        self.core.begin_load(partition, partition_count, epoch)

    def _read(self) -> None:
        """The loader's thread: one partition after the other."""
        while True:
            with self._wake:
                if not self._to_load:
                    self._loader = None
                    return
                partition, epoch = self._to_load.popleft()
            shard = self.core.new_shard(partition, epoch)
            try:
                batches = self._journal.read(partition, epoch)
                self.core.load(shard, batches, self._clock.now_ms())
            except Exception as problem:
                if partition not in self._unread:  # logged once, retried repeatedly
                    self._unread.add(partition)
                    self._tell(partition, problem)
                self._looked(partition, epoch, partial(self.core.not_loaded, partition, epoch))
            else:
                if partition in self._unread:
                    self._unread.remove(partition)
                    LOG.info(
                        "%s coordinator: partition %d is readable again", self._name, partition
                    )
                self._looked(partition, epoch, partial(self._end_load, shard))

    def _looked(self, partition: int, epoch: int, event: Event) -> None:
        """Report the outcome of a read; a read of a partition that must be read again, in a later
        or the same epoch, is over."""
        with self._wake:
            if not any(other == partition and later >= epoch for other, later in self._to_load):
                self._post(event)

    def _tell(self, partition: int, problem: Exception) -> None:
        """Log where the problem is and how to repair it."""
        what = f"{self._name} coordinator: partition {partition} cannot be read"
        if isinstance(problem, NotLeaderOrFollower):
            LOG.info("%s: %s", what, problem)
        elif isinstance(problem, (CorruptLog, CorruptMessage)):
            LOG.error("%s, and its contents are not served: %s; kafkalog verify shows all of it; "
                      "with the broker stopped kafkalog repair keeps what is whole", what,
                      problem)  # fmt: skip
        elif isinstance(problem, (KafkalogError, OSError)):
            LOG.error("%s: %s", what, problem)
        else:
            LOG.error("%s", what, exc_info=problem)

    def _end_load(self, shard: Any, step: Step) -> None:
        self.core.end_load(shard, step)
