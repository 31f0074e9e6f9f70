"""What a node copies while it is behind may be held back, so that clients are not slowed.

Kafka's ReplicationQuotaManager: the mover of partitions names the replicas that are throttled, and
a rate; copies that are in sync are never held back, but what they get counts.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Protocol

from kafkalog._native import check, ffi, lib
from kafkalog.config.declare import FOREVER
from kafkalog.types import TopicPartition

__all__ = ["ALL", "NONE", "Quota", "Throttle", "throttled"]


class _Partitions(Protocol):
    """Some of a topic's."""

    def __contains__(self, partition: object, /) -> bool: ...


class _All:
    def __contains__(self, partition: object) -> bool:
        return True


ALL: _Partitions = _All()
NONE: Set[int] = frozenset()


def throttled(words: Sequence[str], node: int) -> _Partitions:
    """Of a topic's throttled replicas the partitions whose replica on `node` is.

    `words`: partition:broker each, or *.
    """
    if not words:
        return NONE
    if "*" in words:
        return ALL
    pairs = [word.split(":") for word in words]
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == node)


class Quota:
    """Bytes of the last windows, compared with a rate, in the caller's time. Safe from many
    threads."""

    def __init__(self, windows: int = 11, window_s: int = 1) -> None:
        """At first any rate is right.

        `windows`: how many count, the present one among them; over less than `window_s` no rate
        is measured.
        """
        out = ffi.new("kl_quota **")
        check(lib.kl_quota_new(windows, window_s * 1000, out))
        self._c = ffi.gc(out[0], lib.kl_quota_free)

    def set_rate(self, rate: int = FOREVER) -> None:
        """Bytes a second."""
        lib.kl_quota_set_rate(self._c, rate)

    def count(self, count_bytes: int, now_ms: int) -> None:
        """So many more are there."""
        lib.kl_quota_count(self._c, count_bytes, now_ms)

    def exceeded(self, now_ms: int) -> bool:
        """Whether there were more than the rate allows."""
        return bool(lib.kl_quota_exceeded(self._c, now_ms))


class Throttle:
    """Which copies of this node are held back, while they are behind, and how much they take.

    Where no partition is named nothing is counted and nothing looked up.  Safe from many threads.
    """

    def __init__(self, quota: Quota) -> None:
        """`quota`: of all of them together."""
        self.quota = quota
        self._topics: dict[str, _Partitions] = {}

    def put(self, topic: str, partitions: _Partitions) -> None:
        """Replace a topic's throttled replicas by these."""
        if partitions is NONE:
            self._topics.pop(topic, None)
        else:
            self._topics[topic] = partitions

    def names(self, tp: TopicPartition) -> bool:
        """Whether it is one of them."""
        return bool(self._topics) and tp.partition in self._topics.get(tp.topic, NONE)

    def holds(self, tp: TopicPartition, now_ms: int) -> bool:
        """Whether nothing is to be asked for now, if it is behind."""
        return self.names(tp) and self.quota.exceeded(now_ms)

    def took(self, tp: TopicPartition, count_bytes: int, now_ms: int) -> None:
        """So much came."""
        if self.names(tp):
            self.quota.count(count_bytes, now_ms)
