"""The tables of the live view."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.cli.live.panes import PANES, age, chosen, count, rate, size, spark, summary, text
from kafkalog.watch.view import State as ViewState
from kafkalog.watch.view import TopicView, advance
from tests.unit.watch.made import sample, topic


def topics(**rates: float | None) -> list[TopicView]:
    return [TopicView(name, False, 1, 1, 0, 0, rate, None, 5) for name, rate in rates.items()]


def names(rows: list[Any]) -> list[str]:
    return [row.name for row in rows]


def test_the_largest_numbers_come_first_and_unknown_ones_last() -> None:
    rows = topics(a=1.0, b=None, c=3.0, d=0.0)
    pane = PANES["topics"]
    assert names(chosen(pane, rows, "records_per_s", False, "", 9)) == ["c", "a", "d", "b"]
    assert names(chosen(pane, rows, "records_per_s", True, "", 9)) == ["d", "a", "c", "b"]
    assert names(chosen(pane, rows, "name", False, "", 9)) == ["a", "b", "c", "d"]
    assert names(chosen(pane, rows, "name", True, "", 2)) == ["d", "c"]


def test_nodes_ascend() -> None:
    _, view = advance(ViewState(), sample(1, (topic("t"),)))
    rows = chosen(PANES["nodes"], view.nodes, "node", False, "", 9)
    assert [row.node for row in rows] == [1, 2]
    (row,) = chosen(PANES["nodes"], view.nodes, "rack", False, "R1", 9)
    assert row.node == 1


def test_the_filter_looks_into_texts_in_any_case() -> None:
    rows = topics(Orders=1.0, clicks=2.0)
    assert names(chosen(PANES["topics"], rows, "name", False, "ORD", 9)) == ["Orders"]
    assert chosen(PANES["topics"], rows, "name", False, "5", 9) == []


def test_bars() -> None:
    assert spark([0, 1, 2, 4, 7, 7], 5) == "▂▃▅██"
    assert (spark([0, 0], 5), spark([], 5), spark([-1, 1], 5)) == ("▁▁", "", "▁█")


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (count(None), "-"), (count(12_345), "12,345"), (rate(None), "-"), (rate(0.0), "0"),
        (rate(1.54), "1.5"), (rate(12_345.6), "12,346"), (size(None), "-"), (size(2048), "2.0 KiB"),
        (text("a\x1b[2Jb\n"), "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}"),
        (text(""), "-"), (text("日本 x"), "日本 x"), (age(119_999), "119 s"),
        (age(120_000), "2 min"), (age(9_000_000), "2.5 h"),
    ],
)  # fmt: skip
def test_cells(found: str, shown: str) -> None:
    assert found == shown


def test_the_summary_counts_nodes_that_are_up() -> None:
    _, view = advance(ViewState(), sample(1, (topic("t", 2, replicas=(1, 3)),)))
    found = dict(summary(view))
    assert (found["nodes"], found["topics"]) == ("2 of 3 up", "1 with 2 partitions")
