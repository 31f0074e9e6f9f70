"""A consumer: reads partitions, alone or with a group, over a socket or in this process."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, overload

from kafkalog import arguments, errors
from kafkalog.arguments import whole_number
from kafkalog.client.callbacks import logged
from kafkalog.client.calls.arguments import committed_of
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata, committed_offsets
from kafkalog.client.consumer.assignors import Assignor
from kafkalog.client.consumer.commits import Callback
from kafkalog.client.consumer.committer import Committer
from kafkalog.client.consumer.coordinator import ConsumerCoordinator
from kafkalog.client.consumer.fetch_positions import FetchPositions
from kafkalog.client.consumer.group_membership import GroupMembership
from kafkalog.client.consumer.metadata import ConsumerMetadata
from kafkalog.client.consumer.offset_commits import OffsetCommits
from kafkalog.client.consumer.positions import Offset
from kafkalog.client.consumer.protocols import protocol_of, state_of
from kafkalog.client.consumer.reported import Reported
from kafkalog.client.consumer.settings import client_options, fetch_options
from kafkalog.client.consumer.subscription import AWAITS, Listener, Subscription
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.fetch.reading import Reading
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import Where
from kafkalog.client.link.wakeup import Waker
from kafkalog.client.login.tokens import TokenSource
from kafkalog.clock import Clock
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.log.scan.scan import ScanBatch
from kafkalog.serializers import Deserializer, serializers
from kafkalog.types import Record, TopicPartition

__all__ = ["Consumer"]

LOOK_S = 0.1
"""The longest wait for records while a join is in progress."""
FOREVER_S = 1e9
CLOSE_MS = 30_000
"""The default time limit of `close`."""


class Consumer(Reported):
    """Reads partitions of topics; one thread at a time; a context manager that closes at its end.

    Without a group it reads every partition of its topics, or those of `assign`.  With a group it
    shares them with the other members, and a background thread sends heartbeats: call `poll`, or
    iterate, at least every `max_poll_interval_ms`.
    """

    def __init__(
        self,
        where: Where,
        *topics: str,
        group: str | None = None,
        auto_offset_reset: str | None = None,
        isolation: str | None = None,
        group_instance_id: str | None = None,
        group_protocol: str | None = None,
        session_timeout_ms: int | None = None,
        heartbeat_ms: int | None = None,
        max_poll_interval_ms: int | None = None,
        assignor: str | Assignor | Sequence[str | Assignor] | None = None,
        pattern: str | None = None,
        auto_commit: bool | None = None,
        auto_commit_interval_ms: int | None = None,
        client_id: str | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        interceptors: Iterable[object] = (),
        config: Mapping[str, object] | None = None,
        oauth_token: TokenSource | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Nothing is sent yet.

        `where`: `host:port`, several with commas, or a store.  `topics`, or a `pattern` that the
        whole name matches: as `subscribe`.  The defaults are Kafka's (see docs/client-options.md);
        `config` takes any of Kafka's names, and the arguments override it.  `key_deserializer`,
        `value_deserializer`: callables of bytes, see kafkalog.serializers: a record has what they
        return; None stays None, and `poll_arrow` has bytes.  `interceptors`: objects with
        on_consume(records) -> records, on_commit(offsets), or both.  `oauth_token`: gives
        OAUTHBEARER's tokens, see docs/clients.md.

        Raises: ArgumentError, UnknownSetting, InvalidSetting, Closed.
        """
        made = ConsumerConfig(
            {
                **arguments.mapping("config", config or {}),
                **_given(
                    group_id=group, auto_offset_reset=auto_offset_reset, client_id=client_id,
                    isolation_level=isolation, group_instance_id=group_instance_id,
                    group_protocol=group_protocol,
                    session_timeout_ms=session_timeout_ms, heartbeat_interval_ms=heartbeat_ms,
                    max_poll_interval_ms=max_poll_interval_ms, enable_auto_commit=auto_commit,
                    auto_commit_interval_ms=auto_commit_interval_ms,
                ),
            }
        )  # fmt: skip
        self._deserializers = serializers("deserializer", key_deserializer, value_deserializer)
        cluster = Cluster(where, client_options(made, oauth_token), clock)
        self._begin(cluster, made, assignor, tuple(interceptors), clock)
        if topics or pattern is not None:
            self.subscribe(topics or None, pattern=pattern)

    def _begin(
        self, cluster: Cluster, made: ConsumerConfig, assignor: Any,
        interceptors: tuple[object, ...], clock: Clock | None,
    ) -> None:  # fmt: skip
        arguments.methods_called("interceptors", interceptors, "on_consume", "on_commit")
        self._config = made
        self._cluster = cluster
        self._interceptors = interceptors
        self._pid = os.getpid()
        self._lock = threading.RLock()  # held by the thread that uses it
        self._closed = False
        self._waker = Waker()
        self._cluster.openings.ring = self._waker.nudge
        self._fetcher = Fetcher(
            self._cluster,
            {},
            fetch_options(made)._replace(set_aside=True),
            self._wait_for,
            self._waker.nudge,
        )
        self._heartbeats, self._membership = protocol_of(
            cluster, made, assignor, self._waker, clock
        )
        self._committer = Committer(
            Cluster(cluster, cluster.options, clock),
            self._waker.nudge,
            *([self._membership.current] if isinstance(self._membership, GroupMembership) else []),
        )
        self._reading = Reading(self._fetcher)
        self._begin_state(made, interceptors)
        self._begin_metrics()
        for thread in (self._heartbeats, self._committer):
            weakref.finalize(self, thread.stop)
        self._cluster.transport.attach(self)

    def _begin_state(self, made: ConsumerConfig, interceptors: tuple[object, ...]) -> None:
        """The partitions that it reads, and what it commits."""
        membership = self._membership
        self._state = state_of(membership, made)
        self._state.stored = None if made.enable_auto_offset_store else {}
        self._metadata = ConsumerMetadata(self._cluster, made, self._state, self._fetcher)
        self._fetch_positions = FetchPositions(
            self._cluster, made, self._state, self._metadata, self._reading
        )
        self._commits = OffsetCommits(
            self._cluster, self._state, self._metadata, self._committer, membership,
            self._reading.reached, interceptors,
        )  # fmt: skip
        self._coordinator = ConsumerCoordinator(
            self._cluster, self._state, self._metadata, self._fetch_positions, self._commits,
            membership,
        )  # fmt: skip

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # After an exception the last records may not have been processed.
        self.close(commit=kind is None)

    def __repr__(self) -> str:
        group = f", group {self._config.group_id!r}" if self._config.group_id else ""
        return f"Consumer({len(self._state.assigned)} partitions{group})"

    @contextmanager
    def _reads(self) -> Iterator[None]:
        """As `_used`, to poll: the next poll gets answers that come too late for this one."""
        whole = self._cluster.patience.whole(math.inf, self._waker.wait)
        with self._own(), self._idle.polled(), whole:
            yield

    # ---- what is read ------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read these topics instead of the earlier ones, from the next poll on.

        `pattern`: all topics, now and later, whose whole name it matches.  The listeners are called
        from within poll and close with a list of partitions: `on_assigned` for new ones,
        `on_revoked` for those that another member will get (commit now), `on_lost` (by default
        `on_revoked`) for those that another member may already have.

        Raises: ArgumentError.
        """
        with self._used():
            made = Subscription(topics, pattern, on_assigned, on_revoked, on_lost)
            if self._state.manual:
                raise errors.ArgumentError("subscribe: partitions are assigned; unsubscribe first")
            self._coordinator.subscribe(made)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions instead of the earlier ones, even if other consumers read them.
        With automatic commits, positions of the earlier ones are committed in the background.

        Raises: ArgumentError while topics are subscribed to.
        """
        with self._used():
            if self._state.subscription:
                raise errors.ArgumentError("assign: topics are subscribed to; unsubscribe first")
            self._coordinator.assign(arguments.partitions("partitions", partitions))

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Also read these partitions, as with `assign`; those already read continue.

        Raises: ArgumentError while topics are subscribed to.
        """
        with self._used():
            if self._state.subscription:
                raise errors.ArgumentError(
                    "incremental_assign: topics are subscribed to; unsubscribe first"
                )
            self._state.manual = True
            more = arguments.partitions("partitions", partitions)
            self._fetch_positions.assign([*self.assignment, *more])

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions; the others continue.  With automatic commits, positions
        are committed in the background.

        Raises: ArgumentError for those that are not assigned, and while topics are subscribed to.
        """
        with self._used():
            if self._state.subscription:
                raise errors.ArgumentError(
                    "incremental_unassign: topics are subscribed to; unsubscribe first"
                )
            gone = set(self._mine(partitions))
            self._coordinator.assign([tp for tp in self.assignment if tp not in gone])

    def unsubscribe(self, timeout_ms: float | None = None) -> None:
        """Read nothing; leave the group."""
        with self._used(timeout_ms):
            try:
                self._coordinator.leave("unsubscribed")
            finally:
                self._coordinator.subscribe(Subscription())

    @property
    def subscription(self) -> list[str]:
        """The subscribed topics; with a pattern, those that it has found."""
        return sorted(self._state.subscription.topics)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions read now, sorted."""
        return sorted(self._state.assigned)

    def group_metadata(self) -> GroupMetadata:
        """The identity of this member, for `Producer.send_offsets`.

        It has the last generation that the member joined, even if the group has removed it since:
        the coordinator then refuses its offsets.  Generation -1 before the first join, and with
        partitions of `assign`.  Raises: ArgumentError: no group.
        """
        return self._state.identity()

    # ---- records -----------------------------------------------------------------------

    def poll(
        self, timeout_ms: float | None = 1_000, max_records: int | None = None
    ) -> list[Record]:
        """Records that have arrived, at most `max_records` (None: max.poll.records); an empty list
        if there are none within `timeout_ms` (None: no limit).  It never takes longer; the next
        call continues with requests that brokers have not answered by then.  It waits for brokers
        and coordinators that are unavailable.

        Records of one partition are in the order of its log.

        Raises: OffsetOutOfRange (with reset none; for a truncated log its subclass LogTruncation),
        UnknownTopicOrPartition (once; other partitions are still read; not in a group),
        CorruptMessage, Undeserializable, WakeUp, WrongThread, Closed; a broker's permanent error.
        """
        count = self._config.max_poll_records if max_records is None else max_records
        whole_number("max_records", count, 1)
        with self._reads():
            return self._shown(self._next(timeout_ms, lambda: self._reading.take(count)) or [])

    def poll_arrow(self, timeout_ms: float | None = 1_000) -> list[ScanBatch]:
        """Everything that has arrived, as columns: batches as from a scan, with __arrow_c_array__
        and NumPy arrays, of one partition each.  Interceptors do not see them.  Raises: as `poll`.
        """
        with self._reads():
            return self._next(timeout_ms, self._reading.take_columns) or []

    def __iter__(self) -> Iterator[Record]:
        """Records without end, until `close` or WakeUp.  Raises: as `poll`.

        A record counts as read when it is handed out; automatic commits happen between blocks.
        """
        while not self._closed:
            with self._reads():
                block = self._next(None, self._some)
            if block is not None:
                yield from block

    def _some(self) -> Iterator[Record] | None:
        """A block for the iteration."""
        block = self._reading.take_block()
        if block is None or not (self._interceptors or self._deserializers):
            return block
        # One by one: a record that they have not seen was not handed out, and moves no position.
        return (shown for record in block for shown in self._shown([record]))

    def _deserialized(self, records: list[Record]) -> list[Record]:
        """The records up to one that cannot be deserialized, which comes first the next time.

        Raises: Undeserializable: the first one failed; the position is before it.
        """
        found: list[Record] = []
        for number, record in enumerate(records):
            try:
                values = {
                    name: deserializer(data)
                    for name, deserializer in self._deserializers.items()
                    if (data := getattr(record, name)) is not None
                }
            except Exception as problem:
                self._put_back(records[number:])
                if found:
                    break
                raise errors.Undeserializable(
                    f"{record.topic}-{record.partition}, offset {record.offset}: {problem!r}"
                ) from problem
            found.append(record._replace(**values))
        return found

    def _put_back(self, records: Sequence[Record]) -> None:
        """Hand these out first the next time."""
        firsts = {TopicPartition(one.topic, one.partition): one for one in reversed(records)}
        for tp, first in firsts.items():
            self._fetch_positions.seek(tp, first.offset, self._reading.epoch(tp, first.offset))

    def _shown(self, read: list[Record]) -> list[Record]:
        try:
            records = self._deserialized(read) if self._deserializers else read
            for one in self._interceptors if records else ():
                see = getattr(one, "on_consume", None)
                if see is not None:
                    with logged("on_consume"):
                        records = list(see(records))
        except BaseException as problem:
            if not isinstance(problem, Exception):  # Ctrl-C: nothing is handed out
                self._put_back(read)
            raise
        return records

    def _next(self, timeout_ms: float | None, take: Callable[[], Any]) -> Any:
        """The result of `take`, once it is not empty; None after the timeout."""
        state, positions = self._state, self._fetcher.positions
        if not (state.manual or state.subscription):
            raise errors.ArgumentError("nothing to read: subscribe to topics or assign partitions")
        wait_ms = arguments.wait_ms("timeout_ms", timeout_ms)
        until_s = time.monotonic() + (FOREVER_S if wait_ms is None else wait_ms / 1000)
        while True:
            self._heartbeats.polled()
            self._waker.check()
            self._cluster.openings.close_idle()
            self._cluster.patience.due.clear()
            self._coordinator.poll(until_s)
            self._report()
            if not self._holds():
                continue  # report the loss first
            if not state.revoking and (found := take()):
                return found
            left_s = max(until_s - time.monotonic(), 0)
            wait_s = min(left_s, self._coordinator.until_chore_s())
            if state.joining or state.revoking:  # it has waited, unless there is more to do
                more = (positions and not state.revoking) or self._metadata.searching
                wait_s = min(left_s, LOOK_S) if more else 0
            elif self._metadata.lookups.behind:
                wait_s = min(wait_s, LOOK_S)
            if positions and not state.revoking:
                self._reading.add(self._fetcher.poll(int(wait_s * 1000)))
            elif wait_s:
                self._waker.wait(self._due(), wait_s)
            if not left_s and (self._reading.empty or state.revoking):
                return None

    def _due(self) -> list[Connection]:
        """Connections where an answer is due that a poll has left, or the answer to a join."""
        joining = self._membership.connection if self._membership is not None else None
        due = [one for one in self._cluster.patience.due if not one.closed]
        return [*due, *([joining] if joining else [])]

    def _wait_for(self, connections: Iterable[Any], wait_s: float) -> list[Any]:
        """The fetcher's wait, which other answers that are due end, too."""
        return self._waker.wait([*connections, *self._due()], wait_s)

    def wakeup(self) -> None:
        """Make the current or next poll of another thread raise WakeUp.  From a signal handler,
        too, and ForkedHandle in a child that has inherited it."""
        self._here()
        self._waker.wakeup()

    # ---- what was read and not handed out (see Prefetched) ------------------------------

    def _holds(self) -> bool:
        return self._state.holds(self._cluster.clock.monotonic_s())

    def _go_back(self, firsts: Mapping[TopicPartition, int]) -> None:
        for tp, offset in firsts.items():
            if tp in self._state.assigned:
                self._fetch_positions.seek(tp, offset, self._reading.epoch(tp, offset))

    def _committable(self) -> dict[TopicPartition, CommittedOffset]:
        return dict(self._commits.positions())

    def _committed_at(self, tp: TopicPartition, offset: int) -> CommittedOffset:
        return CommittedOffset(offset, self._reading.epoch(tp, offset))

    # ---- commits -----------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, Offset] | None = None,
        *,
        wait: bool = True,
        callback: Callback | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit `offsets` (None: the positions), from which the group's next reader continues.

        An offset is an int, or a CommittedOffset with metadata.  `wait` False: commit in the
        background, in order; `callback` (offsets, None or the failure) is called from within a
        later poll, commit or close.

        Raises: RebalanceInProgress, IllegalGeneration, UnknownMemberId: other members get the
        partitions, and poll joins again; what the coordinator answers.  ArgumentError: no group.
        """
        with self._used(timeout_ms):
            given = self._commits.positions() if offsets is None else {
                arguments.partition("offsets", tp): committed_of("offsets", one)
                for tp, one in arguments.mapping("offsets", offsets).items()
            }  # fmt: skip
            arguments.called("callback", callback, AWAITS)
            if not wait:
                self._commits.commit_later(given, callback)
                return
            problem: errors.KafkalogError | None = None
            try:
                self._commits.commit(given)
            except errors.KafkalogError as found:
                problem = found
            if callback is not None:
                callback(given, problem)
            if problem is not None:
                raise problem

    def store_offsets(self, offsets: Record | Mapping[TopicPartition, Offset]) -> None:
        """Store offsets for the next commit without offsets, automatic or not: the next offsets to
        read, by partition, or a record, for the offset after it.  Needs
        enable.auto.offset.store=false: then nothing else is committed.

        Raises: ArgumentError for a partition that is not assigned, and without that setting.
        """
        with self._used():
            if isinstance(offsets, Record):
                tp = TopicPartition(offsets.topic, offsets.partition)
                behind = offsets.offset + 1
                offsets = {tp: CommittedOffset(behind, self._reading.epoch(tp, behind))}
            given = arguments.mapping("offsets", offsets)
            rows = {tp: committed_of("offsets", given[tp]) for tp in self._mine(list(given))}
            if self._state.stored is None:
                raise errors.ArgumentError(
                    "store_offsets needs enable.auto.offset.store=false: otherwise every record "
                    "that is handed out is stored"
                )
            self._state.stored.update(rows)

    @overload
    def committed(
        self, tp: TopicPartition, timeout_ms: float | None = None
    ) -> CommittedOffset | None: ...

    @overload
    def committed(
        self, tp: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]: ...

    def committed(
        self, tp: TopicPartition | Collection[TopicPartition], timeout_ms: float | None = None
    ) -> CommittedOffset | dict[TopicPartition, CommittedOffset | None] | None:
        """The group's last committed offset; None: there is none.  For a list or set of partitions:
        by partition.

        Raises: ArgumentError: no group; UnstableOffsetCommit: a transaction with a later offset is
        still open; Timeout.
        """
        many = isinstance(tp, (list, set, frozenset, Mapping))
        with self._used(timeout_ms):
            some = arguments.partitions("tp", tp if many else [tp])
            found = committed_offsets(self._cluster, self._group(), some)
            return {one: found.get(one) for one in some} if many else found.get(some[0])

    def _group(self) -> str:
        return self.group_metadata().group

    # ---- close -------------------------------------------------------------------------

    def close(self, commit: bool = True, timeout_ms: float | None = CLOSE_MS) -> None:
        """Commit (with automatic commits, and `commit`), leave the group, close the connections.

        Waits for brokers for at most `timeout_ms` (None: default.api.timeout.ms), and then closes
        everything: the group notices by itself that the member is gone.  A static member does not
        leave.  Another thread's poll ends with WakeUp.  Harmless when repeated.

        Raises: WrongThread: another thread still uses it after that time; then nothing is closed.
        """
        if os.getpid() != self._pid:
            self._end()  # closes only the child's descriptors
            return
        wait_ms = arguments.wait_ms("timeout_ms", timeout_ms)
        until_s = (
            time.monotonic()
            + (self._cluster.options.api_timeout_ms if wait_ms is None else wait_ms) / 1000
        )
        if not self._lock.acquire(blocking=False):
            self._waker.wakeup()
            left_s = min(until_s - time.monotonic(), threading.TIMEOUT_MAX)
            if not self._lock.acquire(timeout=max(left_s, 0)):
                raise errors.WrongThread("close: another thread is using the consumer")
        try:
            if self._closed:
                return
            try:
                with self._cluster.patience.whole(until_s - time.monotonic()):
                    self._coordinator.close(commit)
                    self._reporter.end(self._cluster)
            finally:
                self._closed = True
                self._heartbeats.stop()
                self._committer.stop()
                self._end()
        finally:
            self._lock.release()

    def _end(self) -> None:
        self._fetcher.close()
        self._cluster.close()
        self._waker.close()


def _given(**values: Any) -> dict[str, Any]:
    """The given values, by Kafka's names."""
    return {name.replace("_", "."): value for name, value in values.items() if value is not None}
