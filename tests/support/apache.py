"""Apache Kafka as the referee: its jars, its log dump, a single broker."""

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from kafkalog.wire import apis
from tests.support import jvm, prepared
from tests.support.prepared import Unavailable
from tests.support.raw import Raw

VERSION = "4.4.0"
POM_VERSION = f"-Dkafka.version={VERSION}"
TESTS = Path(__file__).resolve().parents[1]
POM = TESTS / "kafka" / "referee" / "pom.xml"
LAST_WITH_ZOOKEEPER = "3.9.2"
START_S = 180
END_S = 180
"""Long, as a JVM that ends may first write an archive of its classes."""
ALONE = """\
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""
"""One broker holds the internal topics, one partition each, and its groups start without delay."""
SERVER = (
    """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={directory}
"""
    + ALONE
)


def jars() -> Path:
    """The folder of Kafka's jars, fetched through Maven on first use.

    Raises: Unavailable.
    """
    return fetched(POM, f"kafka-{VERSION}", f"kafka-tools-{VERSION}.jar", POM_VERSION)


def jars_with_zookeeper() -> Path:
    """The folder of the jars of the last Kafka that ran on ZooKeeper, and of ZooKeeper.

    Raises: Unavailable.
    """
    pom = TESTS / "kafka" / "cluster" / "pom.xml"
    name = f"kafka-{LAST_WITH_ZOOKEEPER}"
    return fetched(pom, name, "slf4j-simple-*.jar")


@lru_cache
def fetched(pom: Path, name: str, one_of_them: str, *properties: str) -> Path:
    """The folder `name` with the jars of a pom, fetched through Maven on first use.

    `properties`: arguments for Maven.

    Raises: Unavailable.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Unavailable(f"no {program}: install a Java 17 runtime and Maven")
    cache = prepared.kept()
    folder = cache / name
    if not list(folder.glob(one_of_them)):
        with tempfile.TemporaryDirectory(dir=cache) as fresh:
            fetch = [
                *("mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"),
                *(f"-DoutputDirectory={fresh}/jars", "-DincludeScope=runtime", *properties),
            ]
            done = subprocess.run(fetch, capture_output=True, text=True, timeout=600)
            if done.returncode:
                raise Unavailable(f"Maven could not fetch Kafka: {done.stdout[-300:]}")
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(f"{fresh}/jars", folder)
    return folder


def java(main: str, *arguments: str, heap: str = "256m", folder: Path | None = None) -> list[str]:
    """The command line of one of Kafka's main classes, for a separate process; see `ask`.

    `folder`: of jars other than `jars()`.
    """
    how = [*prepared.QUICK, f"-Xmx{heap}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return ["java", *how, "-cp", f"{folder or jars()}/*", main, *arguments]


def ask(main: str, *arguments: str, text: str = "") -> str:
    """The output of one of Kafka's main classes, or one of ours that uses its jars; `text` is its
    input.

    Raises: Unavailable.
    """
    found = jvm.run(jars(), [main, *arguments], text)
    assert found.status == 0, (found.out + found.err)[-2000:]
    return found.out


class DumpedBatch(NamedTuple):
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    transactional: bool
    control: bool
    position: int
    timestamp_ms: int
    size: int
    codec: str
    crc: int
    valid: bool


class DumpedRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    key_size: int
    value_size: int
    sequence: int
    headers: str  # "a,b"
    rest: str  # " key: k payload: v", or the content of a control record


class Dumped(NamedTuple):
    batches: list[DumpedBatch]
    records: list[DumpedRecord]
    entries: list[tuple[int, ...]]  # of an index or a snapshot: each line's numbers
    other: list[str]  # lines that are none of these


_BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) "
    r"lastSequence: -?\d+ producerId: (-?\d+) producerEpoch: (-?\d+) "
    r"partitionLeaderEpoch: (-?\d+) isTransactional: (\w+) isControl: (\w+) "
    r"deleteHorizonMs: \S+ position: (\d+) \w+: (-?\d+) size: (\d+) magic: 2 "
    r"compresscodec: (\w+) crc: (\d+) isvalid: (\w+)"
)
_RECORD = re.compile(
    r"\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) "
    r"sequence: (-?\d+) headerKeys: \[(.*?)\](.*)"
)
_ENTRY = re.compile(r"(offset|timestamp|version|producerId): ")
_HARMLESS = re.compile(r"SLF4J: .*|Log starting offset: .*|.* is empty\.|")


DUMP = "org.apache.kafka.tools.DumpLogSegments"


def dump(files: Sequence[Path], records: bool = True) -> dict[Path, Dumped]:
    """The output of DumpLogSegments for each file; `records`: with --deep-iteration."""
    deep = ("--deep-iteration", "--print-data-log") if records else ()
    said = ask(DUMP, *deep, "--files", ",".join(map(str, files)))
    found = {path: Dumped([], [], [], []) for path in files}
    into = Dumped([], [], [], [])
    for line in said.splitlines():
        if line.startswith("Dumping "):
            into = found[Path(line.removeprefix("Dumping "))]
        else:
            _take(line, into)
    return found


def _take(line: str, into: Dumped) -> None:
    """Sort one line of the dump by its kind."""
    if match := _BATCH.fullmatch(line):
        f = match.groups()
        into.batches.append(
            DumpedBatch(
                *map(int, f[:7]), f[7] == "true", f[8] == "true", int(f[9]), int(f[10]),
                int(f[11]), f[12].lower(), int(f[13]), f[14] == "true",
            )
        )  # fmt: skip
    elif match := _RECORD.fullmatch(line):
        f = match.groups()
        into.records.append(DumpedRecord(*map(int, f[:5]), f[5], f[6]))
    elif _ENTRY.match(line):
        into.entries.append(tuple(int(n) for n in re.findall(r"(?<!\w)-?\d+", line)))
    elif not _HARMLESS.fullmatch(line):
        into.other.append(line)


def free_port() -> int:
    """A port outside the range from which the system assigns free ones, so that a program that
    restarts finds it free."""
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Program:
    """A server process; its output is appended to a file."""

    _process: subprocess.Popen[bytes] | None = None

    def __init__(self, output: Path, within: Sequence[str] = ()) -> None:
        """`within`: a command that runs another one in its place, such as a namespace's."""
        self._output = output
        self._within = within

    def start(self, command: list[str], where: Path, answers: Callable[[], bool]) -> None:
        """Return when it answers.  Clients that come earlier are slow: each has its own back-off,
        which grows to half a minute."""
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._within, *command], stdout=output, stderr=subprocess.STDOUT, cwd=where
            )
        try:
            end = time.monotonic() + START_S
            pause = threading.Event()
            while not answers():
                assert self._process.poll() is None, f"it ended: {self.output()[-4000:]}"
                assert time.monotonic() < end, f"not in {START_S} s: {self.output()[-4000:]}"
                pause.wait(0.1)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int:
        """SIGTERM, and wait; its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=END_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def output(self) -> str:
        return self._output.read_text(errors="replace")


class Java(Program):
    """A JVM that serves; its classes are kept for the next start."""

    _archive: prepared.Archive | None = None

    def kept(self, name: str, command: list[str], folder: Path) -> list[str]:
        """The command, with the archive of this name for these jars."""
        self._archive = prepared.Archive(folder, name)
        return self._archive.within(command)

    def stop(self) -> int:
        status = super().stop()
        if self._archive is not None:
            self._archive.ended()
        return status

    def end(self) -> None:
        """End it at once, unless an orderly end is to write the archive."""
        if self._archive is not None and self._archive.wanted:
            self.stop()
        else:
            self.kill()


class Kafka(Java):
    """A broker's JVM, of any version."""

    def command(self, properties: Path, heap: str, folder: Path) -> list[str]:
        """The command that starts it with these jars."""
        command = java("kafka.Kafka", str(properties), heap=heap, folder=folder)
        return self.kept("broker", command, folder)


class Broker(Kafka):
    """One KRaft broker on a directory, which it formats when new; a context manager, and inside it
    the broker answers."""

    def __init__(
        self, directory: Path, settings: str = "", heap: str = "512m", port: int | None = None,
        formatted: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`port`: where `settings` make it listen, if they do.  `formatted`: more arguments for
        the tool that formats."""
        super().__init__(directory.parent / "broker.out")
        self._formatted = formatted
        self.port = port or free_port()
        self.directory = directory
        self._heap = heap
        self._home = directory.parent
        self.properties = self._home / "server.properties"
        self.properties.write_text(
            SERVER.format(port=self.port, controller=free_port(), directory=directory) + settings
        )

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "Broker":
        if not (self.directory / "meta.properties").exists():
            cluster = urlsafe_b64encode(b"k" + secrets.token_bytes(15)).decode().rstrip("=")
            format_it = ("kafka.tools.StorageTool", "format", "-t", cluster)
            ask(*format_it, *self._formatted, "-c", str(self.properties))
        command = self.command(self.properties, self._heap, jars())
        self.start(command, self._home, lambda: answers(self.bootstrap_servers))
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def answers(bootstrap_servers: str, brokers: int = 1) -> bool:
    """True if a broker knows itself as one that is not fenced, and this many brokers in all."""
    try:
        with Raw(bootstrap_servers) as raw:
            return len(raw.call(apis.METADATA, 9, topics=[]).brokers) >= brokers
    except OSError:
        return False
