"""ZooKeeper as nodes reach it over the network, and a node's session with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kafkalog.simulate.network import Connection, Network, Place
from kafkalog.testing.zookeeper import Tree
from kafkalog.zookeeper.session import Life, Seen

__all__ = ["ENSEMBLE", "Ensemble", "Link"]

ENSEMBLE = 0
"""Its number in the network."""
RETRY_MS = 50.0
ATTACH = "attach"
T = TypeVar("T")
Deed = Callable[[Tree, int], Any]
"""An operation on the tree, for a session."""


class _Expired:
    """The answer to a session that has ended."""


class Ensemble(Place):
    """The place of the tree; it never stops, but links to it break."""

    def __init__(self, network: Network, timeout_ms: float) -> None:
        super().__init__(ENSEMBLE, network)
        self.tree = Tree()
        self.timeout_ms = timeout_ms
        self._heard_ms: dict[int, float] = {}
        self._by: dict[int, Connection] = {}

    def serve(self, connection: Connection, request: Any, reply: Callable[[Any], None]) -> None:
        """(session, deed).  Session 0 begins a session.  No deed only keeps it alive; ATTACH moves
        it to this connection, and requests on its earlier one are ignored from then on."""
        session, deed = request
        if session and deed is not ATTACH and self._by.get(session) is not connection:
            return
        if session and session not in self.tree.sessions:
            reply(_Expired)
            return
        if not session:
            session = self.tree.begin(lambda seen: self._tell(session, seen))
            self.world.later(self.timeout_ms, lambda: self._look(session))
        self._heard_ms[session] = self.world.now_ms
        if self._by.get(session) is not connection:
            self._by[session] = connection
            self.tree.forget(session)
        reply(session if deed in (None, ATTACH) else deed(self.tree, session))

    def _tell(self, session: int, seen: Life | Seen) -> None:
        self._by[session].push(seen)

    def _look(self, session: int) -> None:
        if session in self.tree.sessions:
            left_ms = self._heard_ms[session] + self.timeout_ms - self.world.now_ms
            if left_ms <= 0:
                self.expire(session)
            else:
                self.world.later(left_ms, lambda: self._look(session))

    def expire(self, session: int) -> None:
        """End a session without its owner's knowledge."""
        self.world.note("zookeeper: session", session, "expires")
        self.tree.end(session)


class Link:
    """A node's session.  Everything is called in the node's own time, and ends with its life."""

    def __init__(
        self, network: Network, node: Place, ensemble: Ensemble, told: Callable[[Any], None]
    ) -> None:
        """`told` gets Life.CONNECTED, AWAY and EXPIRED, and what watches see; watches of a
        connection that ended never fire."""
        self.session = 0
        self._network, self._node, self._ensemble, self._told = network, node, ensemble, told
        self._connection: Connection | None = None
        self.connect()

    @property
    def connected(self) -> bool:
        """True if it can be reached now, as far as is known."""
        return self._connection is not None and self._connection.open and self.session > 0

    def connect(self) -> None:
        """Connect again."""
        made = self._connection = Connection(self._network, self._node, self._ensemble)
        made.pushed = lambda seen: self._told(seen) if made is self._connection else None
        made.ask((self.session, ATTACH), self._begun, self._away, self._ensemble.timeout_ms)

    def _begun(self, session: Any) -> None:
        if session is _Expired:
            self._expired()
            return
        self.session = session
        self._told(Life.CONNECTED)
        self._beat()

    def _expired(self) -> None:
        if self.session:
            self.session = 0
            self._told(Life.EXPIRED)
        if self._connection is not None:
            self._connection.open = False
        self.connect()

    def _away(self) -> None:
        made = self._connection
        self._connection = None
        if made is not None:
            made.close()
        self._told(Life.AWAY)
        self._network.world.later(RETRY_MS, self._again, self._node)

    def _again(self) -> None:
        if self._connection is None:
            self.connect()

    def _beat(self) -> None:
        made = self._connection
        if made is None:
            return

        def next_one(_: Any) -> None:
            if _ is _Expired:
                if made is self._connection:
                    self._expired()
                return
            wait_ms = self._ensemble.timeout_ms / 3
            self._network.world.later(
                wait_ms, lambda: self._beat() if made is self._connection else None, self._node
            )

        limit_ms = self._ensemble.timeout_ms * 2 / 3
        made.ask((self.session, None), next_one, lambda: self._lost(made), limit_ms)

    def _lost(self, made: Connection) -> None:
        if made is self._connection:
            self._away()

    def ask(self, deed: Deed, done: Callable[[Any], None], failed: Callable[[], None]) -> None:
        """Run an operation; if that failed, it may have been done, or be done later."""
        made = self._connection
        if made is None or not self.connected:
            self._network.world.later(0, failed, self._node)
            return

        def answered(found: Any) -> None:
            if found is _Expired:
                failed()
                if made is self._connection:
                    self._expired()
            else:
                done(found)

        def lost() -> None:
            failed()
            self._lost(made)

        made.ask((self.session, deed), answered, lost, self._ensemble.timeout_ms * 2 / 3)
