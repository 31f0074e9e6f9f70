"""Log lines, for people and for programs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.config.logs import LINES
from kafkalog.logs import lines


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    root = logging.getLogger("kafkalog")
    kept = root.handlers[:], root.level, root.propagate
    yield logging.getLogger("kafkalog.server.broker")
    root.handlers[:], root.level, root.propagate = kept


def test_a_line_has_time_level_area_and_message(logger: logging.Logger) -> None:
    stream = io.StringIO()
    lines.set_up("text", "INFO", stream)
    logger.debug("not shown")
    logger.info("serves %s", "/data")
    (line,) = stream.getvalue().splitlines()
    moment, rest = line.split(" ", 1)
    assert moment.endswith("Z") and len(moment) == 24
    assert rest == "INFO broker: serves /data"


def test_a_name_from_outside_makes_no_line_of_its_own(logger: logging.Logger) -> None:
    stream = io.StringIO()
    lines.set_up("text", "INFO", stream)
    logger.info("group %s", "gründe\n2026 INFO broker: all is well\x1b[2J\ud800")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(r"group gründe\n2026 INFO broker: all is well\x1b[2J\ud800")


def test_a_json_line_is_one_object_with_the_traceback_inside(logger: logging.Logger) -> None:
    stream = io.StringIO()
    lines.set_up("json", "INFO", stream)
    try:
        raise ValueError("naïve")
    except ValueError:
        logger.exception("it failed")
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert found["level"] == "ERROR"
    assert found["logger"] == "kafkalog.server.broker"
    assert found["message"] == "it failed"
    assert "ValueError: naïve" in found["failure"]


def test_a_line_names_its_event(logger: logging.Logger) -> None:
    stream = io.StringIO()
    lines.set_up("text", "INFO", stream)
    logger.info("%s: closed", "/data")
    assert stream.getvalue().endswith(" INFO broker broker_closed: /data: closed\n")


def test_a_json_line_has_the_arguments_of_its_event_by_name(logger: logging.Logger) -> None:
    stream = io.StringIO()
    lines.set_up("json", "INFO", stream)
    logger.info("%s: node %d of cluster %s serves %s", Path("/data"), 3, "c", "127.0.0.1:9092")
    found = json.loads(stream.getvalue())
    assert found["event"] == "broker_started"
    assert found["fields"] == {
        "path": "/data", "node": 3, "cluster": "c", "address": "127.0.0.1:9092",
    }  # fmt: skip


def test_a_foreign_line_has_no_event(logger: logging.Logger) -> None:
    stream = io.StringIO()
    lines.set_up("json", "INFO", stream)
    logging.getLogger("kafkalog.client.producer.sender").info("retry %d", 1)
    found = json.loads(stream.getvalue())
    assert found["event"] is None
    assert "fields" not in found


@pytest.mark.parametrize("character", ["\n", "\r", "\x85", "\u2028", "\x7f", "\x1b", "\ud800"])
def test_a_json_line_stays_one_line_and_keeps_the_text(
    logger: logging.Logger, character: str
) -> None:
    stream = io.StringIO()
    lines.set_up("json", "INFO", stream)
    logger.info("%s: closed", f"a{character}b")
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    assert json.loads(line)["fields"] == {"path": f"a{character}b"}


def test_an_exception_from_outside_begins_no_line(logger: logging.Logger) -> None:
    stream = io.StringIO()
    lines.set_up("text", "INFO", stream)
    name = "x\n2026-11-21T22:08:31.123Z INFO broker: all is well\x1b[2J"
    try:
        raise ValueError(name)
    except ValueError:
        logger.exception("it failed")
    first, *others = stream.getvalue().splitlines()
    assert first.endswith("ERROR broker: it failed")
    assert all(one.startswith("    ") and one.isprintable() for one in others)
    assert len([one for one in others if "all is well" in one]) == 1


@pytest.mark.parametrize("form", LINES)
def test_a_line_has_an_end(logger: logging.Logger, form: str) -> None:
    stream = io.StringIO()
    lines.set_up(form, "INFO", stream)
    logger.info("%s: closed", "x" * 1_000_000)
    (line,) = stream.getvalue().splitlines()
    assert len(line) < 2 * lines.TEXT_MAX + 500
    assert "... (" in line
