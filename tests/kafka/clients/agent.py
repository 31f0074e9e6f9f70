"""A client library as a program: one JSON object a line in, one a line out.

Every client under tests/kafka/clients/programs answers the same requests, so one test covers all of
them, and a member of a group can be killed as only a process can.  Bytes travel as base64, null as
null.  Requests, by the value of "do":

produce   topic partition records codec acks idempotent   -> offsets (-1 with acks=0)
consume   topic partition offset count   -> records
time      topic partition timestamp_ms   -> offset (the end when none is late enough)
join      member group topics instance session_ms -> at once; then polls by itself
state     member                         -> assigned: [[topic, partition]], joins, failed,
                                            seen: [[topic, partition, offset]]
commit    member                         -> the positions are committed on return
leave     member                         -> closed as this client closes
committed group topic partitions         -> offsets, -1 for none
tour      topic                          -> the results of admin calls, see test_admin.py
stream    topic partitions start codec acks idempotent  -> at once; sends numbered values
acked                                    -> acked: [[number, partition, offset]] so far,
                                            failed: [[number, reason]]
stop                                     -> the same, once nothing is in flight
transform source target group count      -> tries: how many transactions it took; copies the
                                            group's records of partition 0, values only, ten a
                                            transaction with the position; each third one is
                                            aborted and repeated (Java, Go, JavaScript)

A failed request is answered by {"error": text}.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.prepared import Archive

ANSWER_S = 150
END_S = 60
VARIED = {"produce", "join"}
"""An archive with the classes of these serves all requests."""


class ClientError(Exception):
    """An error of a client library."""


class Record(NamedTuple):
    """One record, as it was sent or as it was read back."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    offset: int | None = None


def _out(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _in(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value)


def encoded(record: Record) -> dict[str, Any]:
    headers = [[name, _out(value)] for name, value in record.headers]
    return {
        "key": _out(record.key), "value": _out(record.value), "headers": headers,
        "timestamp_ms": record.timestamp_ms,
    }  # fmt: skip


def decoded(fields: dict[str, Any]) -> Record:
    headers = tuple((name, _in(value)) for name, value in fields["headers"] or ())
    return Record(
        _in(fields["key"]), _in(fields["value"]), headers, fields["timestamp_ms"], fields["offset"]
    )


class State(NamedTuple):
    """The state of a group's member: partitions by (topic, number)."""

    assigned: set[tuple[str, int]]
    joins: int
    seen: list[tuple[str, int, int]]
    failed: str


class Agent:
    """A running client program; a context manager that ends it."""

    def __init__(
        self, name: str, command: Sequence[str], bootstrap: str, errors: Path,
        archive: Archive | None = None,
    ) -> None:  # fmt: skip
        """`archive`: the archive of its classes, if it runs in Java."""
        self.name = name
        self._errors = errors
        self._archive = archive
        self._asked: set[str] = set()
        if archive is not None:
            command = archive.within(command)
        with errors.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=output, text=True,
            )  # fmt: skip
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        """End it at once, unless an orderly end is to write the archive."""
        if self._archive is not None and self._archive.wanted and self._asked >= VARIED:
            assert self._process.stdin
            self._process.stdin.close()
            self._process.wait(END_S)
            self._archive.ended()
        self.kill()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                self._answers.put(line)
        self._answers.put("")

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Send one request; returns its answer.

        Raises: ClientError, if the client reports an error or does not answer in time.
        """
        assert self._process.stdin
        self._asked.add(do)
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise ClientError(f"{self.name}: no answer to {do} in {ANSWER_S} s") from None
        if not line:
            said = self._errors.read_text(errors="replace")[-2000:]
            raise ClientError(f"{self.name} ended at {do}: {said}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClientError(f"{self.name}, {do}: {answer['error']}")
        return answer

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        partition: int = 0,
    ) -> list[int]:
        """Send all; returns their offsets once all are acknowledged."""
        answer = self.ask(
            "produce", topic=topic, partition=partition, codec=codec, acks=acks,
            idempotent=idempotent, records=[encoded(record) for record in records],
        )  # fmt: skip
        return list(answer["offsets"])

    def consume(self, topic: str, count: int, offset: int = 0, partition: int = 0) -> list[Record]:
        """That many records from an offset on, without a group."""
        asked = {"topic": topic, "partition": partition, "offset": offset, "count": count}
        return [decoded(fields) for fields in self.ask("consume", **asked)["records"]]

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int:
        asked = {"topic": topic, "partition": partition, "timestamp_ms": timestamp_ms}
        return int(self.ask("time", **asked)["offset"])

    def committed(self, group: str, topic: str, partitions: Sequence[int]) -> list[int]:
        asked = {"group": group, "topic": topic, "partitions": list(partitions)}
        return list(self.ask("committed", **asked)["offsets"])

    def join(
        self,
        group: str,
        topics: Sequence[str],
        instance: str | None = None,
        session_ms: int = 6000,
        member: str = "",
    ) -> Member:
        """A new member of a group, which starts polling by itself."""
        name = member or f"member-{os.urandom(4).hex()}"
        self.ask(
            "join", member=name, group=group, topics=list(topics), instance=instance,
            session_ms=session_ms,
        )  # fmt: skip
        return Member(self, name)


class Member:
    """A member of a group, in an agent."""

    def __init__(self, agent: Agent, name: str) -> None:
        self.agent, self.name = agent, name

    def state(self) -> State:
        answer = self.agent.ask("state", member=self.name)
        return State(
            {(topic, number) for topic, number in answer["assigned"]}, answer["joins"],
            [(topic, number, offset) for topic, number, offset in answer["seen"]],
            answer["failed"] or "",
        )  # fmt: skip

    def partitions(self) -> set[int]:
        return {number for _, number in self.state().assigned}

    def commit(self) -> None:
        self.agent.ask("commit", member=self.name)

    def leave(self) -> None:
        self.agent.ask("leave", member=self.name)
