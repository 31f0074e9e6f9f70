"""Fetches batches of partitions from their leaders: one request per node, one answer ahead.

core.py decides what to ask and what an answer means; connections and waits are here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from kafkalog import errors
from kafkalog.client.fetch import sessions
from kafkalog.client.fetch.core import FetchState, PendingFetch, Tempo
from kafkalog.client.fetch.epochs import USABLE_VERSION, Epochs, FetchPosition
from kafkalog.client.fetch.fetched import Ends, Fetched, FetchOptions
from kafkalog.client.fetch.reset import Resets
from kafkalog.client.link.cluster import Backoff, Cluster
from kafkalog.client.link.connecting import Opening
from kafkalog.client.link.connection import Connection, answering
from kafkalog.client.link.failures import about, passing
from kafkalog.client.link.patience import NotYet
from kafkalog.client.metrics import Tally
from kafkalog.types import TopicPartition
from kafkalog.wire import apis

__all__ = ["Fetcher"]

_logger = logging.getLogger(__name__)
NAMES_VERSION_MAX = 12
"""From version 13 on topics have ids instead of names."""
VERSION_MAX = 16
GRACE_MS = 5_000
"""How long an answer may take beyond the broker's own wait."""


Wait = Callable[[Iterable[Connection], float], list[Connection]]
"""(connections, seconds) -> those with an answer by then."""


class Fetcher:
    """Positions of partitions, and the batches from there on.  One thread at a time."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        options: FetchOptions = FetchOptions(),  # noqa: B008
        wait: Wait = answering,
        ring: Callable[[], None] | None = None,
    ) -> None:
        """Nothing is sent yet.  `positions`: the next offset of each partition.

        `ring` ends a wait of `wait`: then connections are opened in threads of their own, and no
        poll waits for one.
        """
        self.cluster = cluster
        self.options = options
        mine = cluster.options
        tempo = Tempo(mine.request_timeout_ms, mine.retry_backoff_ms, mine.retry_backoff_max_ms)
        self.core = FetchState(cluster, positions, options, tempo)
        self._connections: dict[int, Connection] = {}
        self._ring = ring
        self._opening: dict[int, Opening] = {}
        self._version = -1
        """Version of the metadata when removed nodes were last looked for."""
        self._resets = Resets(cluster, self.core)
        self._backoff: Backoff | None = None
        self.fetch_bytes, self.fetch_ms = Tally(), Tally()
        self.nodes: dict[int, Tally] = {}
        """As `fetch_ms`, by node."""
        """Bytes of batches and latency of each answer."""
        self._wait = wait

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """As Core.positions."""
        return self.core.positions

    @property
    def ends(self) -> dict[TopicPartition, Ends]:
        """As Core.ends."""
        return self.core.ends

    @property
    def epochs(self) -> Epochs:
        """Leader epochs of the records read."""
        return self.core.epochs

    def close(self) -> None:
        """Close the connections; the cluster's own stay."""
        for node, session in self.core.sessions.items():
            connection = self._connections.get(node)
            request = sessions.closing(session)
            if request is not None and connection is not None and not connection.closed:
                with suppress(errors.KafkalogError):  # otherwise the session expires at the node
                    connection.post(apis.FETCH, *self._request(connection, request, session))
        self.core.sessions.clear()
        self._hang_up()

    def _hang_up(self) -> None:
        self.core.hang_up()
        for connection in self._connections.values():
            connection.close()
        for opening in self._opening.values():
            opening.give_up()
        self._connections.clear()
        self._opening.clear()

    def seek(self, tp: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Continue at an offset; `epoch`: the leader epoch of the record before it, if known, which
        shows whether the log was truncated."""
        self.core.seek(tp, FetchPosition(offset, epoch))

    def poll(self, timeout_ms: int | None = None) -> list[Fetched]:
        """The fetched batches; empty after `timeout_ms` without any (None: the broker's wait).

        The next requests are in flight when it returns.  With a `ring` it takes no longer, whatever
        brokers do, and transient failures are retried without end.

        Raises: OffsetOutOfRange (LogTruncation is one), UnknownTopicOrPartition, CorruptMessage;
        permanent failures.
        """
        wait_ms = self.options.max_wait_ms + 100 if timeout_ms is None else timeout_ms
        if self._ring is None:
            return self._poll(wait_ms)
        with self.cluster.within(wait_ms):
            return self._poll(wait_ms)

    def _poll(self, wait_ms: float) -> list[Fetched]:
        try:
            if self.core.problem is None:
                self._resets.find()
                self._send()
                for node in self._ready(wait_ms / 1000):
                    self._alone(node, partial(self._receive, node))
                self._resets.find()
                if self.core.found:
                    self._backoff = None
                self._send()
        except errors.KafkalogError as problem:
            self.core.problem = self.core.problem or problem
        core = self.core
        warnings, core.warnings, core.delays = [*core.warnings, *core.delays], [], []
        for text in warnings:
            _logger.warning("%s", text)
        if found := self.core.take():  # batches that arrived before a failure come first
            return found
        failed, self.core.problem = self.core.problem, None
        if failed is not None:
            if not passing(failed):
                raise failed
            self._again(failed)
        return []

    def _again(self, problem: errors.KafkalogError) -> None:
        """Back off before the next attempt; metadata is fetched again."""
        if self._ring is not None:  # each failed partition backs off on its own
            self.cluster.forget()
            return
        if self._backoff is None:
            self._backoff = self.cluster.backoff()
        if self._backoff.over():
            raise problem
        self._hang_up()
        self.cluster.forget()
        self._backoff.wait()

    # ---- requests ----------------------------------------------------------------------

    def _send(self) -> None:
        """Send a request to every node without one.

        Raises: a permanent failure; a transient one if no request is in flight.
        """
        self._leave_gone()
        core, nodes = self.core, self.cluster.nodes.keys()
        every = nodes and core.pending.keys() >= nodes
        for node, partitions in ({} if every else self._by_node()).items():
            if core.free(node, time.monotonic()):
                self._alone(node, partial(self._ask, node, partitions), partitions)
        problem = core.take_trouble()
        if problem is not None and not core.pending:
            raise problem

    def _leave_gone(self) -> None:
        """Close connections to nodes that are not in the cluster any more."""
        core, nodes = self.core, self.cluster.nodes
        if self._version == self.cluster.version or not nodes:
            return
        self._version = self.cluster.version
        for node in (self._connections.keys() | core.sessions.keys()) - nodes.keys():
            if node not in core.pending:
                core.gone(node)
                if connection := self._connections.pop(node, None):
                    connection.close()

    def _alone(
        self, node: int, call: Callable[[], None], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Make a call for one node: its transient failure holds up no other node."""
        pending = self.core.pending.get(node)
        try:
            call()
        except NotYet:
            return
        except errors.WakeUp:
            raise
        except errors.KafkalogError as problem:
            if connection := self._connections.pop(node, None):
                connection.close()
            some = pending.offsets if pending else partitions
            self.core.node_failed(node, problem, some, time.monotonic())

    def _by_node(self) -> dict[int, list[TopicPartition]]:
        """As Core.plan; for partitions not in metadata it is fetched once more."""
        plan = self.core.plan(time.monotonic())
        if plan.unknown:
            self._find(plan.unknown)
            plan = self.core.plan(time.monotonic())
        return plan.nodes

    def _find(self, unknown: list[TopicPartition]) -> None:
        core, cluster = self.core, self.cluster
        if not self.options.set_aside:
            for tp in unknown:
                try:
                    cluster.leader(tp)
                except errors.KafkalogError as problem:
                    core.failed(about(tp, problem), [tp], time.monotonic())
            return
        try:
            with cluster.patience.errand_of("known", 0):
                cluster.refresh_once(sorted({tp.topic for tp in unknown}))
        except NotYet:
            return
        except errors.KafkalogError as problem:
            core.failed(problem, unknown, time.monotonic())
        else:
            for tp in [tp for tp in unknown if tp.topic in cluster.refused]:
                core.refuse(tp, cluster.refused[tp.topic], time.monotonic())
            core.set_aside([tp for tp in unknown if tp.topic not in cluster.refused])

    def _ask(self, node: int, partitions: list[TopicPartition]) -> None:
        connection = self._connections.get(node)
        if connection is not None and self.cluster.moved(node, connection):
            self._connections.pop(node).close()
            connection = None
        if connection is None or not connection.usable():
            connection = self._connected(node)
            if connection is None:
                return
            self._connections[node] = connection
        if self._ring is None:  # after another node's failure they may be forgotten
            for name in {tp.topic for tp in partitions}:
                self.cluster.topic(name)
        api = apis.OFFSET_FOR_LEADER_EPOCH
        checks = connection.knows(api) and connection.version_of(api) >= USABLE_VERSION
        pending = self.core.ask(node, partitions, checks, time.monotonic())
        if pending is not None:
            self._post(connection, pending)
            self.core.sent(node, pending, time.monotonic())

    def _post(self, connection: Connection, pending: PendingFetch) -> None:
        request, api = pending.request, apis.FETCH
        if isinstance(request, dict):
            api = apis.OFFSET_FOR_LEADER_EPOCH
            body = self.core.epochs.question(pending.offsets, request)
            version = connection.version_of(api)
        else:
            body, version = self._request(connection, request, request.after)
        if self._ring is None:
            connection.send(api, body, version)
        else:
            connection.post(api, body, version)

    def _connected(self, node: int) -> Connection | None:
        """A connection to a node; None while it is being opened.  Raises: why it failed."""
        if self._ring is None:
            return self.cluster.another(node)
        openings, opening = self.cluster.openings, self._opening.get(node)
        if opening is None:
            with self.cluster.patience.errand_of("place", 0):
                place = self.cluster.place(node)
            opening = self._opening[node] = openings.begin(place, self._ring)
        if not opening.done:
            return None
        del self._opening[node]
        return openings.take(opening)

    def _request(
        self, connection: Connection, request: sessions.Ask, session: sessions.Session
    ) -> tuple[dict[str, Any], int]:
        """(body, version) of a Fetch."""
        version = connection.version_of(
            apis.FETCH, at_most=VERSION_MAX if session.by_id else NAMES_VERSION_MAX
        )
        body = {
            "max_wait_ms": self.options.max_wait_ms,
            "min_bytes": self.options.min_bytes,
            "max_bytes": self.options.max_bytes,
            "isolation_level": int(self.options.committed),
            "rack_id": self.options.rack,
            **sessions.fields(request, session.ids, self.options.partition_bytes),
        }
        return body, version

    # ---- answers -----------------------------------------------------------------------

    def _ready(self, wait_s: float) -> list[int]:
        """The nodes whose answer has begun to arrive, or is overdue."""
        waiting = {self._connections[node]: node for node in self.core.pending}
        now_s = time.monotonic()
        next_s = self.core.next_s(now_s)
        wait_s = wait_s if next_s is None else min(wait_s, next_s - now_s)
        there = [one for one in self._wait(waiting, wait_s) if one in waiting]
        found = [waiting[one] for one in there if not one.unsent or self._pumped(one, waiting[one])]
        late = [node for node in self.core.overdue(time.monotonic()) if node not in found]
        return found + late

    def _pumped(self, connection: Connection, node: int) -> bool:
        """Send more of a request; returns whether there is something to receive."""
        self._alone(node, connection.pump)
        return not connection.closed and bool(answering([connection], 0))

    def _receive(self, node: int) -> None:
        pending, connection = self.core.pending[node], self._connections[node]
        if pending.due_s <= time.monotonic() and not answering([connection], 0):
            raise errors.Timeout(f"node {node}: no answer in time")
        answer = connection.receive(self.options.max_wait_ms + GRACE_MS)
        now_s = time.monotonic()
        self.core.answered(node, answer, now_s)
        if not isinstance(pending.request, dict) and not getattr(answer, "error_code", 0):
            rows = (row for topic in answer.responses for row in topic.partitions)
            self.fetch_bytes.add(sum(len(row.records or b"") for row in rows))
            fetch_ms = self.core.patience_ms + (now_s - pending.due_s) * 1000
            for times in (self.fetch_ms, self.nodes.setdefault(node, Tally())):
                times.add(fetch_ms)
