"""Kafka's verifiable consumers, which its own system tests use: programs that tell what they do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import kafkalog
from tests.support import apache

__all__ = ["Worker", "fill"]


class Worker:
    """One of them, in a JVM; it tells what it does in lines of JSON."""

    def __init__(self, main: str, servers: str, output: Path, *options: str) -> None:
        """`main`: its class, in Kafka's tools; `options`: all but the servers."""
        command = apache.java(
            f"org.apache.kafka.tools.{main}", "--bootstrap-server", servers, "--verbose", *options
        )  # fmt: skip
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)

    def told(self, *names: str) -> list[dict[str, Any]]:
        """Its events of some kinds."""
        lines = self._output.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [one for one in events if one["name"] in names]

    def records(self) -> list[tuple[int, int]]:
        """Partition and offset of each record that it got."""
        return [(one["partition"], one["offset"]) for one in self.told("record_data")]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


def fill(servers: str, topic: str, partitions: int, count: int) -> None:
    """Produce numbers, to each partition in turn."""
    with kafkalog.Producer(servers) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=n % partitions)
