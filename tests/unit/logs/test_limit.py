"""No client decides how much a node logs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from kafkalog.logs import limit
from kafkalog.logs.limit import LINES_MAX, WINDOW_S, left_out, limited, tell_all

TEXT = "%s: ended"
NOTE = "%d lines of %%s: ended were left out"


class Clock:
    now_s = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("kafkalog.logs.limit.time.monotonic", lambda: found.now_s)
    return found


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> Iterator[logging.Logger]:
    with caplog.at_level(logging.INFO, "kafkalog"):
        yield limited("kafkalog.server.broker")


def test_lines_of_a_kind_are_logged_up_to_the_limit_then_counted(
    logger: logging.Logger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(LINES_MAX + 5):
        logger.info(TEXT, number)
    assert caplog.messages == [f"{number}: ended" for number in range(LINES_MAX)]
    clock.now_s += WINDOW_S
    caplog.clear()
    logger.info(TEXT, "x")
    assert caplog.messages == [NOTE % 5, "x: ended"]
    assert caplog.records[0].levelno == logging.INFO
    logger.info(TEXT, "y")
    assert caplog.messages[2:] == ["y: ended"]


def test_a_kind_does_not_silence_another_one(
    logger: logging.Logger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(LINES_MAX + 1):
        logger.info(TEXT, number)
    logger.warning("%s: goes on with the settings that it had", "d")
    limited("kafkalog.server.failures").info(TEXT, "other logger")
    assert caplog.messages[LINES_MAX:] == [
        "d: goes on with the settings that it had", "other logger: ended",
    ]  # fmt: skip


def test_lines_that_somebody_else_left_out_are_counted_too(
    logger: logging.Logger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    left_out(logger, TEXT, 7)
    logger.info(TEXT, "x")
    assert caplog.messages == [NOTE % 7, "x: ended"]


def test_the_kinds_that_are_remembered_are_bounded(
    logger: logging.Logger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, "KINDS_MAX", 10)
    for number in range(100):
        logger.info(f"text {number}")
    (found,) = [one for one in logger.filters if isinstance(one, limit._Limit)]
    assert len(found._kinds) == 10


def test_a_logger_has_one_limit() -> None:
    assert limited("kafkalog.server.broker") is limited("kafkalog.server.broker")
    filters = logging.getLogger("kafkalog.server.broker").filters
    assert len([one for one in filters if isinstance(one, limit._Limit)]) == 1


def test_a_forked_child_logs_whatever_its_parent_did(logger: logging.Logger, clock: Clock) -> None:
    """A thread of the parent may hold the lock."""
    (found,) = [one for one in logger.filters if isinstance(one, limit._Limit)]
    with found._lock:
        if (pid := os.fork()) == 0:
            try:
                logger.info(TEXT, "x")
            finally:
                os._exit(0 if found._kinds[TEXT,].lines == 1 else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_lines_about_paths_of_the_node_are_counted_for_each(
    logger: logging.Logger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """After a power cut all of many logs may have been cut."""
    for number in range(10 * LINES_MAX):
        logger.info("%s: closed", f"/data/{number}")
    assert len(caplog.messages) == 10 * LINES_MAX
    for _ in range(2 * LINES_MAX):
        logger.info("%s: closed", "/data/0")
    assert len(caplog.messages) == 11 * LINES_MAX - 1


def test_an_event_says_how_its_lines_are_limited(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """All changes that the console has made are logged; failed ones are counted for each user."""
    caplog.set_level(logging.INFO, "kafkalog")
    console = limited("kafkalog.console.web")
    limit.reset()
    for _ in range(2 * LINES_MAX):
        for user in ("alice", "bob"):
            console.info("console: %r: %s, %s: failed: %s", user, "delete-topic", "x", "no right")
    assert len(caplog.messages) == 2 * LINES_MAX
    for _ in range(2 * LINES_MAX):
        console.info("console: %r: %s, %s: %s", "alice", "delete-topic", "x", "done")
    assert len(caplog.messages) == 4 * LINES_MAX


def test_another_line_of_the_logger_tells_of_those_left_out(
    logger: logging.Logger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(LINES_MAX + 3):
        logger.warning(TEXT, number)
    clock.now_s += WINDOW_S
    caplog.clear()
    logger.info("%s: closed", "d")
    assert caplog.messages == [NOTE % 3, "d: closed"]
    assert caplog.records[0].levelno == logging.WARNING


def test_the_end_of_the_process_tells_of_those_left_out(
    logger: logging.Logger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(LINES_MAX + 3):
        logger.info(TEXT, number)
    caplog.clear()
    tell_all()
    tell_all()
    assert caplog.messages == [NOTE % 3]
