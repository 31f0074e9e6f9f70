"""The benchmarks compare warm sides: the rule, and that each row with a JVM in it follows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from benchmarks import measure, report
from benchmarks.warm import Warmth, steady, warmed
from tests.house.tree import ROOT

JVM = {"KAFKA", "spark_session", "kafka_broker", "kafka_cleaner"}
"""Names that a file imports if a JVM takes part in it."""
FILES = sorted((ROOT / "benchmarks").glob("test_*.py"))


@pytest.mark.parametrize(
    ("figures", "warm"),
    [
        ([], False),
        ([100.0], False),
        ([100.0, 104.9], True),
        ([104.9, 100.0], True),
        ([100.0, 106.0], False),
        ([100.0, 101.0, 150.0], False),
        ([100.0, 150.0, 152.0], True),
        ([0.0, 0.0], False),
    ],
)
def test_a_side_is_warm_once_two_rounds_in_a_row_agree(figures: list[float], warm: bool) -> None:
    assert steady(figures) is warm


def rounds(figures: list[float], round_s: float, limit_s: float) -> Warmth:
    """A warm-up whose rounds have these figures and take so long each."""
    given = iter(figures)
    clock = accumulate([0.0] + [round_s] * len(figures))
    return warmed(lambda: next(given), limit_s, lambda: next(clock))


def test_a_warm_up_ends_when_its_figures_stay() -> None:
    assert rounds([10, 20, 30, 31], 2.0, 90.0) == Warmth(4, 8.0, steady=True)


def test_a_warm_up_ends_before_its_limit() -> None:
    growing = [2.0**n for n in range(50)]
    assert rounds(growing, 20.0, 90.0) == Warmth(4, 80.0, steady=False)
    assert rounds(growing, 60.0, 90.0) == Warmth(2, 120.0, steady=False)
    assert str(Warmth(4, 80.0, steady=False)) == "4 rounds, 80 s, not steady"


def test_a_row_keeps_how_its_sides_were_warmed() -> None:
    row = measure.Row("k", "w", "/s", {"a": [1.0]}, warmed={"a": Warmth(3, 4.5, steady=True)})
    assert measure.Row.from_dict(row.as_dict()) == row
    fields = row.as_dict()
    del fields["warmed"], fields["cold"]  # results from before the rule
    assert measure.Row.from_dict(fields).warmed == {}


def test_the_report_says_how_each_side_was_warmed() -> None:
    made = measure.Row("produce-1", "Work", "/s", {"a": [2.0], "b": [1.0]})
    made.warmed = {"a": Warmth(2, 3.0, steady=True), "b": Warmth(9, 90.0, steady=False)}
    start = measure.Row("produce-2", "Start", "s", {"a": [2.0]}, cold="A start is not warmed.")
    run = {"scale": "1", "command": "x test_a.py"}
    results = report.Results([run], {row.key: (row, 0) for row in (made, start)})
    text = report.document(results)
    assert "| a | 2 /s | 2 /s to 2 /s | 2 rounds, 3 s |" in text
    assert "| 9 rounds, 90 s, not steady |" in text
    assert "| none |" in text
    assert "A start is not warmed." in text


def calls(path: Path) -> Iterator[ast.Call]:
    """The calls of a file that measure a row."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in ("measure", "measure_together"):
            yield node  # type: ignore[misc]


def test_each_row_of_a_file_with_a_jvm_says_how_its_sides_are_warmed() -> None:
    silent, found = [], 0
    for path in FILES:
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for call in calls(path) if names & JVM else ():
            found += 1
            if not {keyword.arg for keyword in call.keywords} & {"jvm", "cold"}:
                silent.append(f"{path.name}:{call.lineno}")
    assert found > 30
    assert not silent
