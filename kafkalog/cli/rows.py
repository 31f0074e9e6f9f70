"""Rows that a command prints: one JSON object per line, or a table with the same headings in every
command."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalog.cli.common import json_line, show_time, table

__all__ = ["show_rows"]

MINUTE_MS = 60_000
HEADS = {
    "age_ms": "minutes ago",
    "before": "committed",
    "last_timestamp_ms": "wrote last",
    "partition": "part",
    "producer_epoch": "epoch",
    "producer_id": "producer",
    "protocol_type": "protocol",
    "start_ms": "began",
}
"""Headings of fields; others are the field's name with spaces."""
SHOWN: dict[str, Callable[[Any], str]] = {
    "age_ms": lambda age_ms: str(age_ms // MINUTE_MS),
    "last_timestamp_ms": show_time,
    "start_ms": show_time,
}
"""How a table shows some fields."""


def show_rows(
    rows: Sequence[Mapping[str, Any]],
    fields: Sequence[str],
    *,
    as_json: bool,
    none: str,
    heads: Mapping[str, str] | None = None,
) -> None:
    """Print rows: as JSON with all fields, as a table with these; `none` replaces an empty table.

    Numbers are right-aligned.  `heads`: headings that differ from the field's usual one.
    """
    if as_json:
        for row in rows:
            print(json_line(dict(row)))
    elif not rows:
        print(none)
    else:
        own = {**HEADS, **(heads or {})}
        titles = [own.get(field, field.replace("_", " ")) for field in fields]
        cells = [[_cell(field, row[field]) for field in fields] for row in rows]
        numbers = {i for i, field in enumerate(fields) if _is_number(field, rows)}
        print(table(titles, cells, left=frozenset(range(len(fields))) - numbers))


def _cell(field: str, value: Any) -> str:
    if value is None or value in ("", []):
        return "-"
    if isinstance(value, list):
        return ", ".join(value)
    return SHOWN.get(field, str)(value)


def _is_number(field: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    kinds = {type(row[field]) for row in rows} - {type(None)}
    return kinds == {int} and SHOWN.get(field) is not show_time
