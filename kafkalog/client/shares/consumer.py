"""A share consumer: a worker of a share group (KIP-932), over a socket or in this process."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

from kafkalog import arguments, errors
from kafkalog.client.callbacks import logged
from kafkalog.client.calls.results import Results
from kafkalog.client.consumer.group_session import FENCED, GroupOptions, GroupSession
from kafkalog.client.consumer.owned import Owned
from kafkalog.client.consumer.settings import client_options
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.metadata import NO_NODE
from kafkalog.client.link.patience import NotYet
from kafkalog.client.link.transport import Where
from kafkalog.client.link.wakeup import Waker
from kafkalog.client.login.tokens import TokenSource
from kafkalog.client.metrics import Idle, share_metrics
from kafkalog.client.shares.core import ShareState
from kafkalog.client.shares.holding import TYPES, Holding, Outcome, Place
from kafkalog.client.shares.link import ShareLink
from kafkalog.client.shares.membership import ShareHeartbeats
from kafkalog.client.telemetry.payload import Figures, of_owner
from kafkalog.client.telemetry.pushing import Pushing
from kafkalog.clock import Clock
from kafkalog.config.share_consumer import ShareConsumerConfig
from kafkalog.disk.layout import uuid_text
from kafkalog.types import SharedRecord, TopicPartition

__all__ = ["ShareConsumer"]

_logger = logging.getLogger(__name__)
CLOSE_MS = 30_000
"""The default time limit of `close`."""
HEARTBEAT_MS = 15_000
"""How long the coordinator's answer to a heartbeat may take."""
LINGER_S = 1.0
"""How long an iteration collects acknowledgements before it sends them."""
CHORE_S = 0.5
"""How often a wait looks at the membership, which also nudges."""
Callback = Callable[[dict[TopicPartition, list[int]], errors.KafkalogError | None], object]


class ShareConsumer(Owned):
    """A member of a share group, which gets some of the records of every partition.  One thread at
    a time; a context manager that closes at its end.

    Each record is held until it is acknowledged, or for the group's share.record.lock.duration.ms,
    and then delivered again, up to share.delivery.count.limit times.  A background thread sends
    heartbeats: call `poll`, or iterate, at least every max.poll.interval.ms.
    """

    def __init__(
        self,
        where: Where,
        *topics: str,
        group: str | None = None,
        on_acknowledged: Callback | None = None,
        client_id: str | None = None,
        config: Mapping[str, object] | None = None,
        oauth_token: TokenSource | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Nothing is sent yet.

        `where`: `host:port`, several with commas, or a store.  `topics`: as `subscribe`.  `config`:
        Kafka's names (see docs/client-options.md); the arguments override it.  `on_acknowledged`:
        called with the offsets by partition, and None or the failure, from within a later poll,
        commit or close.  `oauth_token`: gives OAUTHBEARER's tokens.

        Raises: ArgumentError, UnknownSetting, InvalidSetting, Closed.
        """
        given = {"group.id": group, "client.id": client_id}
        made = ShareConsumerConfig({
            **arguments.mapping("config", config or {}),
            **{name: one for name, one in given.items() if one is not None},
        })  # fmt: skip
        if not made.group_id:
            raise errors.ArgumentError("group: found none, wanted the name of a share group")
        arguments.called("on_acknowledged", on_acknowledged)
        self._config, self._callback = made, on_acknowledged
        self._explicit = made.share_acknowledgement_mode == "explicit"
        self._pid = os.getpid()
        self._lock = threading.RLock()  # held by the thread that uses it
        self._closed = False
        self._topics: set[str] = set()
        self._names_s = self._sent_s = 0.0
        self._cluster = Cluster(where, client_options(made, oauth_token), clock)
        self._waker = Waker()
        self._cluster.openings.ring = self._waker.nudge
        options = self._cluster.options
        pauses_s = options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000
        member = GroupOptions(
            made.group_id, uuid_text(uuid4()), None, made.client_rack or None,
            made.max_poll_interval_ms, None, pauses_s,
        )  # fmt: skip
        patience_ms = min(options.request_timeout_ms, HEARTBEAT_MS)
        own = options._replace(request_timeout_ms=patience_ms, connect_timeout_ms=patience_ms)
        self._heartbeats = ShareHeartbeats(
            Cluster(self._cluster, own, clock), member, self._waker.nudge
        )
        self._holding = Holding()
        self._state = ShareState(self._holding, made.share_acquire_mode == "record_limit", pauses_s)
        self._link = ShareLink(self._cluster, made, member.member_id, self._state, self._waker)
        self._idle = Idle()
        self._pushing = Pushing(self._cluster, "consumer-share", of_owner(self))
        weakref.finalize(self, self._heartbeats.stop)
        weakref.finalize(self, self._pushing.stop)
        self._cluster.transport.attach(self)
        if topics:
            self.subscribe(topics)

    def __enter__(self) -> ShareConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ShareConsumer(group {self._config.group_id!r})"

    @contextmanager
    def _reads(self) -> Iterator[None]:
        whole = self._cluster.patience.whole(math.inf, self._waker.wait)
        with self._own(), self._idle.polled(), whole:
            yield

    # ---- the group ---------------------------------------------------------------------

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Get records of these topics instead of the earlier ones, once the coordinator has
        answered.  Raises: ArgumentError."""
        names = [topics] if isinstance(topics, str) else arguments.texts("topics", topics)
        if not names or not all(names):
            raise errors.ArgumentError(f"topics: found {names!r}, wanted names of topics")
        with self._used():
            self._topics = set(names)
            self._names_s = 0.0

    @property
    def subscription(self) -> list[str]:
        """The subscribed topics."""
        return sorted(self._topics)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions whose records it gets now, sorted; other members get some, too."""
        return sorted(one.tp for some in list(self._state.wanted.values()) for one in some)

    def _stay(self) -> None:
        """Stay a member, and find the leaders of what it is assigned.  Raises: why it cannot be
        one."""
        session = self._heartbeats.session
        if session.refused is not None:
            problem, session.refused = session.refused, None
            raise problem
        if (lost := session.lost) is not None:
            self._heartbeats.tell(GroupSession.gave_up)
            self._state.want({})
            if lost.code not in FENCED and not isinstance(lost, errors.Timeout):
                raise lost
            _logger.warning("%s", lost)
        names = sorted(self._topics)
        self._heartbeats.tell(lambda one: one.subscribe(names, None))
        target = session.target
        if target is not None:
            self._find(target)

    def _find(self, target: Mapping[Any, frozenset[int]]) -> None:
        cluster, now_s = self._cluster, time.monotonic()
        names = {one.topic_id: name for name, one in cluster.topics.items()}
        leaders: dict[Place, int] = {}
        missing = self._state.stale
        for topic_id, numbers in target.items():
            rows = cluster.topics[names[topic_id]].partitions if topic_id in names else {}
            for number in numbers:
                row = rows.get(number)
                if row is None or row.leader == NO_NODE:
                    missing = True
                else:
                    leaders[Place(topic_id, names[topic_id], number)] = row.leader
        self._state.want(leaders)
        old = now_s - self._names_s
        pause_s = cluster.options.retry_backoff_ms / 1000
        if old < pause_s or not (missing or old * 1000 >= self._config.metadata_max_age_ms):
            return
        try:
            with cluster.patience.errand_of("topics", 0):
                cluster.refresh_once(sorted(self._topics))
        except NotYet:
            return
        except errors.WakeUp:
            raise
        except errors.KafkalogError as problem:
            self._names_s = now_s
            if isinstance(problem, errors.AuthenticationFailed):
                raise
            return
        self._names_s, self._state.stale = now_s, False
        self._waker.nudge()

    # ---- records -----------------------------------------------------------------------

    def poll(
        self, timeout_ms: float | None = 1_000, max_records: int | None = None
    ) -> list[SharedRecord]:
        """Acquired records, at most `max_records` (None: max.poll.records); an empty list if there
        are none within `timeout_ms` (None: no limit).

        The records of the last poll are acknowledged: implicitly they are accepted; explicitly each
        must have been acknowledged.  Records that were renewed come again.

        Raises: ArgumentError for records that were not acknowledged; CorruptMessage: damaged
        records were rejected; WakeUp, WrongThread, Closed; a broker's permanent error.
        """
        count = self._config.max_poll_records if max_records is None else max_records
        arguments.whole_number("max_records", count, 1)
        wait_ms = arguments.wait_ms("timeout_ms", timeout_ms)
        with self._reads():
            return self._next(math.inf if wait_ms is None else wait_ms / 1000, count, eager=True)

    def __iter__(self) -> Iterator[SharedRecord]:
        """Records without end, until `close` or WakeUp.  Raises: as `poll`.

        Implicitly, a record is accepted when the next one is asked for: one whose work has failed
        with an exception is released when the consumer is closed.
        """
        while not self._closed:
            with self._reads():
                (record,) = self._next(math.inf, 1, eager=False)
            yield record

    def _next(self, wait_s: float, count: int, *, eager: bool) -> list[SharedRecord]:
        """`eager`: acknowledgements are sent at once, not only before a wait."""
        if not self._topics:
            raise errors.ArgumentError("poll: no topics are subscribed to")
        self._report()
        self._conclude(rest=True)
        until_s = time.monotonic() + wait_s
        while True:
            self._heartbeats.polled()
            self._waker.check()
            self._cluster.openings.close_idle()
            self._cluster.patience.due.clear()
            now_s = time.monotonic()
            if eager or not self._holding.ready or now_s - self._sent_s > LINGER_S:
                self._stay()
                self._pushing.look(self._cluster)
                self._link.send(fetches=not self._holding.full)
                self._sent_s = now_s
                self._link.wait(0)
            if found := self._holding.take(count):
                return found
            problem, self._state.problem = self._state.problem, None
            if problem is not None:
                raise problem
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return []
            due = [one for one in self._cluster.patience.due if not one.closed]
            self._link.send(fetches=not self._holding.full)
            self._link.wait(min(left_s, CHORE_S), due)

    # ---- acknowledgements --------------------------------------------------------------

    def acknowledge(self, record: SharedRecord, kind: str = "accept") -> None:
        """Say what became of a record: `accept` (done), `release` (deliver it again), `reject`
        (never again) or `renew` (hold it longer: the next poll returns it again, unless it was
        acknowledged after a commit).  It is sent with the next poll or commit; until then another
        call replaces it.

        Raises: ArgumentError, also without share.acknowledgement.mode=explicit, and for a record
        that is not held.
        """
        number = TYPES[arguments.one_of("kind", kind, TYPES)]
        if not isinstance(record, SharedRecord):
            raise errors.ArgumentError(f"record: found {record!r}, wanted a record of poll")
        with self._own():
            if not self._explicit:
                raise errors.ArgumentError(
                    "acknowledge needs share.acknowledgement.mode=explicit: otherwise the next "
                    "poll accepts every record"
                )
            self._holding.acknowledge(record, number)

    def commit(
        self, timeout_ms: float | None = None
    ) -> Results[TopicPartition, list[int]]:  # fmt: skip
        """Send all acknowledgements, implicitly of all records that were returned, and wait until
        they are answered; the offsets by partition.

        A partition that failed has its error as the result: InvalidRecordState: the lock of one of
        its records had ended; Timeout, PeerGone: nobody knows.  Such records are delivered again
        unless they were acknowledged after all.

        Raises: WakeUp.
        """
        with self._used(timeout_ms):
            self._report()
            self._conclude(rest=False)
            self._settle(self._cluster.patience.until_s)
            found = self._holding.take_outcomes()
            self._tell(found)
            return _results(found)

    def _settle(self, until_s: float) -> None:
        """Send acknowledgements until all have ended; at `until_s`, those that have not fail."""
        while self._state.acknowledging():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                self._state.give_up(errors.Timeout("commit: no answer in time"))
                return
            self._link.send(fetches=False)
            if self._state.acknowledging():
                self._link.wait(min(left_s, CHORE_S))

    def _conclude(self, *, rest: bool) -> None:
        """Make due all that was said; `rest`: explicitly, nothing may be left."""
        if not self._explicit:
            self._holding.accept_rest()
        self._holding.conclude()
        left = self._holding.unsaid() if rest else []
        if left:
            one = left[0]
            raise errors.ArgumentError(
                f"poll: found {len(left)} records that were not acknowledged, the first "
                f"{one.topic}-{one.partition}, offset {one.offset}; wanted none with "
                "share.acknowledgement.mode=explicit"
            )

    def _report(self) -> None:
        self._tell(self._holding.take_outcomes())

    def _tell(self, outcomes: Iterable[Outcome]) -> None:
        if self._callback is not None:
            for place, offsets, problem in outcomes:
                with logged("on_acknowledged"):
                    self._callback({place.tp: offsets}, problem)

    # ---- metrics -----------------------------------------------------------------------

    def _figures(self) -> Figures:
        """Those for brokers."""
        shared = self._link.shared
        clusters = self._cluster, self._heartbeats.cluster, self._pushing.cluster
        values = {
            "connection-creation-total": float(sum(one.openings.count for one in clusters)),
            "poll-idle-ratio-avg": self._idle.ratio.avg,
            **share_metrics(shared, self._holding.failed, self._heartbeats.beat_ms),
        }  # fmt: skip
        return Figures(values, dict(shared.nodes))

    def _labels(self) -> dict[str, str]:
        config = self._config
        return {
            "client_rack": config.client_rack, "group_id": config.group_id,
            "group_member_id": self._heartbeats.session.options.member_id,
        }  # fmt: skip

    def client_instance_id(self, timeout_ms: float | None = None) -> UUID:
        """As Consumer.client_instance_id."""
        with self._used(timeout_ms):
            return self._pushing.reporter.instance_id(self._cluster)

    # ---- the end -----------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the current or next poll or commit of another thread raise WakeUp.  From a signal
        handler, too, and ForkedHandle in a child that has inherited it."""
        self._here()
        self._waker.wakeup()

    def close(self, timeout_ms: float | None = CLOSE_MS) -> None:
        """Send what was acknowledged, release all other records, leave the group, and close the
        connections.  Implicitly, records that no later poll has accepted are released, too.

        Waits for brokers for at most `timeout_ms` (None: default.api.timeout.ms), and then closes
        everything.  Another thread's poll ends with WakeUp.  Harmless when repeated.

        Raises: WrongThread: another thread still uses it after that time; then nothing is closed.
        """
        if os.getpid() != self._pid:
            self._end()  # closes only the child's descriptors
            return
        wait_ms = arguments.wait_ms("timeout_ms", timeout_ms)
        wait_ms = self._cluster.options.api_timeout_ms if wait_ms is None else wait_ms
        until_s = time.monotonic() + wait_ms / 1000
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
                    self._release(until_s)
                    self._pushing.reporter.end(self._cluster)
            finally:
                self._closed = True
                self._heartbeats.stop()
                self._pushing.stop()
                self._end()
        finally:
            self._lock.release()

    def _release(self, until_s: float) -> None:
        self._waker.forget()
        self._holding.conclude()
        while not self._link.finish() and (left_s := until_s - time.monotonic()) > 0:
            self._link.wait(min(left_s, CHORE_S))
        self._state.give_up(errors.Timeout("close: no answer in time"))
        self._heartbeats.leave(until_s)
        self._report()

    def _end(self) -> None:
        self._link.close()
        self._cluster.close()
        self._waker.close()


def _results(outcomes: Iterable[Outcome]) -> Results[TopicPartition, list[int]]:
    """A partition with several outcomes has failed if one of them has."""
    done: dict[TopicPartition, list[int]] = {}
    failed: dict[TopicPartition, errors.KafkalogError] = {}
    for place, offsets, problem in outcomes:
        if problem is not None:
            failed.setdefault(place.tp, problem)
        else:
            done.setdefault(place.tp, []).extend(offsets)
    return Results({tp: some for tp, some in done.items() if tp not in failed}, failed)
