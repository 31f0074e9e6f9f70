"""Sends a replica's requests: one connection and one thread for each peer.

A peer gets one request at a time.  A later one takes the place of an earlier one, which Raft has
given up by then: its connection is interrupted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.client.link.transport import Address, Options
from kafkalog.errors import KafkalogError, UnsupportedVersion
from kafkalog.logs.limit import limited
from kafkalog.quorum.replica.disk import batches_of
from kafkalog.raft.codec import API_OF, request_fields, response_of
from kafkalog.raft.messages import FetchResponse, VoteRequest
from kafkalog.replication.inter_broker import connect
from kafkalog.wire.api import Api
from kafkalog.wire.apis import FETCH

if TYPE_CHECKING:
    from kafkalog.client.link.connection import Connection

__all__ = ["Arrived", "Peers", "Wanted"]

_logger = limited(__name__)

JOIN_S = 5.0
VERSIONS_MIN = {FETCH.key: 17}
"""The first version of Fetch with the fetching replica's directory."""
PRE_VOTE_SINCE = 2


class Wanted(NamedTuple):
    """A request for a peer."""

    number: int
    message: Any
    address: Address


class Arrived(NamedTuple):
    """The outcome of a request: Raft's message, and the decoded response; None: it failed."""

    number: int
    message: Any = None
    body: Any = None
    refused: bool = False
    """Nobody listened at the peer's address."""


class Peers:
    """The other nodes of the quorum, as one replica sends to them.  Used by one thread; ended by
    `stop`."""

    def __init__(
        self, node: int, cluster_id: str, endpoints: tuple[tuple[str, str, int], ...],
        connecting: Options, received: Callable[[Arrived], None],
    ) -> None:  # fmt: skip
        """`endpoints`: this node's own; `connecting`: timeouts and the login; `received` is called
        in the threads of the peers."""
        self._node, self._connecting, self._received = node, connecting, received
        self._fields = cluster_id, endpoints
        self._peers: dict[int, _Peer] = {}

    def send(self, node: int, wanted: Wanted) -> None:
        """Send a request; the one in flight to the same node is given up."""
        if node not in self._peers:
            name = f"quorum {self._node} to {node}"
            self._peers[node] = _Peer(name, self._ask, self._connecting, self._received)
        self._peers[node].send(wanted)

    def keep(self, numbers: Mapping[int, int]) -> None:
        """Give up the requests in flight whose numbers are not those of Raft, by node."""
        for node, one in self._peers.items():
            one.keep(numbers.get(node, 0))

    @property
    def problem(self) -> str:
        """Why the last requests to peers failed; empty: they did not.  From any thread."""
        return "; ".join(one.problem for one in [*self._peers.values()] if one.problem)

    def stop(self) -> None:
        """Send nothing more."""
        for one in self._peers.values():
            one.stop()

    def join(self) -> None:
        """After `stop`: wait for the threads, but not long for one that is connecting."""
        for one in self._peers.values():
            one.join()

    def _ask(self, connection: Connection, message: Any) -> tuple[Any, Any]:
        api: Api = API_OF[type(message)]
        version = connection.version_of(api)
        if version < VERSIONS_MIN.get(api.key, 0):
            raise UnsupportedVersion(
                f"{connection.address}: {api.name}: found versions up to {version}, wanted "
                f"{VERSIONS_MIN[api.key]}: controllers of Apache Kafka 3.9 or later"
            )
        if version < PRE_VOTE_SINCE and isinstance(message, VoteRequest) and message.pre_vote:
            raise UnsupportedVersion(f"{connection.address}: Vote: found no pre-vote")
        body = connection.call(api, request_fields(message, *self._fields), version)
        answer = response_of(api, body)
        if isinstance(answer, FetchResponse):
            answer = answer._replace(records=tuple(batches_of(answer.records)))
        return answer, body


class _Peer:
    """A thread and a connection."""

    def __init__(
        self, name: str, ask: Callable[[Connection, Any], tuple[Any, Any]], connecting: Options,
        received: Callable[[Arrived], None],
    ) -> None:  # fmt: skip
        self._ask, self._connecting, self._received = ask, connecting, received
        self._lock = threading.Condition()  # guards what follows
        self._wanted: Wanted | None = None
        self._asking = 0  # the number of the request in flight
        self._ended = False
        self._connection: Connection | None = None
        self._said = ""  # the thread's own
        self.problem = ""
        """As Peers.problem."""
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    def send(self, wanted: Wanted) -> None:
        with self._lock:
            self._wanted = wanted
            self._interrupt()
            self._lock.notify()

    def keep(self, number: int) -> None:
        with self._lock:
            if self._wanted is not None and self._wanted.number != number:
                self._wanted = None
            if self._asking and self._asking != number:
                self._interrupt()

    def stop(self) -> None:
        with self._lock:
            self._ended, self._wanted = True, None
            self._interrupt()
            self._lock.notify()

    def _interrupt(self) -> None:
        if self._asking and self._connection is not None:
            self._connection.interrupt()

    def join(self) -> None:
        self._thread.join(JOIN_S)

    def _loop(self) -> None:
        while (wanted := self._next()) is not None:
            answer, body, refused = None, None, False
            try:
                answer, body = self._ask(self._connected(wanted), wanted.message)
                self._said = self.problem = ""
            except Exception as problem:  # without this thread the peer would get nothing more
                self._say(problem, wanted)
                self._hang_up()
                refused = isinstance(problem.__context__, ConnectionRefusedError)
            with self._lock:
                self._asking = 0
            self._received(Arrived(wanted.number, answer, body, refused))
        self._hang_up()

    def _next(self) -> Wanted | None:
        with self._lock:
            while self._wanted is None and not self._ended:
                self._lock.wait()
            found, self._wanted = self._wanted, None
            if found is not None:
                self._asking = found.number
            return found

    def _connected(self, wanted: Wanted) -> Connection:
        found = self._connection
        if found is not None and (found.address != wanted.address or not found.usable()):
            self._hang_up()
            found = None
        if found is None:
            found = connect(wanted.address, self._connecting)
            with self._lock:
                self._connection = found
                if self._ended:
                    found.interrupt()
        return found

    def _hang_up(self) -> None:
        with self._lock:
            found, self._connection = self._connection, None
        if found is not None:
            with suppress(KafkalogError):
                found.close()

    def _say(self, problem: Exception, wanted: Wanted) -> None:
        name = API_OF[type(wanted.message)].name
        if not isinstance(problem, KafkalogError):
            _logger.exception("%s to %s failed", name, wanted.address)
        elif str(problem) != self._said and not self._ended:
            _logger.info("%s to %s: %s", name, wanted.address, problem)
        self._said, self.problem = str(problem), f"{name} to {wanted.address}: {problem}"
