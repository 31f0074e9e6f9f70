"""The tables of the live view: their rows, columns, order and filter.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog.cli.common import plural, show_bytes
from kafkalog.watch.history import LAG, RECORDS_PER_S
from kafkalog.watch.view import View

__all__ = [
    "LAGS", "PANES", "PARTITIONS", "Column", "Pane", "age", "chosen", "count", "rate", "size",
    "spark", "summary", "text",
]  # fmt: skip

BARS = "▁▂▃▄▅▆▇█"
UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000


class Column(NamedTuple):
    """A column of a table."""

    field: str
    """The field of a row."""
    head: str
    show: Callable[[Any], str]
    number: bool = False
    """Right-aligned; the largest come first."""


class Pane(NamedTuple):
    """A table."""

    name: str
    columns: tuple[Column, ...]
    rows: Callable[[View], Iterable[Any]]
    key: str
    """The field that names a row."""
    sort: str
    """The column that it is sorted by at first."""
    series: tuple[str, str] | None = None
    """(kind, value) of the history that each row shows."""


# ---- cells -----------------------------------------------------------------------------------


def text(value: Any) -> str:
    """As it is, but anything may be in a group's or a client's name: what is no character to print
    could command the terminal, and is replaced.  `-` for nothing."""
    shown = "".join(one if one.isprintable() else UNPRINTABLE for one in str(value))
    return "-" if value is None or not shown else shown


def count(value: int | None) -> str:
    """`12,345`."""
    return "-" if value is None else f"{value:,}"


def rate(value: float | None) -> str:
    """`12,345`, or `1.5` below 10."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def size(value: float | None) -> str:
    """`1.5 MiB`."""
    return "-" if value is None else show_bytes(value)


def age(value_ms: int) -> str:
    """`45 s`, `3 min`, `2.5 h`."""
    if value_ms < 2 * MINUTE_MS:
        return f"{value_ms // SECOND_MS} s"
    return (
        f"{value_ms // MINUTE_MS} min" if value_ms < 2 * HOUR_MS else f"{value_ms / HOUR_MS:.1f} h"
    )


def nodes(value: Iterable[int]) -> str:
    """`1,2,3`."""
    return ",".join(map(str, value)) or "-"


def _member(value: Any) -> str:
    return "-" if value is None else text(f"{value.client_id}{value.host}")


def _controller(value: bool) -> str:
    return "yes" if value else "-"


def spark(values: Sequence[float], width: int) -> str:
    """The last `width` values as bars, the largest of them at full height; 0 is the lowest bar."""
    last = list(values)[-width:]
    most = max(last, default=0)
    top = len(BARS) - 1
    return "".join(BARS[round(max(0, value) / most * top) if most > 0 else 0] for value in last)


# ---- tables ----------------------------------------------------------------------------------

PANES: Mapping[str, Pane] = {
    pane.name: pane
    for pane in (
        Pane("nodes", (
            Column("node", "node", str, True),
            Column("host", "host", text),
            Column("port", "port", str),
            Column("rack", "rack", text),
            Column("state", "state", str),
            Column("controller", "controller", _controller),
            Column("leads", "leads", count, True),
            Column("replicas", "replicas", count, True),
            Column("not_in_sync", "not in sync", count, True),
            Column("size_bytes", "size", size, True),
            Column("usable_bytes", "free", size, True),
        ), lambda view: view.nodes, "node", "node"),
        Pane("topics", (
            Column("name", "topic", text),
            Column("partitions", "parts", count, True),
            Column("replication", "copies", count, True),
            Column("under_replicated", "under", count, True),
            Column("offline", "offline", count, True),
            Column("records_per_s", "records/s", rate, True),
            Column("bytes_per_s", "bytes/s", size, True),
            Column("size_bytes", "size", size, True),
        ), lambda view: view.topics, "name", "records_per_s", ("topic", RECORDS_PER_S)),
        Pane("groups", (
            Column("name", "group", text),
            Column("kind", "type", text),
            Column("state", "state", text),
            Column("members", "members", count, True),
            Column("topics", "topics", count, True),
            Column("lag", "lag", count, True),
            Column("per_s", "records/s", rate, True),
            Column("problem", "problem", text),
        ), lambda view: view.groups, "name", "lag", ("group", LAG)),
        Pane("transactions", (
            Column("name", "transactional id", text),
            Column("producer_id", "producer", str, True),
            Column("coordinator", "coordinator", str, True),
            Column("age_ms", "open for", age, True),
            Column("partitions", "parts", count, True),
        ), lambda view: view.open, "name", "age_ms"),
    )
}  # fmt: skip
PARTITIONS = Pane("partitions", (
    Column("partition", "part", str, True),
    Column("leader", "leader", str, True),
    Column("replicas", "replicas", nodes),
    Column("isr", "in sync", nodes),
    Column("start", "start", count, True),
    Column("end", "end", count, True),
    Column("records_per_s", "records/s", rate, True),
    Column("size_bytes", "size", size, True),
), lambda view: (), "partition", "partition")  # fmt: skip
"""The partitions of a topic; its rows come from `partitions_of`."""
LAGS = Pane("lag", (
    Column("topic", "topic", text),
    Column("partition", "part", str, True),
    Column("offset", "offset", count, True),
    Column("end", "end", count, True),
    Column("lag", "lag", count, True),
    Column("member", "member", _member),
), lambda view: (), "partition", "lag")  # fmt: skip
"""The partitions of a group; its rows come from `lags_of`."""


def chosen(
    pane: Pane, rows: Iterable[Any], sort: str, backwards: bool, wanted: str, most: int
) -> list[Any]:
    """At most `most` rows, those that have `wanted` in a cell of text (in any case), sorted.

    By a column of numbers the largest come first, but node and partition numbers ascend;
    `backwards`: the other way round.  Unknown numbers are last.
    """
    column = next(one for one in pane.columns if one.field == sort)
    texts = [one for one in pane.columns if not one.number]
    needle = wanted.lower()
    found = [
        row for row in rows
        if not needle or any(needle in one.show(getattr(row, one.field)).lower() for one in texts)
    ]  # fmt: skip
    falls = (column.number and column.field not in ("node", "partition")) != backwards
    known = [row for row in found if getattr(row, sort) is not None]
    unknown = [row for row in found if getattr(row, sort) is None]
    shown = column.show if not column.number else lambda value: value
    known.sort(key=lambda row: shown(getattr(row, sort)), reverse=falls)
    return (known + unknown)[:most]


def summary(view: View) -> list[tuple[str, str]]:
    """The cluster in a few (name, value)."""
    up = sum(one.state == "up" for one in view.nodes)
    totals = view.totals
    found = [
        ("cluster", view.cluster_id or "-"),
        ("controller", str(view.controller) if view.controller >= 0 else "-"),
        ("nodes", f"{up} of {len(view.nodes)} up"),
        ("topics", f"{totals.topics:,} with {plural(totals.partitions, 'partition')}"),
        ("under-replicated", count(totals.under_replicated)),
        ("offline", count(totals.offline)),
        ("records/s", rate(totals.records_per_s)),
        ("bytes/s", size(totals.bytes_per_s)),
        ("size", size(totals.size_bytes)),
        ("groups", count(totals.groups)),
        ("lag", count(totals.lag)),
        ("open transactions", count(len(view.open))),
    ]
    return found
