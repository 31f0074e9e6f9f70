"""A session with ZooKeeper: kafkalog's requests to it, and its notifications.

Only this module, and `security` for a connection, use kazoo.  Reads and writes wait for their
answer.  Watches fire once; they and changes of the session are passed to `told`, which is called in
kazoo's thread and may only put them into a queue.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.arguments import text, whole_number
from kafkalog.zookeeper.documents import DENIED
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.security import ZooKeeperSecurity, is_open, is_secret, log_in

__all__ = [
    "ANY_VERSION",
    "STAND_INS",
    "USUAL",
    "Check",
    "Committed",
    "Create",
    "Delete",
    "Found",
    "Life",
    "Operation",
    "Seen",
    "Session",
    "Set",
    "Timeouts",
    "open_session",
]

ANY_VERSION = -1
AGAIN = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 2.0}
"""An unreachable ensemble is retried for as long as the session is wanted."""
WRITES_AT_ONCE = 500
READS_AT_ONCE = 500
"""Requests in flight when reading a tree; each is one small message."""


class Life(Enum):
    """A change of the session."""

    CONNECTED = "connected"
    AWAY = "away"
    """No server answers; the session and its ephemeral znodes may live on."""
    EXPIRED = "expired"
    """It has ended, and its ephemeral znodes are gone; a new one begins by itself."""


class Seen(NamedTuple):
    """A watch that fired: something at the path has changed since it was read.  Read it again."""

    path: str
    children: bool
    """Its children; False: its data, or whether it exists."""


Told = Callable[[Life | Seen], None]


class Timeouts(NamedTuple):
    """Two timeouts, as a busy machine needs both: an ensemble may be slow to accept a connection,
    and its clients' deaths should be noticed soon."""

    session_ms: int = 18_000
    """ZooKeeper ends a session that has been silent for this long."""
    connection_ms: int = 18_000
    """How long the first connection may take."""


USUAL = Timeouts()


class Create(NamedTuple):
    """A new znode."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    """It lives as long as the session."""
    sequence: bool = False
    """ZooKeeper appends a number to its path."""


class Set(NamedTuple):
    """New data for a znode with this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a znode with this version."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Require that a znode has this version; otherwise none of the operations is done."""

    path: str
    version: int


Operation = Create | Set | Delete | Check
Found = Znode | list[str] | None | errors.BadZnode
"""The result of a read."""


class Committed(NamedTuple):
    """The outcome of operations that are done all or none."""

    done: bool
    refused: int = -1
    """The operation that failed."""
    why: str = ""
    """ZooKeeper's name of the error: "NoNode", "NodeExists", "BadVersion", "NotEmpty"."""
    paths: tuple[str, ...] = ()
    """For those that created something, its path."""


class _Watch(NamedTuple):
    told: Told
    seen: Seen

    def __call__(self, event: Any) -> None:
        if event.type != "NONE":  # changes of the session are reported separately
            self.told(self.seen)


class Session:
    """A connection to a ZooKeeper ensemble.  Any thread; closed by `close` or as a context manager.

    All requests raise ZooKeeperAway if no server answered in time: the outcome of a write is then
    unknown.  The data of a znode that may not be read is DENIED,
    without its version, and no watch is set.
    """

    def __init__(
        self, hosts: str, told: Told, timeouts: Timeouts = USUAL,
        security: ZooKeeperSecurity | None = None,
    ) -> None:  # fmt: skip
        """Connect.  `hosts`: `host:port,.../chroot`; the first write creates a missing chroot.
        `security`: None: in plain text, without a login.

        Raises: MissingPackage without kazoo, ArgumentError, ZooKeeperAway.
        """
        self.hosts = text("hosts", hosts)
        """As they were given."""
        for name, value in timeouts._asdict().items():
            whole_number(name, value, 1)
        self._kazoo = _kazoo()
        self._told = told
        self._timeout_s = timeouts.session_ms / 1000
        self._connection_s = timeouts.connection_ms / 1000
        servers, slash, chroot = hosts.partition("/")
        self._servers = servers
        self._chroot = f"/{chroot.rstrip('/')}" if slash and chroot else ""
        """Empty once it exists."""
        self._security = security
        self._client = self._made(hosts.rstrip("/"), connection_retry=AGAIN)
        self._client.add_listener(self._live)
        self._begin(self._client)

    def _begin(self, client: Any) -> None:
        until_s = time.monotonic() + self._connection_s
        try:
            client.start(self._connection_s)
            if self._security is not None and self._security.login is not None:
                self._await_login(client, until_s)
        except self._kazoo.handlers.threading.KazooTimeoutError:
            client.stop()
            client.close()
            why = "" if self._security is None else self._security.problem
            raise errors.ZooKeeperAway(
                f"no ZooKeeper answers at {self.hosts} in {self._connection_s:g} s"
                f"{why and ': '}{why}"
            ) from None

    def _await_login(self, client: Any, until_s: float) -> None:
        """Wait until a request is answered: kazoo says that it is connected before the login.

        Raises: KazooTimeoutError.
        """
        lost = self._kazoo.exceptions
        while True:
            try:
                client.exists_async("/").get(timeout=max(until_s - time.monotonic(), 0.001))
                return
            except (lost.ConnectionLoss, lost.SessionExpiredError, lost.ConnectionClosedError):
                continue

    def _made(self, hosts: str, **more: Any) -> Any:
        """A client of kazoo's, not started."""
        security = self._security
        if security is not None:
            more["handler"] = _handler(security)
        client = self._kazoo.client.KazooClient(hosts, timeout=self._timeout_s, **more)
        if security is not None and security.login is not None:
            # Its own function needs another package.
            client._connection.sasl_options = {}
            client._connection._authenticate_with_sasl = partial(
                log_in, client._connection, security
            )
        return client

    def _acl(self, path: str) -> Any:
        """The ACL of a new znode, as Kafka chooses it; None: open to all."""
        if self._security is None or not self._security.sets_acls or is_open(path):
            return None
        found = list(self._kazoo.security.CREATOR_ALL_ACL)
        return found if is_secret(path) else found + self._kazoo.security.READ_ACL_UNSAFE

    def _make_chroot(self) -> None:
        """A path that does not exist would make all writes fail."""
        if not self._chroot:
            return
        if self._answer(self._client.exists_async("/")) is None:
            client = self._made(self._servers)
            self._begin(client)
            try:
                self._answer(client.ensure_path_async(self._chroot, self._acl(self._chroot)))
            finally:
                client.stop()
                client.close()
        self._chroot = ""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session; its ephemeral znodes are deleted immediately."""
        self._client.remove_listener(self._live)
        self._client.stop()
        self._client.close()

    @property
    def id(self) -> int:
        """ZooKeeper's id of the session; 0 while there is none."""
        client_id = self._client.client_id
        return int(client_id[0]) if client_id else 0

    def _live(self, state: str) -> None:
        states = self._kazoo.client.KazooState
        now = {states.CONNECTED: Life.CONNECTED, states.SUSPENDED: Life.AWAY}
        self._told(now.get(state, Life.EXPIRED))

    def _answer(self, pending: Any) -> Any:
        """The result of one of kazoo's asynchronous calls: its blocking calls wait for as long as
        no server answers, and accept more requests."""
        kazoo = self._kazoo
        away = (
            kazoo.exceptions.ConnectionLoss, kazoo.exceptions.SessionExpiredError,
            kazoo.exceptions.ConnectionClosedError, kazoo.exceptions.OperationTimeoutError,
            kazoo.exceptions.SessionMovedError, kazoo.handlers.threading.KazooTimeoutError,
        )  # fmt: skip
        try:
            return pending.get(timeout=self._timeout_s)
        except away as problem:
            raise errors.ZooKeeperAway(
                f"ZooKeeper at {self.hosts}: {type(problem).__name__}"
            ) from problem

    def _watch(self, path: str, children: bool, wanted: bool) -> _Watch | None:
        # Equal ones are the same to kazoo: a second read adds no notification.
        return _Watch(self._told, Seen(path, children)) if wanted else None

    # ---- reading ------------------------------------------------------------------------------

    def read(self, path: str, watch: bool = False) -> Znode | None:
        """A znode; None if it does not exist.  `watch`: notify, once, when that changes."""
        fired = self._watch(path, False, watch)
        try:
            return self._data(self._client.get_async(path, watch=fired))
        except self._kazoo.exceptions.NoNodeError:
            if not watch:
                return None
            # `get` sets no watch on a missing znode.
            if self._answer(self._client.exists_async(path, watch=fired)) is None:
                return None
            return self.read(path, watch)  # created in between

    def _data(self, pending: Any) -> Znode:
        """Raises: NoNodeError."""
        try:
            return _znode(*self._answer(pending))
        except self._kazoo.exceptions.NoAuthError:
            return Znode(DENIED)

    def children(self, path: str, watch: bool = False) -> list[str] | None:
        """The names below a znode, in order; None if it does not exist; then no watch is set.

        Raises: BadZnode: this node may not list it.
        """
        fired = self._watch(path, True, watch)
        try:
            return self._names(path, self._client.get_children_async(path, watch=fired))
        except self._kazoo.exceptions.NoNodeError:
            return None

    def _names(self, path: str, pending: Any) -> list[str]:
        """Raises: NoNodeError, BadZnode."""
        try:
            return sorted(self._answer(pending))
        except self._kazoo.exceptions.NoAuthError:
            raise errors.BadZnode(
                f"{path}: ZooKeeper does not let this node list it (NoAuth): allow it by the "
                "znode's ACL"
            ) from None

    def sync(self, path: str) -> None:
        """Have later reads find all that any session has written before; any path will do."""
        self._answer(self._client.sync_async(path))

    def look(self, reads: Sequence[tuple[str, bool, bool]]) -> list[Found]:
        """As `read` and `children`, for many at the same time: (path, its children?, watch it?);
        an error that concerns one of them takes its place."""
        found: list[Found] = []
        for at in range(0, len(reads), READS_AT_ONCE):
            some = reads[at : at + READS_AT_ONCE]
            pending = []
            for path, children, watch in some:
                ask = self._client.get_children_async if children else self._client.get_async
                pending.append(ask(path, watch=self._watch(path, children, watch)))
            for (path, children, watch), one in zip(some, pending, strict=True):
                try:
                    found.append(self._names(path, one) if children else self._data(one))
                except self._kazoo.exceptions.NoNodeError:
                    found.append(self.read(path, True) if watch and not children else None)
                except errors.BadZnode as problem:
                    found.append(problem)
        return found

    def tree(self, *roots: str) -> dict[str, Znode]:
        """All znodes at and below these paths, many at the same time; a znode that is deleted in
        the process is left out.

        Raises: BadZnode, as `children`.
        """
        found: dict[str, Znode] = {}
        level = list(roots)
        while level:
            below: list[str] = []
            for at in range(0, len(level), READS_AT_ONCE):
                some = level[at : at + READS_AT_ONCE]
                pending = [
                    (path, self._client.get_async(path), self._client.get_children_async(path))
                    for path in some
                ]
                for path, znode, names in pending:
                    try:
                        one, children = self._data(znode), self._names(path, names)
                    except self._kazoo.exceptions.NoNodeError:
                        continue
                    found[path] = one
                    base = path.rstrip("/")
                    below += [f"{base}/{name}" for name in children]
            level = below
        return found

    # ---- writing ------------------------------------------------------------------------------

    def ensure(self, paths: Iterable[str]) -> None:
        """Create these znodes and their parents where they are missing, without data."""
        self._make_chroot()
        for path in dict.fromkeys(each for one in paths for each in self._with_parents(one)):
            self._answer(self._client.ensure_path_async(path, self._acl(path)))

    def _with_parents(self, path: str) -> list[str]:
        """The path; before it its parents, if each gets an ACL of its own."""
        if self._acl(path) is None:
            return [path]
        parts = path.split("/")
        return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]

    def commit(self, operations: Sequence[Operation]) -> Committed:
        """Do all of them, in their order, or none."""
        return self.commits([operations])[0]

    def commits(self, multis: Sequence[Sequence[Operation]]) -> list[Committed]:
        """As `commit`, for many of them: none waits for another's outcome."""
        self._make_chroot()
        found: list[Committed] = []
        for at in range(0, len(multis), WRITES_AT_ONCE):
            some = multis[at : at + WRITES_AT_ONCE]
            pending = [self._transaction(each).commit_async() for each in some]
            found += [self._committed(each, self._answer(one))
                      for each, one in zip(some, pending, strict=True)]  # fmt: skip
        return found

    def _transaction(self, operations: Sequence[Operation]) -> Any:
        transaction = self._client.transaction()
        for one in operations:
            if isinstance(one, Create):
                transaction.create(
                    one.path, one.data, self._acl(one.path), one.ephemeral, one.sequence
                )
            elif isinstance(one, Set):
                transaction.set_data(one.path, one.data, one.version)
            elif isinstance(one, Delete):
                transaction.delete(one.path, one.version)
            else:
                transaction.check(one.path, one.version)
        return transaction

    def _committed(self, operations: Sequence[Operation], results: Sequence[Any]) -> Committed:
        # ZooKeeper reports the others as rolled back, or as after the failed one.
        others = (
            self._kazoo.exceptions.RolledBackError,
            self._kazoo.exceptions.RuntimeInconsistency,
        )
        for at, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, others):
                return Committed(False, at, type(result).__name__.removesuffix("Error"))
        pairs = zip(operations, results, strict=True)
        return Committed(True, paths=tuple(r for o, r in pairs if isinstance(o, Create)))


def _znode(data: bytes, stat: Any) -> Znode:
    return Znode(data, stat.version, stat.czxid, stat.ephemeralOwner, stat.mzxid, stat.ctime)


STAND_INS: dict[str, Callable[[Told], Session]] = {}
"""Replacements for ensembles, by hosts that are no address, within this process: for tests that
use a cluster, see kafkalog.testing."""


def open_session(
    hosts: str, told: Told, timeouts: Timeouts = USUAL, security: ZooKeeperSecurity | None = None
) -> Session:
    """A session with the ensemble at `hosts`.  Raises: as Session."""
    stand_in = STAND_INS.get(hosts)
    return Session(hosts, told, timeouts, security) if stand_in is None else stand_in(told)


def _handler(security: ZooKeeperSecurity) -> Any:
    """kazoo's threads, with our sockets."""
    from kazoo.handlers.threading import SequentialThreadingHandler

    class Handler(SequentialThreadingHandler):  # type: ignore[misc]
        """Connects as `security` says."""

        def create_connection(self, address: Any, hostname: str, timeout: float, **_: Any) -> Any:
            return security.connect(address, hostname, timeout)

        def select(self, readable: Any, writable: Any, broken: Any, timeout: Any = None) -> Any:
            # What TLS has decrypted already is not shown by the system.
            ready = [one for one in readable if getattr(one, "pending", int)() > 0]
            found, *others = super().select(readable, writable, broken, 0 if ready else timeout)
            return ([*ready, *(one for one in found if one not in ready)], *others)

    return Handler()


def _kazoo() -> Any:
    try:
        import kazoo
        import kazoo.client
        import kazoo.exceptions
        import kazoo.handlers.threading
        import kazoo.protocol.states
        import kazoo.security
    except ImportError:
        raise errors.MissingPackage(
            "a cluster on ZooKeeper needs kazoo: pip install kazoo"
        ) from None
    # The first write creates it.
    warnings.filterwarnings("ignore", "No chroot path exists", module=r"kazoo\.client")
    return kazoo
