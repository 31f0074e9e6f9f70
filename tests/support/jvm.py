"""One JVM that stays up for whoever has a question to Kafka's Java code: to start one costs more
than most answers."""

from __future__ import annotations

import atexit
import os
import select
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, NamedTuple

__all__ = ["Ran", "run"]

HOST = Path(__file__).with_name("Host.java")
LIMIT_S = 200.0


class Ran(NamedTuple):
    """What a main class left behind."""

    status: int
    out: str
    err: str


def run(jars: Path, words: list[str], text: str = "", limit_s: float = LIMIT_S) -> Ran:
    """Run a main class of the jars, or a `.java` file, with its arguments.

    One after another, in a JVM of this process's own, which is started for the first one.  One
    that ends badly, or is silent for longer, is replaced for the next question.
    """
    with _lock:
        process = _running(jars)
        try:
            return _ask(process, words, text, time.monotonic() + limit_s)
        except BaseException:
            _end()
            raise


_lock = threading.Lock()
_host: tuple[int, subprocess.Popen[bytes]] | None = None
"""Whose child it is, and it: a fork has none."""


def _running(jars: Path) -> subprocess.Popen[bytes]:
    global _host
    if _host is None or _host[0] != os.getpid():
        # The simple compiler and collector start fastest.
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
        process = subprocess.Popen(
            ["java", *quick, "-cp", f"{jars}/*", str(HOST)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        _host = os.getpid(), process
        atexit.register(_end)
    return _host[1]


def _end() -> None:
    global _host
    if _host is not None and _host[0] == os.getpid():
        _host[1].kill()
        _host[1].wait()
        for pipe in (_host[1].stdin, _host[1].stdout):
            assert pipe is not None
            pipe.close()
    _host = None


def _ask(process: subprocess.Popen[bytes], words: list[str], text: str, end_s: float) -> Ran:
    assert process.stdin is not None and process.stdout is not None
    pieces = [word.encode() for word in words]
    question = struct.pack(">i", len(pieces))
    for piece in (*pieces, text.encode()):
        question += struct.pack(">i", len(piece)) + piece
    left = memoryview(question)
    while left:
        left = left[process.stdin.write(left) :]
    (status,) = struct.unpack(">i", _read(process.stdout, 4, end_s))
    out, err = (_read(process.stdout, _size(process.stdout, end_s), end_s) for _ in range(2))
    return Ran(status, out.decode(), err.decode(errors="replace"))


def _size(pipe: IO[bytes], end_s: float) -> int:
    return int(struct.unpack(">i", _read(pipe, 4, end_s))[0])


def _read(pipe: IO[bytes], count: int, end_s: float) -> bytes:
    found = bytearray()
    while len(found) < count:
        if not select.select([pipe], [], [], max(0.0, end_s - time.monotonic()))[0]:
            raise AssertionError("Kafka's Java code does not answer")
        some = pipe.read(count - len(found))
        assert some, "the JVM ended"
        found += some
    return bytes(found)
