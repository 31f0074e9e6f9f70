"""Log files as programs write them: ten forms of lines, times in ten notations, always the same.

Lines are of uneven length, some are empty, some are not UTF-8; some files end their lines with
CR LF, and some end without one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

LINES = 5_000
FIRST = datetime(2016, 2, 28, 20, 17, 5, 811_000)
"""The first line's time in every file; over a leap day."""
WORDS = [
    *("accepted", "block", "bytes", "cache", "client", "closed", "connection", "daemon", "failed"),
    *("for", "from", "host", "in", "interface", "invalid", "kernel", "lease", "node", "of"),
    *("packet", "partition", "password", "port", "received", "refused", "retry", "segment"),
    *("session", "starting", "state", "task", "terminated", "timeout", "user", "värde", "値"),
]
CR_LF = {"desktop.log", "windows.log"}


def _some(draw: random.Random, longest: int = 12) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, longest)))


def _address(draw: random.Random) -> str:
    return f"1{draw.randint(0, 9)}.0.{draw.randint(0, 3)}.{draw.randint(1, 9)}"


def _web(at: datetime, draw: random.Random) -> str:
    level = draw.choice(("notice", "error"))
    return f"[{at:%a %b %d %H:%M:%S %Y}] [{level}] {_some(draw)}"


def _machine(at: datetime, draw: random.Random) -> str:
    return (
        f"- {int((at - datetime(1970, 1, 1)).total_seconds())} R{draw.randint(0, 77)} {_some(draw)}"
    )


def _files(at: datetime, draw: random.Random) -> str:
    return (
        f"{at:%y%m%d %H%M%S} {draw.randint(1, 999)} INFO blk_{draw.getrandbits(60)}: {_some(draw)}"
    )


def _engine(at: datetime, draw: random.Random) -> str:
    return f"{at:%y/%m/%d %H:%M:%S} INFO executor.{draw.choice(WORDS)}: {_some(draw)}"


def _quorum(at: datetime, draw: random.Random) -> str:
    told = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}"
    return f"{told} - WARN  [SendWorker:{draw.getrandbits(40)}] - {_some(draw)}"


def _telephone(at: datetime, draw: random.Random) -> str:
    told = f"{at:%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"
    return f"{told}  {draw.randint(1000, 9999)} D {draw.choice(WORDS)}: {_some(draw)}"


def _system(at: datetime, draw: random.Random) -> str:
    return f"{at:%b} {at.day:2} {at:%H:%M:%S} combo kernel: {_some(draw)}"


def _shell(at: datetime, draw: random.Random) -> str:
    where = f"{_address(draw)} port {draw.randint(1024, 65535)}"
    said = draw.choice((f"Failed password for root from {where} ssh2", "Connection closed", where))
    return f"{at:%b} {at.day:2} {at:%H:%M:%S} lab sshd[{draw.randint(100, 99999)}]: {said}"


def _desktop(at: datetime, draw: random.Random) -> str:
    who = f"{draw.choice(WORDS)}[{draw.randint(1, 99)}]"
    return f"{at:%b} {at.day:2} {at:%H:%M:%S} desk {who}: {_some(draw, 30)}"


def _windows(at: datetime, draw: random.Random) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}, Info                  CBS    {_some(draw, 20)}"


FORMS: dict[str, Callable[[datetime, random.Random], str]] = {
    "web.log": _web,
    "machine.log": _machine,
    "files.log": _files,
    "engine.log": _engine,
    "quorum.log": _quorum,
    "telephone.log": _telephone,
    "system.log": _system,
    "shell.log": _shell,
    "desktop.log": _desktop,
    "windows.log": _windows,
}


def write(folder: Path) -> Path:
    """Write the files; returns their folder."""
    for name, form in FORMS.items():
        draw = random.Random(name)
        at, lines = FIRST, []
        for number in range(LINES):
            line = form(at, draw).encode()
            if number % 500 == 250:
                line += b" \xff\xfe"  # another encoding
            lines.append(line)
            if number % 700 == 350:
                lines.append(b"")
            at += timedelta(milliseconds=draw.choice((0, 1, 40, 1_000, 90_000)))
        end = b"\r\n" if name in CR_LF else b"\n"
        last = end if name in CR_LF or name == "web.log" else b""
        (folder / name).write_bytes(end.join(lines) + last)
    return folder
