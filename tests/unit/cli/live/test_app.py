"""The live view, driven by keys in a terminal that textual emulates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("textual")

from textual.coordinate import Coordinate
from textual.widgets import DataTable, Input, Static

from kafkalog import Admin, Producer
from kafkalog.cli.live.app import LiveView
from kafkalog.cli.live.watch import Scope, Watch
from kafkalog.testing.broker import TestBroker

TABLES = ("nodes", "topics", "groups", "transactions")
Driven = Callable[[LiveView, Any], Awaitable[None]]


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with TestBroker(tmp_path_factory.mktemp("top") / "b") as broker:
        servers = broker.bootstrap_servers
        with Admin(servers) as admin, Producer(servers) as producer:
            admin.create_topics([("orders", 3), ("clicks", 1), ("Clocks", 1)]).check()
            for _ in range(4):
                producer.send("orders", b"v", partition=1)
            producer.flush()
            admin.alter_group_offsets("billing", {("orders", 1): 1}).check()
            yield admin


def drive(
    admin: Admin, do: Driven, width: int = 120, scope: Scope = Scope(), **how: Any  # noqa: B008
) -> None:  # fmt: skip
    """Run the view with this coroutine; it never samples again by itself."""
    watch = Watch(admin, scope)
    app = LiveView(watch, watch.first(), how.pop("tables", TABLES), 3_600_000, **how)

    async def run() -> None:
        async with app.run_test(size=(width, 30)) as pilot:
            await pilot.pause()
            await do(app, pilot)
        watch.end()

    asyncio.run(run())


def heads(app: LiveView) -> list[str]:
    return [str(one.label) for one in app.query_one(DataTable).columns.values()]


def column(app: LiveView, number: int = 0) -> list[str]:
    table = app.query_one(DataTable)
    cells = (table.get_cell_at(Coordinate(row, number)) for row in range(table.row_count))
    return [str(cell) for cell in cells]


def line(app: LiveView, name: str) -> str:
    return str(app.query_one(f"#{name}", Static).render())


def test_tables_are_turned_by_tab_and_by_number(admin: Admin) -> None:
    async def do(app: LiveView, pilot: Any) -> None:
        assert heads(app)[0] == "topic" and set(column(app)) == {"orders", "clicks", "Clocks"}
        await pilot.press("tab")
        assert (heads(app)[0], column(app)) == ("group", ["billing"])
        assert column(app, 5) == ["3"]
        await pilot.press("1")
        assert column(app) == ["1"] and column(app, 5) == ["yes"]
        await pilot.press("shift+tab")
        assert heads(app)[0] == "transactional id" and column(app) == []
        assert "lag 3" in line(app, "summary") and "3 with 5 partitions" not in line(app, "tabs")

    drive(admin, do, first="topics")


def test_rows_are_sorted_and_the_order_turned_round(admin: Admin) -> None:
    async def do(app: LiveView, pilot: Any) -> None:
        for _ in range(3):  # from records/s by bytes/s and size to the name
            await pilot.press("s")
        assert heads(app)[0] == "topic •"
        assert column(app) == ["Clocks", "clicks", "orders"]
        await pilot.press("r")
        assert column(app) == ["orders", "clicks", "Clocks"]
        await pilot.press("s")
        assert column(app)[0] == "orders" and heads(app)[1] == "parts •"

    drive(admin, do, first="topics")


def test_a_filter_is_typed_kept_and_cleared(admin: Admin) -> None:
    async def do(app: LiveView, pilot: Any) -> None:
        await pilot.press("slash", *"CL")
        assert set(column(app)) == {"clicks", "Clocks"}
        await pilot.press("o", "q")  # a letter of the filter now
        assert column(app) == []
        await pilot.press("backspace", "enter")
        await pilot.pause()
        assert column(app) == ["Clocks"] and "1 of 3 with 'CLo'" in line(app, "tabs")
        await pilot.press("escape")
        assert len(column(app)) == 3 and not app.query_one(Input).display

    drive(admin, do, first="topics")


def test_a_topic_and_a_group_are_opened_and_left(admin: Admin) -> None:
    async def do(app: LiveView, pilot: Any) -> None:
        await pilot.press("s", "s", "s", "down", "down", "enter")
        await pilot.pause()
        assert heads(app)[0].startswith("part") and column(app) == ["0", "1", "2"]
        assert " orders " in line(app, "tabs")
        await pilot.press("escape", "3", "enter")
        await pilot.pause()
        assert (column(app), column(app, 2), column(app, 4)) == (["orders"], ["1"], ["3"])
        await pilot.press("escape")
        assert heads(app)[0] == "group"

    drive(admin, do, first="topics")


def test_internal_topics_are_shown_on_request(admin: Admin) -> None:
    async def do(app: LiveView, pilot: Any) -> None:
        assert "__consumer_offsets" not in column(app)
        await pilot.press("i")
        assert "__consumer_offsets" in column(app)

    drive(admin, do, first="topics")


def test_it_pauses_and_asks_faster_and_slower(admin: Admin) -> None:
    async def do(app: LiveView, pilot: Any) -> None:
        app._interval_ms = 1_000
        await pilot.press("plus")
        assert "every 0.5 s" in line(app, "tabs")
        await pilot.press("plus", "minus", "minus")
        assert "every 2 s" in line(app, "tabs")
        await pilot.press("space")
        before = line(app, "summary")
        app._take(app._last_view._replace(cluster_id="another"))
        assert (line(app, "summary"), "paused" in line(app, "tabs")) == (before, True)
        await pilot.press("space")
        assert "another" in line(app, "summary")

    drive(admin, do)


def test_the_visible_are_asked_first(admin: Admin) -> None:
    async def do(app: LiveView, pilot: Any) -> None:
        assert set(app._cluster.topics) == {"orders", "clicks", "Clocks"}
        await pilot.press("3")
        assert (app._cluster.topics, app._cluster.groups) == ((), ["billing"])

    drive(admin, do, first="topics")


def test_a_narrow_terminal_leaves_out_the_history(admin: Admin) -> None:
    async def do(app: LiveView, pilot: Any) -> None:
        assert not any("lately" in head for head in heads(app))
        assert all(len(row) < 60 for row in line(app, "summary").splitlines())
        assert "under-replicated 0" in line(app, "summary")
        await pilot.resize_terminal(120, 20)
        await pilot.pause()
        assert any("lately" in head for head in heads(app))

    drive(admin, do, width=60, first="topics")


def test_a_watched_group_begins_with_its_partitions(admin: Admin) -> None:
    async def do(app: LiveView, pilot: Any) -> None:
        assert (column(app), column(app, 4)) == (["orders"], ["3"])
        await pilot.press("escape")
        assert column(app) == ["billing"]

    scope = Scope(frozenset({"billing"}))
    drive(admin, do, scope=scope, tables=["groups"], detail="billing")


def test_problems_are_shown(admin: Admin) -> None:
    async def do(app: LiveView, pilot: Any) -> None:
        app._take(app._last_view._replace(problems={"sizes": "no right [there]"}))
        assert line(app, "problems") == "sizes: no right [there]"

    drive(admin, do)
