"""The wall clock gives records, files and messages their times; intervals are of another clock.

A wall clock is set back and forward: an interval measured on it is then too long, or too short.
What is simulated reads neither: it is given the time.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.tree import ROOT, named, parse, with_suffix

WALL = re.compile(r"time\.time\(|\btime_ns\(|datetime\.now\(|CLOCK_REALTIME|timedjoin")

READERS = {
    "kafkalog/clock.py": "the clock that other code is given",
    "kafkalog/_native/base/process.c": "the same in C",
    "kafkalog/_native/python/intake.h": "the time of a record",
    "kafkalog/zookeeper/registering.py": "the time in a broker's znode",
    "kafkalog/zookeeper/controller_election.py": "the time in the controller's znode",
    "kafkalog/client/login/tokens.py": "when a token expires, which it says itself",
    "kafkalog/cli/transactions.py": "an age, from the time that a broker tells",
    "kafkalog/cli/resets.py": "the time of records to go back to",
    "kafkalog/cli/holds.py": "the end of a hold, which is a time in a file",
    "kafkalog/opentelemetry.py": "where a span begins, for readers",
    "kafkalog/cli/inputs.py": "the year of a line that tells none",
    "kafkalog/testing/security.py": "the dates of a test certificate",
    "spark_connector/pyspark_kafkalog/sink/staging.py": "the time of a record",
    "spark_connector/pyspark_kafkalog/sink/writers.py": "files that are a week old: a margin",
    "spark_connector/pyspark_kafkalog/sink/blocking.py": "the level of a line in the log",
    "spark_connector/pyspark_kafkalog/sink/delivery.py": "the age of records",
}
"""Files that read the machine's wall clock, and for what."""


def test_intervals_are_not_of_the_wall_clock() -> None:
    found = {
        named(path)
        for path in with_suffix(".py", ".c", ".h")
        if named(path).startswith(("kafkalog/", "spark_connector/"))
        and not path.stem.endswith("_test")
        and WALL.search(path.read_text())
    }
    assert found == set(READERS)


DECIDES = [
    *("consumer/commits", "consumer/core", "consumer/member", "consumer/missing_topics"),
    *("consumer/session", "fetch/core", "fetch/epochs", "fetch/sessions", "link/metadata"),
    *("producer/core", "producer/producer_id", "producer/questions"),
]
"""Modules of the client that decide; their simulations give them the time and the answers."""


def top_modules(path: Path) -> set[str]:
    """The top names of all modules that a file imports, wherever the import is."""
    found: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Import):
            found.update(one.name.partition(".")[0] for one in node.names)
    return found


@pytest.mark.parametrize("name", DECIDES)
def test_deciding_modules_use_no_clock_and_no_socket(name: str) -> None:
    found = top_modules(ROOT / "kafkalog" / "client" / f"{name}.py")
    assert found & {"time", "random", "threading", "socket", "select", "os"} == set()


@pytest.mark.parametrize("path", sorted((ROOT / "kafkalog" / "raft").glob("*.py")), ids=named)
def test_raft_uses_no_clock_and_no_chance(path: Path) -> None:
    """Its driver passes the time and random numbers."""
    modules = {module for module in top_modules(path) if module != "__future__"}
    pure = {"bisect", "collections", "itertools", "json", "math", "operator", "typing", "uuid"}
    assert modules <= {*pure, "kafkalog"}
