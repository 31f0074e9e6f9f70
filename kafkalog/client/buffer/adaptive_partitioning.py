"""Keeps records without a key away from leaders that make no progress (KIP-794)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kafkalog.client.buffer.accumulator import Accumulator
from kafkalog.client.link.cluster import Cluster

__all__ = ["Balance"]

WEIGHED_S = 0.01
WEIGHED_SHARE = 50
WEIGHED_S_MAX = 1.0
"""Weights are computed at most this often (seconds), and take at most one 50th of the time; waits
for the threads that send are no part of it, and they are at most a second old."""


class Balance:
    """Which nodes accept what is ready for them.  For the sender thread; others may only read."""

    def __init__(
        self, wanted: bool, timeout_s: float, worked_s: Callable[[], float] = time.thread_time
    ) -> None:
        """`wanted`: partitioner.adaptive.partitioning.enable; `timeout_s`:
        partition.availability.timeout.ms, 0: no node is ever unavailable; `worked_s`: how long the
        thread has worked.
        """
        self.unavailable: set[int] = set()
        """Nodes that get no records without a key."""
        self._wanted = wanted
        self._timeout_s = timeout_s
        self._worked_s = worked_s
        self._since_s: dict[int, float] = {}
        self._next_s = 0.0

    def stalled(self, nodes: Iterable[int], now_s: float) -> None:
        """These nodes do not accept what is ready for them; all others do."""
        self._since_s = {node: self._since_s.get(node, now_s) for node in nodes}

    def took(self, node: int) -> None:
        """The node accepted something."""
        self._since_s.pop(node, None)

    def gone(self, now_s: float) -> set[int]:
        """The nodes that have accepted nothing for too long."""
        if not self._timeout_s:
            return set()
        return {n for n, at_s in self._since_s.items() if now_s - at_s > self._timeout_s}

    def weigh(self, now_s: float, cluster: Cluster, waiting: Accumulator) -> None:
        """From time to time, set where records without a key go."""
        if not self._wanted or now_s < self._next_s:
            return
        before_s = self._worked_s()
        gone = self.gone(now_s)

        def without(topic: str) -> list[int]:
            info = cluster.topics.get(topic)
            rows = info.partitions.values() if info else ()
            return [p.partition for p in rows if p.leader < 0 or p.leader in gone]

        waiting.weigh(without)
        self.unavailable = gone
        rest_s = max(WEIGHED_S, (self._worked_s() - before_s) * WEIGHED_SHARE)
        self._next_s = now_s + min(rest_s, WEIGHED_S_MAX)
