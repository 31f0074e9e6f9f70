"""Limits what a node fetches while it is behind, so that clients are not slowed.

As Kafka's ReplicationQuotaManager: a reassignment names the throttled replicas, and a rate; in-sync
replicas are never delayed, but their bytes count.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol

from kafkalog._native import check, ffi, lib
from kafkalog.config.declare import FOREVER
from kafkalog.types import TopicPartition

__all__ = ["ALL", "NONE", "Quota", "Throttle", "throttled"]


class _Partitions(Protocol):
    """Some replicas of a topic."""

    def __contains__(self, partition: object, /) -> bool: ...


class _All:
    def __contains__(self, partition: object) -> bool:
        return True


ALL: _Partitions = _All()
NONE: Set[int] = frozenset()


def throttled(words: Sequence[str], node: int) -> _Partitions:
    """The throttled partitions of a topic whose replica on `node` is meant.

    `words`: partition:broker each, or *.
    """
    if not words:
        return NONE
    if "*" in words:
        return ALL
    pairs = [word.split(":") for word in words]
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == node)


class Quota:
    """Bytes of the last windows, compared with a rate, in the caller's time.  Safe from many
    threads."""

    def __init__(self, windows: int = 11, window_s: int = 1) -> None:
        """Without a limit at first.

        `windows`: how many count, including the current one; no rate is measured over less than
        `window_s`.
        """
        out = ffi.new("kl_quota **")
        check(lib.kl_quota_new(windows, window_s * 1000, out))
        self._c = ffi.gc(out[0], lib.kl_quota_free)

    def set_rate(self, rate: int = FOREVER) -> None:
        """Bytes per second."""
        lib.kl_quota_set_rate(self._c, rate)

    def count(self, count_bytes: int, now_ms: int) -> None:
        """Count more bytes."""
        lib.kl_quota_count(self._c, count_bytes, now_ms)

    def exceeded(self, now_ms: int) -> bool:
        """True if more bytes came than the rate allows."""
        return bool(lib.kl_quota_exceeded(self._c, now_ms))


class Throttle:
    """Which replicas of this node are throttled while they are behind, and their rate.

    While no partition is named, nothing is counted or looked up.  Safe from many threads.
    """

    def __init__(self, quota: Quota) -> None:
        """`quota`: for all of them together."""
        self.quota = quota
        self._topics: dict[str, _Partitions] = {}

    def put(self, topic: str, partitions: _Partitions) -> None:
        """Replace a topic's throttled replicas by these."""
        if partitions is NONE:
            self._topics.pop(topic, None)
        else:
            self._topics[topic] = partitions

    def names(self, tp: TopicPartition) -> bool:
        """True if it is throttled."""
        return bool(self._topics) and tp.partition in self._topics.get(tp.topic, NONE)

    def holds(self, tp: TopicPartition, now_ms: int) -> bool:
        """True if it must not fetch now if it is behind."""
        return self.names(tp) and self.quota.exceeded(now_ms)

    def took(self, tp: TopicPartition, count_bytes: int, now_ms: int) -> None:
        """Count the bytes that came."""
        if self.names(tp):
            self.quota.count(count_bytes, now_ms)
