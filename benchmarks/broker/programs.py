"""load.c, frames.c and sink.c, compiled when a benchmark needs them; Kafka's own tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import apache

__all__ = ["Missing", "consumer_performance", "frames", "load", "producer_performance", "program"]

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "kafkalog" / "_native"
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2"]
SOURCES = {
    "load": ([HERE / "load.c"], ["-lrdkafka", "-lpthread"]),
    "frames": ([HERE / "frames.c", NATIVE / "base" / "crc32c.c"], [f"-I{NATIVE}"]),
    "sink": ([HERE / "sink.c", NATIVE / "base" / "crc32c.c"], [f"-I{NATIVE}"]),
}
RUN_S = 300
TOOL_JVM = ("-Xmx512M", "-server", "-XX:+UseG1GC")
"""As in Kafka's own script for its tools."""


class Missing(Exception):
    """Something that a benchmark needs is not on this machine."""


@cache
def _folder() -> Any:
    return tempfile.TemporaryDirectory(prefix="kafkalog-bench-")


@cache
def program(name: str) -> str:
    """The path of `load`, `frames` or `sink`.

    Raises: Missing, without a compiler or librdkafka's header.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise Missing("no C compiler")
    made = Path(_folder().name) / name
    sources, flags = SOURCES[name]
    command = [compiler, *FLAGS, "-o", str(made), *map(str, sources), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"{name} does not compile (librdkafka-dev?): {done.stderr[-300:]}")
    return str(made)


def load(what: str, *arguments: object, **settings: object) -> dict[str, float]:
    """One run of load.c: what it prints; settings are librdkafka's, with _ for its dots."""
    named = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    return _figures("load", what, *arguments, *named)


def frames(
    bootstrap: str, topic: str, messages: int, size: int, in_flight: int
) -> dict[str, float]:
    """One run of frames.c: what it prints; `messages` are rounded up to whole requests."""
    host, port = bootstrap.rsplit(":", 1)
    return _figures("frames", host, port, topic, messages, size, in_flight)


def _figures(name: str, *arguments: object) -> dict[str, float]:
    command = [program(name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])}: {done.stderr[-1000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _tool(main: str, *arguments: str) -> str:
    command = ["java", *TOOL_JVM, "-cp", f"{apache.jars()}/*", f"org.apache.kafka.tools.{main}"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=RUN_S)
    if done.returncode:
        raise RuntimeError(f"{main}: {done.stdout[-500:]} {done.stderr[-1000:]}")
    return done.stdout


def producer_performance(bootstrap: str, topic: str, messages: int, size: int) -> float:
    """Seconds that Kafka's ProducerPerformance says that it took."""
    said = _tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(messages),
        "--record-size", str(size), "--throughput", "-1", "--producer-props",
        f"bootstrap.servers={bootstrap}", "acks=1", "enable.idempotence=false",
        "batch.size=262144", "linger.ms=5", "buffer.memory=134217728",
    )  # fmt: skip
    found = re.findall(rf"^{messages} records sent, ([\d.]+) records/sec", said, re.MULTILINE)
    return messages / float(found[-1])


def consumer_performance(bootstrap: str, topic: str, messages: int, size: int) -> float:
    """Seconds that Kafka's ConsumerPerformance spent fetching."""
    said = _tool(
        "ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", topic,
        "--messages", str(messages), "--timeout", "60000",
    )  # fmt: skip
    *_, last = said.splitlines()
    columns = last.split(", ")
    got_messages, fetch_ms = int(columns[4]), float(columns[7])
    if got_messages < messages:
        raise RuntimeError(f"ConsumerPerformance read {got_messages} of {messages}")
    return fetch_ms / 1000
