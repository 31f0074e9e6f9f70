"""Judges a bank: orders are read from one topic and booked into another, each in a transaction
together with the position.

An order is a value `NUMBER:AMOUNT`; its bookings are one `NUMBER:debit:-AMOUNT` and one
`NUMBER:credit:AMOUNT`, followed by `:ATTEMPT`, so that each value is unique.

Kinds of anomaly, in addition to those of a queue:

total       the sum of all bookings is not zero
half        a debit without its credit, or the reverse
twice       an order was booked again
forgotten   an order that was acknowledged was not booked
phantom     no order exists for a booking, or its send failed
altered     the booking's amount differs from the order's
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.faults.history import Anomaly, History, Outcome, Poll, Send

SIDES = {"debit": -1, "credit": 1}


def check(orders: History, ledger: History, *, last: str) -> list[Anomaly]:
    """`last`: the process that read the whole ledger at the end."""
    booked: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for poll in ledger.of(Poll):
        if poll.process == last:
            for _, value in poll.records:
                number, side, amount, _ = value.split(":")
                booked[number].append((side, int(amount)))
    anomalies = []
    total = sum(amount for legs in booked.values() for _, amount in legs)
    if total:
        anomalies.append(Anomaly("total", f"{total} is held, not 0"))
    placed = {one.value.split(":")[0]: one for one in orders.of(Send)}
    for number, legs in booked.items():
        anomalies += _booked(number, legs, placed.get(number))
    for number, send in placed.items():
        if send.outcome is Outcome.OK and number not in booked:
            anomalies.append(Anomaly("forgotten", f"order {send.value}"))
    return anomalies


def _booked(number: str, legs: list[tuple[str, int]], send: Send | None) -> Iterator[Anomaly]:
    """The anomalies in one order's bookings."""
    if send is None or send.outcome is Outcome.FAIL:
        yield Anomaly("phantom", f"order {number}: {legs}")
        return
    sides = [side for side, _ in legs]
    if set(sides) != set(SIDES):
        yield Anomaly("half", f"order {number}: {legs}")
    if len(sides) > len(set(sides)):
        yield Anomaly("twice", f"order {number}: {legs}")
    amount = int(send.value.split(":")[1])
    if any(booked != SIDES[side] * amount for side, booked in legs):
        yield Anomaly("altered", f"order {send.value}: {legs}")
