"""The judge of groups names every anomaly, and finds none in good histories."""

from __future__ import annotations

import math

import pytest

from tests.faults.history import Assigned, Commit, Committed, History, Op, Outcome, Poll
from tests.faults.judges import groups

OK, FAIL, UNKNOWN = Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN


def commit(offset: int, start: float, outcome: Outcome = OK, partition: int = 0) -> Commit:
    end = math.inf if outcome is UNKNOWN else start + 1
    return Commit(process="m", start=start, end=end, outcome=outcome, partition=partition,
                  offset=offset)  # fmt: skip


def told(offset: int, start: float, partition: int = 0) -> Committed:
    return Committed(process="l", start=start, end=start + 1, outcome=OK, partition=partition,
                     offset=offset)  # fmt: skip


def read(*offsets: int, start: float = 0, partition: int = 0) -> Poll:
    return Poll(process="m", start=start, end=start, outcome=OK, partition=partition,
                records=[(offset, "") for offset in offsets])  # fmt: skip


def has(member: str, generation: int, *partitions: int) -> Assigned:
    return Assigned(process=member, start=0, end=0, outcome=OK, generation=generation,
                    partitions=[*partitions])  # fmt: skip


RECORDS = {0: [0, 1, 2]}
WHOLE = [read(0, 1, 2), commit(3, 8), told(3, 90)]
GOOD: dict[str, list[Op]] = {
    "one way": WHOLE,
    "step by step": [read(0), commit(1, 1), told(1, 3), read(1, 2), commit(3, 5), told(3, 90)],
    "an unknown commit held": [read(0, 1, 2), commit(3, 8, UNKNOWN), told(3, 90)],
    "an unknown commit did not hold": [
        read(0, 1, 2), commit(2, 4, UNKNOWN), told(-1, 6), commit(3, 8), told(3, 90),
    ],
    "told while it is committed": [read(0, 1, 2), commit(1, 4), told(-1, 4.5), *WHOLE],
    "processed again": [read(0, 1), read(0, 1, 2), commit(3, 8), told(3, 90)],
    "offsets with gaps": [read(0, 1, 2), commit(7, 8), told(7, 90)],
    "a member after the other": [has("m", 1, 0), has("n", 2, 0), *WHOLE],
    "beside each other": [has("m", 1, 0), has("n", 1, 1), has("m", 1, 0), *WHOLE],
}  # fmt: skip
BAD: dict[str, list[list[Op]]] = {
    "regression": [
        [*WHOLE, told(1, 95)],
        [read(0, 1, 2), commit(1, 1), commit(3, 3), told(1, 6), told(3, 90)],
        [*WHOLE, told(-1, 95)],
        [read(0, 1, 2), commit(1, 0), commit(3, 1, UNKNOWN), told(3, 4), told(1, 6), told(3, 90)],
    ],
    "phantom": [
        [*WHOLE, told(4, 95)],
        [*WHOLE, commit(9, 20, FAIL), told(9, 95)],
        [told(3, 4), *WHOLE],  # before its commit was requested
    ],
    "left out": [
        [read(0, 2), commit(3, 8), told(3, 90)],
        [commit(3, 8), told(3, 90)],
        [read(0, 1), commit(2, 2), told(2, 4), commit(3, 8), told(3, 90)],
    ],
    "two owners": [
        [has("m", 1, 0), has("n", 1, 0), *WHOLE],
        [has("m", 4, 0, 1), has("n", 4, 1, 2), *WHOLE],
        [has("m", 1, 0), has("n", 2, 0), has("o", 2, 0), *WHOLE],
    ],
    "behind": [
        [read(0, 1), commit(2, 8), told(2, 90)],
        [read(0, 1, 2)],
        [read(0, 1, 2), commit(3, 8, UNKNOWN), told(-1, 90)],
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_wrong(name: str) -> None:
    assert groups.check(History(GOOD[name]), records=RECORDS) == []


@pytest.mark.parametrize(("kind", "number"), [(k, n) for k in BAD for n in range(len(BAD[k]))])
def test_anomalies_are_found(kind: str, number: int) -> None:
    found = groups.check(History(BAD[kind][number]), records=RECORDS)
    assert kind in {anomaly.kind for anomaly in found}


def test_every_kind_has_bad_histories() -> None:
    said = (groups.__doc__ or "").partition("Kinds of anomaly:\n\n")[2]
    named = {line[:12].strip() for line in said.splitlines() if line[:1].isalpha()}
    assert named == set(BAD) and all(len(histories) >= 3 for histories in BAD.values())


@pytest.mark.parametrize(
    ("span", "wanted"),
    [((5.5, 9.0), set()), ((5.0, 6.5), set()), ((2.0, 4.0), {"regression"}),
     ((8.0, 99.0), {"regression"})],
)  # fmt: skip
def test_a_deposed_coordinator_may_answer_old_offsets(
    span: tuple[float, float], wanted: set[str]
) -> None:
    history = [read(0, 1, 2), commit(1, 1), commit(3, 3), told(1, 6), told(3, 90)]
    found = groups.check(History(history), records=RECORDS, disputed=[span])
    assert {anomaly.kind for anomaly in found} == wanted


def test_answers_after_a_dispute_count() -> None:
    history = [commit(1, 1), *WHOLE, told(1, 20), told(1, 95)]
    found = groups.check(History(history), records=RECORDS, disputed=[(19, 22)])
    assert [anomaly.kind for anomaly in found] == ["regression", "behind"]
