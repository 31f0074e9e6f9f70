"""Keeps the states of share partitions: finds the coordinator of each, on this broker or another,
and tries again while it moves, loads or does not answer.

The metadata say which broker coordinates: nobody is asked.  Source: Kafka's DefaultStatePersister
and PersisterStateManager, whose waits are longer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.coordinator.partitions import partition_for
from kafkalog.coordinator.share_state.messages import API_OF, question, results_in
from kafkalog.coordinator.share_state.persister import (
    Changed,
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateRead,
    SummaryRead,
    WriteState,
)
from kafkalog.coordinator.share_state.requests import Request, Result, failed
from kafkalog.coordinator.share_state.state import SharePartition
from kafkalog.coordinator.thread import REQUEST_BYTES as EVENT_BYTES
from kafkalog.logs.limit import limited
from kafkalog.server.journal import SHARE_STATE_TOPIC
from kafkalog.server.threads.later import Later
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.coordinator.share_state.core import ShareStateCoordinator
    from kafkalog.coordinator.step import Step
    from kafkalog.coordinator.thread import Coordinator
    from kafkalog.metadata.source import Metadata
    from kafkalog.server.transactions.inter_broker_client import InterBrokerClient

__all__ = ["SharePersister"]

PATIENCE_S = 15.0
"""How long a request is tried again, about as long as Kafka's persister does."""
PAUSE_S, PAUSE_MAX_S = 0.05, 1.0
"""The first pause before another attempt, and the longest; each is twice as long as the one
before."""
HELD_BYTES_MAX = 64 << 20
"""Requests that have no result, about, and what the coordinator keeps of them; any beyond get
COORDINATOR_NOT_AVAILABLE at once.  So the coordinator need not bound them, too."""
REQUEST_BYTES, BATCH_BYTES = 500, 150
"""Approximate memory of a request about one share partition, and of each of its batches."""
_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors that another attempt may mend."""
_logger = limited(__name__)


def _size(asked: Sequence[Request]) -> int:
    """Approximate memory of requests, in bytes."""
    batches = sum(len(one.state_batches) for one in asked if isinstance(one, WriteState))
    return REQUEST_BYTES * len(asked) + BATCH_BYTES * batches


class _Call:
    """The requests of one call, all of one kind, and their results."""

    def __init__(
        self, group_id: str, asked: Sequence[Request], done: Callable[[Sequence[Any]], None]
    ) -> None:
        self.group_id, self.asked = group_id, asked
        self.until_s = time.monotonic() + PATIENCE_S
        self.size = EVENT_BYTES + len(group_id) + _size(asked)
        self._done = done
        self._lock = threading.Lock()  # guards the next one
        self._results: dict[int, Result] = {}

    def settle(self, results: dict[int, Result]) -> tuple[list[int], bool]:
        """Take results by number, the first of each: the new ones, and True if these were the last
        ones."""
        with self._lock:
            new = {number: one for number, one in results.items() if number not in self._results}
            self._results |= new
            return list(new), bool(new) and len(self._results) == len(self.asked)

    def finish(self) -> None:
        """Report the results, once there are all of them."""
        try:
            self._done([self._results[number] for number in range(len(self.asked))])
        except Exception:
            _logger.exception("a failure of what was to go on")

    def key(self, number: int) -> SharePartition:
        """The share partition of a request."""
        one = self.asked[number]
        return SharePartition(self.group_id, one.topic_id, one.partition)

    def failed(self, numbers: Sequence[int], error: ErrorCode) -> dict[int, Result]:
        """The results of requests that are given up."""
        return {number: failed(self.asked[number], error) for number in numbers}


class SharePersister:
    """A Persister.  Safe to call from any thread; ended by `stop`."""

    def __init__(
        self, states: Coordinator[ShareStateCoordinator], metadata: Metadata,
        peers: InterBrokerClient | None, create: Callable[[], None], name: str,
    ) -> None:  # fmt: skip
        """`states`: this broker's coordinator; `peers`: in a cluster, the requests to others;
        `create` makes sure that `__share_group_state` exists, or raises."""
        self._states, self._metadata, self._peers = states, metadata, peers
        self._create = create
        self._later = Later(f"{name} persister")
        self._lock = threading.Lock()  # guards what follows
        self._held_bytes = 0
        self._busy: dict[SharePartition, deque[tuple[_Call, int]]] = {}
        """Share partitions that are being initialized or deleted, and the next such requests."""

    def stop(self) -> None:
        """Stop: what has no result now gets COORDINATOR_NOT_AVAILABLE once its attempt ends."""
        self._later.stop()

    # ---- requests --------------------------------------------------------------------------

    def initialize(self, group_id: str, states: Sequence[InitializeState], done: Changed) -> None:
        """As Persister.initialize."""
        self._begin(group_id, states, done)

    def read(
        self,
        group_id: str,
        states: Sequence[ReadState],
        done: Callable[[Sequence[StateRead]], None],
    ) -> None:
        """As Persister.read."""
        self._begin(group_id, states, done)

    def write(self, group_id: str, states: Sequence[WriteState], done: Changed) -> None:
        """As Persister.write."""
        self._begin(group_id, states, done)

    def delete(self, group_id: str, states: Sequence[DeleteState], done: Changed) -> None:
        """As Persister.delete."""
        self._begin(group_id, states, done)

    def read_summary(
        self,
        group_id: str,
        states: Sequence[ReadSummary],
        done: Callable[[Sequence[SummaryRead]], None],
    ) -> None:
        """As Persister.read_summary."""
        self._begin(group_id, states, done)

    def _begin(
        self, group_id: str, asked: Sequence[Request], done: Callable[[Sequence[Any]], None]
    ) -> None:
        call = _Call(group_id, asked, done)
        if not asked:
            call.finish()
            return
        numbers: Sequence[int] = range(len(asked))
        with self._lock:
            fits = not self._later.stopped and self._held_bytes + call.size <= HELD_BYTES_MAX
            if fits:
                self._held_bytes += call.size
                numbers = [number for number in numbers if self._has_turn(call, number)]
        if not fits:
            call.settle(call.failed(numbers, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            call.finish()
        elif numbers:
            self._attempt(call, numbers, PAUSE_S)

    def _settle(self, call: _Call, results: dict[int, Result]) -> None:
        settled = [(call, results)]
        while settled:
            call, results = settled.pop()
            new, last = call.settle(results)
            with self._lock:
                following = self._following(call, new)
                self._held_bytes -= call.size if last else 0
            for one, number in following:
                if not self._later.run(0, partial(self._in_turn, one, number)):
                    gone = one.failed([number], ErrorCode.COORDINATOR_NOT_AVAILABLE)
                    settled.append((one, gone))
            if last:
                call.finish()

    # ---- turns -----------------------------------------------------------------------------

    def _has_turn(self, call: _Call, number: int) -> bool:
        """True if a request may be sent now; otherwise it follows others.  Deletions and
        initializations of a share partition must not overtake each other while they are tried
        again; epochs fence all other requests.  The caller holds the lock."""
        if not isinstance(call.asked[number], InitializeState | DeleteState):
            return True
        key = call.key(number)
        if key in self._busy:
            self._busy[key].append((call, number))
            return False
        self._busy[key] = deque()
        return True

    def _following(self, call: _Call, numbers: Sequence[int]) -> list[tuple[_Call, int]]:
        """The requests that have their turn after these.  The caller holds the lock."""
        found = list[tuple[_Call, int]]()
        for number in numbers:
            if isinstance(call.asked[number], InitializeState | DeleteState):
                key = call.key(number)
                if self._busy[key]:
                    found.append(self._busy[key].popleft())
                else:
                    del self._busy[key]
        return found

    def _in_turn(self, call: _Call, number: int) -> None:
        if time.monotonic() < call.until_s:
            self._attempt(call, [number], PAUSE_S)
        else:
            self._settle(call, call.failed([number], ErrorCode.COORDINATOR_NOT_AVAILABLE))

    # ---- attempts --------------------------------------------------------------------------

    def _attempt(self, call: _Call, numbers: Sequence[int], pause_s: float) -> None:
        """Ask the coordinators.  `pause_s`: before the next attempt."""
        try:
            places = self._places(call, numbers)
        except Exception:
            _logger.exception("the coordinators of share partitions")
            self._give_up(call, numbers, pause_s)
            return
        if places is None:
            if not self._later.run(0, partial(self._create_first, call, numbers, pause_s)):
                self._give_up(call, numbers, pause_s)
            return
        for broker, some in places.items():
            answered = partial(self._answered, call, some, pause_s)
            asked = [call.asked[number] for number in some]
            try:
                if broker is None:
                    self._ask_here(call.group_id, asked, answered)
                else:
                    self._ask(broker, call.group_id, asked, answered)
            except Exception:  # no thread or memory now; the other places have their turn
                _logger.exception("a request about share partitions was not passed on")
                self._give_up(call, some, pause_s)

    def _places(self, call: _Call, numbers: Sequence[int]) -> dict[int | None, list[int]] | None:
        """The requests of each coordinator, None: this broker; None: no topic has the states."""
        topic = self._metadata.image.topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            return None
        places: dict[int | None, list[int]] = {}
        for number in numbers:
            where = TopicPartition(
                SHARE_STATE_TOPIC, partition_for(call.key(number).key, len(topic.partitions))
            )
            broker = None if self._peers is None else self._peers.leader(where)
            places.setdefault(broker, []).append(number)
        return places

    def _create_first(self, call: _Call, numbers: Sequence[int], pause_s: float) -> None:
        try:
            self._create()
        except Exception as problem:
            _logger.info("%s: %s", SHARE_STATE_TOPIC, problem)
        if SHARE_STATE_TOPIC in self._metadata.image.topics:
            self._attempt(call, numbers, pause_s)
        else:  # or the controller has it, and this node will
            self._give_up(call, numbers, pause_s)

    def _give_up(self, call: _Call, numbers: Sequence[int], pause_s: float) -> None:
        """There is no coordinator in this attempt."""
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._answered(call, numbers, pause_s, list(call.failed(numbers, error).values()))

    def _ask_here(
        self, group_id: str, asked: Sequence[Request], answered: Callable[[Any], None]
    ) -> None:
        def event(step: Step) -> None:
            def done(step: Step, results: Sequence[Result]) -> None:
                step.answers.append((lambda _body: answered(results), {}))

            self._states.core.take(step, group_id, asked, done)

        # A thread that is inside the coordinator's step, to go on after a result, only queues it.
        if not self._states.ask(event, _size(asked), here=True, bounded=True):
            answered([failed(one, ErrorCode.COORDINATOR_NOT_AVAILABLE) for one in asked])

    def _ask(
        self, broker: int, group_id: str, asked: Sequence[Request], answered: Callable[[Any], None]
    ) -> None:
        api = API_OF[type(asked[0])]

        def then(answer: Any) -> None:
            found = {} if answer is None else results_in(api, answer)
            missing = ErrorCode.UNKNOWN_SERVER_ERROR
            if answer is None:
                missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
            answered(
                [found.get((one.topic_id, one.partition)) or failed(one, missing) for one in asked]
            )

        assert self._peers is not None
        self._peers.ask(broker, api, partial(question, group_id, asked), _size(asked), then)

    def _answered(
        self, call: _Call, numbers: Sequence[int], pause_s: float, results: Sequence[Result]
    ) -> None:
        found = dict(zip(numbers, results, strict=True))
        again: dict[int, Result] = {}
        if time.monotonic() + pause_s < call.until_s:
            again = {number: one for number, one in found.items() if one.error in _AGAIN}
        self._settle(call, {n: one for n, one in found.items() if n not in again})
        if again:
            pause = min(2 * pause_s, PAUSE_MAX_S)
            attempt = partial(self._attempt, call, list(again), pause)
            if not self._later.run(pause_s, attempt):
                self._settle(call, again)
