"""Runs an example of delivery until nothing is left to read, or kill -9 at a call.

    python -m tests.examples.dying EXAMPLE METHOD NUMBER before|after SERVERS SOURCE TARGET

METHOD `none`: it is not killed.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import Any

import kafkalog

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "delivery"
POLL_RECORDS = 5


class Point:
    """The call at which it ends."""

    def __init__(self, method: str, number: int, when: str) -> None:
        self.method, self.number, self.when = method, number, when
        self.calls = 0

    def call(self, method: str, below: Any, *words: Any, **named: Any) -> Any:
        """The call of a method, and the end if it is this one."""
        self.calls += method == self.method
        here = method == self.method and self.calls == self.number
        if here and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = below(*words, **named)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return found


def dying(point: Point) -> tuple[type, type]:
    """Producer and Consumer that know of the point."""

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
                    sys.exit(0)
            return found

        def _ends(self) -> Any:
            return self.end_offsets(self.assignment)

        def commit(self, *words: Any, **named: Any) -> None:
            point.call("commit", super().commit, *words, **named)

    return Producer, Consumer


def main(name: str, method: str, number: str, when: str, *where: str) -> None:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.Producer, example.Consumer = dying(Point(method, int(number), when))
    example.main(*where)


if __name__ == "__main__":
    main(*sys.argv[1:])
