"""Expected and actual content of the sink topic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from query import MIDNIGHT_H, SINK, SOURCE, WATERMARK_DAYS

import kafkalog

AIRPORTS = ("EWR", "JFK", "LGA")
"""One partition each."""
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


class Day(NamedTuple):
    """One day at an airport."""

    planned: int
    departed: int
    delay_minutes: int
    """The sum over all that departed; early departures count as negative."""

    @property
    def mean(self) -> float | None:
        """Minutes; None: nothing departed."""
        return self.delay_minutes / self.departed if self.departed else None


Days = dict[tuple[str, date], Day]


def ingest(data: Path, flights: Sequence[Any]) -> None:
    """The source topic: a partition for each airport, in order of scheduled departure."""
    by_airport: dict[str, list[Any]] = {airport: [] for airport in AIRPORTS}
    for flight in flights:
        by_airport[json.loads(flight.value)["origin"]].append(flight)
    # The records are of 2013: with a retention of seven days they would be deleted at once.
    keep = {"retention.ms": -1, "segment.ms": 366 * DAY_MS}
    with kafkalog.Store(data) as store:
        for topic in (SOURCE, SINK):
            store.create_topic(topic, len(AIRPORTS) if topic == SOURCE else 1, keep)
        for number, (airport, leaving) in enumerate(by_airport.items()):
            store[SOURCE][number].append_many(
                [flight.value for flight in leaving],
                keys=[airport.encode()] * len(leaving),
                timestamps_ms=[flight.timestamp_ms for flight in leaving],
                compression="zstd",
            )


def expected(flights: Sequence[Any]) -> Days:
    """Computed in Python: the days that have ended before the watermark."""
    last_ms = max(flight.timestamp_ms for flight in flights) - WATERMARK_DAYS * DAY_MS
    found: Days = {}
    for flight in flights:
        record = json.loads(flight.value)
        start_ms = _midnight_ms(flight.timestamp_ms)
        if start_ms + DAY_MS > last_ms:
            continue
        key = record["origin"], _date(start_ms)
        was, delay = found.get(key, Day(0, 0, 0)), record["dep_delay"]
        known = int(delay is not None)
        found[key] = Day(was.planned + 1, was.departed + known, was.delay_minutes + (delay or 0))
    return found


def read_back(data: Path) -> tuple[Days, int]:
    """By airport and day what committed readers see, and the number of records."""
    found: Days = {}
    count = 0
    with kafkalog.Store(data) as store:
        for log in store[SINK]:
            for record in log.read(isolation="read_committed"):
                row = json.loads(record.value or b"")
                key = row["airport"], date.fromisoformat(row["day"])
                found[key] = Day(row["planned"], row["departed"], row["delay_minutes"])
                count += 1
    return found, count


def _midnight_ms(timestamp_ms: int) -> int:
    return timestamp_ms - (timestamp_ms - MIDNIGHT_H * HOUR_MS) % DAY_MS


def _date(start_ms: int) -> date:
    return datetime.fromtimestamp(start_ms / 1000, timezone.utc).date()
