"""A client's work so far, counted where it happens, under the names of Kafka's metrics.

Totals grow for as long as the client lives; averages and maxima cover all that time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "Idle", "Sent", "Shared", "Tally", "consumer_metrics", "group_of", "producer_metrics",
    "share_metrics",
]  # fmt: skip

_OF_GROUP = ("commit", "heartbeat", "rebalance", "assigned")
_OF_CONNECTIONS = ("connection", "node-")
_OF_SHARE = "-share"


class Tally:
    """The count, sum and maximum of a measurement.  Safe to use from many threads."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.most = 0.0
        self._lock = threading.Lock()  # guards the three; held for a moment

    def add(self, value: float) -> None:
        """Count one measurement."""
        with self._lock:
            self.count += 1
            self.total += value
            self.most = max(self.most, value)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the duration of the block in milliseconds, unless it raises."""
        begun_s = time.monotonic()
        yield
        self.add((time.monotonic() - begun_s) * 1000)

    @property
    def avg(self) -> float:
        """The mean; 0 without measurements."""
        with self._lock:
            return self.total / self.count if self.count else 0.0


class Idle:
    """The share of time that a consumer has waited in its polls, and its program has not worked.
    One thread at a time."""

    def __init__(self) -> None:
        self.ratio = Tally()
        self._begun_s = self._ended_s = 0.0

    @contextmanager
    def polled(self) -> Iterator[None]:
        """Count a poll."""
        now_s = time.monotonic()
        if self._begun_s and now_s > self._begun_s:
            self.ratio.add((self._ended_s - self._begun_s) / (now_s - self._begun_s))
        self._begun_s = now_s
        try:
            yield
        finally:
            self._ended_s = time.monotonic()


def group_of(kind: str, name: str) -> str:
    """Kafka's name for the group of a metric of a producer, consumer, share consumer
    (consumer-share) or admin client; connections of a share consumer are a consumer's."""
    if name.startswith(_OF_CONNECTIONS):
        return f"{kind.removesuffix(_OF_SHARE)}-metrics"
    if not kind.startswith("consumer") or name.startswith("poll"):
        return f"{kind}-metrics"
    rest = "coordinator" if name.startswith(_OF_GROUP) else "fetch-manager"
    return f"{kind}-{rest}-metrics"


class Sent:
    """The measurements of a producer's sender."""

    def __init__(self) -> None:
        self.batch_bytes, self.request_records, self.latency_ms = Tally(), Tally(), Tally()
        self.queue_ms, self.throttle_ms = Tally(), Tally()
        self.nodes: dict[int, Tally] = {}
        """Latencies by node; nodes are added in the sender's thread."""
        self.retried = self.failed = 0
        """Records."""


def producer_metrics(sent: Sent) -> dict[str, float]:
    """By the names of Kafka's producer-metrics."""
    return {
        "record-send-total": sent.request_records.total,
        "record-retry-total": float(sent.retried),
        "record-error-total": float(sent.failed),
        "record-queue-time-avg": sent.queue_ms.avg,
        "record-queue-time-max": sent.queue_ms.most,
        "records-per-request-avg": sent.request_records.avg,
        "batch-size-avg": sent.batch_bytes.avg,
        "batch-size-max": sent.batch_bytes.most,
        "byte-total": sent.batch_bytes.total,
        "request-total": float(sent.request_records.count),
        "request-latency-avg": sent.latency_ms.avg,
        "request-latency-max": sent.latency_ms.most,
        "produce-throttle-time-avg": sent.throttle_ms.avg,
        "produce-throttle-time-max": sent.throttle_ms.most,
    }


def consumer_metrics(
    fetch_bytes: Tally, fetch_ms: Tally, commit_ms: Tally, beat_ms: Tally
) -> dict[str, float]:
    """By the names of Kafka's consumer-fetch-manager-metrics and consumer-coordinator-metrics."""
    return {
        "fetch-total": float(fetch_bytes.count),
        "fetch-size-avg": fetch_bytes.avg,
        "fetch-size-max": fetch_bytes.most,
        "bytes-consumed-total": fetch_bytes.total,
        "fetch-latency-avg": fetch_ms.avg,
        "fetch-latency-max": fetch_ms.most,
        "commit-total": float(commit_ms.count),
        "commit-latency-avg": commit_ms.avg,
        "commit-latency-max": commit_ms.most,
        "heartbeat-total": float(beat_ms.count),
        "heartbeat-response-time-max": beat_ms.most,
    }


class Shared:
    """The measurements of a share consumer's requests."""

    def __init__(self) -> None:
        self.fetch_bytes, self.fetch_ms, self.request_records = Tally(), Tally(), Tally()
        self.nodes: dict[int, Tally] = {}
        """Latencies by node; nodes are added in the consumer's thread."""
        self.acknowledged = 0
        """Records whose acknowledgement was sent."""


def share_metrics(shared: Shared, failed: int, beat_ms: Tally) -> dict[str, float]:
    """By the names of Kafka's consumer-share-fetch-manager-metrics and
    consumer-share-coordinator-metrics; `failed`: acknowledgements with an error."""
    return {
        "fetch-total": float(shared.fetch_bytes.count),
        "fetch-size-avg": shared.fetch_bytes.avg,
        "fetch-size-max": shared.fetch_bytes.most,
        "bytes-consumed-total": shared.fetch_bytes.total,
        "fetch-latency-avg": shared.fetch_ms.avg,
        "fetch-latency-max": shared.fetch_ms.most,
        "records-fetched-total": shared.request_records.total,
        "records-per-request-avg": shared.request_records.avg,
        "records-per-request-max": shared.request_records.most,
        "acknowledgements-send-total": float(shared.acknowledged),
        "acknowledgements-error-total": float(failed),
        "heartbeat-total": float(beat_ms.count),
        "heartbeat-response-time-max": beat_ms.most,
    }
