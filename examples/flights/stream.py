"""A stream from topic to topic, killed in the middle: the short form of `examples/pipeline`."""

from __future__ import annotations

import shutil
import sys
from importlib import import_module
from pathlib import Path

import delays
from source import Flight
from tour import say

DAYS = 90
OFFSETS_PER_TRIGGER = 10_000

sys.path.append(str(Path(__file__).resolve().parents[1] / "pipeline"))


def a_quarter_of_the_year(directory: Path, flights: list[Flight]) -> None:
    """In a directory beside the demo's, made anew; its picture goes into the demo's."""
    if reason := delays.why_no_spark():
        say(f"skipped: {reason}")
        return
    folder = directory.with_name(f"{directory.name}-pipeline")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    until_ms = flights[0].timestamp_ms + DAYS * 86_400_000
    quarter = [flight for flight in flights if flight.timestamp_ms < until_ms]
    picture = import_module("pipeline").run(folder, quarter, OFFSETS_PER_TRIGGER)
    shutil.copy(picture, directory / "days.svg")
    shutil.rmtree(folder)
