"""A ZooKeeper, and brokers of the last Apache Kafka that ran on one."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.support import apache

ZOOKEEPER = """
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=ruok
tickTime=200
maxSessionTimeout=60000
"""
BROKER = """
broker.id={node}
zookeeper.connect={zookeeper}
zookeeper.session.timeout.ms=6000
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={data}
inter.broker.protocol.version=3.9
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
controlled.shutdown.enable=false
"""


class ZooKeeper(apache.Program):
    """A ZooKeeper of one server; a context manager, in which it answers from the first line on.

    Raises: apache.Unavailable.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        super().__init__(folder / "zookeeper.out")
        self.port = apache.free_port()
        self.hosts = f"127.0.0.1:{self.port}"
        self._folder = folder
        self._jars = apache.jars_with_zookeeper()

    def __enter__(self) -> ZooKeeper:
        self.begin()
        return self

    def begin(self) -> None:
        """Start it, also once more on the same data."""
        properties = self._folder / "zoo.cfg"
        properties.write_text(ZOOKEEPER.format(data=self._folder / "data", port=self.port))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = apache.java(main, str(properties), folder=self._jars)
        self.start(command, self._folder, self._answers)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as asked:
                asked.sendall(b"ruok")
                return asked.recv(4) == b"imok"
        except OSError:
            return False

    def __exit__(self, *_: object) -> None:
        self.kill()


class Broker(apache.Program):
    """A broker of Kafka 3.9; a context manager, in which it answers from the first line on."""

    def __init__(
        self, folder: Path, zookeeper: str, node: int = 1, settings: str = "", known: int = 1
    ) -> None:
        """`zookeeper`: with the chroot, which it makes.  `known`: so many brokers it is to know
        before it is used; none, if it waits for a controller of ours."""
        folder.mkdir()
        super().__init__(folder / "broker.out")
        self.port = apache.free_port()
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._folder = folder
        self._known = known
        self._properties = folder / "server.properties"
        self._properties.write_text(
            BROKER.format(node=node, zookeeper=zookeeper, port=self.port, data=folder / "data")
            + settings
        )

    def __enter__(self) -> Broker:
        main, jars = "kafka.Kafka", apache.jars_with_zookeeper()
        command = apache.java(main, str(self._properties), heap="384m", folder=jars)
        self.start(
            command, self._folder, lambda: apache.answers(self.bootstrap_servers, self._known)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
