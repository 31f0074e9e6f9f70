"""A real single-server ZooKeeper as a child process: finds its jars, and starts it."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import socket
from collections.abc import Iterator

from kafkalog.cli.cluster.processes import Process
from kafkalog.cli.common import CommandError

__all__ = ["ZooKeeper", "class_path", "serves"]

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
CONFIG = """\
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=srvr
tickTime=500
"""
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
"""It starts often and has little to do."""
DEBIAN = "/usr/share/java"
NEEDED = "zookeeper"
JAVA = "no java: install one of 11 or later (Debian, Ubuntu: apt-get install default-jre-headless)"
NONE = (
    "no ZooKeeper found: install it (Debian, Ubuntu: apt-get install zookeeper), or unpack a "
    "release of https://zookeeper.apache.org/releases.html or of Apache Kafka 3.9 and name its "
    "folder in ZOOKEEPER_HOME, or pip install pyspark, which brings one along; or give the "
    "address of a running one: --zookeeper HOST:PORT/CHROOT"
)


def _class_paths() -> Iterator[str]:
    """Folders that may have its jars, in order of preference."""
    for variable in ("ZOOKEEPER_HOME", "KAFKA_HOME"):
        if home := os.environ.get(variable):
            yield from (os.path.join(home, name) for name in ("lib", "libs", ""))
    yield DEBIAN
    # Spark brings one along.
    if (spark := importlib.util.find_spec("pyspark")) is not None:
        yield from (
            os.path.join(folder, "jars") for folder in spark.submodule_search_locations or ()
        )


def class_path() -> str:
    """The jars, for -cp.  Raises: CommandError, which says what to install."""
    if shutil.which("java") is None:
        raise CommandError(JAVA)
    for folder in _class_paths():
        if glob.glob(os.path.join(glob.escape(folder), f"{NEEDED}*.jar")):
            return os.path.join(folder, "*")
    raise CommandError(NONE)


def serves(host: str, port: int) -> bool:
    """True if ZooKeeper is up and serves: it accepts connections earlier than that."""
    try:
        with socket.create_connection((host, port), 5) as connection:
            connection.sendall(b"srvr")
            return connection.recv(9) == b"Zookeeper"
    except OSError:
        return False


class ZooKeeper(Process):
    """A server on a folder that keeps its data."""

    def __init__(self, folder: str, port: int) -> None:
        """Start it.  Raises: CommandError: it is not installed, or does not start."""
        jars = class_path()
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "zoo.cfg")
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(data=os.path.join(folder, "data"), port=port))
        self.hosts = f"127.0.0.1:{port}"
        self.port = port
        super().__init__("ZooKeeper", ["java", *QUICK, "-cp", jars, MAIN, path], f"{folder}.log")

    def answers(self) -> bool:
        """True if it serves."""
        return serves("127.0.0.1", self.port)
