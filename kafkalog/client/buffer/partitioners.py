"""Where a record goes if the application does not name a partition."""

from __future__ import annotations

import itertools
import random
import zlib
from array import array
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

__all__ = ["Partitioner", "chooser", "cumulative", "keyless", "mistake"]

Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""(topic, key, value, partitions): a partition."""


def keyless(kind: str) -> tuple[bool, bool]:
    """For a partitioner that C knows: (an empty key is none, no key is an empty one)."""
    return kind in ("consistent_random", "crc32"), kind in ("consistent",)


def chooser(kind: str | Partitioner) -> Partitioner | None:
    """A function for the partition of a record; -1: C chooses.  None: C chooses for every one."""
    if callable(kind):
        return kind
    if kind in ("murmur2", "murmur2_random"):
        return None
    return {"round_robin": _in_turn, "random": _any, "consistent": _crc32}.get(kind, _by_key)()


def _by_key() -> Partitioner:
    """librdkafka's consistent_random: an empty key is none."""

    def choose(_topic: str, key: bytes | None, _value: bytes | None, partitions: int) -> int:
        return zlib.crc32(key) % partitions if key else -1

    return choose


def _crc32() -> Partitioner:
    """librdkafka's consistent: no key is an empty one."""

    def choose(_topic: str, key: bytes | None, _value: bytes | None, partitions: int) -> int:
        return zlib.crc32(key or b"") % partitions

    return choose


def _any() -> Partitioner:
    def choose(_topic: str, _key: bytes | None, _value: bytes | None, partitions: int) -> int:
        return random.randrange(partitions)

    return choose


def _in_turn() -> Partitioner:
    turns: dict[str, itertools.count[int]] = {}

    def choose(topic: str, _key: bytes | None, _value: bytes | None, partitions: int) -> int:
        return next(turns.setdefault(topic, itertools.count())) % partitions

    return choose


def mistake(found: object, partitions: int) -> str:
    """The mistake in the result of a user's partitioner; empty: none."""
    if isinstance(found, bool) or not isinstance(found, int):
        return f"partitioner: found {found!r}, wanted a number"
    if not 0 <= found < partitions:
        return f"partitioner: found {found}, wanted 0 to {partitions - 1}"
    return ""


def cumulative(partitions: int, queued: Mapping[int, int], unavailable: Collection[int]) -> bytes:
    """The cumulative weights of partitions 0 to `partitions` - 1, as int64s of this machine; empty:
    all are alike (KIP-794).

    `queued`: batches that wait, for the partitions that have any.  The weight of a partition is one
    more than the longest queue, less its own; that of an unavailable one is 0, unless all are.
    """
    out = set(unavailable)
    if len(out) >= partitions:
        return b""
    if not out and (not queued or (len(queued) == partitions and len({*queued.values()}) == 1)):
        return b""
    most = 1 + max((n for p, n in queued.items() if p not in out), default=0)
    total, found = 0, array("q")
    for partition in range(partitions):
        total += 0 if partition in out else most - queued.get(partition, 0)
        found.append(total)
    return found.tobytes()
