"""The requests of clients and their ends: all that a judge sees.

An operation that is not known to have ended is `UNKNOWN` and has no end: it may take effect at any
time after its start, or never.  `FAIL` means that it certainly had no effect.  Times are seconds
of one monotonic clock.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, NamedTuple, TypeVar


class Outcome(Enum):
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(kw_only=True)
class Op:
    """One operation of a client; a client runs one at a time, except for its sends."""

    process: str
    start: float
    end: float = math.inf
    outcome: Outcome = Outcome.UNKNOWN

    def before(self, other: Op) -> bool:
        """True if it was over when the other began."""
        return self.end < other.start


@dataclass(kw_only=True)
class Send(Op):
    """A record with a unique value; `offset` when it was acknowledged with one."""

    partition: int
    value: str
    offset: int | None = None


@dataclass(kw_only=True)
class Poll(Op):
    """Records of one partition in the order in which they came; `seek`: the reader's position was
    set just before, so that it need not continue from its last record."""

    partition: int
    records: list[tuple[int, str]] = field(default_factory=list)
    seek: bool = False


@dataclass(kw_only=True)
class Transaction(Op):
    """The sends in it, (partition, value); `decided`: when its commit was requested."""

    sent: list[tuple[int, str]] = field(default_factory=list)
    decided: float = math.inf


@dataclass(kw_only=True)
class Append(Op):
    """Appends `value` to the list of each of `keys`, in one transaction."""

    keys: list[str]
    value: int


@dataclass(kw_only=True)
class Read(Op):
    """The whole list of a key."""

    key: str
    found: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class Assigned(Op):
    """Partitions that a member of a group may read from now on."""

    generation: int
    partitions: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class Commit(Op):
    """A commit of a group's position: the offset of the next record."""

    partition: int
    offset: int


@dataclass(kw_only=True)
class Committed(Op):
    """A group's position as the coordinator reported it; -1 for none."""

    partition: int
    offset: int = -1


@dataclass(kw_only=True)
class TopicChange(Op):
    """Creates a topic, or deletes it; `exists`: if there is one when it is done."""

    topic: str
    exists: bool


class Anomaly(NamedTuple):
    """Something that must not happen."""

    kind: str
    what: str


O = TypeVar("O", bound=Op)  # noqa: E741


class History:
    """Operations of several threads, ordered by their starts."""

    def __init__(self, operations: list[Op] | None = None) -> None:
        self._operations = operations or []
        self._lock = threading.Lock()

    def begin(self, kind: type[O], process: str, **values: Any) -> O:
        """Record an operation that starts now."""
        operation = kind(process=process, start=time.monotonic(), **values)
        with self._lock:
            self._operations.append(operation)
        return operation

    @staticmethod
    def end(operation: Op, outcome: Outcome = Outcome.OK, **values: Any) -> None:
        """Record its end, now.  An operation that may still take effect gets no end."""
        for name, value in values.items():
            setattr(operation, name, value)
        operation.outcome = outcome
        if outcome is not Outcome.UNKNOWN:
            operation.end = time.monotonic()

    def of(self, kind: type[O]) -> list[O]:
        with self._lock:
            return [one for one in self._operations if isinstance(one, kind)]

    def lines(self) -> Iterator[str]:
        """One operation a line, for people."""
        with self._lock:
            operations = sorted(self._operations, key=lambda one: one.start)
        for one in operations:
            rest = {f.name: getattr(one, f.name) for f in fields(one)}
            head = [f"{rest.pop(name):.6f}" for name in ("start", "end")]
            head += [rest.pop("process"), type(one).__name__, rest.pop("outcome").value]
            yield " ".join([*head, *(f"{name}={value}" for name, value in rest.items())])
