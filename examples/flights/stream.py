"""A stream from topic to topic: `examples/pipeline`, short in a running session, or whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import sparks
from source import Flight

SHORT_DAYS, SHORT_OFFSETS = 31, 14_000
WHOLE_DAYS, WHOLE_OFFSETS = 90, 10_000


def a_month(session: sparks.Session, directory: Path, flights: list[Flight]) -> None:
    """Stopped in the middle, and started again in the same session."""
    whole = import_module("pipeline")

    def run(folder: Path, some: list[Flight]) -> Path:
        with session.use() as spark:
            return whole.run_in(spark, folder, some, SHORT_OFFSETS)

    _beside(directory, _first(flights, SHORT_DAYS), run)


def a_quarter_of_the_year(directory: Path, flights: list[Flight]) -> None:
    """In its own Spark, which is killed with `kill -9` in the middle, and in another one."""
    whole = import_module("pipeline")
    _beside(
        directory, _first(flights, WHOLE_DAYS),
        lambda folder, some: whole.run(folder, some, WHOLE_OFFSETS),
    )  # fmt: skip


def _first(flights: list[Flight], days: int) -> list[Flight]:
    until_ms = flights[0].timestamp_ms + days * 86_400_000
    return [flight for flight in flights if flight.timestamp_ms < until_ms]


def _beside(
    directory: Path, flights: list[Flight], run: Callable[[Path, list[Flight]], Path]
) -> None:
    """In a new directory next to the demo's; its picture goes into the demo's."""
    folder = directory.with_name(f"{directory.name}-pipeline")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(run(folder, flights), directory / "days.svg")
    shutil.rmtree(folder)
