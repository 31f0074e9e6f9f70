"""The transport to a broker of this process: its reactor takes one end of a pair of sockets.

No port and no address; the frames are the same as over a network.
"""

from __future__ import annotations

import socket
import threading
import weakref
from collections.abc import Sequence

from kafkalog import errors
from kafkalog.client.link.transport import Address, Client, Options
from kafkalog.logs.limit import limited
from kafkalog.server.network.listeners import INSIDE, INSIDE_PLACE
from kafkalog.server.network.reactor import Reactor

__all__ = ["InProcessTransport"]

_logger = limited(__name__)
BUFFER_BYTES = 1 << 20
"""Buffer of each socket: a request of usual size is sent in one piece."""


class InProcessTransport:
    """Connects clients to a broker of this process.  Safe to use from many threads."""

    inside = True

    def __init__(self, reactor: Reactor, name: str) -> None:
        """`name`: the broker's, for messages."""
        self._reactor = reactor
        self._name = name
        self._lock = threading.Lock()  # guards what follows
        self._clients: list[weakref.ref[Client]] = []
        self._closed = False

    def reach(self, reactor: Reactor) -> None:
        """Connect to the reactor of the broker's next life from now on."""
        self._reactor = reactor

    @property
    def servers(self) -> Sequence[Address]:
        """The broker."""
        return (Address(INSIDE_PLACE.host, INSIDE_PLACE.port),)

    def connect(self, address: Address, options: Options) -> socket.socket:
        """As Transport.connect."""
        if address not in self.servers:
            raise errors.PeerGone(f"{address}: not inside this process")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            self._reactor.adopt(theirs, INSIDE)
        except errors.Closed:
            ours.close()
            theirs.close()
            raise errors.PeerGone(f"{self._name} was closed") from None
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return ours

    def attach(self, client: Client) -> None:
        """Register a client, which `close` closes.

        Raises: Closed.
        """
        with self._lock:
            if self._closed:
                raise errors.Closed(f"{self._name} was closed")
            self._clients = [one for one in self._clients if one() is not None]
            self._clients.append(weakref.ref(client))

    def close(self) -> None:
        """Close the clients, the last one first; no new one can register."""
        with self._lock:
            self._closed = True
            clients, self._clients = self._clients, []
        for one in reversed(clients):
            client = one()
            if client is not None:
                try:
                    client.close()
                except errors.KafkalogError as problem:  # the broker closes in any case
                    _logger.warning("%s: closing a client failed: %s", self._name, problem)
