"""A client's work so far, counted where it happens, under the names of Kafka's metrics.

Totals grow for as long as the client lives; averages and maxima cover all that time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Tally", "consumer_metrics", "producer_metrics"]


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


def producer_metrics(
    batch_bytes: Tally, request_records: Tally, latency_ms: Tally, retried: int, failed: int
) -> dict[str, float]:
    """By the names of Kafka's producer-metrics."""
    return {
        "record-send-total": request_records.total,
        "record-retry-total": float(retried),
        "record-error-total": float(failed),
        "records-per-request-avg": request_records.avg,
        "batch-size-avg": batch_bytes.avg,
        "batch-size-max": batch_bytes.most,
        "byte-total": batch_bytes.total,
        "request-total": float(request_records.count),
        "request-latency-avg": latency_ms.avg,
        "request-latency-max": latency_ms.most,
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
