"""Which partitions get records without a key: those that get on, more than those that do not.

KIP-794, pure: how much waits for each partition, who can be reached -> how often each is chosen.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping

__all__ = ["cumulative"]


def cumulative(partitions: int, queued: Mapping[int, int], unavailable: Collection[int]) -> bytes:
    """The weights of partitions 0 to `partitions` - 1, each with those before it, as int64s of
    this machine; empty: all are alike.

    `queued`: batches that wait, of the partitions where any do.  One weighs as much as it has
    fewer than one more than the longest; one that is unavailable nothing, while another is.
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
