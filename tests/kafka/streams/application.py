"""An application of Kafka Streams in a JVM of its own; see tests/kafka/clients/programs/streams."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.kafka.clients import programs

__all__ = ["CLASSIC", "STREAMS", "WAIT_S", "Application", "committed"]

CLASSIC = {
    "consumer.group.instance.id": "only",
    "consumer.session.timeout.ms": "3000",
    "consumer.heartbeat.interval.ms": "500",
}
"""Settings of the only member of a classic group."""
STREAMS = {"group.protocol": "streams"}
"""Settings of a member of a streams group, whose timeouts are the broker's."""


WAIT_S = 90.0


class Application:
    """One instance: killed and started again, it finds the folder of its state."""

    def __init__(
        self, kind: str, bootstrap: str, folder: Path, protocol: dict[str, str], port: int = 0
    ) -> None:
        """`kind`: see `programs.STREAMS`; `protocol`: its group's settings; `port`: where the other
        instances would find it, if anything listened."""
        folder.mkdir()
        self._kind, self.group = kind, programs.STREAMS[kind]
        self._settings = folder / "streams.properties"
        self._output = folder / "streams.out"
        self.host = f"127.0.0.1:{port}"
        settings = {
            "bootstrap.servers": bootstrap,
            "application.id": self.group,
            "application.server": self.host if port else "",
            "processing.guarantee": "exactly_once_v2",
            "state.dir": folder / "state",
            "commit.interval.ms": 50,
            "replication.factor": 1,
            "reconnect.backoff.max.ms": 200,
            "consumer.auto.offset.reset": "earliest",
            "producer.transaction.timeout.ms": 10_000,
            **protocol,
        }
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*programs.command(self._kind), str(self._settings)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=output, text=True,
            )  # fmt: skip

    def ask(self, question: str) -> list[str]:
        """The words of its answer; see `Application.java` for the questions."""
        assert self._process is not None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"it ended: {self.said()}"
        return answer.split()

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> None:
        """Have it close."""
        assert self._process is not None
        self._process.communicate(timeout=60)

    def said(self) -> str:
        """The end of its output."""
        return self._output.read_text(errors="replace")[-3_000:]


def committed(bootstrap: str, topic: str, partitions: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each record of a topic, up to the end of what is committed."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True,
        "isolation.level": "read_committed", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is None:
            yield message.key(), message.value()
        elif message.error().name() == "_PARTITION_EOF":
            ended.add(message.partition())
    consumer.close()
