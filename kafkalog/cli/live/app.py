"""The live view: a textual application over a Watch.

The terminal's thread only draws; a thread of its own samples the cluster.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static

from kafkalog.cli.live.panes import (
    LAGS,
    PANES,
    PARTITIONS,
    Column,
    Pane,
    chosen,
    spark,
    summary,
    text,
)
from kafkalog.cli.live.watch import Watch
from kafkalog.cli.signals import on_signals
from kafkalog.watch.history import LAG, RECORDS_PER_S
from kafkalog.watch.view import View

__all__ = ["LiveView", "show_live"]

ROWS_MAX = 500
"""Rows of a table on the screen; the filter finds the others."""
SPARK_WIDTH = 20
WIDE = 100
"""Columns of a terminal from which on the rows show their history."""
SLOWEST_MS, FASTEST_MS = 60_000, 500
BAD = {"under_replicated", "offline", "not_in_sync", "problem"}
"""Columns that are bad if they are not 0."""


class LiveView(App[None]):
    """The tables of a cluster."""

    CSS = """
    Screen { layout: vertical; }
    #summary { height: auto; padding: 0 1; }
    #tabs { height: 1; padding: 0 1; margin-top: 1; }
    #problems { height: auto; max-height: 4; padding: 0 1; }
    #filter { display: none; border: none; height: 1; padding: 0 1; }
    DataTable { height: 1fr; }
    DataTable > .datatable--header {
        background: ansi_default; color: ansi_default; text-style: bold;
    }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit", priority=False),
        Binding("tab", "turn(1)", "next table", priority=True),
        Binding("shift+tab", "turn(-1)", "previous", show=False, priority=True),
        *(Binding(str(n), f"pane({n})", show=False) for n in range(1, 5)),
        Binding("s", "sort", "sort"),
        Binding("r", "backwards", "reverse"),
        Binding("slash", "filter", "filter"),
        Binding("i", "internal", "internal topics"),
        Binding("escape", "leave", "back"),
        Binding("space", "pause", "pause"),
        Binding("plus", "faster", "faster", show=False),
        Binding("minus", "slower", "slower", show=False),
    ]

    def __init__(
        self, watch: Watch, view: View, names: Sequence[str], interval_ms: int,
        *, first: str = "", detail: str = "",
    ) -> None:  # fmt: skip
        """`view`: the first one; `names`: the tables, which begin with `first` (empty: the first
        name), and there with the partitions of the topic or group `detail`, if it is not empty."""
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"  # the terminal's own colours
        self._cluster = watch
        self._last_view = view
        self._tables = list(names)
        self._table = first or self._tables[0]
        self._detail = detail
        """The topic or group whose partitions are shown; empty: none."""
        self._order = {name: (PANES[name].sort, False) for name in names}
        self._order |= {pane.name: (pane.sort, False) for pane in (PARTITIONS, LAGS)}
        self._wanted = ""
        self._internal = False
        self._stands = False
        self._interval_ms = interval_ms
        self._shown: list[Any] = []

    def compose(self) -> ComposeResult:
        """The parts of the screen, from the top."""
        yield Static(id="summary")
        yield Static(id="tabs")
        yield Input(placeholder="part of a name; Enter keeps it, Escape clears it", id="filter")
        yield DataTable(cursor_type="row", zebra_stripes=False)
        yield Static(id="problems")
        yield Footer()

    def on_mount(self) -> None:
        """Draw the first view, and begin to sample."""
        self.query_one(DataTable).focus()
        self._draw()
        threading.Thread(target=self._sampled, name="kafkalog-top", daemon=True).start()

    def on_resize(self) -> None:
        """Fit the table to the terminal."""
        self.call_after_refresh(self._draw)

    def _sampled(self) -> None:
        with contextlib.suppress(RuntimeError):  # the view has just ended
            self._cluster.run(
                lambda: self._interval_ms / 1000,
                lambda view: self.call_from_thread(self._take, view),
            )

    def _take(self, view: View) -> None:
        self._last_view = view
        if not self._stands:
            self._draw()

    # ---- keys ----------------------------------------------------------------------------

    def action_turn(self, step: int) -> None:
        """Show the next table."""
        at = self._tables.index(self._table) + step
        self._go(self._tables[at % len(self._tables)])

    def action_pane(self, number: int) -> None:
        """Show this table."""
        if number <= len(self._tables):
            self._go(self._tables[number - 1])

    def _go(self, name: str, detail: str = "") -> None:
        self._table, self._detail = name, detail
        self._draw(again=True)

    def action_sort(self) -> None:
        """Sort by the next column."""
        pane = self._pane
        fields = [column.field for column in pane.columns]
        at = fields.index(self._order[pane.name][0])
        self._order[pane.name] = fields[(at + 1) % len(fields)], False
        self._draw()

    def action_backwards(self) -> None:
        """Turn the order round."""
        sort, backwards = self._order[self._pane.name]
        self._order[self._pane.name] = sort, not backwards
        self._draw()

    def action_filter(self) -> None:
        """Ask for a part of a name."""
        line = self.query_one(Input)
        line.display = True
        line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._wanted = event.value
        self._draw()

    def on_input_submitted(self) -> None:
        """Keep the filter."""
        self.query_one(Input).display = bool(self._wanted)
        self.query_one(DataTable).focus()

    def action_internal(self) -> None:
        """Show Kafka's own topics, or hide them."""
        self._internal = not self._internal
        self._draw()

    def action_leave(self) -> None:
        """Leave the filter, or the partitions of a topic or a group."""
        line = self.query_one(Input)
        if line.display:
            line.value, line.display = "", False
            self.query_one(DataTable).focus()
        elif self._detail:
            self._go(self._table)

    def action_pause(self) -> None:
        """Keep the screen as it is, or go on."""
        self._stands = not self._stands
        self._draw()

    def action_faster(self) -> None:
        """Ask twice as often."""
        self._interval_ms = max(FASTEST_MS, self._interval_ms // 2)
        self._draw()

    def action_slower(self) -> None:
        """Ask half as often."""
        self._interval_ms = min(SLOWEST_MS, self._interval_ms * 2)
        self._draw()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the partitions of a topic or a group."""
        if not self._detail and self._table in ("topics", "groups") and self._shown:
            self._go(self._table, getattr(self._shown[event.cursor_row], "name", ""))

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by a column; again: the other way round."""
        pane, field = self._pane, str(event.column_key.value)
        if field in {column.field for column in pane.columns}:
            sort, backwards = self._order[pane.name]
            self._order[pane.name] = field, sort == field and not backwards
            self._draw()

    # ---- drawing -------------------------------------------------------------------------

    @property
    def _pane(self) -> Pane:
        """The table on the screen."""
        if self._detail:
            return PARTITIONS if self._table == "topics" else LAGS
        return PANES[self._table]

    def _rows(self) -> list[Any]:
        """All rows of the table."""
        if self._detail:
            ask = self._cluster.partitions if self._table == "topics" else self._cluster.lags
            return list(ask(self._detail))
        rows = list(PANES[self._table].rows(self._last_view))
        if self._table == "topics" and not self._internal:
            rows = [row for row in rows if not row.internal]
        return rows

    def _draw(self, again: bool = False) -> None:
        """Draw everything; `again`: another table, whose cursor is at the top."""
        pane = self._pane
        sort, backwards = self._order[pane.name]
        rows = self._rows()
        self._shown = chosen(pane, rows, sort, backwards, self._wanted, ROWS_MAX)
        self._tell_watch()
        self.query_one("#summary", Static).update(self._summary())
        self.query_one("#tabs", Static).update(self._tabs(len(rows)))
        problems = [f"{part}: {text(why)}" for part, why in self._last_view.problems.items()]
        self.query_one("#problems", Static).update(Text("\n".join(problems), style="red"))
        self._fill(pane, again)

    def _tell_watch(self) -> None:
        """Ask first for the topics and groups on the screen."""
        table = self.query_one(DataTable)
        first = int(table.scroll_y)
        names = [getattr(row, "name", "") for row in self._shown[first : first + self.size.height]]
        names = [self._detail] if self._detail else names
        self._cluster.topics = names if self._table == "topics" else ()
        self._cluster.groups = names if self._table == "groups" else ()

    def _summary(self) -> Text:
        """The cluster in a few lines, which break between its values only."""
        lines = [Text()]
        history = {"records/s": RECORDS_PER_S, "lag": LAG}
        for name, value in summary(self._last_view):
            bad = name in ("under-replicated", "offline") and value not in ("0", "-")
            piece = Text.assemble((f"{name} ", "dim"), (value, "bold red" if bad else "bold"))
            if name in history:
                points = self._cluster.history.points("cluster", "", history[name])
                values = [point.value for point in points]
                piece.append(f" {spark(values, SPARK_WIDTH)}", style="cyan")
            if lines[-1] and len(lines[-1]) + len(piece) > self.size.width - 5:
                lines.append(Text())
            lines[-1].append_text(Text("   " if lines[-1] else "") + piece)
        return Text("\n").join(lines)

    def _tabs(self, count: int) -> Text:
        found = Text(no_wrap=True, overflow="ellipsis")
        for number, name in enumerate(self._tables, 1):
            style = "bold reverse" if name == self._table else "dim"
            found.append(f" {number} {name} ", style=style)
            found.append(" ")
        if self._detail:
            found.append(f" {text(self._detail)} ", style="bold")
        if len(self._shown) < count:
            found.append(f" {len(self._shown):,} of {count:,}", style="dim")
        if self._wanted:
            found.append(f" with {self._wanted!r}", style="dim")
        state = "paused" if self._stands else f"every {self._interval_ms / 1000:g} s"
        found.append(f"  {state}", style="dim")
        return found

    def _fill(self, pane: Pane, again: bool) -> None:
        table = self.query_one(DataTable)
        row, scroll = table.cursor_row, table.scroll_y
        sort, _ = self._order[pane.name]
        history = pane.series if self.size.width >= WIDE else None
        table.clear(columns=True)
        for column in pane.columns:
            mark = " •" if column.field == sort else ""
            table.add_column(_text(column.head + mark, column), key=column.field)
        if history:
            table.add_column(history[1].replace("records_per_s", "records/s") + ", lately")
        for one in self._shown:
            table.add_row(*self._cells(pane, one, history))
        if not again:
            table.move_cursor(row=min(row, max(0, len(self._shown) - 1)), scroll=False)
            table.scroll_to(y=scroll, animate=False)

    def _cells(self, pane: Pane, row: Any, history: tuple[str, str] | None) -> list[Text]:
        cells = []
        for column in pane.columns:
            value = getattr(row, column.field)
            bad = (column.field in BAD and value) or value in ("fenced", "gone")
            style = "bold red" if bad else ""
            cells.append(_text(column.show(value), column, style))
        if history:
            kind, value = history
            points = self._cluster.history.points(kind, getattr(row, pane.key), value)
            cells.append(Text(spark([one.value for one in points], SPARK_WIDTH), style="cyan"))
        return cells


def _text(shown: str, column: Column, style: str = "") -> Text:
    return Text(shown, style=style, justify="right" if column.number else "left")


def show_live(app: LiveView, watch: Watch) -> int:
    """Show it until the user, SIGTERM or SIGINT ends it."""

    def end(_: int) -> None:
        with contextlib.suppress(RuntimeError):  # it has not begun, or has just ended
            app.call_from_thread(app.exit)

    try:
        with on_signals(end):
            app.run()
    finally:
        watch.end()
    return app.return_code or 0
