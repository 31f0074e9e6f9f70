"""The client programs: how each is made ready and started; see tests/kafka/clients/agent.py.

Python's are scripts.  Java's and Go's are compiled and kafkajs is fetched when a test first
wants them; where a toolchain or a registry is missing they are Unavailable, with the reason.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.support import apache

__all__ = ["CLIENTS", "Unavailable", "command"]

HERE = Path(__file__).resolve().parent
CLIENTS = ("confluent", "kafka-python", "aiokafka", "java", "franz-go", "sarama", "kafkajs")
SCRIPTS = {
    "confluent": ("confluent.py", "confluent_kafka"),
    "kafka-python": ("kafka_python.py", "kafka"),
    "aiokafka": ("aio.py", "aiokafka"),
    "kafkalog": ("ours.py", "kafkalog"),
    "mover": ("mover.py", "confluent_kafka"),
}
BUILD_S = 300
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
"""Of Java: what starts fastest."""


class Unavailable(Exception):
    """Why a client cannot run here; a test skips with it."""


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
    if name == "streams":
        folder, jars = _streams()
        return ["java", *QUICK, "-cp", f"{folder}:{jars}/*", "WordCount"]
    if name == "kafkajs":
        return [_program("node"), str(_kafkajs() / "agent.js")]
    return [str(_go() / name.partition("-")[0])]


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name} on this machine")
    return found


def _cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "kafkalog" / "clients"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(arguments: list[str], where: Path) -> None:
    done = subprocess.run(
        arguments, cwd=where, capture_output=True, text=True, timeout=BUILD_S
    )  # fmt: skip
    if done.returncode:
        said = (done.stderr or done.stdout)[-500:]
        raise Unavailable(f"{' '.join(arguments[:3])} failed: {said}")


@cache
def _java() -> Path:
    """The folder of the Java agent's classes."""
    compiler = _program("javac")
    try:
        jars = apache.jars()
    except apache.Unavailable as reason:
        raise Unavailable(str(reason)) from None
    return _made_of(
        "java", lambda fresh: [compiler, "-d", str(fresh), "-cp", f"{jars}/*", *_sources("java")]
    )


@cache
def _streams() -> tuple[Path, Path]:
    """The folder of the word count's classes, and that of Kafka Streams' jars."""
    compiler, name = _program("javac"), f"streams-{apache.VERSION}"
    try:
        jars = apache.fetched(
            HERE / "streams" / "pom.xml", name, "kafka-streams-*.jar", apache.POM_VERSION
        )
    except apache.Unavailable as reason:
        raise Unavailable(str(reason)) from None
    source = str(HERE / "streams" / "WordCount.java")
    made = _made_of(
        "streams", lambda fresh: [compiler, "-d", str(fresh), "-cp", f"{jars}/*", source]
    )
    return made, jars


@cache
def _go() -> Path:
    """The folder of the Go agents; their modules come through Go's proxy."""
    go = _program("go")
    return _made_of("go", lambda fresh: [go, "build", "-o", f"{fresh}/", "./franz", "./sarama"])


@cache
def _kafkajs() -> Path:
    """The folder with kafkajs and its agent."""
    npm, folder = _program("npm"), _cache() / "js"
    folder.mkdir(exist_ok=True)
    for file in ("package.json", "agent.js"):
        shutil.copy(HERE / "js" / file, folder / file)
    if not (folder / "node_modules" / "kafkajs").is_dir():
        _run([npm, "install", "--no-audit", "--no-fund", "--no-package-lock"], folder)
    return folder


def _sources(folder: str) -> list[str]:
    return sorted(str(path) for path in (HERE / folder).rglob("*") if path.is_file())


def _made_of(folder: str, arguments: Callable[[Path], list[str]]) -> Path:
    """What a compiler made of a folder's sources; once for as long as they do not change."""
    digest = hashlib.sha256()
    for path in _sources(folder):
        digest.update(Path(path).read_bytes())
    made = _cache() / f"{folder}-{digest.hexdigest()[:16]}"
    if not made.is_dir():
        with tempfile.TemporaryDirectory(dir=_cache()) as fresh:
            target = Path(fresh) / "made"
            target.mkdir()
            _run(arguments(target), HERE / folder)
            if not made.is_dir():
                os.rename(target, made)
    return made
