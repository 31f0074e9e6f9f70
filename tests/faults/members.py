"""The programs on the hosts: servers of a ZooKeeper, controllers, and nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafkalog.cli.cluster.zookeeper import serves
from kafkalog.clock import SystemClock
from kafkalog.kraft.format import Format, format_directory
from tests.damage.powercut.disks import LOG_LOST, Disk
from tests.faults.clocks import Clock
from tests.faults.network import Host
from tests.support import apache, zookeeper
from tests.support.stopped import stand_still

CLIENT_PORT, PEER_PORT, ELECTION_PORT = 2181, 2888, 3888
PORT, CONTROLLER_PORT = 9092, 9093
ENSEMBLE = """
initLimit=50
syncLimit=10
"""
HEAP = "64m"
KRAFT_HEAP = "256m"


class Member(apache.Program):
    """A program on a host; it can die, pause, and start again."""

    def __init__(self, host: Host, folder: Path) -> None:
        folder.mkdir()
        super().__init__(folder / "output", host.within)
        self.host = host
        self.folder = folder
        self.paused = False

    def begin(self, wait: bool = True) -> None:
        """Start it, the first time or again; `wait`: until it can be used."""
        raise AssertionError("a subclass must define this")

    @property
    def lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """SIGSTOP: others see it as dead, and it notices no time passing."""
        assert self._process is not None
        stand_still(self._process.pid)
        self.paused = True

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self.paused = False


class ZooKeeperServer(Member):
    """One server of an ensemble."""

    def __init__(self, host: Host, folder: Path, number: int, hosts: Sequence[Host]) -> None:
        super().__init__(host, folder)
        text = zookeeper.ZOOKEEPER.replace("127.0.0.1", host.address)
        text = text.format(data=folder / "data", port=CLIENT_PORT) + ENSEMBLE
        if len(hosts) > 1:
            for n, one in enumerate(hosts, 1):
                text += f"server.{n}={one.address}:{PEER_PORT}:{ELECTION_PORT}\n"
        (folder / "zoo.cfg").write_text(text)
        (folder / "data").mkdir()
        (folder / "data" / "myid").write_text(f"{number}\n")
        self._command = apache.java(
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg"),
            heap=HEAP, folder=apache.jars_with_zookeeper(),
        )  # fmt: skip

    def begin(self, wait: bool = True) -> None:
        """`wait`: until it serves, which needs a majority of the servers."""
        self.start(self._command, self.folder, self._answers if wait else lambda: True)

    def _answers(self) -> bool:
        return serves(self.host.address, CLIENT_PORT)


class Serving(Member):
    """`kafkalog serve`: a broker, a controller, or both."""

    def __init__(
        self, host: Host, folder: Path, number: int, data: Path, settings: Mapping[str, object],
        clock: Path | None = None,
    ) -> None:  # fmt: skip
        """`clock`: the library that gives it its own wall clock."""
        super().__init__(host, folder)
        self.clock = Clock(folder, clock) if clock is not None else None
        self.number = number
        self.data = data
        self._properties = folder / "server.properties"
        every = {"node.id": number, "log.dirs": data, **settings}
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in every.items()))
        self._command = [
            *(self.clock.within if self.clock is not None else ()),
            *(sys.executable, "-m", "kafkalog", "serve", "--config", str(self._properties)),
        ]

    def format(self, cluster_id: str) -> None:
        """Give its directory the identity of a node of a quorum."""
        format_directory(str(self.data), Format(cluster_id, self.number), SystemClock())

    def begin(self, wait: bool = True) -> None:
        self.start(self._command, Path(os.getcwd()), lambda: not wait or self._answers())

    def _answers(self) -> bool:
        return True


class Controller(Serving):
    """A controller, a voter of the quorum; one of ours, unless a subclass says otherwise."""


class OfKafka(Serving):
    """The same settings, read by Apache Kafka 4.4."""

    def __init__(
        self, host: Host, folder: Path, number: int, data: Path, settings: Mapping[str, object]
    ) -> None:  # fmt: skip
        super().__init__(host, folder, number, data, settings)
        self._command = apache.java("kafka.Kafka", str(self._properties), heap=KRAFT_HEAP)


class KafkaController(OfKafka, Controller):
    """One of Kafka's controllers."""


class KafkaBroker(OfKafka):
    """One of Kafka's brokers under a quorum; it leads and follows."""

    def __init__(
        self, host: Host, folder: Path, number: int, settings: Mapping[str, object]
    ) -> None:  # fmt: skip
        super().__init__(host, folder, number, folder / "data", settings)
        self.address = f"{host.address}:{PORT}"

    def _answers(self) -> bool:
        return apache.answers(self.address)


class Node(Serving):
    """One of our brokers, which may also be a controller."""

    def __init__(
        self, host: Host, folder: Path, number: int, data: Path, settings: Mapping[str, object],
        clock: Path | None = None,
    ) -> None:  # fmt: skip
        super().__init__(host, folder, number, data, settings, clock)
        self.disk: Disk | None = None
        """The disk of `data`, if it is the node's own."""
        self.address = f"{host.address}:{PORT}"

    def cut_power(self) -> None:
        """Kill it, and let nothing reach its disk from now on; unsynced data is lost."""
        assert self.disk is not None
        self.disk.cut(LOG_LOST)
        self.kill()
        self.disk.unmount()
        self.disk.mount()

    @property
    def ballast(self) -> Path:
        """A file that takes the disk's space."""
        assert self.disk is not None
        return self.disk.root / "ballast"

    def fill(self) -> None:
        """Take all remaining space."""
        free = os.statvfs(self.ballast.parent)
        with contextlib.suppress(OSError), self.ballast.open("ab", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
            while file.write(bytes(4096)):
                pass

    def _answers(self) -> bool:
        """True if it knows itself as a member of the cluster."""
        return apache.answers(self.address)


class KafkaNode(Member):
    """A node of Apache Kafka 3.9, which may be the controller, lead and follow."""

    def __init__(
        self, host: Host, folder: Path, number: int, settings: Mapping[str, object],
        places: Mapping[str, object],
    ) -> None:  # fmt: skip
        """`places`: more settings, with ZooKeeper's addresses."""
        super().__init__(host, folder)
        self.number = number
        self.data = folder / "data"
        self.address = f"{host.address}:{PORT}"
        text = zookeeper.BROKER.replace("127.0.0.1", host.address)
        where = places["zookeeper.connect"]
        text = text.format(node=number, zookeeper=where, port=PORT, data=self.data)
        lines = [f"{k}={v}" for k, v in {**settings, **places}.items() if k != "listeners"]
        (folder / "server.properties").write_text("\n".join([text, *lines, ""]))
        self._command = apache.java(
            "kafka.Kafka", str(folder / "server.properties"), heap="384m",
            folder=apache.jars_with_zookeeper(),
        )  # fmt: skip

    def begin(self, wait: bool = True) -> None:
        """`wait`: until it knows itself as a member of the cluster."""
        self.start(self._command, self.folder, lambda: not wait or apache.answers(self.address))
