"""A ZooKeeper, and brokers of the last Apache Kafka that ran on one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from kafkalog.cli.cluster.zookeeper import serves
from tests.support import apache
from tests.support.waiting import wait_for

ZOOKEEPER = """
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=srvr
tickTime=200
maxSessionTimeout=60000
"""
BROKER = (
    """
broker.id={node}
zookeeper.connect={zookeeper}
zookeeper.session.timeout.ms=30000
zookeeper.connection.timeout.ms=60000
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={data}
inter.broker.protocol.version=3.9
controlled.shutdown.enable=false
log.retention.ms=-1
"""
    + apache.ALONE
)
"""A broker that runs for half a minute, as on a busy machine, would delete the tests' records of
1970; one whose session ends while it starts gives up."""


def password(session: int) -> bytes:
    """The password of the session with this id.  ZooKeeper stores none: it draws them from Java's
    generator, seeded with the id and a number that all its servers have."""
    state = (session ^ 0xB3415C00 ^ 0x5DEECE66D) & (1 << 48) - 1
    found = b""
    while len(found) < 16:
        state = (state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        found += (state >> 16).to_bytes(4, "little")
    return found


def ends(hosts: str, path: str, patience_s: float = 30) -> None:
    """End the session that owns an ephemeral node, as if it had been silent for too long: closing
    a session by its id and password ends it for every client that has it."""
    wait_for(lambda: _expire(hosts, path), f"the session of {path} ends", patience_s, 0.1)


def _expire(hosts: str, path: str) -> bool:
    """True if the session belongs to no client any more; its owner may have come between."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import ConnectionLoss, SessionExpiredError

    def owner() -> int:
        found = asking.exists(path)
        return found.ephemeralOwner if found else 0

    lost = ConnectionLoss, SessionExpiredError
    asking = KazooClient(hosts)
    try:
        asking.start(10)
        if not (session := owner()):
            return True
        thief = KazooClient(hosts, client_id=(session, password(session)))
        # It may lose the connection to the session's owner, which has it, too.
        with contextlib.suppress(thief.handler.timeout_exception, *lost):
            thief.start(2)
        thief.stop()
        thief.close()
        return owner() != session
    except (asking.handler.timeout_exception, *lost):
        return False
    finally:
        asking.stop()
        asking.close()


class ZooKeeper(apache.Java):
    """A ZooKeeper of one server; a context manager, and inside it the server answers.

    Raises: apache.Unavailable.
    """

    def __init__(self, folder: Path, settings: str = "", options: Sequence[str] = ()) -> None:
        """`settings`: more lines of its file; `options`: of the JVM."""
        folder.mkdir()
        super().__init__(folder / "zookeeper.out")
        self._settings, self._options = settings, options
        self.port = apache.free_port()
        self.hosts = f"127.0.0.1:{self.port}"
        self._folder = folder
        self._jars = apache.jars_with_zookeeper()

    def __enter__(self) -> ZooKeeper:
        self.begin()
        return self

    def begin(self) -> None:
        """Start it, the first time or again on the same data."""
        properties = self._folder / "zoo.cfg"
        text = ZOOKEEPER.format(data=self._folder / "data", port=self.port)
        properties.write_text(text + self._settings)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = apache.java(main, str(properties), folder=self._jars)
        command[1:1] = self._options
        command = self.kept("zookeeper", command, self._jars)
        self.start(command, self._folder, lambda: serves("127.0.0.1", self.port))

    def __exit__(self, *_: object) -> None:
        self.end()


class Broker(apache.Kafka):
    """A broker of Kafka 3.9; a context manager, and inside it the broker answers."""

    def __init__(
        self, folder: Path, zookeeper: str, node: int = 1, settings: str = "", known: int = 1,
        port: int | None = None, options: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`zookeeper`: with the chroot, which it creates.  `known`: the number of brokers that it
        must know before it is used; 0 if it waits for one of our controllers.  `options`: of the
        JVM."""
        folder.mkdir()
        super().__init__(folder / "broker.out")
        self.port = port or apache.free_port()
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._folder = folder
        self._known = known
        self._options = options
        self._properties = folder / "server.properties"
        self._properties.write_text(
            BROKER.format(node=node, zookeeper=zookeeper, port=self.port, data=folder / "data")
            + settings
        )

    def __enter__(self) -> Broker:
        command = self.command(self._properties, "384m", apache.jars_with_zookeeper())
        command[1:1] = self._options
        self.start(
            command, self._folder, lambda: apache.answers(self.bootstrap_servers, self._known)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
