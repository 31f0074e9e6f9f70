"""Kafka's names of levels and loggers, and Python's."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest

from kafkalog.logs import levels
from kafkalog.logs.levels import REQUEST_LOGGER, ROOT, level_of, set_level


@pytest.fixture(autouse=True)
def _levels_as_before() -> Iterator[None]:
    kept = {name: levels.logger_of(name).level for name in levels.levels()}
    yield
    for name, level in kept.items():
        levels.logger_of(name).setLevel(level)


def test_the_root_is_ours_and_not_that_of_the_program() -> None:
    before = logging.getLogger().level
    set_level(ROOT, "ERROR")
    assert logging.getLogger().level == before
    assert logging.getLogger("kafkalog").level == logging.ERROR
    assert level_of("kafkalog.server.broker") == "ERROR"


def test_names_above_a_logger_are_loggers_too() -> None:
    found = levels.levels()
    assert {ROOT, REQUEST_LOGGER, "kafkalog.server", "kafkalog.server.broker"} <= found.keys()
    assert "kafkalog" not in found and "kafkalog.request.logger" not in found
    assert all(name in (ROOT, REQUEST_LOGGER) or name.startswith("kafkalog.") for name in found)
    assert list(found) == sorted(found)


@pytest.mark.parametrize(
    ("number", "name"), [(1, "TRACE"), (5, "TRACE"), (10, "DEBUG"), (15, "INFO"), (30, "WARN"),
                         (45, "FATAL"), (90, "FATAL")],
)  # fmt: skip
def test_each_number_has_the_name_of_a_level(number: int, name: str) -> None:
    logging.getLogger("kafkalog.server").setLevel(number)
    assert level_of("kafkalog.server") == name


def test_a_level_is_taken_back() -> None:
    set_level(ROOT, "WARN")
    set_level("kafkalog.server", "TRACE")
    assert level_of("kafkalog.server.broker") == "TRACE"
    set_level("kafkalog.server", None)
    assert level_of("kafkalog.server.broker") == "WARN"


def test_changes_are_followed_as_long_as_somebody_lives() -> None:
    class Follower:
        calls = 0

        def changed(self) -> None:
            Follower.calls += 1

    one = Follower()
    levels.follow(one.changed)
    set_level(ROOT, "WARN")
    assert Follower.calls == 1
    del one
    gc.collect()
    set_level(ROOT, "INFO")
    assert Follower.calls == 1
    for _ in range(3):
        levels.follow(Follower().changed)
    assert [one() for one in levels._followers].count(None) <= 1
