"""Shared by all benchmarks: folders to write to, the measure, and the table at the end.

Figures are medians of rounds in which all sides take turns (measure.py): machines are shared
and noisy.  Nothing here asserts a speed.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import environment
from benchmarks.measure import Row, amount, measured, measured_together, times, verdicts

TMPFS = Path("/dev/shm")
LIMIT_S = 1_200

_rows: list[Row] = []
_began = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A row has as many rounds as it needs; the limit is for a row that hangs."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(LIMIT_S))


def _environment() -> dict[str, str]:
    return {**environment.describe(Path(environment.place())), "began": _began}


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder on the file system that is measured (KAFKALOG_BENCH_DIR, or tmp)."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-bench-", dir=environment.place()) as path:
        yield Path(path)


@pytest.fixture(scope="module")
def module_folder() -> Iterator[Path]:
    """As `folder`, for what a file's rows share."""
    with tempfile.TemporaryDirectory(
        prefix="kafkalog-bench-", dir=environment.place(), ignore_cleanup_errors=True
    ) as path:
        yield Path(path)


@pytest.fixture
def memory() -> Iterator[Path]:
    """An empty folder in memory (tmpfs); without tmpfs, one like `folder`."""
    where = str(TMPFS) if os.access(TMPFS, os.W_OK) else environment.place()
    with tempfile.TemporaryDirectory(prefix="kafkalog-bench-", dir=where) as path:
        yield Path(path)


@pytest.fixture
def measure(benchmark: Any, request: pytest.FixtureRequest) -> Callable[..., Row]:
    """`measure(key, work, sides, ...)`: see measured; the row is in the table at the end."""
    about = inspect.cleandoc(request.module.__doc__)

    def run(*given: Any, **named: Any) -> Row:
        row = measured(benchmark, *given, **{"about": about, **named})
        _rows.append(row)
        return row

    return run


@pytest.fixture
def measure_together(benchmark: Any, request: pytest.FixtureRequest) -> Callable[..., list[Row]]:
    """`measure_together(parts, sides, ...)`: see measured_together; several rows of one run."""
    about = inspect.cleandoc(request.module.__doc__)

    def run(*given: Any, **named: Any) -> list[Row]:
        rows = measured_together(benchmark, *given, **{"about": about, **named})
        _rows.extend(rows)
        return rows

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Drop what failed before its first round: without figures it would cost those of others."""
    benchmarks = session.config._benchmarksession.benchmarks  # type: ignore[attr-defined]
    benchmarks[:] = [benchmark for benchmark in benchmarks if benchmark.stats.data]


@pytest.hookimpl
def pytest_benchmark_update_json(output_json: dict[str, Any]) -> None:
    """Facts about the run for benchmarks/report.py."""
    output_json["environment"] = _environment()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table: each side of each row, then its targets and whether they were reached."""
    if not _rows:
        return
    terminalreporter.section("kafkalog")
    write = terminalreporter.write_line
    for name, fact in _environment().items():
        write(f"{name:<12} {fact}")
    for row in _rows:
        write("")
        write(f"{row.work}")
        _write_row(write, row)


def _write_row(write: Callable[[str], None], row: Row) -> None:
    shown = partial(amount, unit=row.unit)
    ours = next(iter(row.sides))
    for name, values in row.sides.items():
        spread = f"{shown(min(values))} to {shown(max(values))}"
        against = "" if name == ours else times(row.ratio(ours, name))
        how = f"  warmed: {row.warmed[name]}" if name in row.warmed else ""
        write(f"  {name:<44}{shown(row.median(name)):>12}   {spread:<26}  {against:<26}{how}")
    for verdict in verdicts(row):
        mark = "reached" if verdict.reached else "MISSED "
        write(f"  {mark}  wanted {verdict.wanted}; found {verdict.found}")
