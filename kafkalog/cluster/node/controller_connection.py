"""A connection to the cluster's current controller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kafkalog import errors
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import Address, Options
from kafkalog.replication.inter_broker import connect
from kafkalog.wire.api import Api

__all__ = ["ControllerConnection"]

ANSWER_MS = 30_000


class ControllerConnection:
    """Sends requests one after another, over its own connection: a caller that must not wait for
    another's answer uses another connection.  Any thread."""

    def __init__(
        self, node: int, where: Callable[[], tuple[int, Address | None]], connecting: Options,
        epoch: Callable[[], int] = lambda: 0,
    ) -> None:  # fmt: skip
        """`node`: the caller.  `where`: the controller, -1: none is known, and its address if that
        is known.  `epoch`: of that controller, if one node's reigns must be told apart."""
        self._node, self._where, self._connecting = node, where, connecting
        self._epoch = epoch
        self._asking = threading.Lock()  # one request at a time
        self._open: tuple[tuple[int, int], Connection] | None = None
        self._closed = threading.Event()

    def ask(self, api: Api, fields: Any, at_most: int | None = None) -> Any:
        """Send a request, by the names of kafkalog.wire; returns its response.

        Raises: NotController (the controller is not known, this node and it do not accept each
        other, or this is closed), PeerGone, Timeout, BadAnswer.
        """
        with self._asking:
            try:
                connection = self._connected()
                connection.send(api, fields, connection.version_of(api, at_most=at_most))
                return connection.receive(ANSWER_MS)
            except errors.AuthenticationFailed as problem:  # not the client's, who may retry
                self._hang_up()
                raise errors.NotController(
                    f"broker {self._node}: the controller and it do not accept each other, as its "
                    "log says"
                ) from problem
            except errors.KafkalogError:
                self._hang_up()
                raise
            finally:
                if self._closed.is_set():
                    self._hang_up()

    def _connected(self) -> Connection:
        epoch, (controller, place) = self._epoch(), self._where()
        if self._open is not None:
            reign, connection = self._open
            if reign == (controller, epoch) and not connection.closed:
                return connection
            self._hang_up()
        if place is None or self._closed.is_set():
            raise errors.NotController(f"broker {self._node}: found no controller to ask")
        made = connect(place, self._connecting)
        self._open = (controller, epoch), made
        self.turn()
        return made

    def turn(self) -> None:
        """End the wait for a broker once another one is the controller, or the same one again, and
        any wait after `close`: the outcome of the request is unknown, and the next controller is
        asked.  While none is known, the last one may still answer."""
        if (found := self._open) is None:
            return
        reign, connection = found
        controller = self._where()[0]
        another = controller >= 0 and (controller, self._epoch()) != reign
        if another or self._closed.is_set():
            connection.interrupt()

    def close(self) -> None:
        """End all requests and waits, now and later.  Idempotent."""
        self._closed.set()
        self.turn()
        if self._asking.acquire(blocking=False):  # otherwise the asking thread hangs up
            self._hang_up()
            self._asking.release()

    def _hang_up(self) -> None:
        found, self._open = self._open, None
        if found is not None:
            found[-1].close()
