"""Shared by the Python agents: lines in and out, members that poll in a thread."""

from __future__ import annotations

import json
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

ANSWER_S = 60
IN_FLIGHT = 500
BURST, PAUSE_S = 40, 0.01
"""A stream pauses after this many: some thousands a second are load, and can all be checked."""


def bytes_in(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def bytes_out(data: bytes | None) -> str | None:
    return None if data is None else b64encode(bytes(data)).decode()


def record_in(fields: dict[str, Any]) -> dict[str, Any]:
    headers = [(name, bytes_in(value)) for name, value in fields["headers"]]
    return {
        "key": bytes_in(fields["key"]), "value": bytes_in(fields["value"]), "headers": headers,
        "timestamp_ms": fields["timestamp_ms"],
    }  # fmt: skip


def record_out(offset: int, timestamp_ms: int, key: Any, value: Any, headers: Any) -> Any:
    return {
        "offset": offset, "timestamp_ms": timestamp_ms, "key": bytes_out(key),
        "value": bytes_out(value), "headers": [[n, bytes_out(v)] for n, v in headers or ()],
    }  # fmt: skip


class Deadline:
    """The seconds left to answer."""

    def __init__(self, what: str, seconds: float = ANSWER_S) -> None:
        self._what, self._end = what, time.monotonic() + seconds

    def left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not in time: {self._what}")
        return left


class PollingMember:
    """A member whose consumer is polled, queried and closed by a thread of its own."""

    def __init__(self) -> None:
        self.assigned: list[tuple[str, int]] = []
        self.seen: list[tuple[str, int, int]] = []
        self.joins = 0
        self.failed = ""
        self._wanted: list[tuple[Callable[[], object], threading.Event]] = []
        self._lock = threading.Lock()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def open(self) -> None:
        raise AssertionError("each client opens its own")

    def poll(self) -> None:
        raise AssertionError("each client polls its own way")

    def commit(self) -> object:
        raise AssertionError("each client commits its own way")

    def close(self) -> None:
        raise AssertionError("each client closes its own way")

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self.open()
            while not self._left.is_set():
                self.poll()
                with self._lock:
                    wanted, self._wanted = self._wanted, []
                for call, done in wanted:
                    try:
                        call()
                    finally:
                        done.set()
            self.close()
        except Exception as error:
            self.failed = f"{type(error).__name__}: {error}"
            self._left.wait()
        for _, done in self._wanted:
            done.set()

    def ask_commit(self) -> None:
        problems: list[str] = []

        def call() -> None:
            try:
                self.commit()
            except Exception as error:
                problems.append(f"{type(error).__name__}: {error}")

        done = threading.Event()
        with self._lock:
            self._wanted.append((call, done))
        if not done.wait(ANSWER_S):
            raise TimeoutError("commit")
        if problems:
            raise RuntimeError(problems[0])

    def leave(self) -> None:
        self._left.set()
        self._thread.join(ANSWER_S)
        self.assigned = []

    def state(self) -> dict[str, Any]:
        return {
            "assigned": list(self.assigned), "joins": self.joins, "seen": list(self.seen),
            "failed": self.failed,
        }  # fmt: skip


class Stream:
    """Numbered values sent by a thread until it is stopped, and which of them were acknowledged."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.topic = request["topic"]
        self._partitions, self._next = request["partitions"], request["start"]
        self.acked: list[tuple[int, int, int]] = []
        self.failed: list[tuple[int, str]] = []
        self._room = threading.Semaphore(IN_FLIGHT)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def send(self, partition: int, number: int) -> None:
        raise AssertionError("each client sends its own way")

    def flush(self) -> None:
        raise AssertionError("each client flushes its own way")

    def start(self) -> None:
        self._thread.start()

    def rest(self) -> None:
        """Called before each number."""
        if self._next % BURST == 0:
            self._stopped.wait(PAUSE_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.rest()
            if not self._room.acquire(timeout=0.05):
                continue
            number, self._next = self._next, self._next + 1
            try:
                self.send(number % self._partitions, number)
            except Exception as error:
                self.note_failed(number, error)

    def value(self, number: int) -> bytes:
        return b"%d:" % number + b"v" * (number * 7 % 300)

    def note(self, number: int, partition: int, offset: int) -> None:
        self.acked.append((number, partition, offset))
        self._room.release()

    def note_failed(self, number: int, reason: object) -> None:
        self.failed.append((number, str(reason)))
        self._room.release()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(ANSWER_S)
        self.flush()

    def state(self) -> dict[str, Any]:
        return {"acked": list(self.acked), "failed": list(self.failed)}


class Agent:
    """Answers requests; a client's subclass does the work."""

    member_kind: type[Any]
    stream_kind: type[Any]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.members: dict[str, Any] = {}
        self.streams: list[Any] = []

    def do_join(self, request: dict[str, Any]) -> dict[str, Any]:
        member = self.member_kind(self.bootstrap, request)
        self.members[request["member"]] = member
        member.start()
        return {}

    def do_state(self, request: dict[str, Any]) -> Any:
        return self.members[request["member"]].state()

    def do_commit(self, request: dict[str, Any]) -> dict[str, Any]:
        self.members[request["member"]].ask_commit()
        return {}

    def do_leave(self, request: dict[str, Any]) -> dict[str, Any]:
        self.members[request["member"]].leave()
        return {}

    def do_stream(self, request: dict[str, Any]) -> dict[str, Any]:
        self.streams.append(self.stream_kind(self.bootstrap, request))
        self.streams[-1].start()
        return {}

    def do_acked(self, request: dict[str, Any]) -> Any:
        return self.streams[-1].state()

    def do_stop(self, request: dict[str, Any]) -> Any:
        self.streams[-1].stop()
        return self.streams[-1].state()

    def serve(self) -> None:
        """Serve until standard input ends."""
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = getattr(self, f"do_{request['do']}")(request)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)
