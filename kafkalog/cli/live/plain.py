"""One look at a cluster: tables, or JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkalog.cli.common import json_line, plural, table
from kafkalog.cli.live.panes import LAGS, PANES, Pane, chosen, summary, text
from kafkalog.watch.view import View

__all__ = ["ROWS_MAX", "show_once"]

ROWS_MAX = 50
"""Rows of a table; JSON has all."""


def show_once(
    view: View, names: Sequence[str], as_json: bool, lags: Callable[[str], list[Any]] | None = None
) -> None:
    """Print a view: the tables of these names.  `lags`: also the partitions of each group."""
    if as_json:
        for line in _lines(view, names, lags):
            print(json_line(line))
        return
    print("  ".join(f"{name} {value}" for name, value in summary(view)))
    for name in names:
        pane = PANES[name]
        _table(pane, list(pane.rows(view)), name)
    for group in view.groups if lags else ():
        rows = lags(group.name) if lags else []
        _table(LAGS, rows, f"group {text(group.name)}: partitions")
    for part, problem in view.problems.items():
        print(f"\n{part}: {text(problem)}")


def _table(pane: Pane, rows: list[Any], title: str) -> None:
    some = chosen(pane, rows, pane.sort, False, "", ROWS_MAX)
    print(f"\n{title}" + ("" if rows else ": none"))
    if rows:
        cells = [[one.show(getattr(row, one.field)) for one in pane.columns] for row in some]
        left = frozenset(i for i, one in enumerate(pane.columns) if not one.number)
        print(table([one.head for one in pane.columns], cells, left))
    if len(some) < len(rows):
        print(f"and {plural(len(rows) - len(some), 'row')} more; --json has all")


def _lines(
    view: View, names: Sequence[str], lags: Callable[[str], list[Any]] | None
) -> list[dict[str, Any]]:
    """An object for the cluster, each row, and each problem."""
    whole = {"at_ms": view.at_ms, "cluster_id": view.cluster_id, "controller": view.controller}
    found: list[dict[str, Any]] = [{"kind": "cluster", **whole, **view.totals._asdict()}]
    for name in names:
        rows = PANES[name].rows(view)
        found += ({"kind": name.removesuffix("s"), **_named(row)} for row in rows)
    for group in view.groups if lags else ():
        rows = lags(group.name) if lags else []
        found += ({"kind": "partition", "group": group.name, **_named(row)} for row in rows)
    problems = view.problems.items()
    return found + [{"kind": "problem", "part": part, "text": why} for part, why in problems]


def _named(row: Any) -> dict[str, Any]:
    """The fields of a row; a group's own kind is its `type`."""
    fields: dict[str, Any] = row._asdict()
    if "kind" in fields:
        fields["type"] = fields.pop("kind")
    member = fields.get("member")
    if member is not None:
        fields["member"] = member.member_id
    return fields
