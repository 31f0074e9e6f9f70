"""Log lines, for people and for programs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from kafkalog.server import logs
from kafkalog.wire import apis
from tests.support.raw import Raw


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    root = logging.getLogger("kafkalog")
    kept = root.handlers[:], root.level, root.propagate
    yield logging.getLogger("kafkalog.server.broker")
    root.handlers[:], root.level, root.propagate = kept


def test_a_line_has_time_level_area_and_message(logger: logging.Logger) -> None:
    stream = io.StringIO()
    logs.set_up("text", "INFO", stream)
    logger.debug("not shown")
    logger.info("serves %s", "/data")
    (line,) = stream.getvalue().splitlines()
    moment, rest = line.split(" ", 1)
    assert moment.endswith("Z") and len(moment) == 24
    assert rest == "INFO broker: serves /data"


def test_a_name_from_outside_makes_no_line_of_its_own(logger: logging.Logger) -> None:
    stream = io.StringIO()
    logs.set_up("text", "INFO", stream)
    logger.info("group %s", "gründe\n2026 INFO broker: all is well\x1b[2J\ud800")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(r"group gründe\n2026 INFO broker: all is well\x1b[2J\ud800")


def test_a_json_line_is_one_object_with_the_traceback_inside(logger: logging.Logger) -> None:
    stream = io.StringIO()
    logs.set_up("json", "INFO", stream)
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


def test_a_broker_logs_changes_of_topics(raw: Raw, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkalog.server")
    raw.create("t", 2)
    raw.alter(2, "t", retention_ms="1000")
    raw.alter(2, "t", retention_ms=None)
    raw.call(apis.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=1000)
    assert [line for line in caplog.messages if line.startswith("topic t")] == [
        "topic t: created with 2 partitions",
        "topic t: retention.ms is 1000",
        "topic t: retention.ms is its default",
        "topic t: deleted",
    ]
