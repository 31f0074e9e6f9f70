"""The client programs: how to prepare and start each; see tests/kafka/clients/agent.py.

Python's are scripts.  Java's and Go's are compiled and kafkajs is fetched when a test first
needs them; without the toolchain or the registry they are Unavailable, with the reason.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support import apache, prepared
from tests.support.prepared import Unavailable

__all__ = ["CLIENTS", "Unavailable", "archive", "command", "some"]

HERE = Path(__file__).resolve().parent
CLIENTS = ("confluent", "kafka-python", "aiokafka", "java", "franz-go", "sarama", "kafkajs")
SCRIPTS = {
    "confluent": ("confluent.py", "confluent_kafka"),
    "kafka-python": ("kafka_python.py", "kafka"),
    "aiokafka": ("aio.py", "aiokafka"),
    "kafkalog": ("ours.py", "kafkalog"),
    "mover": ("mover.py", "confluent_kafka"),
}
STREAMS = {"streams": "word-count", "streams-join": "join"}
"""Applications of Kafka Streams, by the name of their topology; each takes a properties file."""
BUILD_S = 300
QUICK = [*prepared.QUICK, "-Xmx256m"]


def some(*names: str, long: Sequence[str]) -> list[Any]:
    """The clients of a test; those in `long` run in `make test-long`."""
    return [*names, *(pytest.param(name, marks=pytest.mark.long) for name in long)]


@cache
def command(name: str) -> list[str]:
    """The command line of a client's agent, which takes the bootstrap address.

    Raises: Unavailable.
    """
    if name in SCRIPTS:
        script, package = SCRIPTS[name]
        if importlib.util.find_spec(package) is None:
            raise Unavailable(f"no {package}: pip install '.[test]'")
        return [sys.executable, str(HERE / "python" / script)]
    if name == "java":
        classes = f"{_java()}:{apache.jars()}/*"
        return ["java", *QUICK, "-cp", classes, "Agent"]
    if name in STREAMS:
        jar, jars = _streams()
        return ["java", *QUICK, "-cp", f"{jar}:{jars}/*", "Application", STREAMS[name]]
    if name == "kafkajs":
        return [_program("node"), str(_kafkajs() / "agent.js")]
    return [str(_go() / name.partition("-")[0])]


def archive(name: str) -> prepared.Archive | None:
    """The archive of a client's classes, if it runs in Java.

    Raises: Unavailable.
    """
    if name != "java":
        return None
    return prepared.Archive(apache.jars(), f"agent-{_java().parent.name}")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name} on this machine")
    return found


def _run(arguments: list[str], where: Path) -> None:
    done = subprocess.run(
        arguments, cwd=where, capture_output=True, text=True, timeout=BUILD_S
    )  # fmt: skip
    if done.returncode:
        said = (done.stderr or done.stdout)[-500:]
        raise Unavailable(f"{' '.join(arguments[:3])} failed: {said}")


@cache
def _java() -> Path:
    """The jar of the Java agent."""
    return prepared.compiled("clients/java", _sources("java"), apache.jars())


@cache
def _streams() -> tuple[Path, Path]:
    """The jar of the applications, and the folder of Kafka Streams' jars."""
    name = f"streams-{apache.VERSION}"
    jars = apache.fetched(
        HERE / "streams" / "pom.xml", name, "kafka-streams-*.jar", apache.POM_VERSION
    )
    source = HERE / "streams" / "Application.java"
    return prepared.compiled("clients/streams", [source], jars), jars


@cache
def _go() -> Path:
    """The folder of the Go agents; their modules come through Go's proxy."""
    go = _program("go")

    def build(folder: Path) -> None:
        _run([go, "build", "-o", f"{folder}/", "./franz", "./sarama"], HERE / "go")

    return prepared.made_of("clients/go", _sources("go"), build)


@cache
def _kafkajs() -> Path:
    """The folder with kafkajs and its agent."""
    npm, folder = _program("npm"), prepared.kept() / "clients" / "js"
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "agent.js"):
        shutil.copy(HERE / "js" / file, folder / file)
    if not (folder / "node_modules" / "kafkajs").is_dir():
        _run([npm, "install", "--no-audit", "--no-fund", "--no-package-lock"], folder)
    return folder


def _sources(folder: str) -> list[Path]:
    return sorted(path for path in (HERE / folder).rglob("*") if path.is_file())
