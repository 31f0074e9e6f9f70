"""Chooses brokers for the replicas of new partitions.

Pure but for the random start.  The rules are those of Kafka's tools and controllers on ZooKeeper
(AdminUtils): first replicas go round robin, the others at a shift that grows with each round.  If
the racks of all brokers are known, no two replicas are in one rack before each rack has one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

__all__ = ["Start", "place"]


class Start(NamedTuple):
    """Where the round begins, for partitions that are added to others; without it, at random."""

    broker_index: int
    partition: int


def place(
    racks: Mapping[int, str | None], count: int, factor: int, random: Random,
    start: Start | None = None,
) -> list[tuple[int, ...]]:  # fmt: skip
    """The replicas of `count` partitions, `factor` of each; `racks`: of the brokers, by id.

    There is at least one broker, and `factor` is at most their number.
    """
    brokers = sorted(racks)
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    if len(known) == len(racks):
        brokers = _alternating(known)
    first = random.randrange(len(brokers)) if start is None else start.broker_index
    shift = random.randrange(len(brokers)) if start is None else start.broker_index
    number = 0 if start is None else start.partition
    found = []
    for partition in range(number, number + count):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        at = (partition + first) % len(brokers)
        if len(known) == len(racks):
            found.append(_across_racks(brokers, known, at, shift, factor))
        else:
            found.append(_plain(brokers, at, shift, factor))
    return found


def _plain(brokers: Sequence[int], at: int, shift: int, factor: int) -> tuple[int, ...]:
    others = (_other(at, shift, index, len(brokers)) for index in range(factor - 1))
    return (brokers[at], *(brokers[one] for one in others))


def _other(first: int, shift: int, index: int, count: int) -> int:
    return (first + 1 + (shift + index) % (count - 1)) % count


def _alternating(racks: Mapping[int, str]) -> list[int]:
    """Brokers, ordered so that neighbours are in different racks."""
    by_rack: dict[str, deque[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], deque()).append(broker)
    names = sorted(by_rack)
    found: list[int] = []
    at = 0
    while len(found) < len(racks):
        waiting = by_rack[names[at % len(names)]]
        if waiting:
            found.append(waiting.popleft())
        at += 1
    return found


def _across_racks(
    brokers: Sequence[int], racks: Mapping[int, str], at: int, shift: int, factor: int
) -> tuple[int, ...]:
    chosen = [brokers[at]]
    used = {racks[brokers[at]]}
    count, all_racks = len(brokers), len({*racks.values()})
    index = 0
    while len(chosen) < factor:
        broker = brokers[(at + 1 + (shift * all_racks + index) % (count - 1)) % count]
        index += 1
        # No rack gets a second replica before each has one; no broker gets two.
        rack_free = racks[broker] not in used or len(used) == all_racks
        if rack_free and broker not in chosen:
            chosen.append(broker)
            used.add(racks[broker])
    return tuple(chosen)
