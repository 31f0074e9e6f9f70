"""Which partitions get records without a key: more for those with shorter queues.

KIP-794 as a pure function: queue lengths and available partitions -> how often each is chosen.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping

__all__ = ["cumulative"]


def cumulative(partitions: int, queued: Mapping[int, int], unavailable: Collection[int]) -> bytes:
    """The cumulative weights of partitions 0 to `partitions` - 1, as int64s of this machine; empty:
    all are alike.

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
