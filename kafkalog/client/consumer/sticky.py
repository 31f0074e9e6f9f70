"""Balances partitions among readers that keep their own where possible: the pure algorithm.

Balanced: no reader could hand over a partition, directly or along a chain of readers, to one that
has two fewer.  No share is more balanced, even if readers read different topics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from kafkalog.client.consumer.balance import Loads
from kafkalog.types import TopicPartition

__all__ = ["Claims", "balanced"]


class Claims(NamedTuple):
    """The partitions that a reader reports to have had."""

    generation: int
    """The generation that assigned them; -1: unknown."""
    owned: tuple[TopicPartition, ...]


Topics = Mapping[str, Iterable[str]]
Shares = dict[str, list[TopicPartition]]


def balanced(
    readers: Topics, partitions: Mapping[str, int], claims: Mapping[str, Claims]
) -> Shares:
    """The share of each reader, sorted.

    `readers`: the topics of each.  `partitions`: how many each topic has.  `claims`: of each
    reader; of two that claim the same partition the one with the later generation keeps it, and
    neither if the generations are equal.
    """
    wanted = {reader: {t for t in topics if t in partitions} for reader, topics in readers.items()}
    kept = _kept(wanted, partitions, claims)
    topics = set().union(*wanted.values()) if wanted else set()
    if all(some == topics for some in wanted.values()):
        found = _even(sorted(wanted), _all_of(topics, partitions), kept)
    else:
        found = _uneven(wanted, partitions, kept)
    return {reader: sorted(share) for reader, share in found.items()}


def _all_of(topics: Iterable[str], partitions: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for topic in sorted(topics) for p in range(partitions[topic])]


def _kept(
    wanted: Mapping[str, set[str]], partitions: Mapping[str, int], claims: Mapping[str, Claims]
) -> dict[TopicPartition, str]:
    """The readers that may keep their partitions."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for reader in sorted(wanted):
        generation, owned = claims.get(reader, Claims(-1, ()))
        for tp in set(owned):
            if tp.topic not in wanted[reader] or not 0 <= tp.partition < partitions[tp.topic]:
                continue
            rival = best.get(tp)
            if rival is None or generation > rival[0]:
                best[tp] = generation, reader
            elif generation == rival[0]:
                best[tp] = generation, None
    return {tp: reader for tp, (_, reader) in best.items() if reader is not None}


def _even(
    readers: list[str], every: list[TopicPartition], kept: Mapping[TopicPartition, str]
) -> Shares:
    """If all read the same topics: each gets an equal part, and the first ones one more."""
    found: Shares = {reader: [] for reader in readers}
    if not readers:
        return found
    each, more = divmod(len(every), len(readers))
    left: list[TopicPartition] = []
    for tp in every:
        if tp in kept:
            found[kept[tp]].append(tp)
        else:
            left.append(tp)
    for share in found.values():
        room = each + (1 if more and len(share) > each else 0)
        more -= room - each
        left += share[room:]
        del share[room:]
    left.sort()
    room_of = {}
    for reader, share in found.items():
        room = max(each, len(share))
        if more and room == each:
            room, more = each + 1, more - 1
        room_of[reader] = room - len(share)
    # One by one, so that a topic's partitions are spread.
    turn = deque(reader for reader in readers if room_of[reader])
    for tp in left:
        reader = turn.popleft()
        found[reader].append(tp)
        room_of[reader] -= 1
        if room_of[reader]:
            turn.append(reader)
    return found


def _uneven(
    wanted: Mapping[str, set[str]],
    partitions: Mapping[str, int],
    kept: Mapping[TopicPartition, str],
) -> Shares:
    """If they read different topics: how many of each topic each gets, then which."""
    owned: dict[str, dict[str, list[int]]] = {reader: {} for reader in sorted(wanted)}
    for tp, reader in sorted(kept.items()):
        owned[reader].setdefault(tp.topic, []).append(tp.partition)
    counts = {reader: {t: len(own) for t, own in by.items()} for reader, by in owned.items()}
    left = {topic: partitions[topic] for topic in set().union(*wanted.values())}
    for tp in kept:
        left[tp.topic] -= 1
    loads = Loads({reader: sorted(wanted[reader]) for reader in owned}, counts)
    loads.add(left)
    loads.balance()
    found: Shares = {}
    free = {topic: set(range(partitions[topic])) for topic in left}
    for reader, held in loads.held.items():
        share = [
            TopicPartition(topic, p)
            for topic, count in held.items() for p in owned[reader].get(topic, ())[:count]
        ]  # fmt: skip
        for topic, p in share:
            free[topic].discard(p)
        found[reader] = share
    rest = {topic: iter(sorted(some)) for topic, some in free.items()}
    for reader, held in loads.held.items():
        for topic, count in held.items():
            more = max(count - len(owned[reader].get(topic, ())), 0)
            found[reader] += [TopicPartition(topic, p) for p in islice(rest[topic], more)]
    return found
