"""Records without a key keep away from leaders that do not get on (KIP-794)."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kafkalog.client.buffer.accumulator import Accumulator
from kafkalog.client.link.cluster import Cluster

__all__ = ["Balance"]

WEIGHED_S = 0.01
WEIGHED_SHARE = 50
"""So often it is looked where less waits at most, and in such a part of the time."""


class Balance:
    """Which nodes take what is ready for them.  The sender's thread only, but for reads."""

    def __init__(self, wanted: bool, timeout_s: float) -> None:
        """`wanted`: partitioner.adaptive.partitioning.enable; `timeout_s`:
        partition.availability.timeout.ms, 0: a node is never given up.
        """
        self.unavailable: set[int] = set()
        """Nodes that get no records without a key."""
        self._wanted = wanted
        self._timeout_s = timeout_s
        self._since_s: dict[int, float] = {}
        self._next_s = 0.0

    def stalled(self, nodes: Iterable[int], now_s: float) -> None:
        """For these something is ready that they do not take; all others take what there is."""
        self._since_s = {node: self._since_s.get(node, now_s) for node in nodes}

    def took(self, node: int) -> None:
        """It took something."""
        self._since_s.pop(node, None)

    def gone(self, now_s: float) -> set[int]:
        """The nodes that have taken nothing for too long."""
        if not self._timeout_s:
            return set()
        return {n for n, at_s in self._since_s.items() if now_s - at_s > self._timeout_s}

    def weigh(self, now_s: float, cluster: Cluster, waiting: Accumulator) -> None:
        """Say where records without a key go, from time to time."""
        if not self._wanted or now_s < self._next_s:
            return
        begun_s = time.monotonic()
        gone = self.gone(now_s)

        def without(topic: str) -> list[int]:
            info = cluster.topics.get(topic)
            rows = info.partitions.values() if info else ()
            return [p.partition for p in rows if p.leader < 0 or p.leader in gone]

        waiting.weigh(without)
        self.unavailable = gone
        done_s = time.monotonic()
        self._next_s = done_s + max(WEIGHED_S, (done_s - begun_s) * WEIGHED_SHARE)
