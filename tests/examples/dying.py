"""Runs an example of delivery until everything is read, or kills it with -9 at a call."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafkalog

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "delivery"
POLL_RECORDS = 5


Report = Callable[..., None]


class Over(Exception):
    """Everything is read."""


class Point:
    """The call at which the process kills itself, after reporting it."""

    def __init__(self, report: Report, method: str, number: int, when: str) -> None:
        self.report = report
        self.method, self.number, self.when = method, number, when
        self.calls = 0

    def call(self, method: str, below: Any, *words: Any, **named: Any) -> Any:
        """Call a method, and die if this is the call."""
        self.calls += method == self.method
        here = method == self.method and self.calls == self.number
        if here and self.when == "before":
            self.kill()
        found = below(*words, **named)
        if here:
            self.kill()
        return found

    def kill(self) -> None:
        self.report("killed")
        os.kill(os.getpid(), signal.SIGKILL)


def dying(point: Point) -> tuple[type, type]:
    """Producer and Consumer that die at the point."""

    class Producer(kafkalog.Producer):
        def send(self, *words: Any, **named: Any) -> Any:
            return point.call("send", super().send, *words, **named)

        def flush(self, *words: Any, **named: Any) -> Any:
            return point.call("flush", super().flush, *words, **named)

        def send_offsets(self, *words: Any, **named: Any) -> Any:
            return point.call("send_offsets", super().send_offsets, *words, **named)

        def commit_transaction(self) -> None:
            point.call("commit_transaction", super().commit_transaction)

    class Consumer(kafkalog.Consumer):
        def poll(self, *words: Any, **named: Any) -> Any:
            while not (found := super().poll(100, POLL_RECORDS)):
                tps = self.assignment
                if tps and all(self.position(tp) >= end for tp, end in self._ends().items()):
                    raise Over
            return found

        def _ends(self) -> Any:
            return self.end_offsets(self.assignment)

        def commit(self, *words: Any, **named: Any) -> None:
            point.call("commit", super().commit, *words, **named)

    return Producer, Consumer


def run(report: Report, name: str, point: tuple[str, int, str], where: list[str]) -> None:
    """Run an example between two topics, `where` its arguments; with a point at the method `none`
    it is not killed."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.Producer, example.Consumer = dying(Point(report, *point))
    with contextlib.suppress(Over):
        example.main(*where)
