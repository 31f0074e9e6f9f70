"""One Apache Kafka broker, started as Kafka's own scripts start it."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from tests.support import apache

__all__ = ["Broker", "unavailable"]

JVM = ("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
START_S = 60
SETTINGS = "auto.create.topics.enable=false\nlog.segment.delete.delay.ms=0\n"


def unavailable() -> str | None:
    """Why no broker can run here; None if one can."""
    if find_spec("kafka") is None:
        return "no kafka-python"
    try:
        apache.jars()
    except apache.Unavailable as reason:
        return str(reason)
    return None


class Broker(apache.Broker):
    """A broker on a directory that is formatted when it is new; a context manager."""

    def __init__(self, directory: Path, settings: str = "", port: int | None = None) -> None:
        """`settings`: more lines of its properties; `port`: as for apache.Broker."""
        super().__init__(directory, SETTINGS + settings, port=port)

    def _command(self, *arguments: str) -> list[str]:
        return ["java", *JVM, "-cp", f"{apache.jars()}/*", *arguments]

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic and wait until each partition has its leader."""
        from kafka.admin import KafkaAdminClient, NewTopic

        self._until_connected()
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        admin.create_topics([NewTopic(topic, partitions, 1)])
        admin.close()
        self.until_ready(topic, partitions)

    def until_ready(self, topic: str, partitions: int) -> None:
        """Wait until each partition of `topic` has a leader that answers."""
        from kafka import KafkaConsumer, TopicPartition

        self._until_connected()
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap_servers)
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        self._until(lambda: len(consumer.partitions_for_topic(topic) or ()) == partitions)
        consumer.end_offsets(wanted)  # asks the leader of each, and waits for it
        consumer.close()

    def _until_connected(self) -> None:
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError

        def connect() -> bool:
            with contextlib.suppress(KafkaError):
                KafkaConsumer(bootstrap_servers=self.bootstrap_servers).close()
                return True
            return False

        self._until(connect)

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline, pause = time.monotonic() + START_S, threading.Event()
        while not condition():
            assert time.monotonic() < deadline, self.output()[-2000:]
            pause.wait(0.02)

    def memory_bytes(self) -> float:
        """Resident memory of its process."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024.0

    def __enter__(self) -> Broker:
        if not (self.directory / "meta.properties").exists():
            # The base class formats a new directory; what it starts is not what is measured.
            super().__enter__()
            self.__exit__()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self.properties)),
                stdout=output, stderr=subprocess.STDOUT, cwd=self._home,
            )  # fmt: skip
        return self
