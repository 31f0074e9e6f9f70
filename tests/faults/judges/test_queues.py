"""The judge of queues names every anomaly, and finds none in good histories."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.history import History, Op, Outcome, Poll, Send, Transaction
from tests.faults.judges import queues

OK, FAIL, UNKNOWN = Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN


def send(
    value: str, start: float, end: float = math.inf, offset: int | None = None,
    outcome: Outcome | None = None, partition: int = 0,
) -> Send:  # fmt: skip
    """By the process that its first letter names; acknowledged if it ended."""
    outcome = outcome or (OK if end < math.inf else UNKNOWN)
    return Send(process=value[0], start=start, end=end, outcome=outcome, partition=partition,
                value=value, offset=offset)  # fmt: skip


def poll(process: str, start: float, *records: tuple[int, str], **rest: Any) -> Poll:
    return Poll(process=process, start=start, end=start + 1, outcome=OK,
                **{"partition": 0, "records": [*records], **rest})  # fmt: skip


def transaction(
    outcome: Outcome, *values: str, start: float = 0, end: float = math.inf,
    decided: float = math.inf,
) -> Transaction:  # fmt: skip
    return Transaction(process="t", start=start, end=end, outcome=outcome,
                       sent=[(0, value) for value in values], decided=decided)  # fmt: skip


A, B, C = send("a1", 0, 1, 0), send("a2", 2, 3, 1), send("b1", 4, 5, 2)
ALL = poll("last", 90, (0, "a1"), (1, "a2"), (2, "b1"))

GOOD: dict[str, list[Op]] = {
    "nothing": [],
    "in order": [A, B, C, ALL],
    "an unknown one is there": [A, send("a2", 2), C, ALL],
    "an unknown one is not there": [A, send("x1", 2), poll("last", 90, (0, "a1"))],
    "a failed one is not there": [A, send("x1", 2, 3, outcome=FAIL), poll("last", 90, (0, "a1"))],
    "together, either order": [
        send("a1", 0, 9, 1), send("b1", 1, 8, 0), poll("last", 90, (0, "b1"), (1, "a1")),
    ],
    "a reader goes back where it is sent": [
        A, B, C, poll("r", 20, (0, "a1"), (1, "a2")), poll("r", 30, (0, "a1"), seek=True), ALL,
    ],
    "a gap in the offsets": [
        A, send("a2", 2, 3, 5), poll("r", 20, (0, "a1"), (5, "a2")),
        poll("last", 90, (0, "a1"), (5, "a2")),
    ],
    "the same offset of two partitions": [
        A, send("a2", 2, 3, 0, partition=1), poll("last", 90, (0, "a1")),
        poll("last", 92, (0, "a2"), partition=1),
    ],
    "acknowledged without an offset": [send("a1", 0, 1), poll("last", 90, (0, "a1"))],
    "a transaction": [
        send("a1", 0, 9, 0), send("a2", 1, 9, 1), transaction(OK, "a1", "a2", end=9, decided=5),
        poll("r", 5, (0, "a1")), poll("last", 90, (0, "a1"), (1, "a2")),
    ],
    "an aborted one": [
        send("a1", 0, 9, 0, FAIL), transaction(FAIL, "a1", end=9), send("a2", 10, 11, 2),
        poll("last", 90, (2, "a2")),
    ],
    "one that nobody knows of": [
        send("a1", 0), transaction(UNKNOWN, "a1", decided=4), poll("last", 90),
    ],
}  # fmt: skip

BAD: dict[str, list[list[Op]]] = {
    "lost": [
        [A, B, poll("last", 90, (0, "a1"))],
        [A, poll("last", 90)],
        [A, B, C, poll("r", 20, (0, "a1"), (1, "a2"), (2, "b1")),
         poll("last", 90, (0, "a1"), (2, "b1"))],  # others had read it
        [send("a1", 0, 1), poll("last", 90)],  # no offset was reported
        [send("a1", 0, 9, 0), transaction(OK, "a1", end=9, decided=5), poll("last", 90)],
    ],
    "duplicate": [
        [A, poll("last", 90, (0, "a1"), (1, "a1"))],
        [A, poll("r", 20, (4, "a1")), poll("last", 90, (0, "a1"))],
        [A, poll("last", 90, (1, "a1"))],  # not where it was acknowledged
        [send("a1", 0), poll("last", 90, (0, "a1"), (7, "a1"))],
    ],
    "divergent": [
        [A, send("b1", 0), poll("r", 20, (0, "b1")), poll("last", 90, (0, "a1"))],
        [send("a1", 0, 9, 0), send("b1", 0, 9, 0), poll("last", 90, (0, "a1"))],
        [send("a1", 0), send("b1", 0), poll("r", 20, (3, "a1")), poll("q", 20, (3, "b1"))],
    ],
    "phantom": [
        [A, poll("last", 90, (0, "a1"), (1, "x1"))],
        [send("a1", 50, 51, 0), poll("r", 20, (0, "a1")), poll("last", 90, (0, "a1"))],
        [A, poll("last", 90, (0, "a1")), poll("r", 90, (0, "a1"), partition=1)],
    ],
    "aborted": [
        [send("a1", 0, 1, outcome=FAIL), poll("last", 90, (0, "a1"))],
        [A, send("a2", 2, 3, 1, FAIL), poll("r", 20, (0, "a1"), (1, "a2")),
         poll("last", 90, (0, "a1"))],
        [send("a1", 0), transaction(FAIL, "a1", end=9), poll("r", 20, (0, "a1")),
         poll("last", 90)],
    ],
    "early": [
        [send("a1", 0, 50, 0), transaction(OK, "a1", end=50, decided=40), poll("r", 20, (0, "a1")),
         poll("last", 90, (0, "a1"))],
        [send("a1", 0), transaction(UNKNOWN, "a1", decided=40), poll("r", 38.5, (0, "a1")),
         poll("last", 90, (0, "a1"))],
        [send("a1", 0), transaction(UNKNOWN, "a1"), poll("last", 90, (0, "a1"))],
    ],
    "reordered": [
        [send("a1", 0, 1, 1), send("b1", 2, 3, 0), poll("last", 90, (0, "b1"), (1, "a1"))],
        [send("a1", 0, 9, 1), send("a2", 1, 9, 0), poll("last", 90, (0, "a2"), (1, "a1"))],
        [send("a1", 0), send("a2", 1), poll("last", 90, (0, "a2"), (1, "a1"))],
        [send("a1", 0, 1), send("b1", 2), poll("last", 90, (3, "b1"), (8, "a1"))],
    ],
    "backwards": [
        [A, B, C, poll("r", 20, (0, "a1"), (1, "a2")), poll("r", 30, (0, "a1")), ALL],
        [A, B, C, poll("r", 20, (1, "a2"), (0, "a1")), ALL],
        [A, B, C, poll("r", 20, (0, "a1")), poll("r", 30, (0, "a1")), ALL],
    ],
    "skipped": [
        [A, B, C, poll("r", 20, (0, "a1"), (2, "b1")), ALL],
        [A, B, C, poll("r", 20, (0, "a1")), poll("r", 30, (2, "b1")), ALL],
        [A, send("a2", 2), C, poll("r", 20, (0, "a1"), (2, "b1")), ALL],  # arrived later
    ],
    "torn": [
        [send("a1", 0), send("a2", 1), transaction(UNKNOWN, "a1", "a2", decided=4),
         poll("last", 90, (0, "a1"))],
        [send("a1", 0, 9), send("a2", 1, 9), transaction(OK, "a1", "a2", end=9, decided=4),
         poll("last", 90, (1, "a2"))],
        [send("a1", 0, 9, 0), send("a2", 1, 9, 1), send("a3", 1, 9, 2),
         transaction(OK, "a1", "a2", "a3", end=9, decided=4),
         poll("last", 90, (0, "a1"), (2, "a3"))],
    ],
}  # fmt: skip


def kinds(history: History) -> set[str]:
    return {anomaly.kind for anomaly in queues.check(history, last="last")}


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_wrong(name: str) -> None:
    assert queues.check(History(GOOD[name]), last="last") == []


@pytest.mark.parametrize(("kind", "number"), [(k, n) for k in BAD for n in range(len(BAD[k]))])
def test_anomalies_are_found(kind: str, number: int) -> None:
    assert kind in kinds(History(BAD[kind][number]))


def test_every_kind_has_bad_histories() -> None:
    said = (queues.__doc__ or "").partition("Kinds of anomaly:\n\n")[2]
    named = {line.split()[0] for line in said.splitlines() if line[:1].isalpha()}
    assert named == set(BAD) and all(len(histories) >= 3 for histories in BAD.values())


# ---- long histories: a perfect log, and then with one error -----------------------------------

Log = dict[int, list[str]]


def perfect(rng: random.Random) -> tuple[list[Op], Log]:
    """Three producers, two partitions, two readers; some sends have an unknown outcome."""
    operations: list[Op] = []
    log: Log = {0: [], 1: []}
    now = dict.fromkeys("abc", 0.0)
    for number in range(120):
        process = rng.choice("abc")
        partition = rng.randrange(2)
        start = now[process] = max(now[process], number) + rng.random()
        value, fate = f"{process}{number}", rng.random()
        if fate < 0.1:
            operations.append(send(value, start, partition=partition))
            continue
        log[partition].append(value)
        end = number + 1.0 if fate < 0.9 else math.inf
        offset = len(log[partition]) - 1 if end < math.inf else None
        operations.append(send(value, start, max(end, start), offset, partition=partition))
    for process in ("r", "s", "last"):
        time = 1000.0
        for partition, values in log.items():
            at = 0
            while at < len(values):
                step = rng.randint(1, 9)
                records = [*enumerate(values)][at : at + step]
                operations.append(poll(process, time, *records, partition=partition))
                at, time = at + step, time + 2
    return operations, log


def some(rng: random.Random, operations: list[Op], process: str = "r", least: int = 1) -> Poll:
    polls = [one for one in operations if isinstance(one, Poll) and one.process == process]
    return rng.choice([one for one in polls if len(one.records) >= least])


def lose(rng: random.Random, operations: list[Op]) -> str:
    acked = [o for o in operations if isinstance(o, Send) and o.outcome is OK]
    gone = rng.choice(acked).value
    for one in operations:
        if isinstance(one, Poll):
            one.records = [record for record in one.records if record[1] != gone]
    return "lost"


def repeat(rng: random.Random, operations: list[Op]) -> str:
    one = some(rng, operations, "last")
    offset, value = one.records[-1]
    operations.append(poll("x", 5000, (offset + 500, value), partition=one.partition))
    return "duplicate"


def replace(rng: random.Random, operations: list[Op]) -> str:
    one = some(rng, operations)
    one.records[0] = (one.records[0][0], rng.choice([o.value for o in operations
                      if isinstance(o, Send) and o.value != one.records[0][1]]))  # fmt: skip
    return "divergent"


def invent(rng: random.Random, operations: list[Op]) -> str:
    one = some(rng, operations)
    one.records[-1] = (one.records[-1][0], "z9")
    return "phantom"


def swap(rng: random.Random, operations: list[Op]) -> str:
    one = some(rng, operations, least=2)
    one.records[0], one.records[1] = one.records[1], one.records[0]
    return "backwards"


def skip(rng: random.Random, operations: list[Op]) -> str:
    one = some(rng, operations, least=3)
    del one.records[1]
    return "skipped"


def late(rng: random.Random, operations: list[Op]) -> str:
    """Claim that the first send of a partition began when all others were over."""
    first = next(o for o in operations if isinstance(o, Send) and o.offset == 0)
    first.start, first.end = 900, 901
    return "reordered"


@pytest.mark.parametrize("seed", range(5))
def test_a_perfect_log_is_found_to_be_one(seed: int) -> None:
    operations, _ = perfect(random.Random(seed))
    assert queues.check(History(operations), last="last") == []


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("spoil", [lose, repeat, replace, invent, swap, skip, late])
def test_one_spoilt_place_is_found(
    spoil: Callable[[random.Random, list[Op]], str], seed: int
) -> None:
    rng = random.Random(seed)
    operations, _ = perfect(rng)
    assert spoil(rng, operations) in kinds(History(operations))
