"""A protocol's changes to its disk: the recorded calls, with marks of its promises between them."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

# Calls that do not wait for a background sync: it may still be running when they return.
LOOSE = {"append", "marker", "roll"}


@dataclass(frozen=True)
class Step:
    """One recorded call, or a mark."""

    number: int
    op: str = ""
    thread: int = 0
    path: str = ""
    to: str = ""
    flags: int = 0
    offset: int = 0
    bytes: int = 0
    covers: int = 0
    """A sync began after the steps below this number."""
    data: bytes = b""
    result: int = 0
    mark: tuple[Any, ...] = ()

    @property
    def syncs(self) -> bool:
        return self.op in ("fdatasync", "fsync", "syncfs")

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def __str__(self) -> str:
        if self.mark:
            return f"#{self.number} mark {' '.join(map(str, self.mark))}"
        where = f" at {self.offset}, {len(self.data)} bytes" if self.data else ""
        return f"#{self.number} {self.op} {self.name}" + where


class Recorder:
    """The trace of this process while it records."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def mark(self, *words: Any) -> None:
        """Put a mark after the calls so far."""
        line = json.dumps({"mark": words}).encode() + b"\n"
        assert os.write(self._fd, line) == len(line)


@contextmanager
def recording(lib: Any, steps: list[Step]) -> Iterator[Recorder]:
    """Record every call of this process that changes a file; `steps` is filled at the end."""
    with tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as file:
        lib.kl_io_record(file.fileno())
        try:
            yield Recorder(file.fileno())
        finally:
            lib.kl_io_record(-1)
            file.seek(0)
            steps += parse(file)


def parse(lines: Iterable[bytes]) -> Iterator[Step]:
    """Steps, numbered; what a sync covers is counted in these numbers, too."""
    calls: list[int] = []  # the numbers of the calls among the steps
    for number, line in enumerate(lines):
        fields = json.loads(line)
        if "mark" in fields:
            yield Step(number, mark=tuple(fields["mark"]))
            continue
        covered = fields.get("covers", 0)
        yield Step(
            number=number,
            op=fields["op"],
            thread=fields["thread"],
            path=fields["path"],
            to=fields.get("to", ""),
            flags=fields.get("flags", 0),
            offset=fields.get("offset", 0),
            bytes=fields.get("bytes", 0),
            covers=[*calls, number][covered],
            data=bytes.fromhex(fields.get("data", "")),
            result=fields["result"],
        )
        calls.append(number)


def slow_disk(steps: list[Step], main_thread: int) -> list[Step]:
    """The same steps on a disk where background syncs come as late as possible.

    Later steps of the same thread, such as recording how far the log is flushed, come later, too.
    """
    out: list[Step] = []
    late: list[Step] = []
    kind = ""
    for step in steps:
        if step.mark and step.mark[0] != "returned":
            kind = step.mark[0]
        if step.mark and kind not in LOOSE:
            out += late
            late = []
        waits = step.syncs or any(step.thread == other.thread for other in late)
        background = waits and step.thread != main_thread
        if background and kind in LOOSE:
            late.append(step)
        else:
            out.append(step)
    return renumbered(out + late)


def renumbered(steps: list[Step]) -> list[Step]:
    """Numbers in the order of the list; a sync still covers the same steps."""
    place = {step.number: i for i, step in enumerate(steps)}
    out = []
    for i, step in enumerate(steps):
        covers = step.covers
        if step.syncs:
            before = [place[s.number] for s in steps if s.number < step.covers]
            covers = min(i, 1 + max(before, default=-1))
        out.append(replace(step, number=i, covers=covers))
    return out
