"""Follows the partitions that one node leads: a thread, a connection, a fetch session.

A fetch offset is a promise: the leader counts what is below it as safe here.  So a durable replica
fetches only once everything appended is on disk, for all partitions in one round.
"""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog import errors
from kafkalog.client.fetch import sessions
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, failure
from kafkalog.client.link.patience import Patience
from kafkalog.client.link.transport import Address, Options, Transport
from kafkalog.client.link.wake_event import Bell
from kafkalog.logs.limit import limited
from kafkalog.replication.follower_log import FollowerLog, all_now
from kafkalog.replication.following import (
    Action,
    Append,
    Await,
    Copied,
    EpochEnd,
    Place,
    Rest,
    failed,
    fetched,
    placed,
    rest_s,
)
from kafkalog.replication.inter_broker import connect
from kafkalog.replication.options import FetcherOptions
from kafkalog.replication.partition_fetches import PartitionFetch, PartitionFetches
from kafkalog.types import TopicPartition
from kafkalog.wire import apis

__all__ = ["Fetcher", "Follow", "Replica"]

_logger = limited(__name__)

NAMES_VERSION_MAX = 12
DIVERGING_VERSION_MIN = 12
"""Before it, a leader does not report divergence: OffsetForLeaderEpoch is sent first."""
EARLIEST, LATEST = -2, -1
GRACE_MS = 30_000
"""How long an answer may take beyond the wait requested from the leader."""
LOOK_S = 5.0
"""How often each replica is checked: its log start may move without us, by retention."""
HELD_S = 0.1
"""How often throttled partitions are checked."""
PASSING = (errors.NoSpace, errors.NoMemory, errors.IoFailed, errors.CorruptMessage)
"""Append failures that may pass, or succeed with a new copy of the batch."""


class Replica(NamedTuple):
    """The follower."""

    id: int
    epoch: int = -1
    """The epoch of its registration; -1: unknown."""


class Follow(NamedTuple):
    """A command to replicate this leader."""

    topic_id: UUID
    leader_epoch: int
    copy: FollowerLog


class _Followed:
    """A partition, for the time of one command.  Guarded by the fetcher's lock."""

    def __init__(self, command: Follow) -> None:
        self.command, self.copy = command, command.copy
        self.rests_until_s = 0.0
        self.refused = 0  # in a row
        self.told: object = None  # the problem that was reported last, until it is fetched again
        self.parted = True
        """True if its end has still to be compared with the leader's since the command."""
        self.shown: int | None = None
        """The leader's high watermark; None: not yet known."""


Tell = Callable[[TopicPartition, errors.KafkalogError], None]
"""Reports a problem with a partition, or with the whole node, in the fetcher's thread."""


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


class Fetcher:
    """Follows one node's partitions until it is closed.  Safe to use from many threads."""

    def __init__(
        self,
        replica: Replica,
        leader: Address,
        tell: Tell,
        options: FetcherOptions = FetcherOptions(),  # noqa: B008
        connecting: Options = Options(),  # noqa: B008
        transport: Transport | None = None,
    ) -> None:
        """Start; the thread ends with `close`.  `tell` gets failures, and must be quick."""
        self.replica = replica
        self.leader = leader
        self.options = options
        self._tell = tell
        self._connecting = connecting
        self._transport = transport
        self._changed = threading.Condition()
        """Guards what follows; held while a partition's answer is processed."""
        self._followed: dict[TopicPartition, _Followed] = {}
        self._stale: set[TopicPartition] = set()
        """Partitions whose fetch position must be looked up: they may have moved, or gone."""
        self._resting: set[TopicPartition] = set()
        self._misplaced: set[TopicPartition] = set()
        """Partitions that have failed for good."""
        self._found: set[FollowerLog] = set()
        """Replicas whose earlier appends may still be in the page cache only, as after a command or
        a new setting: they are synced like new appends."""
        self._closing = False
        self._connection: Connection | None = None
        self._bell = Bell()  # rings at a command
        self._hurried = False  # the thread's own
        self._fetches = PartitionFetches()  # the thread's own
        self._asked_of: dict[TopicPartition, _Followed] = {}  # the thread's own
        self._look_s = 0.0  # the thread's own
        self._unsynced: set[FollowerLog] = set()  # the thread's own
        self._thread = threading.Thread(
            target=self._run, name=f"replica-fetcher-{leader}", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"Fetcher({self.replica.id} of {self.leader})"

    # ---- commands --------------------------------------------------------------------------

    def follow(self, commands: Mapping[TopicPartition, Follow]) -> None:
        """Follow these from the end of their replicas on; earlier commands for them are void.

        Raises: Closed.
        """
        with self._changed:
            if self._closing:
                raise errors.Closed(f"{self!r} is closed")
            for tp, command in commands.items():
                self._forget(tp)
                self._followed[tp] = _Followed(command)
                self._found.add(command.copy)
            self._bell.ring()
            self._changed.notify_all()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop following these: on return this writes nothing more to their replicas."""
        with self._changed:
            for tp in partitions:
                self._forget(tp)

    def settle(self, partitions: Iterable[TopicPartition]) -> None:
        """The settings of these changed: for those that are durable now, earlier appends are
        synced, too."""
        with self._changed:
            self._found.update(one.copy for tp in partitions if (one := self._followed.get(tp)))

    def _forget(self, tp: TopicPartition) -> None:
        self._followed.pop(tp, None)
        self._resting.discard(tp)
        self._misplaced.discard(tp)
        self._stale.add(tp)

    def following(self) -> list[TopicPartition]:
        """The partitions that are followed; without those whose replica failed or whose command is
        outdated."""
        with self._changed:
            return list(self._followed)

    def close(self) -> None:
        """Stop the thread; on return it writes nothing more.  Idempotent."""
        with self._changed:
            self._closing = True
            for tp in list(self._followed):
                self._forget(tp)
            self._changed.notify_all()
            if self._connection is not None:
                self._connection.interrupt()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ---- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                self._round()
            except errors.KafkalogError as problem:
                self._hang_up()
                if self._closing:
                    break
                with self._changed:
                    followed = list(self._followed.items())
                for tp, one in followed:
                    self._report(tp, one, problem)
                self._wait(self._backoff_s)
            except Exception:  # without this thread nobody would follow this leader
                _logger.exception("%s is not followed for now", self.leader)
                self._hang_up()
                self._wait(self._backoff_s)
        self._hang_up()
        self._bell.close()

    def _round(self) -> None:
        """Send one request, and apply the answer."""
        if not self._ready():
            return
        connection = self._connected()
        lost = self._those(self._misplaced)
        parted = self._parted() if self._version(connection) < DIVERGING_VERSION_MIN else {}
        if lost:
            self._place(connection, lost)
        elif parted:
            self._compare(connection, parted)
        else:
            self._sync()
            self._fetch(connection)

    def _ready(self) -> bool:
        """True if any partition is active; waits if none is."""
        with self._changed:
            now_s = time.monotonic()
            rested = [tp for tp in self._resting if self._followed[tp].rests_until_s <= now_s]
            self._resting.difference_update(rested)
            self._stale.update(rested)
            if now_s >= self._look_s:
                self._stale.update(self._followed)
                self._look_s = now_s + LOOK_S
            if len(self._resting) < len(self._followed) and not self._closing:
                return True
            if not self._closing:
                ends_s = [self._followed[tp].rests_until_s for tp in self._resting]
                self._changed.wait(min(ends_s) - now_s if ends_s else None)
            return False

    def _those(self, some: Iterable[TopicPartition]) -> dict[TopicPartition, _Followed]:
        """The active ones of these."""
        with self._changed:
            return {tp: self._followed[tp] for tp in some if tp not in self._resting}

    def _parted(self) -> dict[TopicPartition, _Followed]:
        return {tp: one for tp, one in self._those(self._followed).items() if one.parted}

    def _wait(self, seconds: float) -> None:
        """Wait, or until it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            made = connect(self.leader, self._connecting, self._transport, Patience())
            with self._changed:
                self._connection = made
                if self._closing:
                    made.interrupt()
            return made
        return self._connection

    def _hang_up(self) -> None:
        self._fetches.lost()
        with self._changed:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _version(self, connection: Connection) -> int:
        return connection.version_of(apis.FETCH, at_most=self.options.version_max)

    def _sync(self) -> None:
        """Sync before offsets are promised."""
        copies, self._unsynced = self._unsynced, set()
        with self._changed:
            copies |= self._found
            self._found.clear()
        copies = {copy for copy in copies if copy.durable}
        for copy in copies:
            with suppress(errors.KafkalogError):  # `sync` reports the outcome
                copy.sync_begin()
        for copy in copies:
            try:
                copy.sync()
            except errors.KafkalogError as problem:
                of = self._of(copy)
                if of:  # otherwise it was dropped since, and may be closed
                    self._unsynced.add(copy)
                for tp, one in of:
                    self._failed(tp, one, problem)

    def _of(self, copy: FollowerLog) -> list[tuple[TopicPartition, _Followed]]:
        with self._changed:
            return [(tp, one) for tp, one in self._followed.items() if one.copy is copy]

    # ---- Fetch -----------------------------------------------------------------------------

    def _fetch(self, connection: Connection) -> None:
        with self._changed:
            stale, self._stale = self._stale, set()
            self._bell.awake()
        self._look(stale)
        if not self._fetches.at:
            return
        version = self._version(connection)
        said = self._fetches.next(version > NAMES_VERSION_MAX)
        version = version if said.after.by_id else min(version, NAMES_VERSION_MAX)
        connection.send(apis.FETCH, self._request(said), version)
        answer = self._answer(connection)
        code = answer.error_code
        if code in sessions.LOST and said.epoch > 0:
            self._fetches.lost(code)
            return
        check_code(code, f"fetch from {self.leader}")
        count = sum(len(topic.partitions) for topic in answer.responses)
        self._fetches.answered(said, answer.session_id, count)
        self._take(answer)
        if answer.throttle_time_ms > 0:
            self._wait(answer.throttle_time_ms / 1000)

    def _answer(self, connection: Connection) -> Any:
        """The answer to a Fetch; a new command ends the leader's wait for records."""
        self._hurried = False
        connection.patience.wait = lambda _, wait_s: self._listen(connection, wait_s)
        try:
            answer = connection.receive(self.options.max_wait_ms + GRACE_MS)
        finally:
            connection.patience.wait = None
        if self._hurried:
            connection.receive(GRACE_MS)
        return answer

    def _listen(self, connection: Connection, wait_s: float) -> None:
        """Wait until something arrives.  A request behind the Fetch makes our leader answer it."""
        if self._bell.sleep() and not self._hurried:
            self._hurried = True
            connection.post(apis.API_VERSIONS, {}, 0)
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN | select.POLLOUT * connection.unsent)
        poll.register(self._bell.fileno(), select.POLLIN)
        poll.poll(wait_s * 1000)
        self._bell.heard()

    def _look(self, stale: Collection[TopicPartition]) -> None:
        """The fetch offsets of partitions that are to be fetched.

        For all of them in one step: when a node changes roles they are thousands.
        """
        with self._changed:
            found = dict(self._found_of(stale))
            now_of = dict(zip(found, all_now([one.copy for one in found.values()]), strict=True))
            for tp, now in now_of.items():
                if now is None or self._held_back(tp, found[tp], now):
                    self._look_aside(tp, found.pop(tp), now)
        for tp in stale:
            if tp not in found:
                self._asked_of.pop(tp, None)
                self._fetches.leave_out(tp)
        for tp, one in found.items():
            command, now = one.command, now_of[tp]
            assert now is not None
            asked = PartitionFetch(now.log_end, now.log_start, now.last_epoch, command.leader_epoch)
            self._fetches.put(tp, command.topic_id, asked)
            self._asked_of[tp] = one

    def _found_of(
        self, stale: Collection[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, _Followed]]:
        """Those that may be fetched; the caller holds the lock."""
        for tp in stale:
            one = self._followed.get(tp)
            if one is not None and (one.copy in self._unsynced or one.copy in self._found):
                self._stale.add(tp)
            elif one is not None and tp not in self._resting:
                yield tp, one

    def _look_aside(self, tp: TopicPartition, one: _Followed, now: Copied | None) -> None:
        """Skip it this time: throttled, or its replica failed; the caller holds the lock."""
        if now is not None:
            self._rest(tp, one, HELD_S)
            return
        try:
            one.copy.now()
            self._stale.add(tp)  # it was temporary
        except errors.KafkalogError as problem:
            self._failed(tp, one, problem)

    def _held_back(self, tp: TopicPartition, one: _Followed, now: Copied) -> bool:
        """True if it has used up its rate for now; an in-sync replica is never throttled."""
        throttle = self.options.throttle
        behind = one.shown is None or one.shown > now.log_end
        return throttle is not None and behind and throttle.holds(tp, _now_ms())

    def _request(self, said: sessions.Ask) -> dict[str, Any]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for tp, at in said.offsets.items():
            topics.setdefault(tp.topic, []).append(
                {
                    "partition": tp.partition,
                    "current_leader_epoch": at.leader_epoch,
                    "fetch_offset": at.offset,
                    "last_fetched_epoch": at.last_epoch,
                    "log_start_offset": at.log_start,
                    "partition_max_bytes": self.options.partition_bytes,
                }
            )
        forgotten: dict[tuple[str, UUID], list[int]] = {}
        for tp, topic_id in said.forgotten:
            forgotten.setdefault((tp.topic, topic_id), []).append(tp.partition)
        return {
            "replica_id": self.replica.id,
            "replica_state": {
                "replica_id": self.replica.id,
                "replica_epoch": self.replica.epoch,
            },
            "max_wait_ms": self._wait_ms(),
            "min_bytes": self.options.min_bytes,
            "max_bytes": self.options.response_bytes,
            "session_id": said.session_id,
            "session_epoch": said.epoch,
            "topics": [
                {"topic": name, "topic_id": said.after.ids[name], "partitions": rows}
                for name, rows in topics.items()
            ],
            "forgotten_topics_data": [
                {"topic": name, "topic_id": topic_id, "partitions": numbers}
                for (name, topic_id), numbers in forgotten.items()
            ],
        }

    def _wait_ms(self) -> int:
        """How long the leader may wait for records: no longer than a partition rests."""
        with self._changed:
            end_s = min((self._followed[tp].rests_until_s for tp in self._resting), default=None)
        rest_ms = math.inf if end_s is None else max(0, end_s - time.monotonic()) * 1000
        return int(min(self.options.max_wait_ms, rest_ms + 1))

    def _take(self, answer: Any) -> None:
        for topic in answer.responses:
            name = self._fetches.topic(topic.topic, topic.topic_id)
            for row in topic.partitions:
                tp = TopicPartition(name, row.partition_index)
                if tp in self._asked_of:
                    at = self._fetches.at[tp].offset
                    self._act(tp, self._asked_of[tp], fetched(row), at)

    # ---- what is done with one partition -----------------------------------------------------

    def _act(
        self, tp: TopicPartition, one: _Followed, action: Action | EpochEnd, offset: int = -1
    ) -> None:
        """Run it, unless a later command has come; a failure affects only this partition.

        `offset`: the fetch offset of the request, for an answer with records.
        """
        with self._changed:
            if self._followed.get(tp) is not one:
                return
            self._stale.add(tp)
            try:
                self._do(tp, one, action, offset)
            except errors.KafkalogError as problem:
                self._failed(tp, one, problem)
            except Exception:
                _logger.exception("%s-%d: is not followed for now", *tp)
                self._rest(tp, one, self._backoff_s)

    def _do(
        self, tp: TopicPartition, one: _Followed, action: Action | EpochEnd, offset: int
    ) -> None:
        if isinstance(action, Append) and action.records is not None:
            self._unsynced.add(one.copy)
        action = one.copy.do(action, offset)
        if isinstance(action, Append):
            one.refused, one.told = 0, None
            one.shown = action.high_watermark
            if action.records is not None and self.options.throttle is not None:
                self.options.throttle.took(tp, len(action.records), _now_ms())
        if isinstance(action, Place):
            self._misplaced.add(tp)
        else:
            self._misplaced.discard(tp)
        if isinstance(action, Rest):
            one.refused += 1
            self._rest(tp, one, rest_s(one.refused, self._backoff_s))
        elif isinstance(action, Await):
            self._forget(tp)
        if isinstance(action, Rest | Await):
            where = f"{tp.topic}-{tp.partition} at {self.leader}"
            self._report(tp, one, failure(action.code, where))

    def _failed(self, tp: TopicPartition, one: _Followed, problem: errors.KafkalogError) -> None:
        """A replica's failure: a temporary one is retried later, otherwise it is no longer
        followed."""
        with self._changed:
            if self._followed.get(tp) is one:
                if isinstance(problem, PASSING):
                    self._rest(tp, one, self._backoff_s)
                else:
                    self._forget(tp)
        self._report(tp, one, problem)

    def _report(self, tp: TopicPartition, one: _Followed, problem: errors.KafkalogError) -> None:
        """Tell it, but not again at each retry."""
        before, one.told = one.told, errors.told_once(problem)
        if one.told != before:
            self._tell(tp, problem)

    @property
    def _backoff_s(self) -> float:
        return self.options.backoff_ms / 1000

    def _rest(self, tp: TopicPartition, one: _Followed, seconds: float) -> None:
        one.rests_until_s = time.monotonic() + seconds
        self._resting.add(tp)
        self._stale.add(tp)

    # ---- where logs part -----------------------------------------------------------------------

    def _compare(self, connection: Connection, parted: dict[TopicPartition, _Followed]) -> None:
        """Ask where the last epoch of each ended at the leader, until both agree."""
        topics: dict[str, list[dict[str, int]]] = {}
        for tp, one in parted.items():
            last = one.copy.now().last_epoch
            if last < 0:
                one.parted = False  # the replica is empty, and cannot diverge
                continue
            row = {"partition": tp.partition, "current_leader_epoch": one.command.leader_epoch}
            topics.setdefault(tp.topic, []).append({**row, "leader_epoch": last})
        if not topics:
            return
        body = {
            "replica_id": self.replica.id,
            "topics": [{"topic": name, "partitions": rows} for name, rows in topics.items()],
        }
        answer = connection.call(apis.OFFSET_FOR_LEADER_EPOCH, body)
        for topic in answer.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.topic, row.partition)
                if tp not in parted:
                    continue
                one = parted[tp]
                if row.error_code:
                    self._act(tp, one, failed(row.error_code))
                    continue
                last = one.copy.now().last_epoch
                self._act(tp, one, EpochEnd(row.leader_epoch, row.end_offset))
                # The answer is about an earlier epoch than ours: what is left ends with another
                # one.
                one.parted = row.leader_epoch not in (last, -1)

    def _place(self, connection: Connection, lost: dict[TopicPartition, _Followed]) -> None:
        """Ask where the leader's logs begin and end."""
        ends = self._list_offsets(connection, lost, LATEST)
        starts = self._list_offsets(connection, lost, EARLIEST)
        for tp, one in lost.items():
            if tp in starts and tp in ends:
                self._act(tp, one, placed(starts[tp], ends[tp], one.copy.now()))

    def _list_offsets(
        self, connection: Connection, lost: dict[TopicPartition, _Followed], time_ms: int
    ) -> dict[TopicPartition, int]:
        topics: dict[str, list[dict[str, int]]] = {}
        for tp, one in lost.items():
            row = {"partition_index": tp.partition, "timestamp": time_ms}
            row["current_leader_epoch"] = one.command.leader_epoch
            topics.setdefault(tp.topic, []).append(row)
        body = {
            "replica_id": self.replica.id,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        found: dict[TopicPartition, int] = {}
        for topic in connection.call(apis.LIST_OFFSETS, body).topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if tp not in lost:
                    continue
                if row.error_code:
                    self._act(tp, lost[tp], failed(row.error_code))
                else:
                    found[tp] = row.offset
        return found
