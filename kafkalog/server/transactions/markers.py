"""Writes the markers that end transactions to their partitions."""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkalog.coordinator.groups.core import GroupCoordinatorState
from kafkalog.coordinator.step import Producer
from kafkalog.coordinator.thread import Coordinator
from kafkalog.errors import Closed, NotFound, UnknownTopicOrPartition
from kafkalog.logs.limit import limited
from kafkalog.server.appends import Appends
from kafkalog.server.failures import known_code
from kafkalog.server.journal import OFFSETS_TOPIC
from kafkalog.server.partitions import Partitions
from kafkalog.server.threads.serial_executor import SerialExecutor
from kafkalog.server.transactions.write_guards import Guards
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from kafkalog.server.transactions.inter_broker_client import InterBrokerClient

__all__ = ["Markers"]

OPENERS = 4
"""Logs that are opened at the same time: each may need recovery, whose time grows with its
unflushed bytes."""
CLIENT_MARKERS_MAX = 100_000
"""Markers of clients' requests that wait, about 70 MB; any beyond are to be sent again.  Those of
the coordinator are bounded by the transactions that it keeps."""
FAILING_MAX = 1_000
"""Partitions whose latest failure is remembered: those that failed last."""
Done = Callable[[ErrorCode], None]
Write = Callable[..., bool]
"""Takes `wait`, see Markers._append."""
_logger = limited(__name__)


class Markers:
    """Writes markers, in its own threads if that takes more than an append.  Markers of one
    partition keep their order, and only markers for a log that is being opened wait for it."""

    def __init__(
        self,
        partitions: Partitions,
        appends: Appends,
        groups: Coordinator[GroupCoordinatorState],
        guards: Guards,
        name: str,
        others: "InterBrokerClient | None" = None,
    ) -> None:
        """`others`: in a cluster, the requests to leaders on other nodes."""
        self._others = others
        self._partitions = partitions
        self._appends = appends
        self._groups = groups
        self._guards = guards
        self._thread = SerialExecutor(f"{name} markers")
        self._name = name
        self._lock = threading.Lock()  # guards what follows
        self._openers: ThreadPoolExecutor | None = None
        """Since the first marker for a log that is not open."""
        self._stopped = False
        self._queued = 0
        """The markers that are left for the thread."""
        self._client_markers = 0
        """Markers of clients' requests that have no outcome."""
        self._behind: dict[TopicPartition, deque[Write]] = {}
        """Markers for logs that are being opened."""
        self._failing: dict[TopicPartition, tuple[str, ErrorCode]] = {}
        """The latest failure of each partition's markers: logged when it changes."""

    def write(
        self, where: TopicPartition, producer: Producer, done: Done, *, at_once: bool = False
    ) -> None:
        """Append the marker for `producer`; `done` gets the outcome, once it is as durable as
        acks=all promises.  From any thread; `done` is called in any.

        `at_once`: append it in the calling thread if it need not wait for anything.
        """
        elsewhere = None if self._others is None else self._others.leader(where)
        if self._others is not None and elsewhere is not None:
            self._others.end(
                elsewhere, where, producer, partial(self._heard, where, elsewhere, done)
            )
            return
        if where.topic == OFFSETS_TOPIC:
            write = partial(self._to_groups, where, producer, done)
        else:
            try:
                epoch = self._partitions.leader_epoch(*where)
            except Exception as problem:
                self._tell(where, done, problem)
                return
            write = partial(self._append, where, epoch, producer, done)
        if at_once and self._is_first(where) and write(wait=False):
            return
        with self._lock:
            self._queued += 1
        self._thread.submit(partial(self._next, where, write))

    def write_for_client(self, where: TopicPartition, producer: Producer, done: Done) -> None:
        """As `write`, for a client's request; NOT_LEADER_OR_FOLLOWER if CLIENT_MARKERS_MAX wait."""

        def ended(error: ErrorCode) -> None:
            with self._lock:
                self._client_markers -= 1
            done(error)

        with self._lock:
            room = self._client_markers < CLIENT_MARKERS_MAX
            self._client_markers += room
        if room:
            self.write(where, producer, ended)
        else:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _is_first(self, where: TopicPartition) -> bool:
        """True if the log is open, or others take care of that, and no earlier marker for it
        waits."""
        with self._lock:
            if self._queued or where in self._behind:
                return False
            return where.topic == OFFSETS_TOPIC or self._partitions.is_open(*where)

    def _next(self, where: TopicPartition, write: Write) -> None:
        try:
            self._begin(where, write)
        finally:
            with self._lock:
                self._queued -= 1

    def stop(self) -> None:
        """Stop once everything requested has been started."""
        self._thread.stop()
        with self._lock:
            openers, self._stopped = self._openers, True
        if openers is not None:
            openers.shutdown()

    def _begin(self, where: TopicPartition, write: Write) -> None:
        if where.topic == OFFSETS_TOPIC:
            write()
            return
        with self._lock:
            waiting = self._behind.get(where)
            if waiting is not None:
                waiting.append(write)
                return
            opened = self._partitions.is_open(*where) or not self._partitions.has(*where)
            if not opened:
                self._behind[where] = deque([write])
        if opened:
            write()
            return
        try:
            openers = self._opening()
            if openers is not None:
                openers.submit(self._open, where)
                return
        except RuntimeError:  # nothing can be imported, and no thread start: the interpreter ends
            pass
        self._open(where)

    def _opening(self) -> "ThreadPoolExecutor | None":
        """The threads that open logs; None: this is stopped."""
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._openers is None and not self._stopped:
                self._openers = ThreadPoolExecutor(OPENERS, f"{self._name} markers")
            return self._openers

    def _to_groups(
        self, where: TopicPartition, producer: Producer, done: Done, wait: bool = True
    ) -> bool:
        """The group coordinator writes there, and so learns the outcome of offsets."""
        if not self._partitions.has(*where):
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # deleted: asked for it, ours would refuse
            return True

        def ended(error: ErrorCode) -> None:
            gone = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            done(ErrorCode.NOT_COORDINATOR if gone and self._partitions.has(*where) else error)

        end = partial(self._groups.core.end_transaction, where.partition, producer)
        self._groups.post(lambda step: end(self._guarded(where, producer), ended, step))
        return True  # there is nothing to wait for here, whatever `wait` says

    def _open(self, where: TopicPartition) -> None:
        """Open a log, then write the markers that came for it."""
        try:
            self._partitions.log(*where)
        except Exception as problem:
            _logger.debug("%s-%d: %s", *where, problem)  # each has its own attempt and report
        while True:
            with self._lock:
                waiting = self._behind[where]
                if not waiting:
                    del self._behind[where]
                    return
                append = waiting.popleft()
            try:
                append()
            except Exception:
                _logger.exception("the request failed")  # the next has its turn

    def _append(
        self, where: TopicPartition, epoch: int, producer: Producer, done: Done, wait: bool = True
    ) -> bool:
        """Append in this leader epoch only.  Without `wait`: returns False if a write of the
        producer is in progress, and nothing was appended.
        """
        free = self._guards.ending(where, producer, wait=wait)
        tell = partial(self._tell, where, done)
        return self._appends.append(where, epoch, (), producer, tell, allowed=free)

    def _tell(self, where: TopicPartition, done: Done, problem: Exception | None) -> None:
        error = ErrorCode.NONE if problem is None else self._code(where, problem)
        self._log(where, error, "" if problem is None else type(problem).__name__, problem)
        done(error)

    def _heard(self, where: TopicPartition, broker: int, done: Done, error: ErrorCode) -> None:
        """The answer of the leader on another node."""
        self._log(where, error, f"broker {broker}", error.name)
        done(error)

    def _log(self, where: TopicPartition, error: ErrorCode, met: str, why: object) -> None:
        """Log a partition's failures when they begin, change and end."""
        now = None if error is ErrorCode.NONE else (met, error)
        with self._lock:
            before = self._failing.pop(where, None)
            if now is not None and self._partitions.has(*where):
                self._failing[where] = now
                if len(self._failing) > FAILING_MAX:
                    del self._failing[next(iter(self._failing))]
        if now is None and before is not None:
            _logger.info("%s-%d: transactions can be ended again", *where)
        elif now is not None and now != before and error not in _USUAL:
            _logger.error("%s-%d: a transaction is not ended yet: %s: %s", *where, met, why)

    def _code(self, where: TopicPartition, problem: Exception) -> ErrorCode:
        gone = isinstance(problem, (Closed, NotFound, UnknownTopicOrPartition))
        if gone and self._partitions.has(*where):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # the broker stops, or the log is reopened
        found = known_code(problem)
        return ErrorCode.UNKNOWN_SERVER_ERROR if found is None else found

    def _guarded(self, where: TopicPartition, producer: Producer) -> Callable[[], None]:
        """Breaks the guards of commits that were allowed before."""

        def close() -> None:
            with self._guards.ending(where, producer):
                pass

        return close


_USUAL = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""Errors that a marker may meet in normal operation."""
