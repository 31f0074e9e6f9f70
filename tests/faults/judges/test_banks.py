"""The bank's judge names every anomaly, and finds none in good histories."""

from __future__ import annotations

import math

import pytest

from tests.faults.history import History, Outcome, Poll, Send
from tests.faults.judges import banks

OK, FAIL, UNKNOWN = Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN
Case = tuple[str, str]


def judged(orders: str, booked: str) -> set[str]:
    """Orders as `7:50` (`?` after an unknown, `!` after a failed one); bookings as `7-50` for a
    debit of 50 and `7+50` for a credit."""
    marks = {"?": UNKNOWN, "!": FAIL}
    placed = [
        Send(process="p", start=0, end=math.inf if word.endswith("?") else 1, partition=0,
             value=word.rstrip("?!"), outcome=marks.get(word[-1], OK))
        for word in orders.split()
    ]  # fmt: skip
    values = []
    for n, word in enumerate(booked.split()):
        side = "debit" if "-" in word else "credit"
        number, amount = word.replace("+", "-").split("-")
        values.append((n, f"{number}:{side}:{'-' if side == 'debit' else ''}{amount}:try{n}"))
    read = [
        Poll(process="last", start=9, end=10, partition=0, records=values),
        Poll(process="other", start=9, end=10, partition=0, records=values[:1]),
    ]
    found = banks.check(History([*placed]), History([*read]), last="last")
    return {anomaly.kind for anomaly in found}


GOOD = [
    ("", ""),
    ("1:50", "1-50 1+50"),
    ("1:50 2:9", "2+9 1-50 1+50 2-9"),
    ("1:50 2:9?", "1-50 1+50"),
    ("1:50? 2:9", "1-50 1+50 2-9 2+9"),
    ("1:50 2:9!", "1-50 1+50"),
]
BAD: dict[str, list[Case]] = {
    "total": [("1:50", "1-50"), ("1:50", "1-50 1+51"), ("1:50 2:9", "1-50 1+50 2-9 2+9 2+9")],
    "half": [("1:50", "1+50"), ("1:50 2:9", "1-50 1+50 2-9"), ("1:50?", "1-50 1-50")],
    "twice": [
        ("1:50", "1-50 1+50 1-50 1+50"), ("1:50", "1-50 1+50 1+50"),
        ("1:50? 2:9", "2-9 1-50 2+9 1+50 1+50 1-50"),
    ],
    "forgotten": [("1:50", ""), ("1:50 2:9", "2-9 2+9"), ("1:50 2:9? 3:1", "1-50 1+50")],
    "phantom": [("", "1-50 1+50"), ("1:50!", "1-50 1+50"), ("1:50", "1-50 1+50 2+9 2-9")],
    "altered": [
        ("1:50", "1-5 1+5"), ("1:50 2:9", "1-9 1+9 2-50 2+50"), ("1:50", "1-50 1+49"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("orders", "booked"), GOOD)
def test_nothing_is_wrong(orders: str, booked: str) -> None:
    assert judged(orders, booked) == set()


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind in BAD for case in BAD[kind]])
def test_anomalies_are_found(kind: str, case: Case) -> None:
    assert kind in judged(*case)


def test_every_kind_has_bad_histories() -> None:
    said = (banks.__doc__ or "").partition("those of a queue:\n\n")[2]
    named = {line.split()[0] for line in said.splitlines() if line[:1].isalpha()}
    assert named == set(BAD) and all(len(cases) >= 3 for cases in BAD.values())
