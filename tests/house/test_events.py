"""The table of events names each line that a node logs, as the code logs it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from kafkalog.logs.event import VARIES, Event
from kafkalog.logs.events import EVENTS
from tests.house import tree

OTHERS = ("kafkalog/client/", "kafkalog/simulate/", "kafkalog/testing/")
"""Not the log of a node."""
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
LOGGERS = {
    "kafkalog.cli.serve": "kafkalog.server",
    "kafkalog.server.request_log": "kafkalog.request.logger",
}
"""Modules with a logger of another name."""
NODE = ("cluster", "controller", "coordinator", "directory", "disk", "kraft", "log", "metadata",
        "metrics", "quorum", "replication", "server", "shares", "zookeeper")  # fmt: skip
"""Parts whose lines a client may cause."""
LOGGER = re.compile(r"[lL]ogger\b|^LOG$|^limited\(")
HOLES = re.compile(r"%(?:\.\d+)?[srd]")


def paths() -> list[Path]:
    return [
        path for path in tree.with_suffix(".py")
        if (name := tree.named(path)).startswith("kafkalog/") and not name.startswith(OTHERS)
    ]  # fmt: skip


def calls(source: str) -> Iterator[tuple[str, str]]:
    """The level and the template of each line that a module logs."""
    constants = {
        node.targets[0].id: node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }  # fmt: skip
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        whose = ast.unparse(node.func.value)
        if node.func.attr not in METHODS or not LOGGER.search(whose):
            continue
        level = VARIES if node.func.attr == "log" else node.func.attr
        text = node.args[1 if level == VARIES else 0]
        template = constants.get(text.id) if isinstance(text, ast.Name) else ast.literal_eval(text)
        yield "error" if level == "exception" else level, str(template)


def logged() -> list[tuple[str, tuple[str, str]]]:
    found = []
    for path in paths():
        module = tree.named(path).removesuffix(".py").replace("/", ".")
        if module.startswith("kafkalog.logs"):
            continue
        name = LOGGERS.get(module, module).removeprefix("kafkalog.")
        found += [(name, one) for one in calls(path.read_text(encoding="utf-8"))]
    return found


def fits(events: tuple[Event, ...], call: tuple[str, str]) -> bool:
    """Calls with one template at different levels are one event, whose level varies."""
    level, template = call
    return any(one.template == template and one.level in (level, VARIES) for one in events)


def test_each_line_that_a_node_logs_is_an_event() -> None:
    """Add it to kafkalog/logs/events.py, and run docs/render.py."""
    found = logged()
    assert len(found) > 200
    assert [(name, one) for name, one in found if not fits(EVENTS.get(name, ()), one)] == []


def test_each_event_is_logged() -> None:
    templates = {(name, template) for name, (_, template) in logged()}
    unused = [
        (name, one.name)
        for name, events in EVENTS.items()
        for one in events
        if (name, one.template) not in templates
    ]
    assert unused == []


def test_each_argument_has_a_name() -> None:
    for events in EVENTS.values():
        for one in events:
            assert len(one.fields) == len(set(one.fields)) == len(HOLES.findall(one.template)), one
            assert all(re.fullmatch(r"[a-z_]+", name) for name in (one.name, *one.fields)), one


def test_a_template_of_a_logger_is_one_event() -> None:
    for name, events in EVENTS.items():
        assert len({one.template for one in events}) == len(events), name


def test_loggers_of_a_node_have_a_limit() -> None:
    """No client decides how many lines are logged: kafkalog.logs.limit."""
    parts = tuple(f"kafkalog/{part}/" for part in NODE)
    free = [
        tree.named(path)
        for path in paths()
        if tree.named(path).startswith(parts)
        and "logging.getLogger(__name__)" in path.read_text(encoding="utf-8")
    ]
    assert free == []


def test_calls_are_found() -> None:
    source = '_logger.error("%s: "\n "x", 1, exc_info=e)\nLOG.log(level, "a")\nT = "t"\n'
    source += "self._logger.info(T)\n"
    assert list(calls(source)) == [
        ("error", "%s: x"), (VARIES, "a"), ("info", "t"),
    ]  # fmt: skip
