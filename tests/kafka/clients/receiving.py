"""Apache Kafka with a receiver of clients' metrics, which writes each push to a file."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import NamedTuple

from kafkalog.telemetry.otlp import Point, decode
from tests.support import apache, prepared

__all__ = ["Pushed", "ReceivingKafka"]

SOURCE = Path(__file__).with_name("Receiver.java")


class Pushed(NamedTuple):
    """One push, as Kafka passes it to its receiver."""

    client_id: str
    instance_id: str
    terminating: bool
    content_type: str
    points: list[Point]


class ReceivingKafka(apache.Broker):
    """A context manager, as apache.Broker."""

    def __init__(self, directory: Path, settings: str = "") -> None:
        self._file = directory.parent / "pushed"
        more = f"metric.reporters=Receiver\nreceiver.file={self._file}\n"
        super().__init__(directory, settings + more)

    def command(self, properties: Path, heap: str, folder: Path) -> list[str]:
        """With the receiver's class."""
        jar = prepared.compiled("receiver", [SOURCE], folder)
        command = apache.java("kafka.Kafka", str(properties), heap=heap, folder=folder)
        at = command.index("-cp") + 1
        command[at] = f"{jar}:{command[at]}"
        return command

    def pushed(self) -> list[Pushed]:
        """All pushes so far."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return [
            Pushed(name, number, end == "true", kind, decode(b64decode(data), 10_000).points)
            for name, number, end, kind, data in map(str.split, lines)
        ]
