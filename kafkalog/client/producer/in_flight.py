"""Requests in flight: a connection to each node, none of which holds up another.

Connections are opened in threads of their own.  Bytes that a node does not accept at once wait
until it does: only that node's requests wait with them.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.buffer.delivery import Batch
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connecting import Opening
from kafkalog.client.link.connection import Connection, answering
from kafkalog.types import TopicPartition
from kafkalog.wire import apis

__all__ = ["Flights", "Request"]


class Request(NamedTuple):
    """Batches sent together."""

    batches: dict[TopicPartition, Batch]
    body: dict[str, Any]
    """Emptied once it was sent."""
    version_max: int
    """Highest version of Produce."""
    until_s: float
    """When it must be answered (monotonic)."""


class _Waiting(NamedTuple):
    """A request that waits for its connection."""

    opening: Opening
    request: Request


class Flights:
    """By node: its connection, and the requests sent to it.  For the sender's thread only."""

    def __init__(
        self, cluster: Cluster, most: int, answered: bool, ring: Callable[[], None]
    ) -> None:
        """At most `most` requests in flight to a node; `ring`: called when an opening has ended."""
        self._cluster = cluster
        self._most = most
        self._answered = answered
        self._ring = ring
        self._connections: dict[int, Connection] = {}
        self._flying: dict[int, deque[Request]] = {}
        self._opening: dict[int, _Waiting] = {}

    @property
    def quiet(self) -> bool:
        """True if nothing is in flight."""
        return not self._opening and not any(self._flying.values())

    @property
    def count(self) -> int:
        """Requests in flight.  From any thread."""
        return sum(len(some) for some in list(self._flying.values()))

    def batches(self) -> list[Batch]:
        """All batches in flight or waiting for a connection."""
        requests = [*chain.from_iterable(self._flying.values())]
        requests += (one.request for one in self._opening.values())
        return [batch for request in requests for batch in request.batches.values()]

    def takes(self, node: int) -> bool:
        """True if a node accepts another request now."""
        if node in self._opening or len(self._flying.get(node, ())) >= self._most:
            return False
        connection = self._connections.get(node)
        place = self._cluster.nodes.get(node)
        moved = connection is not None and place not in (None, connection.address)
        if moved and self._flying.get(node):
            return False  # requests in flight to the old address are answered first
        if connection is not None and connection.ages and self._flying.get(node):
            return False  # it logs in again between requests
        if moved or connection is None or connection.closed:
            return place is None or not self._cluster.openings.rests.left_s(place)
        return not connection.unsent

    def send(self, node: int, request: Request) -> bool:
        """Send a request; False: it will be sent once there is a connection, see `opened`.

        Raises: why it cannot be sent; all requests in flight to the node are then lost, too.
        """
        connection = self._connections.get(node)
        if connection is not None and connection.usable():
            place = self._cluster.nodes.get(node, connection.address)
            if connection.address == place or self._flying.get(node):
                self._post(node, connection, request)
                return True
            self.lose(node)
        opening = self._cluster.openings.begin(self._cluster.place(node), self._ring)
        self._opening[node] = _Waiting(opening, request)
        return False

    def _post(self, node: int, connection: Connection, request: Request) -> None:
        version = connection.version_of(apis.PRODUCE, at_most=request.version_max)
        if not self._answered:  # no answer would report a refusal
            connection.send(apis.PRODUCE, request.body, version, answered=False)
            return
        connection.post(apis.PRODUCE, request.body, version)
        request.body.clear()  # the connection keeps the bytes that are not sent yet
        self._flying.setdefault(node, deque()).append(request)

    def opened(
        self, now_s: float
    ) -> Iterator[tuple[int, Request, errors.KafkalogError | None, bool]]:
        """Requests that waited for a connection: sent now, or why not, and whether part of them
        may have been sent."""
        for node in [n for n, one in self._opening.items() if one.opening.done]:
            opening, request = self._opening.pop(node)
            patience_s = self._cluster.options.request_timeout_ms / 1000
            request = request._replace(until_s=now_s + patience_s)
            problem: errors.KafkalogError | None = None
            posted = False
            try:
                made = self._connections[node] = self._cluster.openings.take(opening)
                posted = True
                self._post(node, made, request)
            except errors.KafkalogError as found:
                problem = found
            yield node, request, problem, posted

    def lose(self, node: int) -> tuple[Request, ...]:
        """Close a connection; returns the requests that were in flight."""
        if connection := self._connections.pop(node, None):
            if self._answered:
                connection.give_up()
            else:  # with acks 0 it counts as sent
                connection.close()
        return tuple(self._flying.pop(node, ()))

    # ---- answers -------------------------------------------------------------------------

    def wait(self, bell: int, patience: Callable[[float], float]) -> tuple[list[int], bool]:
        """Wait for an answer, room to send, or the bell: (the nodes that are ready, if it rang).

        `patience`: when the first answer is overdue -> seconds to wait.
        """
        poll = select.poll()
        poll.register(bell, select.POLLIN)
        nodes = {}
        arrived = []
        due_s = float("inf")
        for node, requests in self._flying.items():
            if requests:
                connection = self._connections[node]
                nodes[connection.fileno()] = node
                wanted = select.POLLIN | (select.POLLOUT if connection.unsent else 0)
                poll.register(connection.fileno(), wanted)
                due_s = min(due_s, requests[0].until_s)
                if connection.decrypted:
                    arrived.append(node)
        wait_s = 0 if arrived else max(patience(due_s), 0)
        found = poll.poll(wait_s * 1000)
        ready = dict.fromkeys([*arrived, *(nodes[n] for n, _ in found if n != bell)])
        return list(ready), any(n == bell for n, _ in found)

    def pump(self, node: int) -> None:
        """Send more of the bytes that wait.  Raises: PeerGone."""
        connection = self._connections.get(node)
        if connection is not None and connection.unsent:
            connection.pump()

    def speaks(self, node: int) -> bool:
        """True if an answer of a node has begun to arrive, or its connection has ended."""
        return bool(self._flying.get(node) and answering([self._connections[node]], 0))

    def receive(self, node: int) -> tuple[Request, Any]:
        """The oldest request of a node, and its answer.  Raises: as Connection.receive."""
        answer = self._connections[node].receive()
        return self._flying[node].popleft(), answer

    def late(self, now_s: float) -> list[int]:
        """Nodes whose answer is overdue."""
        return [n for n, some in self._flying.items() if some and some[0].until_s <= now_s]

    def close(self) -> None:
        """Close all connections, and give up those being opened."""
        for connection in self._connections.values():
            connection.close()
        for waiting in self._opening.values():
            waiting.opening.give_up()
