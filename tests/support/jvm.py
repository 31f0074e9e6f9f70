"""One JVM that stays up for all questions to Kafka's Java code: starting one costs more than most
answers."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, NamedTuple

from tests.support import prepared

__all__ = ["Ran", "run"]

HOST = Path(__file__).with_name("Host.java")
OURS = HOST.parents[1] / "kafka" / "referee"
"""The folder of our main classes."""
LIMIT_S = 200.0
VARIED = 3
"""An archive of this many main classes serves all later questions."""


class Ran(NamedTuple):
    """The result of a main class."""

    status: int
    out: str
    err: str


def run(jars: Path, words: list[str], text: str = "", limit_s: float = LIMIT_S) -> Ran:
    """Run a main class of the jars, or one of ours, with its arguments.

    Calls run one after another, in a JVM of this process, which the first call starts.  A JVM that
    ends badly, or is silent for longer than `limit_s`, is replaced for the next call.  Raises:
    prepared.Unavailable.
    """
    with _lock:
        host = _running(jars)
        try:
            host.asked.add(words[0])
            return _ask(host.process, words, text, time.monotonic() + limit_s)
        except BaseException:
            _end()
            raise


class _Host(NamedTuple):
    owner: int  # whose child it is: a fork has no JVM
    process: subprocess.Popen[bytes]
    archive: prepared.Archive
    asked: set[str]  # main classes


_lock = threading.Lock()
_host: _Host | None = None


def _running(jars: Path) -> _Host:
    global _host
    if _host is None or _host.owner != os.getpid():
        jar = prepared.compiled("host", [HOST, *sorted(OURS.glob("*.java"))], jars)
        archive = prepared.Archive(jars, jar.parent.name)
        command = ["java", *prepared.QUICK, "-Xmx512m", "-cp", f"{jar}:{jars}/*", "Host"]
        process = subprocess.Popen(
            archive.within(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        _host = _Host(os.getpid(), process, archive, set())
        atexit.register(_end, at_once=False)
    return _host


def _end(at_once: bool = True) -> None:
    """`at_once`: without the archive that an orderly end may write."""
    global _host
    if _host is not None and _host.owner == os.getpid():
        _, process, archive, asked = _host
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        if not at_once and archive.wanted and len(asked) >= VARIED:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LIMIT_S)
                archive.ended()
        process.kill()
        process.wait()
        process.stdout.close()
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
