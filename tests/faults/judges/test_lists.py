"""The judge of lists names every anomaly, and finds none in good histories."""

from __future__ import annotations

import math
import random

import pytest

from tests.faults.history import Append, History, Op, Outcome, Read
from tests.faults.judges import cycles, lists

OK, FAIL, UNKNOWN = Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN


def append(
    process: str, start: float, value: int, *keys: str, end: float | None = None,
    outcome: Outcome = OK,
) -> Append:  # fmt: skip
    end = math.inf if outcome is UNKNOWN else start + 1 if end is None else end
    return Append(process=process, start=start, end=end, outcome=outcome,
                  keys=[*keys] or ["x"], value=value)  # fmt: skip


def read(process: str, start: float, *found: int, key: str = "x", end: float | None = None) -> Read:
    return Read(process=process, start=start, end=start + 1 if end is None else end, outcome=OK,
                key=key, found=[*found])  # fmt: skip


ONE, TWO, THREE = (append("a", 2 * n, n) for n in (1, 2, 3))
ALL = read("last", 90, 1, 2, 3)
GOOD: dict[str, list[Op]] = {
    "nothing": [],
    "in order": [ONE, TWO, THREE, ALL],
    "a beginning": [ONE, TWO, THREE, read("r", 20), read("r", 22, 1), ALL],
    "an older beginning": [ONE, TWO, THREE, read("r", 20, 1, 2), read("r", 22, 1), ALL],
    "unknown, there": [ONE, append("b", 3, 2, outcome=UNKNOWN), THREE, ALL],
    "unknown, not there": [ONE, append("b", 3, 9, outcome=UNKNOWN), read("last", 90, 1)],
    "failed": [ONE, append("b", 3, 9, end=4, outcome=FAIL), read("last", 90, 1)],
    "together": [
        append("a", 0, 1, end=9), append("b", 1, 2, end=8), read("last", 90, 2, 1),
    ],
    "two keys": [append("a", 0, 1, "x", "y"), read("last", 90, 1), read("last", 92, 1, key="y")],
}  # fmt: skip
BAD: dict[str, list[list[Op]]] = {
    "lost": [
        [ONE, TWO, read("last", 90, 1)],
        [ONE, read("last", 90)],
        [append("a", 0, 1, "x", "y"), read("last", 90), read("last", 92, key="y")],
    ],
    "duplicate": [
        [ONE, read("last", 90, 1, 1)],
        [ONE, TWO, read("last", 90, 1, 2, 1)],
        [ONE, TWO, read("r", 20, 1, 1), read("last", 90, 1, 2)],
    ],
    "divergent": [
        [ONE, TWO, read("r", 20, 2), read("last", 90, 1, 2)],
        [append("a", 0, 1, end=9), append("b", 0, 2, end=9), read("r", 20, 1, 2),
         read("last", 90, 2, 1)],
        [ONE, TWO, THREE, read("r", 20, 1, 3), ALL],
    ],
    "phantom": [
        [ONE, read("last", 90, 1, 7)],
        [append("a", 50, 1), read("r", 20, 1), read("last", 90, 1)],
        [append("a", 0, 1), read("last", 90, 1), read("r", 20, 1, key="y")],
    ],
    "aborted": [
        [append("a", 0, 1, outcome=FAIL), read("last", 90, 1)],
        [ONE, append("b", 3, 2, outcome=FAIL), read("r", 20, 1, 2), read("last", 90, 1)],
        [append("a", 0, 1, "x", "y", outcome=FAIL), read("last", 90, 1, key="y")],
    ],
    "torn": [
        [append("a", 0, 1, "x", "y"), read("last", 90, 1), read("last", 92, key="y")],
        [append("a", 0, 1, "x", "y", outcome=UNKNOWN), read("last", 90),
         read("last", 92, 1, key="y")],
        [append("a", 0, 1, "x", "y", "z"), read("last", 90, 1), read("last", 92, 1, key="y"),
         read("last", 94, key="z")],
    ],
    "cycle": [
        [append("a", 0, 1), append("b", 4, 2), read("last", 90, 2, 1)],  # ww against time
        [append("a", 0, 1, end=1), append("b", 4, 2, outcome=UNKNOWN), read("last", 90, 2, 1)],
        [read("b", 0, 1, end=1), append("b", 2, 2, "y"), read("a", 4, 2, key="y"),
         append("a", 6, 1), read("last", 90, 1)],  # each knows the other's future
        [append("a", 0, 1, end=9), append("a", 20, 3, end=21), append("b", 10, 2, end=30),
         append("b", 31, 4, end=32), read("last", 90, 4, 2, 1, 3)],
    ],
}  # fmt: skip
STALE: list[list[Op]] = [
    [ONE, TWO, read("r", 20, 1), read("last", 90, 1, 2)],
    [ONE, TWO, read("r", 20, 1, 2), read("r", 22, 1), read("last", 90, 1, 2)],
    # Each appends, then misses what the other appended.
    [append("a", 0, 1, "x", end=2), read("a", 5, key="y"), append("b", 0, 2, "y", end=2),
     read("b", 5, key="x"), read("last", 90, 1), read("last", 92, 2, key="y")],
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_wrong(name: str) -> None:
    assert lists.check(History(GOOD[name]), last="last") == []


@pytest.mark.parametrize(("kind", "number"), [(k, n) for k in BAD for n in range(len(BAD[k]))])
def test_anomalies_are_found(kind: str, number: int) -> None:
    found = lists.check(History(BAD[kind][number]), last="last")
    assert kind in {anomaly.kind for anomaly in found}


@pytest.mark.parametrize("history", STALE)
def test_stale_reads_are_found_where_they_are_asked_for(history: list[Op]) -> None:
    assert lists.check(History(history), last="last") == []
    (found,) = lists.check(History(history), last="last", promised=lists.STRICT)
    assert found.kind == "cycle" and "-rw->" in found.what


def test_writes_of_transactions_may_cross() -> None:
    crossed: list[Op] = [
        append("a", 0, 1, "x", "y", end=9), append("b", 0, 2, "x", "y", end=9),
        read("last", 90, 1, 2), read("last", 92, 2, 1, key="y"),
    ]  # fmt: skip
    assert lists.check(History(crossed), last="last", promised=lists.TRANSACTIONS) == []
    (found,) = lists.check(History(crossed), last="last")
    assert "-ww->" in found.what


def test_every_kind_has_bad_histories() -> None:
    said = (lists.__doc__ or "").partition("Kinds of anomaly:\n\n")[2]
    named = {line.split()[0] for line in said.splitlines() if line[:1].isalpha()}
    assert named == set(BAD) and all(len(histories) >= 3 for histories in BAD.values())


@pytest.mark.parametrize("seed", range(20))
def test_components_are_those_of_reachability(seed: int) -> None:
    """Tarjan's algorithm against the definition: nodes that reach each other."""
    rng = random.Random(seed)
    count = 12
    edges: cycles.Edges = {}
    for _ in range(rng.randint(0, 24)):
        edges.setdefault(rng.randrange(count), {})[rng.randrange(count)] = "why"
    reach = {one: {one} for one in range(count)}
    for _ in range(count):
        for one in range(count):
            for other in edges.get(one, ()):
                reach[one] |= reach[other]
    wanted = {frozenset(o for o in reach[one] if one in reach[o]) for one in range(count)}
    assert {frozenset(part) for part in cycles.components(count, edges)} == wanted
    found = cycles.cycle(count, edges)
    loops = any(len(part) > 1 for part in wanted) or any(n in edges.get(n, ()) for n in edges)
    assert bool(found) == loops
    for (one, _), (other, _) in zip(found, [*found[1:], *found[:1]], strict=True):
        assert other in edges[one]
