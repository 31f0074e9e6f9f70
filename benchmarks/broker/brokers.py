"""The brokers under load: ours as a command, Apache Kafka, the bare sink, librdkafka's mock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from threading import Event

from benchmarks.broker import programs
from benchmarks.broker.wire import Connection, create_topic, delete_topic
from benchmarks.rivals import kafka_broker
from tests.support import apache

__all__ = [
    "KAFKA",
    "MOCK",
    "OURS",
    "SINK",
    "Kafka",
    "Mock",
    "Ours",
    "Served",
    "Sink",
    "as_installed",
    "brokers",
]

OURS, KAFKA = "kafkalog", f"Kafka {apache.VERSION}"
SINK, MOCK = "bare sink", "librdkafka's mock"
START_S = 60
PROCESS_CPU = 2
"""Linux: the clock of a process's CPU time has its number's complement, then these bits."""
_numbers = count()


SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
"""The settings of Apache Kafka in a comparison, too (tests/support/apache.py)."""


class Served:
    """A broker in a separate process; a context manager."""

    name = ""
    bootstrap = ""
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it; return when it answers."""
        raise AssertionError("each broker starts its own way")

    def stop(self) -> None:
        """Stop it; return when its process has ended."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(START_S)
            self.process = None

    def cpu_s(self) -> float:
        """CPU time of its process so far, in user space and kernel."""
        assert self.process is not None
        return time.clock_gettime(~self.process.pid << 3 | PROCESS_CPU)

    def memory_bytes(self) -> float:
        """Resident memory of its process."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024.0

    def new_topic(self, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        """A fresh topic's name; each partition has its leader."""
        topic = f"topic-{next(_numbers)}"
        create_topic(self.bootstrap, topic, partitions, settings or {})
        return topic

    def drop_topic(self, topic: str) -> None:
        delete_topic(self.bootstrap, topic)


def until_it_answers(bootstrap: str) -> None:
    """Wait until a broker answers ApiVersions there."""
    deadline, pause = time.monotonic() + START_S, Event()
    while True:
        try:
            with Connection(bootstrap) as connection:
                connection.ask("API_VERSIONS", 0, {})
            return
        except (OSError, EOFError):
            if time.monotonic() > deadline:
                raise
            pause.wait(0.001)


def as_installed() -> dict[str, str]:
    """The environment of a process with the byte code that an installation has, whatever is set
    here."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


class Ours(Served):
    """`kafkalog serve` on a directory."""

    name = OURS

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.port = apache.free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._settings = {**SETTINGS, **(settings or {})}
        self._properties = directory.with_suffix(".properties")

    def command(self) -> list[str]:
        lines = "".join(f"{name}={value}\n" for name, value in self._settings.items())
        self._properties.write_text(lines)
        serve = [sys.executable, "-m", "kafkalog", "serve", "--dir", str(self.directory)]
        return [*serve, "--listen", self.bootstrap, "--config", str(self._properties)]

    def launch(self) -> None:
        """Start its process and return at once."""
        with self.directory.with_suffix(".out").open("ab") as output:
            self.process = subprocess.Popen(
                self.command(), stdout=output, stderr=subprocess.STDOUT, env=as_installed()
            )  # fmt: skip

    def start(self) -> None:
        self.launch()
        until_it_answers(self.bootstrap)


class Kafka(Served):
    """Apache Kafka, as its own scripts start it."""

    name = KAFKA

    def __init__(self, directory: Path) -> None:
        directory.parent.mkdir(parents=True, exist_ok=True)
        self._broker = kafka_broker.Broker(directory)
        self.bootstrap = self._broker.bootstrap_servers

    def launch(self) -> None:
        """Format the directory if it is new, start its process and return at once."""
        self._broker.__enter__()
        self.process = self._broker._process

    def start(self) -> None:
        self.launch()
        until_it_answers(self.bootstrap)


class Sink(Served):
    """sink.c on a folder; `sync`: fdatasync before each answer."""

    name = SINK

    def __init__(self, directory: Path, partitions: int = 16, sync: bool = False) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        port = apache.free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        self._arguments = [str(directory), str(port), str(partitions), str(int(sync))]

    def start(self) -> None:
        command = [programs.program("sink"), *self._arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout
        assert self.process.stdout.readline() == b"ready\n"

    def new_topic(self, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        return "any"

    def drop_topic(self, topic: str) -> None:
        """Free what was written; writing continues after it, in files with a hole."""
        for file in self.directory.iterdir():
            os.truncate(file, 0)


class Mock(Served):
    """librdkafka's own broker, in the memory of the load program."""

    name = MOCK
    bootstrap = "mock"

    def start(self) -> None:
        """There is nothing to start."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def new_topic(self, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        return "any"

    def drop_topic(self, topic: str) -> None:
        """It ended with its program."""


@contextmanager
def brokers(
    folder: Path,
    names: list[str],
    durability: str = "os",
    settings: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Served]]:
    """Those of `names` that can run here, all started, by name; `settings` are ours."""
    made: dict[str, Served] = {}
    with ExitStack() as running:
        for name in names:
            if name == KAFKA and kafka_broker.unavailable():
                continue
            home = folder / f"broker-{len(made)}"
            home.mkdir()
            if name == OURS:
                made[name] = Ours(
                    home / "data", {"kafkalog.durability": durability, **(settings or {})}
                )
            elif name == KAFKA:
                made[name] = Kafka(home / "data")
            elif name == SINK:
                made[name] = Sink(home / "data", sync=durability == "fsync")
            else:
                made[name] = Mock()
            running.enter_context(made[name])
        yield made
