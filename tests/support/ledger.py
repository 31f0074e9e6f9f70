"""Run a client's simulation over many seeds and record the result in its ledger.

    python -m tests.support.ledger fetch --seed 20000 --seconds 600

adds a line to docs/simulation_fetch.csv and prints what fails.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import importlib
import itertools
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from kafkalog.simulate.world import Violated

__all__ = ["Search", "record", "search"]

DOCS = Path(__file__).parents[2] / "docs"
HEAD = ["date", "commit", "seeds", "events", "failed", "first_failed"]


class Search(NamedTuple):
    """The result of a range of seeds."""

    first: int
    count: int
    events: int
    """Over the runs that did not fail."""
    failed: list[int]


def search(name: str, first: int, seconds: float, most: int | None = None) -> Search:
    """Simulate until the time is over: at least one seed, at most `most`."""
    simulate = importlib.import_module(f"tests.unit.client.{name}.simulation").simulate
    end, events, failed = time.monotonic() + seconds, 0, list[int]()
    for count in itertools.count(1):
        seed = first + count - 1
        try:
            events += simulate(seed).events
        except Violated as problem:
            failed.append(seed)
            print(str(problem).partition("\n")[0], flush=True)
        if count == most or time.monotonic() >= end:
            return Search(first, count, events, failed)
    raise AssertionError


def record(path: Path, found: Search, commit: str) -> None:
    """Add a line to a ledger; a new one begins with the names of its columns."""
    new = not path.exists()
    with path.open("a", newline="") as out:
        rows = csv.writer(out, lineterminator="\n")
        if new:
            rows.writerow(HEAD)
        seeds = f"{found.first}-{found.first + found.count - 1}"
        first = found.failed[0] if found.failed else ""
        today = datetime.date.today().isoformat()
        rows.writerow([today, commit, seeds, found.events, len(found.failed), first])


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=["fetch", "consumer", "producer"])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=600)
    asked = parser.parse_args()
    found = search(asked.name, asked.seed, asked.seconds)
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    record(DOCS / f"simulation_{asked.name}.csv", found, commit)
    print(found)


if __name__ == "__main__":
    _main()
