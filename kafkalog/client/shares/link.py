"""The connections of a share consumer: it carries out what core.py decides."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from kafkalog import errors
from kafkalog.batch.walk import whole_batches
from kafkalog.client.fetch.fetcher import GRACE_MS
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connecting import Opening
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import about
from kafkalog.client.link.metadata import NO_NODE, places_of
from kafkalog.client.link.patience import NotYet
from kafkalog.client.link.wakeup import Waker
from kafkalog.client.metrics import Shared, Tally
from kafkalog.client.shares.core import Acquired, Request, ShareState, forgotten_of, topics_of
from kafkalog.client.shares.holding import Place
from kafkalog.config.share_consumer import ShareConsumerConfig
from kafkalog.log.fetched import Decoder
from kafkalog.types import Record
from kafkalog.wire import apis

__all__ = ["ShareLink"]

RENEWS_SINCE = 2
"""From this version on, ShareFetch and ShareAcknowledge renew locks, and limit records."""
ACQUIRED_MAX = 1 << 20
"""Offsets of a partition in one answer: a share partition has at most some thousands in flight."""


class ShareLink:
    """Sends requests and takes answers.  One thread."""

    def __init__(
        self, cluster: Cluster, config: ShareConsumerConfig, member_id: str, state: ShareState,
        waker: Waker,
    ) -> None:  # fmt: skip
        """Nothing is sent yet."""
        self._cluster = cluster
        self._config = config
        self._member = {"group_id": config.group_id, "member_id": member_id}
        self._state = state
        self._waker = waker
        self._connections: dict[int, Connection] = {}
        self._opening: dict[int, Opening] = {}
        self._due_s: dict[int, float] = {}
        self._sent_s: dict[int, float] = {}
        self.shared = Shared()
        self._decoder: Decoder | None = None

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()
        for opening in self._opening.values():
            opening.give_up()
        self._connections.clear()
        self._opening.clear()

    # ---- requests ----------------------------------------------------------------------

    def send(self, fetches: bool) -> None:
        """Send what is due; `fetches`: ask for records, too."""
        for request in self._state.plan(fetches, time.monotonic()):
            self._alone(request.source.node, partial(self._send, request))

    def finish(self) -> bool:
        """Send the last request to each node that has none in flight; True: all are answered."""
        for node in [one for one in self._state.sessions if one not in self._state.pending]:
            self._alone(node, partial(self._send, self._state.closing(node)))
        return not (self._state.sessions or self._state.pending)

    def _send(self, request: Request) -> None:
        node = request.source.node
        connection = self._connection(node, request.epoch)
        if connection is None:
            return
        api = apis.SHARE_FETCH if request.fetches else apis.SHARE_ACKNOWLEDGE
        version = connection.version_of(api)
        if request.renews and version < RENEWS_SINCE:
            raise errors.UnsupportedVersion(
                f"{connection.address}: {api.name}: version {version}, wanted {RENEWS_SINCE} to "
                "renew locks"
            )
        body = self._body(request, version)
        self._state.sent(request)
        patience_ms = self._cluster.options.request_timeout_ms
        if request.fetches:
            patience_ms += self._config.fetch_max_wait_ms
        self._sent_s[node] = now_s = time.monotonic()
        self._due_s[node] = now_s + patience_ms / 1000
        self.shared.acknowledged += sum(map(len, request.acks.values()))
        connection.post(api, body, version)

    def _body(self, request: Request, version: int) -> dict[str, Any]:
        config = self._config
        body: dict[str, Any] = {
            **self._member, "share_session_epoch": request.epoch,
            "topics": topics_of(request.added, request.acks),
        }  # fmt: skip
        if version >= RENEWS_SINCE:
            body["is_renew_ack"] = request.renews
        if not request.fetches:
            return body
        limited = config.share_acquire_mode == "record_limit"
        if version >= RENEWS_SINCE:
            body["share_acquire_mode"] = int(limited)
        elif limited:
            raise errors.UnsupportedVersion(
                f"ShareFetch: version {version}, wanted {RENEWS_SINCE} for "
                "share.acquire.mode=record_limit"
            )
        return body | {
            "max_wait_ms": config.fetch_max_wait_ms, "min_bytes": config.fetch_min_bytes,
            "max_bytes": config.fetch_max_bytes, "max_records": config.max_poll_records,
            "batch_size": config.max_poll_records,
            "forgotten_topics_data": forgotten_of(request.forgotten),
        }  # fmt: skip

    def _connection(self, node: int, epoch: int) -> Connection | None:
        """The connection to a node; None while it is being opened.  A session ends with its
        connection.  Raises: PeerGone; why it could not be opened."""
        found = self._connections.get(node)
        if found is not None and not self._cluster.moved(node, found) and found.usable():
            return found
        if epoch:
            raise errors.PeerGone(f"node {node}: the connection was closed")
        if found is not None:
            self._connections.pop(node).close()
        opening = self._opening.get(node)
        if opening is None:
            place = self._cluster.nodes.get(node)
            if place is None:
                raise errors.PeerGone(f"node {node} is not in the cluster now")
            opening = self._opening[node] = self._cluster.openings.begin(place, self._waker.nudge)
        if not opening.done:
            return None
        del self._opening[node]
        made = self._connections[node] = self._cluster.openings.take(opening)
        return made

    def _alone(self, node: int, call: Any) -> None:
        """Make a call for one node: its failure holds up no other node."""
        try:
            call()
        except NotYet:
            return
        except errors.WakeUp:
            raise
        except errors.KafkalogError as problem:
            if connection := self._connections.pop(node, None):
                connection.close()
            self._due_s.pop(node, None)
            self._state.failed(node, problem, time.monotonic())

    # ---- answers -----------------------------------------------------------------------

    def wait(self, wait_s: float, others: Iterable[Connection] = ()) -> None:
        """Take the answers that arrive; returns after the first ones, a nudge, or `wait_s`.

        Raises: WakeUp.
        """
        now_s = time.monotonic()
        waiting = {self._connections[node]: node for node in self._state.pending}
        ends_s = [at for node, at in self._due_s.items() if node in self._state.pending]
        if (next_s := self._state.next_s(now_s)) is not None:
            ends_s.append(next_s)
        wait_s = max(0.0, min([wait_s, *(at - now_s for at in ends_s)]))
        for one in self._waker.wait([*waiting, *others], wait_s):
            if one in waiting:
                self._alone(waiting[one], partial(self._take, waiting[one], one))
        now_s = time.monotonic()
        for node in list(self._state.pending):
            if self._due_s[node] <= now_s:
                self._alone(node, partial(self._late, node))

    def _late(self, node: int) -> None:
        raise errors.Timeout(f"node {node}: no answer in time")

    def _take(self, node: int, connection: Connection) -> None:
        if connection.unsent:
            connection.pump()
            return
        answer = connection.receive(GRACE_MS)
        state, cluster = self._state, self._cluster
        fetches = state.pending[node].fetches
        acquired = state.answered(node, answer, time.monotonic())
        self._measure(node, fetches, acquired)
        for found in acquired:
            self._hold(found)
        for place, leader, epoch, said in state.moves:
            at = places_of(said).get(leader)
            if leader != NO_NODE:
                cluster.learn_leader(place.tp, leader, epoch, at)
        state.moves.clear()

    def _measure(self, node: int, fetches: bool, acquired: Sequence[Acquired]) -> None:
        """Count an answer of a node."""
        ms, shared = (time.monotonic() - self._sent_s[node]) * 1000, self.shared
        shared.nodes.setdefault(node, Tally()).add(ms)
        if fetches:
            shared.fetch_ms.add(ms)
            shared.fetch_bytes.add(sum(len(one.data) for one in acquired))
            shared.request_records.add(max(sum(map(_count, acquired)), 0))

    def _hold(self, found: Acquired) -> None:
        """Decode acquired records.  What is damaged is rejected, and raised by the next poll."""
        count = _count(found)
        if not 0 < count <= ACQUIRED_MAX:
            raise errors.BadAnswer(
                f"{found.place.topic}-{found.place.number}: ShareFetch: found {count} acquired "
                f"records, wanted 1 to {ACQUIRED_MAX}"
            )
        damaged: list[tuple[int, int]] = []
        try:
            records = self._decoded(found.place, found.data)
        except errors.KafkalogError as problem:
            records = self._undamaged(found, damaged)
            self._state.problem = self._state.problem or about(found.place.tp, problem)
        self._state.holding.add(found.place, found.source, found.ranges, records, damaged)

    def _decoded(self, place: Place, data: Any) -> list[Record]:
        if self._decoder is None:
            self._decoder = Decoder(check_crcs=self._config.check_crcs)
        found: list[Record] = []
        for rows in self._decoder.records(place.topic, place.number, data):
            found += rows.records(0, len(rows))
        return found

    def _undamaged(self, found: Acquired, damaged: list[tuple[int, int]]) -> list[Record]:
        """The records of the batches that can be decoded; the offsets of the others."""
        records: list[Record] = []
        first = 0
        self._decoder = None
        try:
            for batch, data in whole_batches(found.data, check_crc=False):
                first = int(batch.last_offset) + 1
                try:
                    records += self._decoded(found.place, data)
                except errors.KafkalogError:
                    self._decoder = None
                    damaged.append((int(batch.base_offset), int(batch.last_offset)))
        except errors.KafkalogError:
            damaged.append((first, found.ranges[-1].last_offset))
        return records


def _count(found: Acquired) -> int:
    """Acquired records."""
    count: int = sum(one.last_offset - one.first_offset + 1 for one in found.ranges)
    return count
